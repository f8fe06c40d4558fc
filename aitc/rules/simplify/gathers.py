"""Gathers whose indices are even: every element in order is a Reshape, every n-th a Slice."""

from __future__ import annotations

from dataclasses import dataclass

from aitc.ir import dim as dm
from aitc.ir.builder import Builder
from aitc.ir.dim import Dim, Sum
from aitc.ir.elements import array_element, coordinates, element
from aitc.ir.graph import Node, Value
from aitc.ir.index import flatten
from aitc.ir.match import made_by, same_shape
from aitc.ir.rewrite import SIMPLIFY, Match, Outcome, Rule
from aitc.ir.types import Shape


@dataclass(frozen=True, slots=True)
class _Even:
    """Element k of the flattened indices is ``start + k * step``."""

    start: Dim
    step: int


def _even(indices: Value) -> _Even | None:
    if indices.const is not None and indices.const.size == 1:
        return _Even(int(indices.const.reshape(())), 1)
    at = coordinates(indices.shape)
    e = element(indices, at)
    if e is None:
        return None
    position = flatten(at, indices.shape)
    if not isinstance(position, Sum):
        return _Even(e, 1)
    start = dm.substitute(e, {f"@{axis}": 0 for axis in range(len(at))})
    last = next(axis for axis in reversed(range(len(at))) if at[axis] != 0)
    step = dm.add(dm.substitute(e, {f"@{axis}": int(axis == last) for axis in range(len(at))}), dm.mul(start, -1))
    if not isinstance(step, int) or step == 0 or dm.add(start, dm.mul(position, step)) != e:
        return None
    return _Even(start, step)


def _match(node: Node) -> Outcome:
    x, indices = node.inputs
    assert x is not None and indices is not None
    if indices.type.elems == 0:
        return None
    found = _even(indices)
    if found is None:
        return None
    size, count = x.shape[node.attrs.axis], indices.type.elems
    last = dm.add(found.start, dm.mul(dm.add(count, -1), found.step))
    if dm.bounds(found.start)[1] < 0 and found.step == 1 and isinstance(size, int) and dm.bounds(last)[1] < 0:
        found, last = _Even(dm.add(found.start, size), 1), dm.add(last, size)  # counted from the end
    if dm.bounds(found.start)[0] < 0 or dm.bounds(last)[0] < 0:
        return None
    largest = last if found.step > 0 else found.start
    if largest != dm.add(size, -1) and dm.bounds(dm.add(size, dm.mul(largest, -1)))[0] < 1:
        return None
    return Match(found=found)


def _view(b: Builder, node: Node, found: _Even) -> Value:
    x, indices = node.inputs
    assert x is not None and indices is not None
    axis, count = node.attrs.axis, indices.type.elems
    if found.start != 0 or found.step != 1 or count != x.shape[axis]:
        starts: list[Dim] = [0] * x.type.rank
        sizes, steps = list(x.shape), [1] * x.type.rank
        starts[axis], sizes[axis], steps[axis] = found.start, count, found.step
        x = b.op("Slice", x, starts=tuple(starts), sizes=tuple(sizes), steps=tuple(steps))
    return b.op("Reshape", x, shape=node.output.shape)


SIMPLIFY.add(
    "even-gather",
    Rule("even-gather", "a Gather at evenly spaced indices becomes a Slice and a Reshape", ("Gather",), _match, _view),
)


def _components(indices: Value) -> list[Dim | None]:
    """The expressions that index each axis, over the coordinates of all axes of ``indices`` but the last."""
    at = coordinates(indices.shape[:-1])
    if indices.const is not None:
        return [array_element(indices.const[..., i], at) for i in range(indices.const.shape[-1])]
    concat = made_by(indices, "Concat")
    if (
        concat is None
        or concat.attrs.axis != indices.type.rank - 1
        or any(v is None or v.shape[-1] != 1 for v in concat.inputs)
    ):
        return [None]
    return [element(v, (*at, 0)) for v in concat.inputs]


def _match_grid(node: Node) -> Outcome:
    x, indices = node.inputs
    assert x is not None and indices is not None
    count, lead = indices.shape[-1], indices.shape[:-1]
    if node.attrs.batch_dims or not isinstance(count, int):
        return None
    at = coordinates(lead)
    axes: list[int] = []
    for i, e in enumerate(_components(indices)):
        free = range(axes[-1] + 1 if axes else 0, len(lead))
        if e == 0 and x.shape[i] == 1:  # any axis of size 1 will do, or one that it is broadcast along
            axis = next((a for a in free if lead[a] == 1), None)
        else:
            axis = next((a for a in free if at[a] == e and at[a] != 0 and lead[a] == x.shape[i]), None)
        if axis is None:
            return None
        axes.append(axis)
    return Match(found=tuple(axes)) if len(axes) == count else None


def _ungathered(b: Builder, node: Node, axes: tuple[int, ...]) -> Value:
    x, indices = node.inputs
    assert x is not None and indices is not None
    shape: list[Dim] = [1] * (indices.type.rank - 1)
    for i, axis in enumerate(axes):
        shape[axis] = x.shape[i]
    full: Shape = (*shape, *x.shape[len(axes) :])
    y = b.op("Reshape", x, shape=full)
    return y if same_shape(full, node.output.shape) else b.op("Expand", y, shape=node.output.shape)


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
