"""Resize: samples at fractional places of an image, with ONNX's coordinate rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aitc.ir.dim import Dim
from aitc.ir.dtype import F32, I64
from aitc.ir.graph import Value
from aitc.ir.op import OPS, Kind, Op
from aitc.ir.scalar import scaled
from aitc.ir.types import TensorType
from aitc.ops import declare, runtime
from aitc.ops.attribute import (
    LARGEST,
    AspectPolicy,
    Finite,
    ResizeCoordinates,
    ResizeMode,
    ResizeNearest,
    Scales,
    UpsampleMode,
)
from aitc.ops.declare import Scope, distinct_axes, numbers, onnx_op
from aitc.ops.pointwise import widen

Types = Sequence["TensorType | None"]


@dataclass(frozen=True, slots=True)
class ResizeAttrs:
    """``sizes`` and ``scales`` have an entry for each axis; a scale of 0 means size out / size in. ``roi``
    (begins, then ends) matters to tf_crop_and_resize alone. Scales and roi that only the data knows are inputs 1
    and 2, float32 vectors for all axes."""

    sizes: tuple[Dim, ...]
    scales: tuple[float, ...]
    mode: str = "nearest"  # linear, cubic
    # half_pixel_symmetric, pytorch_half_pixel, tf_half_pixel_for_nn, align_corners, asymmetric, tf_crop_and_resize
    coordinates: str = "half_pixel"
    nearest: str = (
        "round_prefer_floor"  # round_prefer_ceil, floor, ceil; outward: ceil where the axis shrinks, else floor
    )
    cubic_a: float = -0.75
    exclude_outside: bool = False
    extrapolation: float = 0.0
    antialias: bool = False
    roi: tuple[float, ...] = ()


def infer_resize(types: Types, a: ResizeAttrs) -> tuple[TensorType, ...]:
    x = types[0]
    assert x is not None
    if len(a.sizes) != x.rank or len(a.scales) != x.rank:
        raise ValueError(f"{len(a.sizes)} sizes for {x}")
    return (TensorType(x.dtype, a.sizes),)


def source_coordinates(size_in: int, size_out: int, scale: float, a: ResizeAttrs, axis: int, rank: int) -> np.ndarray:
    """Where in the input each output element along ``axis`` lies. For align_corners and half_pixel_symmetric the resized
    length is size_in * scale, which need not be whole (ONNX's node tests), for tf_crop_and_resize it is size_out."""
    i = np.arange(size_out, dtype=np.float64)
    length = size_in * scale
    if a.coordinates == "align_corners":
        return i * (size_in - 1) / (length - 1) if length != 1 else np.zeros(size_out)
    if a.coordinates == "asymmetric":
        return i / scale
    if a.coordinates == "pytorch_half_pixel":
        return (i + 0.5) / scale - 0.5 if size_out > 1 else np.zeros(size_out)
    if a.coordinates == "half_pixel_symmetric":
        adjustment = size_out / length
        centre = size_in / 2
        return centre * (1 - adjustment) + (i + 0.5) / scale - 0.5
    if a.coordinates == "tf_crop_and_resize":
        begin, end = a.roi[axis], a.roi[rank + axis]
        if size_out > 1:
            return begin * (size_in - 1) + i * (end - begin) * (size_in - 1) / (size_out - 1)
        return np.full(size_out, 0.5 * (begin + end) * (size_in - 1))
    return (i + 0.5) / scale - (0.0 if a.coordinates == "tf_half_pixel_for_nn" else 0.5)


def _cubic(t: np.ndarray, a: float) -> np.ndarray:
    t = np.abs(t)
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return np.where(t <= 1, near, np.where(t < 2, far, 0.0))


def axis_matrix(
    size_in: int, size_out: int, scale: float, a: ResizeAttrs, axis: int, rank: int
) -> tuple[np.ndarray, np.ndarray]:
    """The (size_out, size_in) matrix of weights of one axis, and which outputs lie outside of the input."""
    where = source_coordinates(size_in, size_out, scale, a, axis, rank)
    outside = (where < 0) | (where > size_in - 1) if a.coordinates == "tf_crop_and_resize" else np.zeros(size_out, bool)
    matrix = np.zeros((size_out, size_in))
    if a.mode == "nearest":
        rounded = {
            "round_prefer_floor": lambda: np.ceil(where - 0.5), "round_prefer_ceil": lambda: np.floor(where + 0.5),
            "floor": lambda: np.floor(where), "ceil": lambda: np.ceil(where),
            "outward": lambda: np.ceil(where) if scale < 1 else np.floor(where),
        }[a.nearest]()  # fmt: skip
        matrix[np.arange(size_out), np.clip(rounded, 0, size_in - 1).astype(int)] = 1
        return matrix, outside
    stretch = min(scale, 1.0) if a.antialias else 1.0
    reach = (1 if a.mode == "linear" else 2) / stretch
    base = np.floor(where).astype(int)
    first, last = int(-np.ceil(reach)) + 1, int(np.ceil(reach))
    if a.antialias:
        first -= 1
    total = np.zeros(size_out)
    for offset in range(first, last + 1):
        index = base + offset
        t = (where - index) * stretch
        weight = np.maximum(0, 1 - np.abs(t)) if a.mode == "linear" else _cubic(t, a.cubic_a)
        if a.exclude_outside:
            weight = np.where((index < 0) | (index >= size_in), 0, weight)
        total += weight
        np.add.at(matrix, (np.arange(size_out), np.clip(index, 0, size_in - 1)), weight)
    if a.exclude_outside or a.antialias:
        matrix /= np.where(total == 0, 1, total)[:, None]
    return matrix, outside


def resize_array(x: np.ndarray, *rest: Any) -> np.ndarray:
    a: ResizeAttrs = rest[-1]
    if len(rest) > 1 and rest[0] is not None:
        a = replace(a, scales=tuple(rest[0].astype(np.float64).tolist()))
    if len(rest) > 2 and rest[1] is not None:
        a = replace(a, roi=tuple(rest[1].astype(np.float64).tolist()))
    y = widen(x)
    result = y.astype(np.float64)
    outside_any = np.zeros((1,) * x.ndim, bool)
    for axis in range(x.ndim):
        size_in, size_out = x.shape[axis], int(a.sizes[axis])  # type: ignore[arg-type]
        scale = a.scales[axis] or size_out / size_in
        if size_in == size_out and scale == 1 and a.coordinates != "tf_crop_and_resize":
            continue
        matrix, outside = axis_matrix(size_in, size_out, scale, a, axis, x.ndim)
        result = np.moveaxis(np.tensordot(matrix, result, axes=([1], [axis])), 0, axis)
        outside_any = outside_any | outside.reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    if outside_any.any():
        result = np.where(outside_any, a.extrapolation, result)
    if x.dtype.kind in "iu":
        info = np.iinfo(x.dtype)
        return np.clip(np.rint(result) if a.mode != "nearest" else result, info.min, info.max).astype(x.dtype)
    return result.astype(x.dtype)


OPS.add("Resize", Op("Resize", Kind.WINDOW, infer_resize, resize_array, ResizeAttrs, arity=(1, 3), tolerance=4.0))


# --- ONNX -------------------------------------------------------------------------------------------------------------


def resize_to(
    b: Scope,
    x: Value,
    roi: Value | None,
    scales: Value | None,
    sizes: Value | None,
    axes: tuple[int, ...] | None,
    policy: str,
    **attrs: Any,
) -> Value:
    """The common form: full-rank sizes and scales, as attributes where they are known and as inputs where only
    the data knows them."""
    rank = x.type.rank
    where = tuple(range(rank)) if axes is None else distinct_axes(axes, rank)
    target: list[Dim] = list(x.shape)
    factor: list[float] = [1.0] * rank
    read: Value | None = None
    if sizes is not None:
        if sizes.type.elems != len(where):
            raise ValueError(f"{sizes.type.elems} sizes for {len(where)} axes")
        known = numbers(sizes)
        if known is not None and known.min(initial=1) < 1:
            raise ValueError(f"sizes {known.ravel().tolist()}: each must be above 0")
        if policy == "stretch":
            for axis, size in zip(where, b.dims(sizes, "sizes", lo=1)):
                target[axis], factor[axis] = size, 0.0 if size != x.shape[axis] else 1.0
        else:
            read = _keep_aspect(b, x, sizes, where, policy, target, factor)
    elif scales is not None:
        read = _scale_axes(b, x, scales, where, target, factor)
    else:
        raise ValueError("neither sizes nor scales")
    box: tuple[float, ...] = ()
    crop: Value | None = None
    if attrs.get("coordinates") == "tf_crop_and_resize":
        if roi is None:
            raise ValueError("tf_crop_and_resize without roi")
        box, crop = _region(b, roi, where, rank)
    if tuple(target) == x.shape and all(f == 1.0 for f in factor) and not box and crop is None:
        return x
    optional = (read, crop) if crop is not None else (read,) if read is not None else ()
    return b.op("Resize", x, *optional, sizes=tuple(target), scales=tuple(factor), roi=box, **attrs)


def _all_axes(b: Scope, v: Value, where: tuple[int, ...], rank: int, fill: float) -> Value:
    """A float32 vector for all axes: ``v`` on the axes ``where``, else ``fill``."""
    v = declare.reshape(b, declare.cast(b, v, F32), (len(where),))
    if where == tuple(range(rank)):
        return v
    return b.op(
        "ScatterElements",
        b.constant(np.full(rank, fill, np.float32)),
        b.constant(np.array(where)),
        v,
        axis=0,
        reduction="none",
    )


def _keep_aspect(
    b: Scope, x: Value, sizes: Value, where: tuple[int, ...], policy: str, target: list[Dim], factor: list[float]
) -> Value | None:
    """One scale for all axes: the smallest or largest that the sizes ask for; each axis is rounded. Returns it
    if only the data knows it."""
    known = numbers(sizes)
    if known is not None and all(isinstance(x.shape[a], int) for a in where):
        ratios = [int(w) / int(x.shape[a]) for w, a in zip(known.ravel().tolist(), where)]  # type: ignore[arg-type]
        ratio = min(ratios) if policy == "not_larger" else max(ratios)
        for axis in where:
            target[axis], factor[axis] = int(np.floor(int(x.shape[axis]) * ratio + 0.5)), ratio  # type: ignore[arg-type]
        return None
    own = b.op("Cast", runtime.vector(b, [x.shape[a] for a in where]), to=F32)
    ratios_value = b.op("Div", declare.cast(b, sizes, F32), own)
    scale = b.op("Reduce", ratios_value, function="min" if policy == "not_larger" else "max", axes=(0,), keepdims=True)
    rounded = b.op("Floor", b.op("Add", b.op("Mul", own, scale), b.constant(0.5, np.float32)))
    (out,) = runtime.read(b, b.op("Cast", rounded, to=I64))
    for axis, size in zip(where, out):
        target[axis], factor[axis] = size, 0.0
    return _all_axes(b, b.op("Expand", scale, shape=(len(where),)), where, x.type.rank, 1.0)


def _region(b: Scope, roi: Value, where: tuple[int, ...], rank: int) -> tuple[tuple[float, ...], Value | None]:
    known = numbers(roi)
    n = len(where)
    if known is None:
        begin, end = declare.slice_axis(b, roi, 0, 0, n), declare.slice_axis(b, roi, 0, n, n)
        return (), b.op("Concat", _all_axes(b, begin, where, rank, 0.0), _all_axes(b, end, where, rank, 1.0), axis=0)
    given = [float(v) for v in known.ravel()]
    if len(given) != 2 * n or not np.all(np.isfinite(given)):
        raise ValueError(f"roi {given} for {n} axes")
    full = [0.0] * rank + [1.0] * rank
    for i, axis in enumerate(where):
        full[axis], full[rank + axis] = given[i], given[n + i]
    return tuple(full), None


def _scale_axes(
    b: Scope, x: Value, scales: Value, where: tuple[int, ...], target: list[Dim], factor: list[float]
) -> Value | None:
    """Sizes and scales from ONNX's scales, which are returned if only the data knows them."""
    if scales.type.elems != len(where):
        raise ValueError(f"{scales.type.elems} scales for {len(where)} axes")
    given = numbers(scales)
    if given is not None and not np.all((given > 0) & (given * np.float64(max([1, *(s for s in x.shape if isinstance(s, int))])) < LARGEST)):
        raise ValueError(f"scales {given.ravel().tolist()}: each must be above 0, and no size beyond {LARGEST}")
    elements = (
        given.ravel().tolist()
        if given is not None
        else scales.content.ravel().tolist()
        if scales.content is not None
        else None
    )
    if elements is None:
        own = b.op("Cast", runtime.vector(b, [x.shape[a] for a in where]), to=F32)
        (out,) = runtime.read(b, b.op("Cast", b.op("Floor", b.op("Mul", own, declare.cast(b, scales, F32))), to=I64))
        for axis, size in zip(where, out):
            target[axis], factor[axis] = size, 0.0
        return _all_axes(b, scales, where, x.type.rank, 1.0)
    for axis, scale in zip(where, elements):
        if scale != 1:
            target[axis] = scaled(x.shape[axis], scale)
            factor[axis] = float(scale) if isinstance(scale, (int, float)) else 0.0
    return None


@onnx_op("Resize", since=11)
def resize(
    b: Scope, x: Value, roi: Value | None = None, scales: Value | None = None, sizes: Value | None = None, *,
    antialias: int = 0, axes: tuple[int, ...] | None = None, coordinate_transformation_mode: ResizeCoordinates = "half_pixel",
    cubic_coeff_a: Finite = -0.75, exclude_outside: int = 0, extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: AspectPolicy = "stretch", mode: ResizeMode = "nearest", nearest_mode: ResizeNearest = "round_prefer_floor",
) -> Value:  # fmt: skip
    if scales is not None and scales.shape == (0,):
        scales = None  # an empty tensor is "not given" in opset 11
    return resize_to(
        b, x, roi, scales, sizes, axes, keep_aspect_ratio_policy, mode=mode, coordinates=coordinate_transformation_mode,
        nearest=nearest_mode, cubic_a=cubic_coeff_a, exclude_outside=bool(exclude_outside),
        extrapolation=extrapolation_value, antialias=bool(antialias),
    )  # fmt: skip


@onnx_op("Resize", since=10)
@onnx_op("Upsample", since=9)
def resize_10(b: Scope, x: Value, scales: Value, *, mode: UpsampleMode = "nearest") -> Value:
    return _upsample(b, x, scales, mode)


@onnx_op("Upsample", since=7)
def upsample_attribute(b: Scope, x: Value, *, scales: Scales, mode: UpsampleMode = "nearest") -> Value:
    return _upsample(b, x, b.constant(scales, np.float32), mode)


def _upsample(b: Scope, x: Value, scales: Value, mode: str) -> Value:
    """Before opset 11: coordinates are i / scale. Nearest takes the element below where an axis grows, the one above
    where it shrinks, as ONNX's node tests of opset 10 and ONNX Runtime do."""
    return resize_to(
        b,
        x,
        None,
        scales,
        None,
        None,
        "stretch",
        mode="linear" if mode in ("linear", "bilinear") else mode,
        coordinates="asymmetric",
        nearest="outward",
    )
