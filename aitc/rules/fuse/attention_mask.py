"""Masks of attention: several as one, on four axes; and whether they say no more than that the attention is causal."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from aitc.ir import dim as dm
from aitc.ir.builder import Builder
from aitc.ir.elements import coordinates, element
from aitc.ir.graph import Value
from aitc.ir.index import broadcast_index, source_index
from aitc.ir.match import made_by, number, same_shape
from aitc.ir.op import Kind
from aitc.ir.types import Shape

EXCLUDED = -1e4  # what is added to a score that must not count is at most this
# What is added where the model puts a number in place of a score: so low that the sum is this number, whatever the score is, and several
# of them, or one beside the least float32, are finite still.
REPLACING = -1e30


@dataclass(slots=True)
class Mask:
    """``value`` at the scores' shape ``shape`` of where it is applied. A bool says which scores count."""

    value: Value
    shape: Shape
    factor: float = 1.0  # scales applied after an additive mask
    fill: float = -np.inf  # what a bool puts in place of scores that do not count
    inverted: bool = False


def combined(b: Builder, masks: list[Mask], target: Shape, q: Value) -> tuple[Value | None, bool]:
    """One mask for all, and whether the attention is causal instead of one of them."""
    if len(masks) == 1 and is_causal(masks[0].value, masks[0].inverted, target):
        return (
            None,
            True,
        )  # beside another mask it stays one: rows that both exclude altogether must come out as they did
    bools: list[Value] = []
    floats: list[Value] = []
    for m in masks:
        v = m.value
        if v.type.dtype.name != "bool" and m.factor != 1.0:
            v = b.op("Mul", v, b.like(m.factor, v))
        if v.type.dtype.name == "bool" and m.inverted:
            v = b.op("Not", v)
        if v.type.dtype.name == "bool" and np.isfinite(
            m.fill
        ):  # a row without any score kept is averaged, not undefined
            v = b.op("Where", v, b.like(0, q), b.constant(np.asarray(_added(m.fill, q), q.type.dtype.numpy)))
        (bools if v.type.dtype.name == "bool" else floats).append(_mask_to(b, v, m.shape, target))
    if not bools and not floats:
        return None, False
    keep = bools[0] if bools else None
    for v in bools[1:]:
        keep = b.op("And", keep, v)
    if not floats:
        return keep, False
    total = floats[0]
    for v in floats[1:]:
        total = b.op("Add", total, v)
    if total.type.dtype is not q.type.dtype:
        total = b.op("Cast", total, to=q.type.dtype)
    if keep is not None:
        total = b.op("Where", keep, total, b.like(-np.inf, total))
    return total, False


def is_finite(mask: Value) -> bool:
    """Whether an additive mask is made of finite numbers, so that no row is left without scores."""
    if mask.type.dtype.name == "bool":
        return False
    choice = made_by(mask, "Where")
    numbers = [number(v) for v in choice.inputs[1:]] if choice is not None else [number(mask)]
    return all(n is not None and np.isfinite(n) for n in numbers) or (
        mask.const is not None and bool(np.all(np.isfinite(mask.const)))
    )


def _added(fill: float, q: Value) -> float:
    """What to add to a score of ``q``'s type instead of replacing it by ``fill``. A row of such scores alone is averaged in both forms;
    float16 has no number that is low enough for this."""
    return max(min(fill, REPLACING), _lowest(q)) if _lowest(q) < REPLACING else max(fill, _lowest(q))


def _lowest(v: Value) -> float:
    """The least finite number of a float type."""
    return float(ml_dtypes.finfo(v.type.dtype.numpy).min)


def _mask_to(b: Builder, v: Value, shape: Shape, target: Shape) -> Value:
    """A mask that broadcasts to scores of ``shape`` as one that broadcasts to the four axes of ``target``."""
    full = (
        v if v.type.rank == len(shape) else b.op("Reshape", v, shape=(1,) * (len(shape) - v.type.rank) + tuple(v.shape))
    )
    if same_shape(shape, target):
        return full
    lead, rest = full.shape[:-2], full.shape[-2:]
    if all(d == 1 for d in lead):
        return b.op("Reshape", full, shape=(1, 1, *rest))
    if (
        len(shape) > 4 and shape[-3] == target[1]
    ):  # the heads are an axis of their own: only what is before it is folded
        spread = b.op("Expand", full, shape=(*shape[:-3], *full.shape[-3:]))
        return b.op("Reshape", spread, shape=(target[0], *full.shape[-3:]))
    spread = b.op("Expand", full, shape=(*shape[:-2], *rest))
    return b.op("Reshape", spread, shape=(target[0], target[1], *rest))


def is_causal(v: Value, inverted: bool, target: Shape) -> bool:
    """Whether a mask keeps exactly what is on and below the diagonal of square scores: as a constant, or by
    comparing positions."""
    if target[2] != target[3] or v.type.rank < 2 or not same_shape(v.shape[-2:], target[2:]):
        return False
    if v.const is not None:
        return _causal_constant(v.const, inverted)
    node = v.producer
    if node is None:
        return False
    if node.op.name == "Where":  # 0 where it counts, a huge negative number elsewhere
        numbers = [number(x) for x in node.inputs[1:]]
        if None in numbers or node.inputs[0] is None:
            return False
        kept, excluded = numbers if not inverted else numbers[::-1]
        assert kept is not None and excluded is not None
        if kept == 0 and excluded <= EXCLUDED:
            return _compares_positions(node.inputs[0], False)
        return excluded == 0 and kept <= EXCLUDED and _compares_positions(node.inputs[0], True)
    return v.type.dtype.name == "bool" and _compares_positions(v, inverted)


def _causal_constant(array: np.ndarray, inverted: bool) -> bool:
    squares = array.reshape(-1, *array.shape[-2:])
    if not all(np.array_equal(square, squares[0]) for square in squares[1:]):
        return False
    lower = np.tril(np.ones(array.shape[-2:], bool))
    if array.dtype == np.bool_:
        return bool(np.array_equal(squares[0] ^ inverted, lower))
    wide = squares[0].astype(np.float64)
    return bool(np.all(wide[lower] == 0) and np.all(wide[~lower] <= EXCLUDED))


def _compares_positions(v: Value, inverted: bool) -> bool:
    """Whether element [..., i, j] of a bool tensor is j <= i; with ``inverted`` j > i."""
    at = index = coordinates(v.shape)
    node = v.producer
    while node is not None and node.op.kind is Kind.VIEW:
        index = source_index(node, index)
        node = node.input.producer
    if node is None or node.op.name not in _COMPARISONS:
        return False
    a, b = (element(x, broadcast_index(index, x.shape)) if x is not None else None for x in node.inputs)
    if a is None or b is None:
        return False
    greater, strict = _COMPARISONS[node.op.name]
    difference = dm.add(dm.mul(a, -1 if greater else 1), dm.mul(b, 1 if greater else -1))
    holds = dm.add(difference, int(strict))  # the comparison says that this is <= 0
    beyond = dm.add(at[-1], dm.mul(at[-2], -1))  # j - i
    return holds == (dm.add(dm.mul(beyond, -1), 1) if inverted else beyond)


_COMPARISONS = {
    "LessOrEqual": (False, False),
    "Less": (False, True),
    "GreaterOrEqual": (True, False),
    "Greater": (True, True),
}
