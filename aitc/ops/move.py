"""Copies with an index map that a view cannot express: Concat, Pad, Gather, Scatter and their kin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from aitc.ir import dim as d
from aitc.ir.dim import Dim
from aitc.ir.dtype import BOOL, I64
from aitc.ir.graph import Value
from aitc.ir.op import OPS, Kind, Op
from aitc.ir.types import Shape, TensorType
from aitc.ops import declare, runtime
from aitc.ops.attribute import PadMode, Pads
from aitc.ops.declare import Scope, cast, distinct_axes, ints, normalize_axis, numbers, onnx_op
from aitc.ops.indices import check_bounds
from aitc.ops.pointwise import same_dtype

Types = Sequence["TensorType | None"]


@dataclass(frozen=True, slots=True)
class AxisAttrs:
    axis: int


@dataclass(frozen=True, slots=True)
class PadAttrs:
    """``pads``: elements before each axis, then after each; negative ones cut. The value is input 1 (mode
    constant alone)."""

    pads: Shape
    mode: str = "constant"  # reflect, edge, wrap


@dataclass(frozen=True, slots=True)
class ReverseSequenceAttrs:
    batch_axis: int
    time_axis: int


def infer_concat(types: Types, a: AxisAttrs) -> tuple[TensorType, ...]:
    dtype = same_dtype(types)
    first = types[0]
    assert first is not None
    total: Dim = 0
    shape = list(first.shape)
    for t in types:
        assert t is not None
        if t.rank != first.rank or any(
            isinstance(x, int) and isinstance(y, int) and x != y
            for i, (x, y) in enumerate(zip(t.shape, first.shape))
            if i != a.axis
        ):
            raise ValueError(f"{first} and {t} cannot be joined along axis {a.axis}")
        total = d.add(total, t.shape[a.axis])
        shape = [y if not isinstance(x, int) and isinstance(y, int) else x for x, y in zip(shape, t.shape)]
    shape[a.axis] = total
    return (TensorType(dtype, tuple(shape)),)


def infer_pad(types: Types, a: PadAttrs) -> tuple[TensorType, ...]:
    x = types[0]
    assert x is not None
    if len(a.pads) != 2 * x.rank:
        raise ValueError(f"{len(a.pads)} pads for {x}")
    if a.mode not in ("constant", "reflect", "edge", "wrap"):
        raise ValueError(f"mode {a.mode!r}")
    return (TensorType(x.dtype, tuple(d.sum_((s, a.pads[i], a.pads[x.rank + i])) for i, s in enumerate(x.shape))),)


def pad_array(x: np.ndarray, *rest: Any) -> np.ndarray:
    a: PadAttrs = rest[-1]
    n = x.ndim
    pads = [(int(a.pads[i]), int(a.pads[n + i])) for i in range(n)]  # type: ignore[arg-type]
    x = x[tuple(slice(max(0, -lo), x.shape[i] - max(0, -hi)) for i, (lo, hi) in enumerate(pads))]
    grow = [(max(0, lo), max(0, hi)) for lo, hi in pads]
    if a.mode == "constant":
        return np.pad(x, grow, constant_values=rest[0].reshape(()) if len(rest) > 1 else 0)
    return np.pad(x, grow, mode=a.mode)  # type: ignore[call-overload]


def infer_reverse_sequence(types: Types, a: ReverseSequenceAttrs) -> tuple[TensorType, ...]:
    x, lengths = types
    assert x is not None and lengths is not None
    if lengths.rank != 1 or {a.batch_axis, a.time_axis} != {0, 1} or x.rank < 2:
        raise ValueError(f"lengths {lengths} of sequences {x} along axis {a.time_axis}, batch axis {a.batch_axis}")
    return (TensorType(x.dtype, x.shape),)


def reverse_sequence_array(x: np.ndarray, lengths: np.ndarray, a: ReverseSequenceAttrs) -> np.ndarray:
    y = x.copy()
    for i, n in enumerate(lengths.tolist()):
        at: list[Any] = [slice(None)] * x.ndim
        at[a.batch_axis], at[a.time_axis] = i, slice(0, n)
        part = x[tuple(at)]
        y[tuple(at)] = np.flip(part, a.time_axis - (a.batch_axis < a.time_axis))
    return y


def move_op(name: str, infer: Any, reference: Any, attrs: type, arity: tuple[int, int], doc: str = "") -> None:
    OPS.add(name, Op(name, Kind.MOVE, infer, reference, attrs, arity=arity, doc=doc))


move_op(
    "Concat",
    infer_concat,
    lambda *args: np.concatenate(args[:-1], axis=args[-1].axis),
    AxisAttrs,
    (1, 1 << 30),
    "The inputs joined along an axis.",
)
move_op(
    "Pad",
    infer_pad,
    pad_array,
    PadAttrs,
    (1, 2),
    "With a scalar second input as value in mode constant (0 without one).",
)
move_op(
    "ReverseSequence",
    infer_reverse_sequence,
    reverse_sequence_array,
    ReverseSequenceAttrs,
    (2, 2),
    "The first elements along the time axis reversed, as many as each batch's length says.",
)


# --- ONNX -------------------------------------------------------------------------------------------------------------


def concat(b: Scope, parts: Sequence[Value], axis: int) -> Value:
    """The parts joined; those of no elements along ``axis`` left out."""
    if not parts:
        raise ValueError("nothing to concatenate")
    axis = normalize_axis(axis, parts[0].type.rank)
    kept = [p for p in parts if p.shape[axis] != 0] or [parts[0]]
    return kept[0] if len(kept) == 1 else b.op("Concat", *kept, axis=axis)


@onnx_op("Concat", since=4)
def concat_(b: Scope, *parts: Value, axis: int) -> Value:
    return concat(b, parts, axis)


@onnx_op("Concat", since=1)
def concat_old(b: Scope, *parts: Value, axis: int = 1) -> Value:
    return concat(b, parts, axis)


def pad(b: Scope, x: Value, pads: Sequence[Dim], mode: str, value: Value | None) -> Value:
    if all(p == 0 for p in pads):
        return x
    if mode != "constant":
        return b.op("Pad", x, pads=tuple(pads), mode=mode)
    value = (
        b.like(False if x.type.dtype is BOOL else 0, x)
        if value is None
        else cast(b, declare.reshape(b, value, ()), x.type.dtype)
    )
    return b.op("Pad", x, value, pads=tuple(pads), mode=mode)


@onnx_op("Pad", since=11)
def pad_(
    b: Scope, x: Value, pads: Value, value: Value | None = None, axes: Value | None = None, *, mode: PadMode = "constant"
) -> Value:
    if axes is not None and numbers(axes) is None:
        pads, axes = _pads_of_all(b, x, pads, axes), None
    given = b.dims(pads, "pads", lo=-(1 << 62))
    where = range(x.type.rank) if axes is None else distinct_axes(ints(axes, "axes"), x.type.rank)
    full: list[Dim] = [0] * (2 * x.type.rank)
    if len(given) != 2 * len(where):
        raise ValueError(f"{len(given)} pads for {len(where)} axes")
    for i, axis in enumerate(where):
        full[axis], full[x.type.rank + axis] = given[i], given[len(where) + i]
    return pad(b, x, full, mode, value)


def _pads_of_all(b: Scope, x: Value, pads: Value, axes: Value) -> Value:
    """Pads of every axis, where the data says which axes those that are given are for."""
    zeros = b.constant(np.zeros(x.type.rank, np.int64))
    count = axes.type.elems
    begin, end = declare.slice_axis(b, pads, 0, 0, count), declare.slice_axis(b, pads, 0, count, count)
    return b.op("Concat", runtime.spread(b, begin, axes, zeros), runtime.spread(b, end, axes, zeros), axis=0)


@onnx_op("Pad", domain="com.microsoft")
def pad_ms(
    b: Scope, x: Value, pads: Value, value: Value | None = None, *, mode: Literal["constant", "reflect", "edge"] = "constant"
) -> Value:
    """``pads`` may be a row [1, 2 rank]."""
    return pad_(b, x, declare.reshape(b, pads, (pads.type.elems,)), value, mode=mode)


@onnx_op("Pad", since=2)
def pad_attribute(b: Scope, x: Value, *, pads: Pads, mode: PadMode = "constant", value: float = 0.0) -> Value:
    return pad(b, x, pads, mode, b.like(value, x))


@onnx_op("Pad", since=1)
def pad_attribute_1(
    b: Scope, x: Value, *, paddings: Pads, mode: PadMode = "constant", value: float = 0.0
) -> Value:
    return pad(b, x, paddings, mode, b.like(value, x))


@onnx_op("CenterCropPad")
def center_crop_pad(b: Scope, x: Value, shape: Value, *, axes: tuple[int, ...] | None = None) -> Value:
    rank = x.type.rank
    where = range(rank) if axes is None else distinct_axes(axes, rank)
    wanted = b.dims(shape, "the shape")
    if len(wanted) != len(where):
        raise ValueError(f"{len(wanted)} sizes for {len(where)} axes")
    starts: list[Dim] = [0] * rank
    sizes, pads = list(x.shape), [0] * (2 * rank)  # type: tuple[list[Dim], list[Dim]]
    for axis, size in zip(where, wanted):
        have = x.shape[axis]
        starts[axis] = d.floordiv(d.max_(d.add(have, d.mul(size, -1)), 0), 2)
        sizes[axis] = d.min_(have, size)
        missing = d.max_(d.add(size, d.mul(have, -1)), 0)
        pads[axis] = d.floordiv(missing, 2)
        pads[rank + axis] = d.add(missing, d.mul(pads[axis], -1))
    if tuple(sizes) != x.shape:
        x = b.op("Slice", x, starts=tuple(starts), sizes=tuple(sizes), steps=(1,) * rank)
    return pad(b, x, pads, "constant", None)


@onnx_op("ReverseSequence")
def reverse_sequence(b: Scope, x: Value, lengths: Value, *, batch_axis: int = 1, time_axis: int = 0) -> Value:
    known = numbers(lengths)
    if known is not None and known.size and x.type.rank > 1:
        check_bounds(known - 1, x.shape[time_axis % 2], "the time axis", least=-1)
    return b.op("ReverseSequence", x, lengths, batch_axis=batch_axis, time_axis=time_axis)


@onnx_op("Trilu", domain="com.microsoft")
@onnx_op("Trilu")
def trilu(b: Scope, x: Value, k: Value | None = None, *, upper: int = 1) -> Value:
    """Where(column - row >= k, x, 0), or <= for the lower triangle."""
    rows, columns = x.shape[-2], x.shape[-1]
    i = declare.reshape(b, b.op("Range", start=0, step=1, size=rows), (rows, 1))
    j = b.op("Range", start=0, step=1, size=columns)
    diagonal = b.constant(0, np.int64) if k is None else declare.reshape(b, cast(b, k, I64), ())
    edge = b.op("Add", i, diagonal)
    keep = b.op("GreaterOrEqual" if upper else "LessOrEqual", j, edge)
    return b.op("Where", keep, x, b.like(0, x))


@onnx_op("OneHot")
def one_hot(b: Scope, indices: Value, depth: Value, values: Value, *, axis: int = -1) -> Value:
    """Where(index == 0..depth-1 along a new axis, on, off)."""
    (size,) = b.dims(declare.reshape(b, cast(b, depth, I64), (1,)), "depth")
    axis = normalize_axis(axis, indices.type.rank + 1)
    places = declare.reshape(b, b.op("Range", start=0, step=1, size=size), (size, *([1] * (indices.type.rank - axis))))
    where = declare.unsqueeze(b, cast(b, indices, I64), (axis,))
    where = b.op(
        "Where",
        b.op("Less", where, b.like(0, where)),
        b.op("Add", where, b.op("Dims", content=(size,), shape=())),
        where,
    )
    off = declare.reshape(b, declare.slice_axis(b, values, 0, 0, 1), ())
    on = declare.reshape(b, declare.slice_axis(b, values, 0, 1, 1), ())
    return b.op("Where", b.op("Equal", where, places), on, off)
