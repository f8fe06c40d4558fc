"""Horizontal fusion: matrix products that share their left operand become one."""

from __future__ import annotations

import itertools

import numpy as np

from aitc.ir.apart import Apart, label
from aitc.ir.builder import Builder
from aitc.ir.dim import product
from aitc.ir.graph import Graph, Node, Value
from aitc.ir.op import Kind
from aitc.passes.base import Context, graphs, register

LIMIT = 64 << 20  # bytes of a merged weight: beyond it each product fills the machine by itself


@register
def run(graph: Graph, context: Context) -> int:
    """Merges MatMuls of one input with constant matrices of equal height (Q, K and V projections), and their biases; the parts are slices.

    A product whose result goes on into pointwise nodes stays alone: they are its epilogue, which a slice would cut off.
    """
    return sum(_merge(g, context) for g in graphs(graph))


def _merge(graph: Graph, context: Context) -> int:
    families: dict[tuple[Value, int, str, bool], list[tuple[Node, Node | None]]] = {}
    products: dict[Value, list[tuple[Node, str]]] = {}
    for node in graph.nodes:
        if node.op.name != "MatMul":
            continue
        reason = _alone(graph, node)
        products.setdefault(node.input, []).append((node, reason))
        if reason:
            continue
        w, bias = node.inputs[1], _bias(graph, node)
        assert w is not None and w.const is not None
        families.setdefault((node.input, int(w.const.shape[0]), str(w.const.dtype), bias is not None), []).append(
            (node, bias)
        )
    merged = 0
    made: list[Node] = []
    done: set[Node] = set()
    for family in families.values():
        if len(family) > 1 and sum(_weight(n).nbytes for n, _ in family) <= LIMIT:
            done.update(n for n, _ in family)
            made += _rewrite(graph, family)
            merged += len(family) - 1
    for found in products.values():
        for (first, why), (second, reason) in itertools.pairwise(found):
            if first not in done or second not in done:
                differ = "they differ in height, type or bias, or are too large together"
                context.apart.append(Apart("horizontal", label(first), label(second), reason or why or differ))
    if merged:
        graph.reorder(made)
        graph.sweep()
    return merged


def _alone(graph: Graph, node: Node) -> str:
    """Why a product is not merged with another; "" if it may be."""
    w = node.inputs[1]
    if node.attrs.out is not None:
        return "sums of integers are stored in a type of their own"
    if w is None or w.const is None or w.const.ndim != 2:
        return "the right operand is no constant matrix"
    if w.const.nbytes > LIMIT:
        return f"a matrix beyond {LIMIT >> 20} MiB fills the machine by itself"
    if _pointwise_follows(_bias(graph, node) or node):
        return "pointwise nodes follow: they are its epilogue, which a slice would cut off"
    return ""


def _bias(graph: Graph, node: Node) -> Node | None:
    """The Add of a constant row that is the only reader of ``node``."""
    if len(node.output.users) != 1 or node.output in graph.outputs:
        return None
    (user,) = node.output.users
    if user.op.name != "Add" or user.output.shape != node.output.shape:
        return None
    other = user.inputs[1] if user.inputs[0] is node.output else user.inputs[0]
    if other is None or other is node.output or other.const is None:
        return None
    row = other.const
    return user if row.ndim >= 1 and row.size == row.shape[-1] == node.output.shape[-1] else None


def _pointwise_follows(node: Node) -> bool:
    """Whether the result goes on into pointwise nodes of its own size; one that is broadcast is an operand of another's epilogue."""
    stack = [node.output]
    while stack:
        value = stack.pop()
        for user in value.users:
            if user.op.kind is Kind.POINTWISE:
                if product(user.output.shape) == product(value.shape):
                    return True
                continue
            if user.op.name in ("Reshape", "Transpose"):
                stack.append(user.output)
    return False


def _rewrite(graph: Graph, family: list[tuple[Node, Node | None]]) -> list[Node]:
    first = family[0][0]
    locs = dict.fromkeys(loc for pair in family for n in pair if n is not None for loc in n.locs)
    b = Builder(graph, locs, place=False)
    weights = np.concatenate([_weight(n) for n, _ in family], axis=1)
    y = b.op("MatMul", first.input, b.constant(weights, name="merged"))
    if family[0][1] is not None:
        rows = np.concatenate([_row(n, bias) for n, bias in family])
        y = b.op("Add", y, b.constant(rows, name="merged_bias"))
    start = 0
    for node, bias in family:
        last = bias or node
        width = int(node.output.shape[-1])  # type: ignore[arg-type]
        rank = y.type.rank
        part = b.op(
            "Slice", y, starts=(*(0 for _ in range(rank - 1)), start), sizes=(*y.shape[:-1], width), steps=(1,) * rank,
            names=(last.output.name,),
        )  # fmt: skip
        graph.replace_uses(last.output, part)
        start += width
    return b.made


def _weight(node: Node) -> np.ndarray:
    w = node.inputs[1]
    assert w is not None and w.const is not None
    return w.const


def _row(node: Node, bias: Node | None) -> np.ndarray:
    assert bias is not None
    other = bias.inputs[1] if bias.inputs[0] is node.output else bias.inputs[0]
    assert other is not None and other.const is not None
    return other.const.reshape(-1)
