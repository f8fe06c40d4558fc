"""Ops that no kernel of the target takes, as nodes that some kernel does: slower, never wrong."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from aitc.ir.builder import Builder
from aitc.ir.dtype import BOOL, F32
from aitc.ir.graph import Graph, Node, Value
from aitc.kernels.core.functor import StorageOf
from aitc.kernels.core.group import make_group
from aitc.kernels.core.kernel import No, kernels_for
from aitc.targets.target import Target


def lower_unsupported(graph: Graph, storage: StorageOf, target: Target) -> None:
    """Expands each node that has an expansion and no kernel."""
    made: list[Node] = []
    for node in graph.nodes:
        expand = EXPANSIONS.get(node.op.name)
        if expand is None or _has_kernel(node, storage, target):
            continue
        b = Builder(graph, node.locs, place=False)
        graph.replace_uses(node.output, expand(b, node))
        made += b.made
    if made:
        graph.reorder(made)
        graph.sweep()


def _has_kernel(node: Node, storage: StorageOf, target: Target) -> bool:
    for kernel in kernels_for(node.op.name, target):
        answer = kernel.accepts(make_group([node], node, set()), storage, target)
        if not isinstance(answer, No) or answer.copies:
            return True
    return False


def attention(b: Builder, node: Node) -> Value:
    """softmax(softcap(scale q kᵀ) + mask) v, product by product; heads that share keys are repeated by a view."""
    q, k, v = (x for x in node.inputs[:3])
    assert q is not None and k is not None and v is not None
    mask = node.inputs[3] if len(node.inputs) > 3 else None
    a = node.attrs
    k, v = (_repeated(b, x, q) for x in (k, v))
    scores = b.op("MatMul", q, b.op("Transpose", k, perm=(0, 1, 3, 2)))
    scores = b.op("Mul", scores, b.like(a.scale, scores))
    if a.softcap:
        bounded = b.op("Tanh", b.op("Mul", scores, b.like(1.0 / a.softcap, scores)))
        scores = b.op("Mul", bounded, b.like(a.softcap, scores))
    if mask is not None and mask.type.dtype not in (BOOL, scores.type.dtype):  # a mask of wide scores: softmax is as wide
        scores, mask = (x if x.type.dtype is F32 else b.op("Cast", x, to=F32) for x in (scores, mask))
    least = b.like(-np.inf, scores)
    if mask is not None:
        scores = b.op("Where", mask, scores, least) if mask.type.dtype is BOOL else b.op("Add", scores, mask)
    if a.causal:
        rows, columns = q.shape[2], k.shape[2]
        row = b.op("Reshape", b.op("Range", start=columns - rows, step=1, size=rows), shape=(rows, 1))
        column = b.op("Range", start=0, step=1, size=columns)
        scores = b.op("Where", b.op("LessOrEqual", column, row), scores, least)
    weights = b.op("Softmax", scores, axis=3)
    if weights.type.dtype is not v.type.dtype:
        weights = b.op("Cast", weights, to=v.type.dtype)
    y = b.op("MatMul", weights, v)
    if not a.zero_rows:
        return y
    most = b.op("Reduce", scores, function="max", axes=(3,), keepdims=True)
    return b.op("Where", b.op("Equal", most, b.like(-np.inf, most)), b.like(0, y), y)


def _repeated(b: Builder, x: Value, q: Value) -> Value:
    """Keys or values with as many heads as ``q``."""
    batch, shared, length, size = x.shape
    heads = q.shape[1]
    if heads == shared:
        return x
    x = b.op("Reshape", x, shape=(batch, shared, 1, length, size))
    x = b.op("Expand", x, shape=(batch, shared, heads // shared, length, size))
    return b.op("Reshape", x, shape=(batch, heads, length, size))


EXPANSIONS: dict[str, Callable[[Builder, Node], Value]] = {"Attention": attention}
