"""Views: operators that only map indices (Reshape, Transpose, Slice, Expand), and the ONNX operators that are made
of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aitc.ir import content as contents
from aitc.ir import dim as d
from aitc.ir.dim import Dim
from aitc.ir.graph import Value
from aitc.ir.op import OPS, Kind, Op
from aitc.ir.scalar import Undecided
from aitc.ir.types import Shape, TensorType, broadcast
from aitc.ops import declare, runtime
from aitc.ops.attribute import BlockMode, Positive
from aitc.ops.declare import Scope, Unsupported, ints, normalize_axes, normalize_axis, numbers, onnx_op

Types = Sequence["TensorType | None"]


@dataclass(frozen=True, slots=True)
class ReshapeAttrs:
    shape: Shape


@dataclass(frozen=True, slots=True)
class TransposeAttrs:
    perm: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SliceAttrs:
    """Element i of axis a is the input's element starts[a] + i * steps[a]; all three have an entry for every axis."""

    starts: Shape
    sizes: Shape
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ExpandAttrs:
    shape: Shape


def infer_reshape(types: Types, a: ReshapeAttrs) -> tuple[TensorType, ...]:
    (x,) = types
    assert x is not None
    have, want = x.elems, d.product(a.shape)
    if d.bounds(have - want)[0] > 0 or d.bounds(have - want)[1] < 0:
        raise ValueError(f"cannot reshape {x} ({have} elements) to [{', '.join(map(str, a.shape))}] ({want} elements)")
    return (TensorType(x.dtype, a.shape),)


def infer_transpose(types: Types, a: TransposeAttrs) -> tuple[TensorType, ...]:
    (x,) = types
    assert x is not None
    if sorted(a.perm) != list(range(x.rank)):
        raise ValueError(f"perm {list(a.perm)} is not a permutation of the axes of {x}")
    return (TensorType(x.dtype, tuple(x.shape[p] for p in a.perm)),)


def infer_slice(types: Types, a: SliceAttrs) -> tuple[TensorType, ...]:
    (x,) = types
    assert x is not None
    if not len(a.starts) == len(a.sizes) == len(a.steps) == x.rank:
        raise ValueError(f"slice of {x} has bounds for {len(a.starts)} axes")
    return (TensorType(x.dtype, a.sizes),)


def infer_expand(types: Types, a: ExpandAttrs) -> tuple[TensorType, ...]:
    (x,) = types
    assert x is not None
    if x.rank > len(a.shape):
        raise ValueError(f"cannot expand {x} to lower rank [{', '.join(map(str, a.shape))}]")
    broadcast(x.shape, a.shape)
    return (TensorType(x.dtype, a.shape),)


def slice_array(x: np.ndarray, a: SliceAttrs) -> np.ndarray:
    if not x.ndim:
        return x
    return x[np.ix_(*(np.arange(int(n)) * p + int(s) for s, n, p in zip(a.starts, a.sizes, a.steps)))]  # type: ignore[arg-type]


OPS.add(
    "Reshape",
    Op(
        "Reshape",
        Kind.VIEW,
        infer_reshape,
        lambda x, a: x.reshape(a.shape),
        ReshapeAttrs,
        doc="The same elements, in row-major order, in another shape.",
    ),
)
OPS.add(
    "Transpose",
    Op(
        "Transpose",
        Kind.VIEW,
        infer_transpose,
        lambda x, a: np.transpose(x, a.perm),
        TransposeAttrs,
        doc="Axis i of the result is axis perm[i] of the input.",
    ),
)
OPS.add("Slice", Op("Slice", Kind.VIEW, infer_slice, slice_array, SliceAttrs))
OPS.add(
    "Expand",
    Op(
        "Expand",
        Kind.VIEW,
        infer_expand,
        lambda x, a: np.broadcast_to(x, a.shape),
        ExpandAttrs,
        doc="The input repeated along axes where it has size 1, or none.",
    ),
)


# --- ONNX -------------------------------------------------------------------------------------------------------------


def resolve_shape(x: TensorType, wanted: Sequence[Dim], allowzero: bool) -> Shape:
    """The shape that Reshape to ``wanted`` gives: 0 copies the input's dim (unless allowzero), -1 takes what is
    left."""
    if allowzero and 0 in wanted and -1 in wanted:
        raise ValueError("allowzero with both 0 and -1 in the shape")
    shape: list[Dim] = []
    for i, s in enumerate(wanted):
        if s == 0 and not allowzero:
            if i >= x.rank:
                raise ValueError(f"shape {list(wanted)} copies axis {i} of {x}, which has none")
            s = x.shape[i]
        shape.append(s)
    if any(isinstance(s, int) and s < -1 for s in shape) or shape.count(-1) > 1:
        raise ValueError(f"shape {list(wanted)} is not valid")
    if -1 not in shape:
        return tuple(shape)
    rest = list(x.shape)
    others: list[Dim] = []
    for s in shape:
        if s == -1:
            continue
        if s in rest and s != 0:
            rest.remove(s)  # equal dims cancel, also where the division could not see it
        else:
            others.append(s)
    have, known = d.product(rest), d.product(others)
    if known == 0:
        raise ValueError(f"-1 in shape {list(wanted)} cannot be resolved for {x}")
    if isinstance(have, int) and isinstance(known, int) and have % known:
        raise ValueError(f"{x} does not divide into shape {list(wanted)}")
    shape[shape.index(-1)] = d.floordiv(have, known)
    return tuple(shape)


@onnx_op("Reshape", since=5)
def reshape(b: Scope, x: Value, shape: Value, *, allowzero: int = 0) -> Value:
    known = contents.elements(shape)
    if known is None:
        return runtime.reshape(b, x, shape, bool(allowzero))
    return declare.reshape(b, x, resolve_shape(x.type, known, bool(allowzero)))


@onnx_op("Reshape", since=1)
def reshape_attribute(b: Scope, x: Value, *, shape: tuple[int, ...]) -> Value:
    return declare.reshape(b, x, resolve_shape(x.type, shape, False))


@onnx_op("Transpose")
def transpose(b: Scope, x: Value, *, perm: tuple[int, ...] | None = None) -> Value:
    return declare.transpose(b, x, tuple(reversed(range(x.type.rank))) if perm is None else perm)


@onnx_op("Flatten")
def flatten(b: Scope, x: Value, *, axis: int = 1) -> Value:
    axis = axis + x.type.rank if axis < 0 else axis
    if not 0 <= axis <= x.type.rank:
        raise ValueError(f"axis {axis} is outside of rank {x.type.rank}")
    return declare.reshape(b, x, (d.product(x.shape[:axis]), d.product(x.shape[axis:])))


def _squeeze(b: Scope, x: Value, axes: tuple[int, ...] | None) -> Value:
    if axes is None:
        if not x.type.is_static:
            for s in x.shape:
                if not isinstance(s, int) and d.bounds(s)[0] <= 1:
                    raise Unsupported(
                        f"Squeeze without axes needs to know whether {s} is 1", declare.binding(s)
                    )
        axes = tuple(i for i, s in enumerate(x.shape) if s == 1)
    where = normalize_axes(axes, x.type.rank)
    for i in where:
        if isinstance(x.shape[i], int) and x.shape[i] != 1:
            raise ValueError(f"axis {i} of {x.type} is not 1")
    return declare.reshape(b, x, (s for i, s in enumerate(x.shape) if i not in where))


@onnx_op("Squeeze", since=13)
def squeeze(b: Scope, x: Value, axes: Value | None = None) -> Value:
    if axes is not None and numbers(axes) is None:
        return runtime.squeeze(b, x, axes)
    return _squeeze(b, x, None if axes is None else ints(axes, "axes"))


@onnx_op("Squeeze", since=1)
def squeeze_attribute(b: Scope, x: Value, *, axes: tuple[int, ...] | None = None) -> Value:
    return _squeeze(b, x, axes)


@onnx_op("Unsqueeze", since=13)
def unsqueeze(b: Scope, x: Value, axes: Value) -> Value:
    if numbers(axes) is None:
        return runtime.unsqueeze(b, x, axes)
    return declare.unsqueeze(b, x, ints(axes, "axes"))


@onnx_op("Unsqueeze", since=1)
def unsqueeze_attribute(b: Scope, x: Value, *, axes: tuple[int, ...]) -> Value:
    return declare.unsqueeze(b, x, axes)


def clamp_slice(size: Dim, start: Dim, end: Dim, step: int) -> tuple[Dim, Dim]:
    """The first index and the number of elements of ONNX's start:end:step on an axis of ``size``."""
    if step == 0:
        raise ValueError("step 0")

    def counted(index: Dim) -> Dim:
        lo, hi = d.bounds(index)
        if lo >= 0:
            return index
        if hi < 0:
            return d.add(index, size)
        raise Undecided(f"whether the slice bound {index} counts from the end")

    big = 1 << 31  # exporters write INT64_MAX, INT32_MAX and their negatives for "to the end"
    if step > 0:
        first = (
            0 if start == 0 or (isinstance(start, int) and start <= -big) else d.min_(d.max_(counted(start), 0), size)
        )
        last = size if isinstance(end, int) and end >= big - 1 else d.min_(d.max_(counted(end), 0), size)
        return first, d.max_(d.floordiv(d.add(d.add(last, d.mul(first, -1)), step - 1), step), 0)
    top = d.add(size, -1)
    first = top if isinstance(start, int) and start >= big - 1 else d.min_(d.max_(counted(start), 0), top)
    last = -1 if isinstance(end, int) and end <= -big + 1 else d.min_(d.max_(counted(end), -1), top)
    count = d.max_(d.floordiv(d.add(d.add(first, d.mul(last, -1)), -step - 1), -step), 0)
    return (0 if count == 0 else first), count


def _slice(
    b: Scope, x: Value, starts: Sequence[Dim], ends: Sequence[Dim], axes: Sequence[int], steps: Sequence[int]
) -> Value:
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ValueError(f"{len(starts)} starts, {len(ends)} ends, {len(axes)} axes and {len(steps)} steps")
    first: list[Dim] = [0] * x.type.rank
    sizes: list[Dim] = list(x.shape)
    strides = [1] * x.type.rank
    for start, end, axis, step in zip(starts, ends, declare.distinct_axes(axes, x.type.rank), steps):
        first[axis], sizes[axis] = clamp_slice(x.shape[axis], start, end, step)
        strides[axis] = step
    if sizes == list(x.shape) and all(s == 1 for s in strides):
        return x
    return b.op("Slice", x, starts=tuple(first), sizes=tuple(sizes), steps=tuple(strides))


@onnx_op("Slice", since=10)
def slice_(
    b: Scope, x: Value, starts: Value, ends: Value, axes: Value | None = None, steps: Value | None = None
) -> Value:
    first, last = contents.elements(starts), contents.elements(ends)
    unknown = any(v is not None and numbers(v) is None for v in (axes, steps))
    if first is None or last is None or unknown:
        return runtime.slice_(b, x, starts, ends, axes, steps)
    where = tuple(range(len(first))) if axes is None else ints(axes, "axes")
    try:
        return _slice(b, x, first, last, where, (1,) * len(first) if steps is None else ints(steps, "steps"))
    except Undecided:
        return runtime.slice_(b, x, starts, ends, axes, steps)


@onnx_op("Slice", since=1)
def slice_attribute(
    b: Scope, x: Value, *, starts: tuple[int, ...], ends: tuple[int, ...], axes: tuple[int, ...] | None = None
) -> Value:
    return _slice(b, x, starts, ends, tuple(range(len(starts))) if axes is None else axes, (1,) * len(starts))


def split_axis(b: Scope, x: Value, axis: int, sizes: Sequence[Dim]) -> tuple[Value, ...]:
    """Slices of ``sizes`` elements along ``axis``, which must add up to it."""
    total, have = d.sum_(sizes), x.shape[axis]
    if isinstance(total, int) and isinstance(have, int) and total != have:
        raise ValueError(f"split {list(sizes)} does not add up to axis {axis} of {x.type}")
    parts: list[Value] = []
    start: Dim = 0
    for size in sizes:
        parts.append(declare.slice_axis(b, x, axis, start, size))
        start = d.add(start, size)
    return tuple(parts)


def even_split(size: Dim, parts: int) -> tuple[Dim, ...]:
    """``size`` in equal parts, the last one smaller if it does not divide."""
    chunk = d.ceildiv(size, parts)
    return (*([chunk] * (parts - 1)), d.add(size, d.mul(chunk, 1 - parts)))


@onnx_op("Split", since=13)
def split(
    b: Scope, x: Value, split: Value | None = None, *, axis: int = 0, num_outputs: Positive | None = None
) -> tuple[Value, ...]:
    axis = normalize_axis(axis, x.type.rank)
    if split is not None:
        return split_axis(b, x, axis, b.dims(split, "split"))
    return split_axis(b, x, axis, even_split(x.shape[axis], num_outputs or len(b.wanted)))


@onnx_op("Split", since=1)
def split_1(
    b: Scope, x: Value, sizes: Value | None = None, *, axis: int = 0, split: tuple[int, ...] | None = None
) -> tuple[Value, ...]:
    return split_attributes(b, x, axis=axis, split=split if sizes is None else ints(sizes, "split"))


@onnx_op("Split", since=2)
def split_attributes(b: Scope, x: Value, *, axis: int = 0, split: tuple[int, ...] | None = None) -> tuple[Value, ...]:
    axis = normalize_axis(axis, x.type.rank)
    return split_axis(b, x, axis, even_split(x.shape[axis], len(b.wanted)) if split is None else split)


@onnx_op("Expand")
def expand(b: Scope, x: Value, shape: Value) -> Value:
    if contents.elements(shape) is None and shape.type.is_static:
        return runtime.expand(b, x, shape)
    wanted = b.dims(shape, "the shape", lo=1)
    common = list(broadcast(x.shape, wanted))
    for at in range(1, 1 + min(x.type.rank, len(wanted))):  # of two symbols the one that is asked for: the run checks that they are equal
        if not isinstance(x.shape[-at], int) and not isinstance(wanted[-at], int):
            common[-at] = wanted[-at]
    return declare.expand(b, x, common)


@onnx_op("Tile", since=6)
def tile(b: Scope, x: Value, repeats: Value) -> Value:
    counts = b.dims(repeats, "repeats")
    if any(d.bounds(c)[1] < 0 for c in counts):
        raise ValueError(f"repeats {[str(c) for c in counts]}")
    if len(counts) != x.type.rank:
        raise ValueError(f"{len(counts)} repeats for {x.type}")
    return tile_by(b, x, counts)


def tile_by(b: Scope, x: Value, counts: Sequence[Dim]) -> Value:
    """``x`` repeated ``counts[i]`` times along axis i: [A, B] -> [1, A, 1, B] -> [r, A, s, B] -> [r A, s B]."""
    if all(c == 1 for c in counts):
        return x
    apart: list[Dim] = []
    full: list[Dim] = []
    for c, s in zip(counts, x.shape):
        if c != 1:
            apart.append(1)
            full.append(c)
        apart.append(s)
        full.append(s)
    y = declare.expand(b, declare.reshape(b, x, apart), full)
    return declare.reshape(b, y, (d.mul(c, s) for c, s in zip(counts, x.shape)))


@onnx_op("DepthToSpace")
def depth_to_space(b: Scope, x: Value, *, blocksize: Positive, mode: BlockMode = "DCR") -> Value:
    n, c, h, w = x.shape
    depth = d.floordiv(c, blocksize * blocksize)
    if mode == "DCR":
        y = declare.reshape(b, x, (n, blocksize, blocksize, depth, h, w))
        y = declare.transpose(b, y, (0, 3, 4, 1, 5, 2))
    else:
        y = declare.reshape(b, x, (n, depth, blocksize, blocksize, h, w))
        y = declare.transpose(b, y, (0, 1, 4, 2, 5, 3))
    return declare.reshape(b, y, (n, depth, d.mul(h, blocksize), d.mul(w, blocksize)))


@onnx_op("SpaceToDepth")
def space_to_depth(b: Scope, x: Value, *, blocksize: Positive, mode: BlockMode = "DCR") -> Value:
    n, c, h, w = x.shape
    rows, columns = d.floordiv(h, blocksize), d.floordiv(w, blocksize)
    y = declare.reshape(b, x, (n, c, rows, blocksize, columns, blocksize))
    y = declare.transpose(b, y, (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4))
    return declare.reshape(b, y, (n, d.mul(c, blocksize * blocksize), rows, columns))


@onnx_op("Identity")
def identity(b: Scope, x: Any) -> Any:
    return x
