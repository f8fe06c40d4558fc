"""Applies the rules of ``aitc/rules/simplify``."""

from __future__ import annotations

from aitc.ir.graph import Graph
from aitc.ir.rewrite import SIMPLIFY, apply_rules
from aitc.passes.base import Context, register


@register
def run(graph: Graph, context: Context) -> int:
    """Neutral operations vanish, views compose, transposes sink until they meet, scales fold into weights."""
    return apply_rules(graph, SIMPLIFY, context.log)
