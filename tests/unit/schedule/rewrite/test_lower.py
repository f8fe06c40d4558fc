"""An Attention that no kernel takes, as products and a softmax."""

from __future__ import annotations

import numpy as np
import pytest

from aitc.ir.builder import Builder
from aitc.ir.dtype import BF16, BOOL, F16, F32, DType
from aitc.ir.graph import Graph
from aitc.ir.interpret import interpret
from aitc.ir.types import TensorType
from aitc.registry import load
from aitc.schedule.rewrite.lower import attention

load("aitc.ops")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", [None, BOOL, F16, BF16, F32], ids=str)
@pytest.mark.parametrize("dtype", [F16, BF16, F32], ids=str)
def test_a_mask_of_any_type(dtype: DType, mask: DType | None, causal: bool) -> None:
    """A mask may be wider than the scores: an fp16 model's stays fp32 where -1e38 has to exclude."""
    graph, rng = Graph("main"), np.random.default_rng(0)
    b = Builder(graph)
    shapes = {"q": (2, 4, 3, 8), "k": (2, 2, 5, 8), "v": (2, 2, 5, 8)}
    values = [graph.add_input(name, TensorType(dtype, shape)) for name, shape in shapes.items()]
    feeds = {name: rng.standard_normal(shape).astype(dtype.numpy) for name, shape in shapes.items()}
    if mask is not None:
        values.append(graph.add_input("mask", TensorType(mask, (2, 1, 1, 5))))
        keeps = np.array([[[[1, 1, 0, 1, 1]]], [[[1, 0, 1, 1, 0]]]], bool)
        least = -1e38 if mask is F32 else -1e4
        feeds["mask"] = keeps if mask is BOOL else np.where(keeps, 0.5, least).astype(mask.numpy)
    core = b.op("Attention", *values, scale=0.35, causal=causal)
    node = core.producer
    assert node is not None
    lowered = attention(b, node)
    assert lowered.type == core.type
    graph.outputs, graph.output_names = [core, lowered], ["core", "lowered"]
    got = interpret(graph, feeds)
    tolerance = {F32: 1e-5, F16: 4e-3, BF16: 3e-2}[BF16 if BF16 in (mask, dtype) else dtype]
    expected, answer = (np.asarray(got[name]).astype(np.float64) for name in ("core", "lowered"))
    np.testing.assert_allclose(answer, expected, atol=tolerance, rtol=tolerance)
