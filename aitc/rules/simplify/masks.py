"""How torch's new exporter writes attention masks: gathers at every index, comparisons that always hold, expanded scalars and masks."""

from __future__ import annotations

import numpy as np

from aitc.ir import content as contents
from aitc.ir import dim as dm
from aitc.ir.builder import Builder
from aitc.ir.graph import Node, Value
from aitc.ir.match import like, made_by, same_shape
from aitc.ir.op import OPS, Kind
from aitc.ir.rewrite import SIMPLIFY, Match, Outcome, Rule
from aitc.registry import load

load("aitc.ops")


# --- GatherND of everything ------------------------------------------------------------------------------------------------


def _coordinate(v: Value, rank: int) -> int | None:
    """The axis a < rank such that element [i0, i1, …] of ``v`` is i_a; ``v`` may have further axes of size 1 behind."""
    if v.const is not None:
        array = v.const.reshape(v.const.shape[:rank])
        for a in range(rank):
            shape = [1] * rank
            shape[a] = array.shape[a]
            if array.shape[a] > 1 and np.array_equal(
                array, np.broadcast_to(np.arange(array.shape[a]).reshape(shape), array.shape)
            ):
                return a
        return None
    node = v.producer
    if node is None:
        return None
    if node.op.name == "Expand" and node.input.type.rank == v.type.rank:
        a = _coordinate(node.input, rank)
        return a if a is not None and node.input.shape[a] == v.shape[a] else None
    if node.op.name == "Reshape":
        inner = node.input
        if same_shape(inner.shape, v.shape[: inner.type.rank]) and all(d == 1 for d in v.shape[inner.type.rank :]):
            return _coordinate(inner, min(rank, inner.type.rank))
        real = [a for a, d in enumerate(v.shape[:rank]) if d != 1]
        if (
            inner.type.rank == 1
            and len(real) == 1
            and v.shape[real[0]] == inner.shape[0]
            and _coordinate(inner, 1) == 0
        ):
            return real[0]
        return None
    if node.op.name == "Range" and node.attrs.start == 0 and node.attrs.step == 1:
        return 0
    return None


def _components(v: Value) -> list[Value] | None:
    """The values that are concatenated along the last axis, one for each element of it."""
    concat = made_by(v, "Concat")
    if concat is None or concat.attrs.axis != v.type.rank - 1:
        return None
    parts = [p for p in concat.inputs if p is not None]
    return parts if all(p.shape[-1] == 1 for p in parts) else None


def _match_grid(node: Node) -> Outcome:
    x, indices = node.inputs
    assert x is not None and indices is not None
    count = indices.shape[-1]
    rank = indices.type.rank - 1
    if node.attrs.batch_dims or not isinstance(count, int) or rank < 1:
        return None
    axes: list[int | None]
    if indices.const is not None:
        whole = indices.const
        axes = [_constant_axis(whole[..., i], x.shape[i]) for i in range(count)]
    else:
        parts = _components(indices)
        axes = [_coordinate(p, rank) for p in parts] if parts is not None else [None]
    found = [a for a in axes if a is not None]
    if len(found) < count or found != sorted(set(found)):
        return None
    if any(a >= 0 and x.shape[i] != indices.shape[a] for i, a in enumerate(found)):
        return None
    return Match(found=tuple(found))


def _constant_axis(array: np.ndarray, size: dm.Dim) -> int | None:
    """As ``_coordinate``; an index that is always 0 into an axis of size 1 counts as the first axis of size 1."""
    if size == 1 and not array.any():
        return next((a for a, n in enumerate(array.shape) if n == 1), None)
    for a, n in enumerate(array.shape):
        shape = [1] * array.ndim
        shape[a] = n
        if n > 1 and np.array_equal(array, np.broadcast_to(np.arange(n).reshape(shape), array.shape)):
            return a
    return None


def _ungathered(b: Builder, node: Node, axes: tuple[int, ...]) -> Value:
    x, indices = node.inputs
    assert x is not None and indices is not None
    rank, count = indices.type.rank - 1, len(axes)
    shape: list[dm.Dim] = [1] * rank
    for i, a in enumerate(axes):
        shape[a] = x.shape[i]
    y = b.op("Reshape", x, shape=(*shape, *x.shape[count:]))
    return y if same_shape(y.shape, node.output.shape) else b.op("Expand", y, shape=node.output.shape)


SIMPLIFY.add(
    "gather-everything",
    Rule(
        "gather-everything",
        "a GatherND at every index in order becomes a Reshape",
        ("GatherND",),
        _match_grid,
        _ungathered,
    ),
)


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
