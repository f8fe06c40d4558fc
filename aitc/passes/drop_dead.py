"""Removes what nobody reads."""

from __future__ import annotations

from aitc.ir.graph import Graph, Node, Value
from aitc.passes.base import Context, graphs, register


@register
def run(graph: Graph, context: Context) -> int:
    """Removes nodes whose results nobody needs, in bodies first, and forgets captured values that no body reads any more."""
    removed = 0
    for g in graphs(graph):
        refresh_captured(g)
        removed += g.sweep()
    return removed


def refresh_captured(graph: Graph) -> None:
    """Recomputes what the bodies of ``graph``'s nodes capture."""
    for node in graph.holders:
        for body in node.bodies:
            body.captured[:] = captured(body)


def captured(body: Graph) -> list[Value]:
    """The outer values that ``body``, or a graph inside it, reads; in order of first use."""
    own: set[Value] = set(body.inputs)
    found: dict[Value, None] = {}

    def read(v: Value | None) -> None:
        if v is not None and v.const is None and v not in own:
            found.setdefault(v)

    node: Node
    for node in body.nodes:
        for v in node.inputs:
            read(v)
        for inner in node.bodies:
            for v in captured(inner):
                read(v)
        own.update(node.outputs)
    for v in body.outputs:
        read(v)
    return list(found)
