"""Gated products: a MatMul whose two halves meet again in a Mul (GLU, GEGLU, SwiGLU) becomes two, each with its own epilogue.

The gate's product stores its activation, the other's epilogue multiplies by it: half of what one wide product would store and a launch
behind it would load is never in memory, and there are as many launches.
"""

from __future__ import annotations

import numpy as np

from aitc.ir.builder import Builder
from aitc.ir.graph import Graph, Node, Value
from aitc.ir.op import Kind
from aitc.passes.base import Context, graphs, register

LEAST = 64  # columns of a half: below it a product is all overhead
CHAIN = 6  # pointwise nodes between a half and the Mul


@register
def run(graph: Graph, context: Context) -> int:
    """Splits MatMuls with constant weights whose result is read as two halves that a chain of pointwise nodes each takes to one Mul."""
    return sum(_split(g) for g in graphs(graph))


def _split(graph: Graph) -> int:
    made: list[Node] = []
    count = 0
    for node in graph.nodes:
        if node.op.name != "Mul":
            continue
        ends = [_half(v, node.output) for v in node.inputs]
        if None in ends or ends[0] is ends[1]:
            continue
        first, second = (n for n in ends if n is not None)
        product = _product(graph, first, second)
        if product is not None:
            made += _rewrite(graph, first, second, *product)
            count += 1
    if count:
        graph.reorder(made)
        graph.sweep()
    return count


def _half(v: Value | None, result: Value) -> Node | None:
    """The Slice behind ``v``, through pointwise nodes of one computed operand, all as large as ``result``."""
    for _ in range(CHAIN):
        if v is None or v.producer is None or v.shape != result.shape:
            return None
        node = v.producer
        if node.op.name == "Slice":
            return node
        computed = [u for u in node.inputs if u is not None and u.const is None]
        if node.op.kind is not Kind.POINTWISE or len(set(computed)) != 1:
            return None
        v = computed[0]
    return None


def _product(graph: Graph, first: Node, second: Node) -> tuple[Node, Node | None] | None:
    """The MatMul and the Add of a constant row of which the two Slices are the halves, and all that is read; None if they are not."""
    whole = first.input
    if whole is not second.input or set(whole.users) != {first, second} or whole in graph.outputs:
        return None
    width = whole.shape[-1]
    halves = [(n.attrs.starts[-1], n.attrs.sizes[-1]) for n in (first, second)]
    if not isinstance(width, int) or width % 2 or width < 2 * LEAST or sorted(halves) != [(0, width // 2), (width // 2, width // 2)]:
        return None
    for n in (first, second):
        if any(s != 0 for s in n.attrs.starts[:-1]) or n.attrs.sizes[:-1] != whole.shape[:-1] or any(s != 1 for s in n.attrs.steps):
            return None
    node, bias = whole.producer, None
    if node is not None and node.op.name == "Add":
        rows = [v for v in node.inputs if v is not None and v.const is not None and v.const.size == width == v.shape[-1]]
        others = [v for v in node.inputs if v is not None and v.const is None]
        if len(rows) != 1 or len(others) != 1 or len(others[0].users) != 1 or others[0] in graph.outputs:
            return None
        node, bias = others[0].producer, node
    if node is None or node.op.name != "MatMul" or node.attrs.out is not None:
        return None
    w = node.inputs[1]
    if w is None or w.const is None or w.const.ndim != 2 or node.output.shape != whole.shape:
        return None
    return node, bias


def _rewrite(graph: Graph, first: Node, second: Node, node: Node, bias: Node | None) -> list[Node]:
    weights = node.inputs[1]
    assert weights is not None and weights.const is not None
    row = next((v.const.reshape(-1) for v in bias.inputs if v is not None and v.const is not None), None) if bias is not None else None
    made: list[Node] = []
    for part in (first, second):
        start, size = part.attrs.starts[-1], part.attrs.sizes[-1]
        b = Builder(graph, tuple(dict.fromkeys(loc for n in (node, bias, part) if n is not None for loc in n.locs)), place=False)
        y = b.op("MatMul", node.input, b.constant(np.ascontiguousarray(weights.const[:, start : start + size]), name="half"), out=None)
        if row is not None:
            y = b.op("Add", y, b.constant(np.ascontiguousarray(row[start : start + size]), name="half_bias"))
        graph.replace_uses(part.output, y)
        made += b.made
    return made
