"""How torch writes attention masks: comparisons that always hold, numbers and masks that are expanded too early."""

from __future__ import annotations

from aitc.ir import content as contents
from aitc.ir import dim as dm
from aitc.ir.builder import Builder
from aitc.ir.graph import Node, Value
from aitc.ir.match import like, made_by, same_shape
from aitc.ir.op import OPS, Kind
from aitc.ir.rewrite import SIMPLIFY, Match, Outcome, Rule
from aitc.registry import load

load("aitc.ops")


# --- comparisons of indices --------------------------------------------------------------------------------------------------


def _range(v: Value | None, depth: int = 6) -> tuple[float, float] | None:
    """Bounds of all elements of an integer tensor."""
    if v is None or not v.type.dtype.is_integer or depth == 0:
        return None
    if v.content is not None:
        known = contents.elements(v)
        if known:
            pairs = [dm.bounds(e) for e in known]
            return min(p[0] for p in pairs), max(p[1] for p in pairs)
    if v.const is not None and 0 < v.const.size <= 4096:
        return float(v.const.min()), float(v.const.max())
    node = v.producer
    if node is None:
        return None
    if node.op.kind is Kind.VIEW:
        return _range(node.input, depth - 1)
    if node.op.name == "Range" and not isinstance(node.attrs.start, float) and not isinstance(node.attrs.step, float):
        first = dm.bounds(node.attrs.start)
        last = dm.bounds(dm.add(node.attrs.start, dm.mul(node.attrs.step, dm.add(dm.max_(node.attrs.size, 1), -1))))
        return min(first[0], last[0]), max(first[1], last[1])
    return None


_DECIDED = {
    "GreaterOrEqual": (lambda a, b: a[0] >= b[1], lambda a, b: a[1] < b[0]),
    "Greater": (lambda a, b: a[0] > b[1], lambda a, b: a[1] <= b[0]),
    "LessOrEqual": (lambda a, b: a[1] <= b[0], lambda a, b: a[0] > b[1]),
    "Less": (lambda a, b: a[1] < b[0], lambda a, b: a[0] >= b[1]),
}


def _match_comparison(node: Node) -> Outcome:
    a, b = _range(node.inputs[0]), _range(node.inputs[1])
    if a is None or b is None:
        return None
    always, never = _DECIDED[node.op.name]
    if always(a, b):
        return Match(found=True)
    return Match(found=False) if never(a, b) else None


SIMPLIFY.add(
    "known-comparison",
    Rule(
        "known-comparison",
        "a comparison that the bounds of indices decide becomes true or false",
        tuple(_DECIDED),
        _match_comparison,
        lambda b, node, known: b.op("Expand", b.constant(known), shape=node.output.shape),
    ),
)


# --- expands ---------------------------------------------------------------------------------------------------------------

_POINTWISE = tuple(op.name for op in OPS if op.kind is Kind.POINTWISE and op.name != "Copy")


def _match_expanded(node: Node) -> Outcome:
    """One operand is an Expand to the node's shape; the others are single numbers."""
    found: Node | None = None
    for v in node.inputs:
        expand = made_by(v, "Expand")
        if v is not None and expand is not None and found is None and same_shape(v.shape, node.output.shape):
            found = expand
        elif v is None or any(d != 1 for d in v.shape) or v.type.rank > node.output.type.rank:
            return None
    if found is None or found.input.const is not None:
        return None
    return Match((found,), found)


def _expanded_after(b: Builder, node: Node, expand: Node) -> Value:
    y = like(b, node, *(expand.input if v is expand.output else v for v in node.inputs))
    return b.op("Expand", y, shape=node.output.shape)


SIMPLIFY.add(
    "sink-expand",
    Rule(
        "sink-expand",
        "a pointwise operation on an expanded tensor and numbers is done before the Expand",
        _POINTWISE,
        _match_expanded,
        _expanded_after,
    ),
)


def _match_mask(node: Node) -> Outcome:
    expand = made_by(node.inputs[3], "Expand") if len(node.inputs) > 3 else None
    if expand is None or expand.input.type.rank != 4:
        return None
    return Match((expand,), expand.input)


SIMPLIFY.add(
    "expanded-mask",
    Rule(
        "expanded-mask",
        "the mask of an Attention broadcasts: it is not expanded before",
        ("Attention",),
        _match_mask,
        lambda b, node, mask: like(b, node, *node.inputs[:3], mask),
    ),
)
