"""The command as a user calls it: a process of its own, with a cache and a current folder of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx.helper as oh
import onnx.numpy_helper as nh


@dataclass(frozen=True, slots=True)
class Done:
    code: int
    out: str
    err: str


Aitc = Callable[..., Done]


def environment(folder: Path, **more: str) -> dict[str, str]:
    """The environment of the tests, with the folder for temporary files in ``folder``, so that what is left there is
    seen."""
    (folder / "tmp").mkdir(exist_ok=True)
    return {**os.environ, "TMPDIR": str(folder / "tmp"), "NO_COLOR": "1", **more}


def small_model(weight: float = 2.0, nodes: list[onnx.NodeProto] | None = None, opset: int = 17) -> onnx.ModelProto:
    """y = relu(x · w + 1) on x[batch, 4]."""
    w = nh.from_array(np.full((4, 3), weight, np.float32), "w")
    one = nh.from_array(np.ones(3, np.float32), "one")
    graph = oh.make_graph(
        nodes
        or [
            oh.make_node("MatMul", ["x", "w"], ["p"], name="product"),
            oh.make_node("Add", ["p", "one"], ["s"], name="sum"),
            oh.make_node("Relu", ["s"], ["y"], name="clamp"),
        ],
        "small",
        [oh.make_tensor_value_info("x", 1, ["batch", 4])],
        [oh.make_tensor_value_info("y", 1, ["batch", 3])],
        [w, one],
    )
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", opset)], ir_version=8)
