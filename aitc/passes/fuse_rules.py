"""Applies the rules of ``aitc/rules/fuse``."""

from __future__ import annotations

from aitc.ir.graph import Graph
from aitc.ir.rewrite import FUSE, apply_rules
from aitc.passes.base import Context, register


@register
def run(graph: Graph, context: Context) -> int:
    """Raises idioms to core ops: norms, activations, softmax, attention, rotary embeddings."""
    return apply_rules(graph, FUSE, context.log)
