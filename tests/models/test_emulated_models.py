"""Small whole models on the emulator, for an NVIDIA and an AMD target: the generated project unchanged, its kernels and its host code run on the CPU and
compared with ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernels.gpu.every_kernel import PARTS, Model

from aitc import pipeline
from models import devset
from models.tiny import FOLDER

pytestmark = pytest.mark.slow
TINY = ("resnet50-torchscript-static", "bert_base-dynamo-static", "vit_b16-torchscript-dynamic")  # bert_base has two layers here
MATRIX = {"h200": "_sm90", "mi250": "_cdna"}


def test_float8_on_gfx942(tmp_path: Path) -> None:
    """A quantised product runs by the matrix instructions of float8."""
    model = Model()
    PARTS["float8"](model)
    options = pipeline.Options(targets=("mi300x",), name="float8", output=tmp_path / "out", emulate=True, verify="require", jobs=1)
    result = pipeline.compile(model.proto(), options)
    assert result.plan is not None and result.verification is not None
    assert result.verification.status == "passed", result.verification
    products = [k for k in result.plan.kernels if k.kernel == "gemm_cdna"]
    assert [sum(f"float8_{t}fnuz_t" in p for p in k.parameters) for k, t in zip(products, ("e4m3", "e5m2"))] == [2, 2]


@pytest.mark.parametrize("target", MATRIX)
@pytest.mark.parametrize("name", [*TINY, "ppocr_cls"])
def test_matches(name: str, target: str, tmp_path: Path) -> None:
    shapes: tuple[tuple[str, tuple[int | str, ...]], ...] = ()
    if name == "ppocr_cls":
        model = devset.find(name)
        path, shapes = model.fetch(), tuple((k, tuple(v)) for k, v in model.shapes({"width": 96}).items())
    else:
        path = FOLDER / f"{name}.onnx"
    options = pipeline.Options(
        targets=(target,), output=tmp_path / "out", precision="fp16", emulate=True, verify="require", input_shapes=shapes, jobs=1
    )
    result = pipeline.compile(path, options)
    assert result.plan is not None and result.verification is not None
    assert result.verification.status == "passed", result.verification
    assert any(k.kernel.endswith(MATRIX[target]) for k in result.plan.kernels)
