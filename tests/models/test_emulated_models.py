"""Small whole models on the emulator, for an NVIDIA and an AMD target: the generated project unchanged, its kernels and its host code run on the CPU and
compared with ONNX Runtime. ``make test`` runs a transformer on Hopper, and what is special about each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from kernels.gpu.every_kernel import PARTS, Model
from onnx import TensorProto

import aitc
from aitc import pipeline
from aitc.schedule.group import chain
from aitc.schedule.rewrite import sum_convs
from models import devset
from models.tiny import FOLDER

pytestmark = pytest.mark.slow
TINY = ("resnet50-torchscript-static", "bert_base-dynamo-static", "vit_b16-torchscript-dynamic")  # bert_base has two layers here
MATRIX = {"h200": "_sm90", "mi250": "_cdna"}
HERE = (("bert_base-dynamo-static", "h200"),)
CASES = [
    pytest.param(name, target, marks=() if (name, target) in HERE else pytest.mark.full) for name in (*TINY, "ppocr_cls") for target in MATRIX
]


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


def test_independent_products_share_a_launch_on_amd(tmp_path: Path) -> None:
    """Grouped products: three shapes, each with its own operands and epilogue, one with a symbolic number of rows."""
    model = Model()
    for rows, depth, columns in ((70, 64, 72), (16, 128, 40), ("n", 96, 64)):
        x = model.op("MatMul", model.input(TensorProto.FLOAT16, rows, depth), model.weight(TensorProto.FLOAT16, depth, columns), keep=False)
        model.op("Relu" if depth == 64 else "Sigmoid", x)
    options = pipeline.Options(targets=("mi250",), name="grouped", output=tmp_path / "out", emulate=True, verify="require", jobs=1, dims=(("n", (1, 50)),))
    result = pipeline.compile(model.proto(), options)
    assert result.plan is not None and result.verification is not None
    assert [k.kernel for k in result.plan.kernels] == ["products_cdna"]
    assert result.verification.status == "passed", result.verification


def test_kinds_of_products_on_amd(tmp_path: Path) -> None:
    """Results stored in another order, two products joined by a gate (no launch of its own), few results of a deep contraction: its waves divide the depth."""
    model, f16 = Model(), TensorProto.FLOAT16
    heads = model.op("MatMul", model.input(f16, 2, 50, 64), model.weight(f16, 64, 96), keep=False)
    heads = model.op("Reshape", heads, model.constant(np.array([2, 50, 4, 24])), keep=False)
    model.op("Transpose", heads, perm=[0, 2, 1, 3])
    x = model.input(f16, 70, 64)
    gate, up = (model.op("MatMul", x, model.weight(f16, 64, 80), keep=False) for _ in range(2))
    model.op("Mul", model.op("Mul", gate, model.op("Sigmoid", gate, keep=False), keep=False), up)
    model.op("MatMul", model.input(f16, 16, 2048), model.weight(f16, 2048, 32))
    options = pipeline.Options(targets=("mi250",), name="kinds", output=tmp_path / "out", emulate=True, verify="require", jobs=1)
    result = pipeline.compile(model.proto(), options)
    assert result.plan is not None and result.verification is not None
    assert result.verification.status == "passed", result.verification
    assert {k.kernel for k in result.plan.kernels} <= {"gemm_cdna", "products_cdna"} and len(result.plan.launches) < 4
    assert any("_k" in k.config for k in result.plan.kernels)


def test_norms_between_products_are_spared_on_hopper(tmp_path: Path) -> None:
    """A block whose residual adds what the norm gave (BERT), then one that adds what it was given (ViT): statistics in the epilogues, results as in float32."""
    model, width = Model(), 96

    def linear(x: str, columns: int, depth: int = width) -> str:
        product = model.op("MatMul", x, model.weight(TensorProto.FLOAT16, depth, columns), keep=False)
        return model.op("Add", product, model.weight(TensorProto.FLOAT16, columns), keep=False)

    def norm(x: str) -> str:
        return model.op("LayerNormalization", x, model.weight(TensorProto.FLOAT16, width), model.weight(TensorProto.FLOAT16, width), keep=False)

    def wider(x: str) -> str:
        return linear(model.op("Relu", linear(x, 160), keep=False), width, 160)

    x = model.op("Add", linear(model.input(TensorProto.FLOAT16, 1, 70, width), width), model.input(TensorProto.FLOAT16, 1, 70, width), keep=False)
    y = norm(x)
    x = model.op("Add", wider(y), y, keep=False)
    x = model.op("Add", wider(norm(x)), x, keep=False)
    model.op("Identity", linear(norm(x), 64))
    options = pipeline.Options(targets=("h200",), name="norms", output=tmp_path / "out", emulate=True, verify="require", jobs=1)
    result = pipeline.compile(model.proto(), options)
    assert result.plan is not None and result.verification is not None
    assert result.verification.status == "passed", result.verification
    assert [launch.note.split(" + ")[0] for launch in result.plan.launches] == ["MatMul"] * 6
    assert sum("Moments" in launch.note.split(" + ")[-1] for launch in result.plan.launches) >= 1


@pytest.mark.parametrize("count", [pytest.param(3, id="static"), pytest.param("n", id="dynamic", marks=pytest.mark.full)])
def test_two_products_in_one_launch_on_hopper(count: int | str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a residual network: the last convolution of one (with the shortcut's, with a residual), whose results are stored as well, with the first of the
    next; before them one of several taps. A feed-forward block: what is between its products is never stored."""
    monkeypatch.setattr(chain, "GAIN_SHARE", -1e3)  # small ones are no faster that way
    monkeypatch.setattr(chain, "GAIN_US", -1e3)
    monkeypatch.setattr(sum_convs, "_gain_us", lambda *_: 1.0)
    model, f16 = Model(), TensorProto.FLOAT16

    def conv(x: str, filters: int, channels: int, side: int = 1) -> str:
        return model.op("Conv", x, model.weight(f16, filters, channels, side, side), model.weight(f16, filters), pads=[side // 2] * 4, keep=False)

    def relu(x: str) -> str:
        return model.op("Relu", x, keep=False)

    x, channels = relu(conv(model.input(f16, count, 24, 9, 7), 64, 24, 3)), 64
    for _ in range(2):
        y = conv(relu(conv(relu(conv(x, 40, channels)), 40, 40, 3)), 192, 40)
        x = relu(model.op("Add", y, conv(x, 192, channels) if channels == 64 else x, keep=False))
        channels = 192
    model.op("GlobalAveragePool", relu(conv(x, 72, 192)))
    x = model.op("MatMul", model.input(f16, count, 50, 96), model.weight(f16, 96, 384), keep=False)
    x = model.op("Gelu", model.op("Add", x, model.weight(f16, 384), keep=False), keep=False)
    model.op("Add", model.op("MatMul", x, model.weight(f16, 384, 96), keep=False), model.weight(f16, 96))

    out, dims = tmp_path / "out", (("n", (1, 9)),) if count == "n" else ()
    options = pipeline.Options(targets=("h200",), name="chains", output=out, emulate=True, verify="require", jobs=1, dims=dims)
    result = pipeline.compile(model.proto(), options)
    assert result.plan is not None and result.verification is not None
    assert result.verification.status == "passed", result.verification
    tail = "Conv + Add + Relu"
    chained = [n.note for n in result.plan.launches if " then " in n.note]
    assert chained == [f"{tail} then {tail}"] * 2 + [f"Conv + Add + Add + Relu then {tail}", "MatMul + Add + Gelu then MatMul + Add"]
    headers = [h for k in result.plan.kernels if k.kernel == "chain_sm90" for h in k.context.headers]
    assert {"conv", "conv_sum", "gemm"} <= {h.removeprefix("aitc/gpu/hopper/")[:-7] for h in headers}
    session = onnxruntime.InferenceSession(model.proto(), providers=["CPUExecutionProvider"])
    with aitc.load(out) as loaded:
        for n in (1, 4) if count == "n" else (3,):
            rng = np.random.default_rng(n)
            feeds = {p.name: rng.standard_normal((n, *(int(d) for d in p.shape[1:]))).astype(np.float16) for p in loaded.inputs}
            for got, want in zip(loaded(**feeds), session.run(None, feeds), strict=True):
                np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=1e-2, atol=5e-3 * np.abs(want).max())


def test_movement_search_and_recurrence_on_amd_recorded_as_a_graph(tmp_path: Path) -> None:
    """Gather, where, cast, compare, einsum, resize, pools, top-k, LSTM ...; the second run records a hipGraph, the next ones replay it."""
    model = Model()
    PARTS["others"](model)
    out, options = tmp_path / "out", onnxruntime.SessionOptions()
    options.log_severity_level = 3
    pipeline.compile(model.proto(), pipeline.Options(targets=("mi250",), name="others", output=out, emulate=True, verify="require", jobs=1))
    reference = onnxruntime.InferenceSession(model.proto(), options, providers=["CPUExecutionProvider"])
    with aitc.load(out) as loaded:
        for seed in range(4):
            rng = np.random.default_rng(seed)
            feeds = {}
            for p in loaded.inputs:
                shape, kind = tuple(int(d) for d in p.shape), p.dtype.numpy
                count = int(np.prod(shape))
                values = rng.permutation(count) if kind == np.int64 else rng.integers(0, 2, count) if kind == np.bool_ else rng.standard_normal(count)
                feeds[p.name] = values.reshape(shape).astype(kind)
            for got, want in zip(loaded(**feeds), reference.run(None, feeds), strict=True):
                np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize(("name", "target"), CASES)
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
