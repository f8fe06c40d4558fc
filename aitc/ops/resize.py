"""Resize: samples at fractional places of an image, with ONNX's coordinate rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aitc.ir import content as contents
from aitc.ir.dim import Dim
from aitc.ir.graph import Value
from aitc.ir.op import OPS, Kind, Op
from aitc.ir.types import TensorType
from aitc.ops import declare
from aitc.ops.declare import Scope, Unsupported, normalize_axis, numbers, onnx_op
from aitc.ops.pointwise import widen

Types = Sequence["TensorType | None"]


@dataclass(frozen=True, slots=True)
class ResizeAttrs:
    """``sizes`` and ``scales`` have an entry for each axis; a scale of 0 means size out / size in. ``roi`` (begins, then ends) matters to
    tf_crop_and_resize alone."""

    sizes: tuple[Dim, ...]
    scales: tuple[float, ...]
    mode: str = "nearest"  # linear, cubic
    coordinates: str = "half_pixel"  # half_pixel_symmetric, pytorch_half_pixel, align_corners, asymmetric, tf_crop_and_resize
    nearest: str = "round_prefer_floor"  # round_prefer_ceil, floor, ceil
    cubic_a: float = -0.75
    exclude_outside: bool = False
    extrapolation: float = 0.0
    antialias: bool = False
    roi: tuple[float, ...] = ()


def infer_resize(types: Types, a: ResizeAttrs) -> tuple[TensorType, ...]:
    (x,) = types
    assert x is not None
    if len(a.sizes) != x.rank or len(a.scales) != x.rank:
        raise ValueError(f"{len(a.sizes)} sizes for {x}")
    return (TensorType(x.dtype, a.sizes),)


def source_coordinates(size_in: int, size_out: int, scale: float, a: ResizeAttrs, axis: int, rank: int) -> np.ndarray:
    """Where in the input each output element along ``axis`` lies."""
    i = np.arange(size_out, dtype=np.float64)
    if a.coordinates == "align_corners":
        return i * (size_in - 1) / (size_out - 1) if size_out > 1 else np.zeros(size_out)
    if a.coordinates == "asymmetric":
        return i / scale
    if a.coordinates == "pytorch_half_pixel":
        return (i + 0.5) / scale - 0.5 if size_out > 1 else np.zeros(size_out)
    if a.coordinates == "half_pixel_symmetric":
        adjustment = size_out / (scale * size_in)
        centre = size_in / 2
        return centre * (1 - adjustment) + (i + 0.5) / scale - 0.5
    if a.coordinates == "tf_crop_and_resize":
        begin, end = a.roi[axis], a.roi[rank + axis]
        if size_out > 1:
            return begin * (size_in - 1) + i * (end - begin) * (size_in - 1) / (size_out - 1)
        return np.full(size_out, 0.5 * (begin + end) * (size_in - 1))
    return (i + 0.5) / scale - 0.5


def _cubic(t: np.ndarray, a: float) -> np.ndarray:
    t = np.abs(t)
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return np.where(t <= 1, near, np.where(t < 2, far, 0.0))


def axis_matrix(size_in: int, size_out: int, scale: float, a: ResizeAttrs, axis: int, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """The (size_out, size_in) matrix of weights of one axis, and which outputs lie outside of the input."""
    where = source_coordinates(size_in, size_out, scale, a, axis, rank)
    outside = (where < 0) | (where > size_in - 1) if a.coordinates == "tf_crop_and_resize" else np.zeros(size_out, bool)
    matrix = np.zeros((size_out, size_in))
    if a.mode == "nearest":
        rounded = {
            "round_prefer_floor": lambda: np.ceil(where - 0.5), "round_prefer_ceil": lambda: np.floor(where + 0.5),
            "floor": lambda: np.floor(where), "ceil": lambda: np.ceil(where),
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


def resize_array(x: np.ndarray, a: ResizeAttrs) -> np.ndarray:
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


OPS.add("Resize", Op("Resize", Kind.WINDOW, infer_resize, resize_array, ResizeAttrs, tolerance=4.0))


# --- ONNX ----------------------------------------------------------------------------------------------------------------


def _scaled(size: Dim, scale: float) -> Dim:
    """floor(size * scale), symbolically where the scale is a simple fraction."""
    if isinstance(size, int):
        return int(np.floor(size * scale))
    exact = contents._floor(contents._times(size, float(scale)))  # noqa: SLF001
    return exact


def resize_to(
    b: Scope, x: Value, roi: Value | None, scales: Value | None, sizes: Value | None, axes: tuple[int, ...] | None, policy: str, **attrs: object
) -> Value:
    rank = x.type.rank
    where = tuple(range(rank)) if axes is None else tuple(normalize_axis(a, rank) for a in axes)
    target: list[Dim] = list(x.shape)
    factor: list[float] = [1.0] * rank
    if sizes is not None:
        wanted = b.dims(sizes, "sizes", lo=1)
        if len(wanted) != len(where):
            raise ValueError(f"{len(wanted)} sizes for {len(where)} axes")
        for axis, size in zip(where, wanted):
            target[axis], factor[axis] = size, 0.0 if size != x.shape[axis] else 1.0
        if policy != "stretch":
            static = [(w, x.shape[axis]) for axis, w in zip(where, wanted)]
            if not all(isinstance(v, int) for pair in static for v in pair):
                raise Unsupported(f"keep_aspect_ratio_policy {policy} with symbolic sizes", "bind the dims with --dim")
            ratios = [int(w) / int(s) for w, s in static]  # type: ignore[arg-type]
            ratio = min(ratios) if policy == "not_larger" else max(ratios)
            for axis in where:
                factor[axis] = ratio
                target[axis] = int(np.floor(int(x.shape[axis]) * ratio + 0.5))  # type: ignore[arg-type]
    elif scales is not None:
        _scale_axes(b, x, scales, where, target, factor)
    else:
        raise ValueError("neither sizes nor scales")
    box: tuple[float, ...] = ()
    if attrs.get("coordinates") == "tf_crop_and_resize":
        if roi is None:
            raise ValueError("tf_crop_and_resize without roi")
        given = [float(v) for v in declare.known(roi, "roi").ravel()]
        full = [0.0] * rank + [1.0] * rank
        for i, axis in enumerate(where):
            full[axis], full[rank + axis] = given[i], given[len(where) + i]
        box = tuple(full)
    if tuple(target) == x.shape and all(f == 1.0 for f in factor) and not box:
        return x
    return b.op("Resize", x, sizes=tuple(target), scales=tuple(factor), roi=box, **attrs)


def _scale_axes(b: Scope, x: Value, scales: Value, where: tuple[int, ...], target: list[Dim], factor: list[float]) -> None:
    array = numbers(scales)
    if array is not None:
        if array.size != len(where):
            raise ValueError(f"{array.size} scales for {len(where)} axes")
        for axis, scale in zip(where, array.ravel().tolist()):
            if scale == 1:
                continue
            target[axis], factor[axis] = _scaled(x.shape[axis], scale), float(scale)
        return
    if scales.content is not None:  # scales that are ratios of sizes: floor(size * scale) may still be known
        for axis, scale in zip(where, scales.content.ravel().tolist()):
            if isinstance(scale, float):
                target[axis], factor[axis] = _scaled(x.shape[axis], scale), scale
            else:
                target[axis], factor[axis] = contents._floor(contents._times(x.shape[axis], scale)), 0.0  # noqa: SLF001
        return
    raise Unsupported("scales must be known at compile time", "make them a constant, or give sizes instead")


@onnx_op("Resize", since=11)
def resize(
    b: Scope, x: Value, roi: Value | None = None, scales: Value | None = None, sizes: Value | None = None, *, antialias: int = 0,
    axes: tuple[int, ...] | None = None, coordinate_transformation_mode: str = "half_pixel", cubic_coeff_a: float = -0.75, exclude_outside: int = 0,
    extrapolation_value: float = 0.0, keep_aspect_ratio_policy: str = "stretch", mode: str = "nearest", nearest_mode: str = "round_prefer_floor",
) -> Value:  # fmt: skip
    if scales is not None and scales.shape == (0,):
        scales = None  # an empty tensor is "not given" in opset 11
    if mode not in ("nearest", "linear", "cubic"):
        raise ValueError(f"mode {mode!r}")
    return resize_to(
        b, x, roi, scales, sizes, axes, keep_aspect_ratio_policy, mode=mode, coordinates=coordinate_transformation_mode, nearest=nearest_mode,
        cubic_a=cubic_coeff_a, exclude_outside=bool(exclude_outside), extrapolation=extrapolation_value, antialias=bool(antialias),
    )  # fmt: skip


@onnx_op("Resize", since=10)
@onnx_op("Upsample", since=9)
def resize_10(b: Scope, x: Value, scales: Value, *, mode: str = "nearest") -> Value:
    return _upsample(b, x, scales, mode)


@onnx_op("Upsample", since=7)
def upsample_attribute(b: Scope, x: Value, *, scales: tuple[float, ...], mode: str = "nearest") -> Value:
    return _upsample(b, x, b.constant(scales, np.float32), mode)


def _upsample(b: Scope, x: Value, scales: Value, mode: str) -> Value:
    return resize_to(b, x, None, scales, None, None, "stretch", mode="linear" if mode in ("linear", "bilinear") else mode, coordinates="asymmetric", nearest="floor")


