"""Replaces shape arithmetic by what it computes."""

from __future__ import annotations

import numpy as np

from aitc.ir import content
from aitc.ir.builder import Builder
from aitc.ir.dim import Sum
from aitc.ir.graph import Graph, Node, Value
from aitc.passes.base import Context, graphs, register


@register
def run(graph: Graph, context: Context) -> int:
    """Tensors whose elements are known numbers become constants; those whose elements are known Dims become one Dims node."""
    return sum(_fold(g) for g in graphs(graph))


def _fold(graph: Graph) -> int:
    builder = Builder(graph, place=False)
    outputs = set(graph.outputs)
    captured = {v for node in graph.holders for body in node.bodies for v in body.captured}
    changed = 0
    # From the end: when a node is asked, its readers are already gone if they were foldable themselves.
    for node in reversed(list(graph.nodes)):
        if node.op.name in ("Dims", "ReadDims") or not any(v.content is not None for v in node.outputs):
            continue
        for v in node.outputs:
            if v.content is None or not (v.users or v in outputs or v in captured):
                continue
            new = _known(v, node, builder)
            if new is not None:
                graph.replace_uses(v, new)
                changed += 1
        if not any(v.users or v in graph.outputs or v in captured for v in node.outputs):
            graph.remove(node)
            changed += 1
    if builder.made:
        graph.reorder(builder.made)
    return changed


def _known(v: Value, node: Node, builder: Builder) -> Value | None:
    assert v.content is not None
    flat = v.content.ravel().tolist()
    if content.is_numeric(v.content):
        return builder.constant(content.as_numpy(v.content, v.type.dtype), name=v.name)
    if not v.type.dtype.is_integer or not all(isinstance(e, (int, Sum)) for e in flat):
        return None
    builder.locs = node.locs
    made = builder.op("Dims", content=tuple(int(e) if isinstance(e, (bool, np.integer)) else e for e in flat),
                      shape=tuple(v.content.shape), dtype=v.type.dtype)  # fmt: skip
    made.name, v.name = v.name, made.name
    return made
