"""Products of dequantised float8 are taken of the float8 elements, and compute what they did."""

from __future__ import annotations

import numpy as np
import pytest
from graph_inputs import random_inputs

from aitc.ir.builder import Builder
from aitc.ir.dtype import F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F16, F32, DType
from aitc.ir.graph import Graph
from aitc.ir.interpret import interpret
from aitc.ir.types import TensorType
from aitc.passes import stages
from aitc.passes.base import Context
from aitc.schedule.schedule import PlanOptions, schedule
from aitc.targets.target import Target, find_target

H200, A100, MI300, MI250 = (find_target(name) for name in ("h200", "a100", "mi300x", "mi250"))


def quantized(
    dtype: DType = F16, float8: DType = F8E4M3FN, K: int = 64, columns: bool = True, turned: bool = False, zero: float = 0, rows: tuple[int, ...] = (2, 15)
) -> Graph:
    """relu(dequantised x · dequantised w): a scale for each column of w, or one; w as it is, or transposed; x in a batch or not."""
    graph = Graph("main")
    b = Builder(graph)
    rng = np.random.default_rng(0)
    x = graph.add_input("x", TensorType(dtype, (*rows, K)))
    sx, zx = b.constant(np.asarray(0.02, dtype.numpy)), b.constant(np.asarray(zero, float8.numpy))
    d = b.op("DequantizeLinear", b.op("QuantizeLinear", x, sx, zx, to=float8, saturate=True), sx, zx, to=dtype)
    N = 24
    shape, scales = ((N, K), (N, 1)) if turned else ((K, N), (1, N))
    w = b.constant(rng.standard_normal(shape).astype(float8.numpy))
    sw = b.constant(rng.uniform(0.01, 0.03, scales if columns else ()).astype(dtype.numpy))
    e = b.op("DequantizeLinear", w, sw, None, to=dtype)
    e = b.op("Transpose", e, perm=(1, 0)) if turned else e
    graph.outputs = [b.op("Relu", b.op("MatMul", d, e, out=None))]
    graph.output_names = ["y"]
    return graph


def lowered(graph: Graph, target: object) -> list[str]:
    context = Context(target=target)  # type: ignore[arg-type]
    for stage in (stages.simplify, stages.fuse, stages.layout):
        stage(graph, context)
    return [n.op.name for n in graph.nodes]


GOOD = [
    (quantized(), H200), (quantized(F32), H200), (quantized(columns=False), H200), (quantized(turned=True), H200),
    (quantized(F32, turned=True, columns=False), H200), (quantized(float8=F8E5M2), H200), (quantized(rows=(33,)), H200),
    (quantized(float8=F8E4M3FNUZ), MI300), (quantized(F32, float8=F8E5M2FNUZ, turned=True), MI300),
]  # fmt: skip


@pytest.mark.parametrize(("graph", "target"), GOOD)
def test_values_stay(graph: Graph, target: Target) -> None:
    inputs = random_inputs(graph)
    (before,) = interpret(graph, inputs).values()
    names = lowered(graph, target)
    assert "DequantizeLinear" not in names
    (product,) = (n for n in graph.nodes if n.op.name == "MatMul")
    assert product.attrs.out is F32
    assert {v.type.dtype.bits for v in product.inputs if v is not None} == {8}
    (after,) = interpret(graph, inputs).values()
    scale = float(np.abs(np.asarray(before, np.float64)).max())
    np.testing.assert_allclose(np.asarray(after, np.float64), np.asarray(before, np.float64), rtol=4e-3, atol=4e-3 * scale)
    plan = schedule(graph, target, PlanOptions("m", "m.onnx"))
    assert [k.kernel for k in plan.kernels] == ["map", "gemm_sm90" if target is H200 else "gemm_cdna"]  # quantisation, and all the rest


BAD = [(quantized(), A100), (quantized(zero=1), H200), (quantized(K=72), H200), (quantized(), MI300), (quantized(float8=F8E4M3FNUZ), MI250)]


@pytest.mark.parametrize(("graph", "target"), BAD)
def test_others_are_dequantised_once(graph: Graph, target: object) -> None:
    """Targets without such kernels, zero points, rows that do not begin on 16 bytes: the weight becomes a constant of the product's type."""
    names = lowered(graph, target)
    (product,) = (n for n in graph.nodes if n.op.name == "MatMul")
    assert product.attrs.out is None
    assert names.count("DequantizeLinear") == 1  # of x
    w = product.inputs[1]
    assert w is not None
    assert w.const is not None
