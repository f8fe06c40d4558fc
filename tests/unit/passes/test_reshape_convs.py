"""Convolutions restated for matrix units compute what they did."""

from __future__ import annotations

import numpy as np
import pytest
from graph_inputs import random_inputs

from aitc.ir.builder import Builder
from aitc.ir.dtype import F16, F32
from aitc.ir.graph import Graph
from aitc.ir.interpret import interpret
from aitc.ir.types import TensorType
from aitc.ir.verify import verify
from aitc.passes.base import Context, run_passes
from aitc.targets.target import find_target


def conv(shape: tuple[int, ...], filters: tuple[int, ...], strides: tuple[int, ...], pads: tuple[int, ...], dtype: object = F16) -> Graph:
    graph = Graph("main")
    b = Builder(graph)
    x = graph.add_input("x", TensorType(dtype, shape))
    w = b.constant(np.random.default_rng(0).standard_normal(filters).astype(dtype.numpy))
    graph.outputs = [b.op("Conv", x, w, strides=strides, pads=pads, dilations=(1,) * len(strides), group=1, out=None)]
    return graph


CASES = [
    (conv((2, 3, 8, 12), (5, 3, 4, 4), (4, 4), (0, 0, 0, 0)), "MatMul"),
    (conv((2, 2, 24), (6, 2, 8), (8,), (0, 0)), "MatMul"),
    (conv((1, 3, 9, 9), (4, 3, 3, 3), (2, 2), (1, 1, 1, 1)), "Pad"),
    (conv((1, 3, 9, 8), (4, 3, 4, 4), (4, 4), (0, 0, 0, 0)), "Pad"),  # the windows do not tile the image
    (conv((1, 8, 9, 9), (4, 8, 3, 3), (1, 1), (1, 1, 1, 1)), ""),
    (conv((1, 3, 9, 9), (4, 3, 3, 3), (1, 1), (0, 0, 0, 0), F32), ""),
]


@pytest.mark.parametrize(("graph", "op"), CASES)
def test_values_stay(graph: Graph, op: str) -> None:
    inputs = random_inputs(graph)
    before = interpret(graph, inputs)
    changed = run_passes(graph, Context(target=find_target("h200")), ["reshape_convs"])
    verify(graph, "reshape_convs")
    assert bool(changed) == bool(op)
    assert not op or op in {n.op.name for n in graph.nodes}
    after = interpret(graph, inputs)
    for x, y in zip(before.values(), after.values(), strict=True):
        np.testing.assert_allclose(np.asarray(x, np.float32), np.asarray(y, np.float32), rtol=2e-2, atol=2e-2)


def test_other_targets_keep_their_convolutions() -> None:
    graph = conv((2, 3, 8, 12), (5, 3, 4, 4), (4, 4), (0, 0, 0, 0))
    assert not run_passes(graph, Context(target=find_target("cpu")), ["reshape_convs"])
