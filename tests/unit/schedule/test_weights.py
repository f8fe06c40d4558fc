"""Weights of types below a byte lie as kernels read them: integers as numbers, floats as their bits, a byte each."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from aitc.ir.builder import Builder
from aitc.ir.dtype import F32
from aitc.ir.graph import Graph
from aitc.ir.types import TensorType
from aitc.registry import load
from aitc.schedule.schedule import PlanOptions, schedule
from aitc.targets.target import find_target

for package in ("aitc.ops", "aitc.kernels"):
    load(package)


@pytest.mark.parametrize(
    ("array", "stored"),
    [
        (np.array([0, 0.5, 1.5, 6, -0.5, -6], ml_dtypes.float4_e2m1fn), [0, 1, 3, 7, 9, 15]),
        (np.array([0, 1, 7, -1, -8, 3], ml_dtypes.int4), [0, 1, 7, 255, 248, 3]),
        (np.array([0, 1, 15, 8, 2, 3], ml_dtypes.uint4), [0, 1, 15, 8, 2, 3]),
    ],
    ids=["float4", "int4", "uint4"],
)
def test_a_byte_each(array: np.ndarray, stored: list[int]) -> None:
    graph = Graph("main")
    b = Builder(graph)
    x = graph.add_input("x", TensorType(F32, (6,)))
    graph.outputs, graph.output_names = [b.op("Mul", x, b.op("Cast", b.constant(array), to=F32))], ["y"]
    (weight,) = schedule(graph, find_target("cpu"), PlanOptions("m", "m.onnx")).weights
    assert np.ascontiguousarray(weight.data).view(np.uint8).tolist() == stored
