"""Grouped queries: key and value heads that were repeated for an Attention are read where they are."""

from __future__ import annotations

from aitc.ir.builder import Builder
from aitc.ir.graph import Node, Value
from aitc.ir.match import like, made_by, same_shape
from aitc.ir.rewrite import FUSE, Match, Outcome, Reason, Rule


def _before_repeat(v: Value | None) -> tuple[Value, tuple[Node, ...]] | None:
    """``x`` of [B, Hk, 1, T, D] -> [B, Hk, G, T, D] -> [B, H, T, D], still with its axis of size 1."""
    folded = made_by(v, "Reshape")
    expand = made_by(folded.input, "Expand") if folded is not None else None
    if v is None or folded is None or expand is None or expand.output.type.rank != 5:
        return None
    grouped = expand.input
    if grouped.type.rank != 5 or grouped.shape[2] != 1 or not same_shape(grouped.shape[:2], expand.output.shape[:2]):
        return None
    if not same_shape(expand.output.shape[-2:], v.shape[-2:]) or expand.output.shape[0] != v.shape[0]:
        return None
    return grouped, (folded, expand)


def _match(node: Node) -> Outcome:
    k, v = _before_repeat(node.inputs[1]), _before_repeat(node.inputs[2])
    if k is None and v is None:
        return None
    if k is None or v is None or k[0].shape[1] != v[0].shape[1]:
        return Reason("the heads of keys and of values are not repeated alike", node)
    return Match((*k[1], *v[1]), (k[0], v[0]))


def _rewrite(b: Builder, node: Node, found: tuple[Value, Value]) -> Value:
    plain = [b.op("Reshape", x, shape=(*x.shape[:2], *x.shape[3:])) for x in found]
    return like(b, node, node.inputs[0], *plain, *node.inputs[3:])


FUSE.add(
    "grouped-heads",
    Rule(
        "grouped-heads",
        "key and value heads repeated by Expand are read in place by the Attention",
        ("Attention",),
        _match,
        _rewrite,
    ),
)
