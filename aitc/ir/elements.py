"""What an element of an integer tensor is, as a Dim over the coordinates of the element: how index arithmetic is read."""

from __future__ import annotations

import numpy as np

from aitc.ir import dim as dm
from aitc.ir.dim import Dim, Symbol
from aitc.ir.graph import Value
from aitc.ir.index import Index, broadcast_index, source_index
from aitc.ir.op import Kind
from aitc.ir.types import Shape

DEPTH = 12
LARGEST = 1 << 22  # elements of a constant that is looked at


def coordinates(shape: Shape) -> Index:
    """A symbol for each axis (0 for axes of size 1); the names are no dims of a model."""
    return tuple(
        0 if d == 1 else dm.Sum((((Symbol(f"@{axis}", 0, d - 1 if isinstance(d, int) else None),), 1),))
        for axis, d in enumerate(shape)
    )


def element(v: Value | None, index: Index, depth: int = DEPTH) -> Dim | None:
    """The element of ``v`` at ``index``; None if it is no expression of the coordinates."""
    if v is None or depth == 0 or not v.type.dtype.is_integer:
        return None
    if v.const is not None:
        return array_element(v.const, index)
    if v.content is not None and v.content.size == 1:
        (e,) = v.content.ravel().tolist()
        return e if isinstance(e, (int, dm.Sum)) else None
    node = v.producer
    if node is None:
        return None
    if node.op.kind is Kind.VIEW:
        return element(node.input, source_index(node, index), depth - 1)
    if node.op.name == "Range":
        a = node.attrs
        return (
            None
            if isinstance(a.start, float) or isinstance(a.step, float)
            else dm.add(a.start, dm.mul(index[0], a.step))
        )
    if node.op.name not in ("Add", "Sub", "Mul", "Cast"):
        return None
    parts = [None if x is None else element(x, broadcast_index(index, x.shape), depth - 1) for x in node.inputs]
    if any(p is None for p in parts):
        return None
    first, *rest = (p for p in parts if p is not None)
    if node.op.name == "Cast":
        return first
    if node.op.name == "Mul":
        return dm.mul(first, rest[0])
    return dm.add(first, dm.mul(rest[0], -1 if node.op.name == "Sub" else 1))


def array_element(array: np.ndarray, index: Index) -> Dim | None:
    """The element of a constant at ``index``, if it grows evenly along each axis."""
    if array.size == 0 or array.size > LARGEST or array.dtype.kind not in "iu" or array.ndim != len(index):
        return None
    base = int(array.flat[0])
    steps = []
    for axis, n in enumerate(array.shape):
        at = [0] * array.ndim
        at[axis] = min(1, n - 1)
        steps.append(int(array[tuple(at)]) - base)
    even = np.array(base, np.int64)
    for axis, (n, step) in enumerate(zip(array.shape, steps)):
        even = even + (np.arange(n) * step).reshape([-1 if a == axis else 1 for a in range(array.ndim)])
    if not np.array_equal(array, even):
        return None
    return dm.add(base, dm.sum_(dm.mul(i, step) for i, step in zip(index, steps)))
