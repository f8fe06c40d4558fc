"""Matrix products of dequantised float8 operands become products of the float8 elements, scaled afterwards, where the target multiplies float8."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aitc.ir.builder import Builder
from aitc.ir.dtype import F32
from aitc.ir.graph import Graph, Node, Value
from aitc.passes.base import Context, graphs, register

FORMATS = (
    (frozenset({"fp8", "wgmma", "tma"}), frozenset({"f8e4m3fn", "f8e5m2"})),
    (frozenset({"fp8", "mfma"}), frozenset({"f8e4m3fnuz", "f8e5m2fnuz"})),
)
"""Features of targets whose kernels multiply float8, and the formats that they do."""
UNIT = 16
"""The depth is a multiple: rows of float8 begin on 16 bytes."""


@dataclass(frozen=True, slots=True)
class Quantized:
    """(M, K) · (K, N) of float8 ``x`` and ``w`` with their scales: of all of x, of all of w or of each column."""

    x: Value
    scale_x: Value
    w: Value
    scale_w: Value


@register
def run(graph: Graph, context: Context) -> int:
    """Float8 products: (sx · x) (w · sw) becomes (x w) · (sx · sw), summed in float; weights that nothing multiplies so are dequantised for good."""
    kinds = formats(context)
    return sum(_rewrite(g, kinds) for g in graphs(graph)) if kinds else 0


def formats(context: Context) -> frozenset[str]:
    """The float8 types that the target has kernels for."""
    features = context.target.features if context.target is not None else frozenset()
    return frozenset().union(*(kinds for needs, kinds in FORMATS if features >= needs))


def may_be_multiplied(node: Node, kinds: frozenset[str]) -> bool:
    """Whether DequantizeLinear ``node`` of a weight is an operand of such a product, so that it must not be folded before this pass."""
    if node.op.name != "DequantizeLinear":
        return False
    users = [u for user in node.output.users for u in (user.output.users if user.op.name == "Transpose" else (user,))]
    return any(u.op.name == "MatMul" and match(u, kinds) is not None for u in users)


def match(node: Node, kinds: frozenset[str]) -> Quantized | None:
    """The operands of MatMul ``node``, if both are dequantised float8 of one type, one of ``kinds``."""
    if node.op.name != "MatMul" or node.attrs.out is not None or any(v is None for v in node.inputs):
        return None
    first, second = node.inputs
    assert first is not None and second is not None
    x, w = _dequantized(first, ("Reshape",), kinds), _dequantized(second, ("Transpose",), kinds)
    if x is None or w is None or x[0].type.dtype is not w[0].type.dtype or w[0].const is None or w[0].type.rank != 2:
        return None
    K, N = second.shape
    if not isinstance(K, int) or K % UNIT or not _single(x[1]):
        return None
    transposed = second.producer is not None and second.producer.op.name == "Transpose"
    columns = (N, 1) if transposed else (1, N)
    if not _single(w[1]) and w[1].shape != columns and not (w[1].shape == (N,) and not transposed):
        return None
    return Quantized(x[0], x[1], w[0], w[1])


def _dequantized(v: Value, views: tuple[str, ...], kinds: frozenset[str]) -> tuple[Value, Value] | None:
    """(float8 elements, scale) behind ``v``, seen through ``views`` of one kind; None if it is no dequantised float8, or has a zero point."""
    node = v.producer
    while node is not None and node.op.name in views:
        node = node.input.producer
    if node is None or node.op.name != "DequantizeLinear" or node.input.type.dtype.name not in kinds:
        return None
    scale = node.inputs[1]
    zero = node.inputs[2] if len(node.inputs) > 2 else None
    if scale is None or (zero is not None and (zero.const is None or np.any(zero.const.astype(np.float32) != 0))):
        return None
    return node.input, scale


def _single(scale: Value) -> bool:
    return all(d == 1 for d in scale.shape)


def _rewrite(graph: Graph, kinds: frozenset[str]) -> int:
    changes = 0
    made: list[Node] = []
    for node in list(graph.nodes):
        found = match(node, kinds)
        if found is not None:
            b = Builder(graph, node.locs, place=False)
            graph.replace_uses(node.output, _product(b, node, found))
            made += b.made
            changes += 1
    if made:
        graph.reorder(made)
        graph.sweep()
    return changes


def _product(b: Builder, node: Node, found: Quantized) -> Value:
    first, second = node.inputs
    assert first is not None and second is not None
    x = found.x if found.x.shape == first.shape else b.op("Reshape", found.x, shape=first.shape)
    w = found.w if found.w.shape == second.shape and not _turned(second) else b.op("Transpose", found.w, perm=(1, 0))
    sums = b.op("MatMul", x, w, out=F32)
    columns = found.scale_w if _single(found.scale_w) else b.op("Reshape", found.scale_w, shape=(second.shape[1],))
    for scale in (found.scale_x, columns):
        wide = scale if scale.type.dtype is F32 else b.op("Cast", scale, to=F32)
        sums = b.op("Mul", sums, b.op("Reshape", wide, shape=()) if _single(scale) and wide.type.rank else wide)
    return sums if node.output.type.dtype is F32 else b.op("Cast", sums, to=node.output.type.dtype)


def _turned(v: Value) -> bool:
    return v.producer is not None and v.producer.op.name == "Transpose"
