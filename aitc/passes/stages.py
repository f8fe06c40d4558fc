"""The passes of each stage, in order: what the pipeline runs between import and schedule."""

from __future__ import annotations

from aitc.ir.graph import Graph
from aitc.ir.verify import verify
from aitc.passes import base
from aitc.passes.base import Context, run_passes
from aitc.registry import load

load("aitc.passes")
load("aitc.rules")

ROUNDS = 6  # of simplification; each only sees what the last one changed, two are the rule
CLEAN = ("fold_contents", "inline_control", "fold_constants", "simplify_rules", "merge_duplicates", "drop_dead")


def simplify(graph: Graph, context: Context) -> None:
    """Constants folded, shape arithmetic resolved to Dims, duplicates, neutral and dead nodes gone, views composed, transposes met."""
    for _ in range(ROUNDS):
        if not run_passes(graph, context, CLEAN):
            break
    verify(graph, "simplify")


def fuse(graph: Graph, context: Context) -> None:
    """Idioms raised to core ops; the match log, with near misses, is in ``context.log``."""
    run_passes(graph, context, ("fuse_rules", "drop_dead"))
    simplify(graph, context)
    run_passes(graph, context, ("fuse_rules", "drop_dead"))
    run_passes(graph, context, ("split_gates", "merge_matmuls"))
    verify(graph, "fuse")


def layout(graph: Graph, context: Context) -> None:
    """Every value has its precision and its storage order."""
    if run_passes(graph, context, ("choose_precision",)):
        simplify(graph, context)
    if run_passes(graph, context, ("quantize_products",)):
        simplify(graph, context)
    if run_passes(graph, context, ("reshape_convs",)):
        simplify(graph, context)
    run_passes(graph, context, ("choose_layout",))
    verify(graph, "layout")


__all__ = ["CLEAN", "Context", "base", "fuse", "layout", "simplify"]
