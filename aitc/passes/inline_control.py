"""Replaces an If whose condition is known by the branch that is taken."""

from __future__ import annotations

import numpy as np

from aitc.ir.graph import Graph, Node
from aitc.ir.match import number
from aitc.passes.base import Context, graphs, register


@register
def run(graph: Graph, context: Context) -> int:
    """An If whose condition is a constant gives way to the nodes of the branch it takes."""
    done = 0
    for g in graphs(graph):
        for node in g.nodes:
            condition = number(node.inputs[0]) if node.op.name == "If" else None
            if condition is not None and node in g:
                inline(g, node, node.bodies[0] if np.bool_(condition) else node.bodies[1])
                done += 1
    return done


def inline(graph: Graph, node: Node, body: Graph) -> None:
    """Moves the nodes of ``body``, which has no inputs, in place of ``node``."""
    moved = list(body.nodes)
    for old, new in zip(node.outputs, body.outputs):
        graph.replace_uses(old, new)
    for other in node.bodies:
        if other is not body:
            other.discard()
    graph.adopt(node, moved)
