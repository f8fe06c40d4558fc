"""Whole models: the unchanged generated project, built with the emulator's toolkit in place of nvcc or hipcc, beside onnxruntime."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import emulator

TOOLKIT = Path(emulator.__file__).parent / "toolkit"


def model(path: Path) -> Path:
    """Softmax(Relu(x W + b)), in float16, 19 rows."""
    rng = np.random.default_rng(0)
    w = numpy_helper.from_array(rng.standard_normal((40, 72)).astype(np.float16) / 4, "w")
    b = numpy_helper.from_array(rng.standard_normal(72).astype(np.float16), "b")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["a"]),
        helper.make_node("Relu", ["a"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT16, [19, 40])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT16, [19, 72])
    graph = helper.make_graph(nodes, "emulated", [x], [y], [w, b])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize(("target", "variable"), [("a100", "CUDA_HOME"), ("mi250", "ROCM_PATH")])
def test_a_whole_model(target: str, variable: str, tmp_path: Path) -> None:
    onnx_file, out = model(tmp_path / "model.onnx"), tmp_path / "out"
    env = {**os.environ, variable: str(TOOLKIT), "AITC_CACHE_DIR": str(tmp_path / "cache"), "AITC_EMULATOR_ORDER": "7"}
    env.pop("AITC_NVCC", None)
    for command in (
        ("compile", str(onnx_file), "--target", target, "-o", str(out)),
        ("verify", str(onnx_file), str(out)),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "cli", *command],
            capture_output=True,
            text=True,
            env=env,
            cwd=emulator.ROOT,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
    assert "passed" in done.stdout + done.stderr
