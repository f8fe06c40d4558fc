"""Operators that sample images at places that the data names: GridSample, RoiAlign, DeformConv, AffineGrid.

All are index arithmetic, gathers and weighted sums: no kernel of their own, and the compiler fuses them into one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Literal

import numpy as np

from aitc.ir import dim as d
from aitc.ir.dim import Dim
from aitc.ir.dtype import F32, F64, I64, DType
from aitc.ir.graph import Value
from aitc.ops import declare, runtime
from aitc.ops.attribute import Count, Counts, Finite, PoolMode, Positive, Positives, SampleMode, SamplePadding
from aitc.ops.contract import check_kernel_shape
from aitc.ops.declare import Scope, Unsupported, cast, onnx_op, transpose
from aitc.ops.indices import check_bounds
from aitc.ops.windows import check_lengths


def number(b: Scope, x: float, dtype: DType = F32) -> Value:
    return b.constant(np.asarray(x, dtype.numpy))


def size_of(b: Scope, dim: Dim, dtype: DType = F32) -> Value:
    """A Dim as a scalar of ``dtype``."""
    if isinstance(dim, int):
        return number(b, dim, dtype)
    return cast(b, b.op("Dims", content=(dim,), shape=()), dtype)


def gather_pixels(b: Scope, x: Value, places: Sequence[Value]) -> Value:
    """x [N, C, space...] at int64 ``places`` (one [N, P] an axis of space, inside the image): [N, P, C]."""
    n, c, *space = x.shape
    flat: Value | None = None
    for size, index in zip(space, places):
        flat = index if flat is None else b.op("Add", b.op("Mul", flat, size_of(b, size, I64)), index)
    assert flat is not None
    pixels = transpose(b, declare.reshape(b, x, (n, c, d.product(space))), (0, 2, 1))  # [N, HW, C]
    return b.op("GatherND", pixels, declare.unsqueeze(b, flat, (2,)), batch_dims=1)


def clamped(b: Scope, index: Value, size: Dim) -> Value:
    """Indices (whole numbers in float) clamped into [0, size), as int64."""
    top = b.op("Sub", size_of(b, size, index.type.dtype), b.like(1, index))
    return b.op("Cast", b.op("Max", b.op("Min", index, top), b.like(0, index)), to=I64)


def inside(b: Scope, index: Value, size: Dim) -> Value:
    below = b.op("Less", index, size_of(b, size, index.type.dtype))
    return b.op("And", b.op("GreaterOrEqual", index, b.like(0, index)), below)


def reflected(b: Scope, x: Value, size: Dim, align_corners: bool) -> Value:
    """``x`` reflected at the borders until it lies between them."""
    extent = size_of(b, size, x.type.dtype)
    low = b.like(0.0 if align_corners else -0.5, x)
    span = b.op("Sub", extent, b.like(1, x)) if align_corners else extent
    span = b.op("Max", span, b.like(1e-30, x))
    distance = b.op("Abs", b.op("Sub", x, low))
    turns = b.op("Floor", b.op("Div", distance, span))
    rest = b.op("Sub", distance, b.op("Mul", turns, span))
    odd = b.op("Sub", turns, b.op("Mul", b.op("Floor", b.op("Mul", turns, b.like(0.5, x))), b.like(2, x)))
    back = b.op("Where", b.op("Greater", odd, b.like(0.5, x)), b.op("Sub", span, rest), rest)
    return b.op("Add", back, low)


def cubic_weights(b: Scope, t: Value, a: float = -0.75) -> list[Value]:
    """Keys' weights of the four neighbours, for a fraction t in [0, 1)."""

    def poly(x: Value, *coefficients: float) -> Value:
        y = b.like(coefficients[0], x)
        for c in coefficients[1:]:
            y = b.op("Add", b.op("Mul", y, x), b.like(c, x))
        return y

    one = b.like(1, t)
    far, near = (a, -5 * a, 8 * a, -4 * a), (a + 2, -(a + 3), 0.0, 1.0)
    other = b.op("Sub", one, t)
    return [poly(b.op("Add", t, one), *far), poly(t, *near), poly(other, *near), poly(b.op("Add", other, one), *far)]


def weighted(b: Scope, x: Value, where: Sequence[Value], mode: str, padding: str, align_corners: bool) -> Value:
    """x [N, C, space...] sampled at pixel coordinates [N, P] (one an axis of space): [N, P, C]. Coordinates are
    already folded by ``padding``."""
    space = x.shape[2:]
    taps: list[list[tuple[Value, Value | None]]] = []  # for each axis: (index, weight)
    for coordinate in where:
        if mode == "nearest":
            taps.append([(b.op("Round", coordinate), None)])
            continue
        base = b.op("Floor", coordinate)
        t = b.op("Sub", coordinate, base)
        if mode == "linear":
            taps.append([(base, b.op("Sub", b.like(1, t), t)), (b.op("Add", base, b.like(1, base)), t)])
        else:
            taps.append([(b.op("Add", base, b.like(k - 1, base)), w) for k, w in enumerate(cubic_weights(b, t))])
    total: Value | None = None
    for corner in product(*taps):
        weight: Value | None = None
        places = []
        for (index, w), size in zip(corner, space):
            if padding == "zeros":
                ok = cast(b, inside(b, index, size), index.type.dtype)
                w = ok if w is None else b.op("Mul", w, ok)
            elif padding == "reflection":
                index = b.op("Round", reflected(b, index, size, align_corners))
            weight = w if weight is None else weight if w is None else b.op("Mul", weight, w)
            places.append(clamped(b, index, size))
        pixels = gather_pixels(b, x, places)
        if weight is not None:
            pixels = b.op("Mul", pixels, cast(b, declare.unsqueeze(b, weight, (2,)), x.type.dtype))
        total = pixels if total is None else b.op("Add", total, pixels)
    assert total is not None
    return total


def grid_sample(b: Scope, x: Value, grid: Value, mode: str, padding: str, align_corners: bool) -> Value:
    n, _, *space = x.shape
    k = len(space)
    out = grid.shape[1:-1]
    grid = grid if grid.type.dtype.bits >= 32 else cast(b, grid, F32)
    flat = declare.reshape(b, grid, (n, d.product(out), k))
    where = []
    for axis, size in enumerate(space):  # the grid's last axis is (x, y, z): the reverse of the image's
        g = declare.slice_axis(b, flat, 2, k - 1 - axis, 1)
        g = declare.reshape(b, g, g.shape[:2])
        extent = size_of(b, size, g.type.dtype)
        half = b.op("Mul", b.op("Add", g, b.like(1, g)), b.like(0.5, g))
        if align_corners:
            p = b.op("Mul", half, b.op("Sub", extent, b.like(1, g)))
        else:
            p = b.op("Sub", b.op("Mul", half, extent), b.like(0.5, g))
        if mode == "nearest":
            p = b.op("Round", p)
        if padding == "border":
            # a cubic's taps are clamped each: from two beyond the border on, all of them are the border
            beyond = 2 if mode == "cubic" else 0
            p = b.op("Max", b.op("Min", p, b.op("Add", extent, b.like(beyond - 1, g))), b.like(-beyond, g))
        elif padding == "reflection":
            p = reflected(b, p, size, align_corners)
        where.append(p)
    y = weighted(b, x, where, mode, padding, align_corners)
    return declare.reshape(b, transpose(b, y, (0, 2, 1)), (n, x.shape[1], *out))


@onnx_op("GridSample")
def grid_sample_(
    b: Scope, x: Value, grid: Value, *, align_corners: int = 0, mode: SampleMode = "linear", padding_mode: SamplePadding = "zeros"
) -> Value:
    spelled = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)  # until opset 20
    return grid_sample(b, x, grid, spelled, padding_mode, bool(align_corners))


@onnx_op("AffineGrid")
def affine_grid(b: Scope, theta: Value, size: Value, *, align_corners: int = 0) -> Value:
    n, _, *space = b.dims(size, "size", lo=1)
    rows: list[Value] = []
    for axis in reversed(range(len(space))):  # x first
        extent = size_of(b, space[axis], theta.type.dtype)
        i = cast(b, b.op("Range", start=0, step=1, size=space[axis]), theta.type.dtype)
        if align_corners:
            step = b.op("Div", b.like(2, i), b.op("Max", b.op("Sub", extent, b.like(1, i)), b.like(1, i)))
            p = b.op("Sub", b.op("Mul", i, step), b.like(1, i))
        else:
            p = b.op("Sub", b.op("Div", b.op("Add", b.op("Mul", i, b.like(2, i)), b.like(1, i)), extent), b.like(1, i))
        p = declare.reshape(b, p, (*([1] * axis), space[axis], *([1] * (len(space) - 1 - axis))))
        rows.append(declare.unsqueeze(b, declare.expand(b, p, space), (len(space),)))
    rows.append(b.op("Fill", value=1.0, shape=(*space, 1), dtype=theta.type.dtype))
    points = declare.reshape(b, b.op("Concat", *rows, axis=len(space)), (1, d.product(space), len(space) + 1))
    grid = b.op("MatMul", points, transpose(b, theta, (0, 2, 1)))
    return declare.reshape(b, grid, (n, *space, len(space)))


def _bins(b: Scope, rois: Value, first: int, scale: float, offset: float, floor: bool) -> tuple[Value, Value]:
    """Start and length of each region along one axis: [R]."""
    ends = []
    for column in (first, first + 2):
        v = declare.slice_axis(b, rois, 1, column, 1)
        v = declare.reshape(b, v, (v.shape[0],))
        ends.append(b.op("Sub", b.op("Mul", v, b.like(scale, v)), b.like(offset, v)))
    length = b.op("Sub", ends[1], ends[0])
    return ends[0], b.op("Max", length, b.like(1, length)) if floor else length


@onnx_op("RoiAlign", since=10)
def roi_align_10(
    b: Scope, x: Value, rois: Value, batch: Value, *, mode: PoolMode = "avg", output_height: Positive = 1, output_width: Positive = 1,
    sampling_ratio: Count = 0, spatial_scale: Finite = 1.0,
) -> Value:  # fmt: skip
    return _roi_align(b, x, rois, batch, mode, (output_height, output_width), sampling_ratio, spatial_scale, False)


@onnx_op("RoiAlign", since=16)
def roi_align(
    b: Scope, x: Value, rois: Value, batch: Value, *, coordinate_transformation_mode: Literal["half_pixel", "output_half_pixel"] = "half_pixel",
    mode: PoolMode = "avg", output_height: Positive = 1, output_width: Positive = 1, sampling_ratio: Count = 0,
    spatial_scale: Finite = 1.0,
) -> Value:  # fmt: skip
    half = coordinate_transformation_mode == "half_pixel"
    return _roi_align(b, x, rois, batch, mode, (output_height, output_width), sampling_ratio, spatial_scale, half)


def _roi_align(
    b: Scope, x: Value, rois: Value, batch: Value, mode: str, out: tuple[int, int], ratio: int, scale: float, half: bool
) -> Value:
    """Each bin of each region is the mean (or maximum) of samples on a regular grid in it: taken at [R, bins *
    samples] an axis."""
    known = declare.numbers(batch)
    if known is not None:
        check_bounds(known, x.shape[0], f"the batch of {x.type}", least=0)
    count = rois.shape[0]
    wide = rois if rois.type.dtype in (F32, F64) else cast(b, rois, F32)
    axes = []
    for axis in range(2):
        start, length = _bins(b, wide, 1 - axis, scale, 0.5 if half else 0.0, not half)
        size = b.op("Mul", length, b.like(1 / out[axis], length))  # of a bin
        samples: Dim
        if ratio > 0:
            samples, number_of = ratio, b.like(ratio, size)
        else:  # as many as the bin is wide: the most that any region needs, the rest is masked
            number_of = b.op("Ceil", size)
            most = b.op(
                "Cast",
                b.op("Max", b.op("Reduce", number_of, function="max", axes=(0,), keepdims=True), b.like(1, size)),
                to=I64,
            )
            ((samples,),) = runtime.read(b, most, lo=1)
        number_of = declare.expand(b, number_of, (count,))
        column = lambda v: declare.reshape(b, v, (count, 1, 1))  # noqa: E731
        i = declare.reshape(
            b, cast(b, b.op("Range", start=0, step=1, size=out[axis]), size.type.dtype), (1, out[axis], 1)
        )
        j = declare.reshape(b, cast(b, b.op("Range", start=0, step=1, size=samples), size.type.dtype), (1, 1, samples))
        within = b.op("Div", b.op("Add", j, b.like(0.5, j)), column(number_of))
        place = b.op("Add", b.op("Mul", b.op("Add", within, i), column(size)), column(start))  # [R, out, samples]
        used = None if ratio > 0 else b.op("Less", j, column(number_of))
        axes.append((place, samples, number_of, used))
    return _roi_samples(b, x, batch, count, out, axes, mode)


def _roi_samples(
    b: Scope,
    x: Value,
    batch: Value,
    count: Dim,
    out: tuple[int, int],
    axes: list[tuple[Value, Dim, Value, Value | None]],
    mode: str,
) -> Value:
    (ys, sy, ny, used_y), (xs, sx, nx, used_x) = axes
    _, c, height, width = x.shape
    grid = (count, out[0], sy, out[1], sx)
    y = declare.expand(b, declare.reshape(b, ys, (count, out[0], sy, 1, 1)), grid)
    z = declare.expand(b, declare.reshape(b, xs, (count, 1, 1, out[1], sx)), grid)
    flat = (count, d.product(grid[1:]))
    ok: Value | None = None
    folded = []
    for v, size in ((y, height), (z, width)):
        v = declare.reshape(b, v, flat)
        extent = size_of(b, size, v.type.dtype)
        near = b.op("And", b.op("GreaterOrEqual", v, b.like(-1, v)), b.op("LessOrEqual", v, extent))
        ok = near if ok is None else b.op("And", ok, near)
        folded.append(b.op("Max", b.op("Min", v, b.op("Sub", extent, b.like(1, v))), b.like(0, v)))
    for used, shape in ((used_y, (count, 1, sy, 1, 1)), (used_x, (count, 1, 1, 1, sx))):
        if used is not None:
            assert ok is not None
            ok = b.op("And", ok, declare.reshape(b, declare.expand(b, declare.reshape(b, used, shape), grid), flat))
    assert ok is not None
    images = b.op("Gather", x, cast(b, batch, I64), axis=0)  # one image a region
    mask = cast(b, declare.unsqueeze(b, ok, (2,)), x.type.dtype)
    if mode == "avg":
        pixels = b.op("Mul", weighted(b, images, folded, "linear", "border", True), mask)
    else:
        pixels = b.op("Mul", _largest_corner(b, images, folded), mask)
    apart = declare.reshape(b, pixels, (*grid, c))
    if mode == "avg":
        total = b.op("Reduce", apart, function="sum", axes=(2, 4), keepdims=False)
        many = b.op("Max", b.op("Mul", ny, nx), b.like(1, ny))
        many = cast(b, declare.reshape(b, many, (count, 1, 1, 1)), x.type.dtype)
        return transpose(b, b.op("Div", total, many), (0, 3, 1, 2))
    return transpose(b, b.op("Reduce", apart, function="max", axes=(2, 4), keepdims=False), (0, 3, 1, 2))


def _largest_corner(b: Scope, x: Value, where: Sequence[Value]) -> Value:
    """The largest of the four weighted corners, which is what RoiAlign's mode max takes."""
    best: Value | None = None
    base = [b.op("Floor", v) for v in where]
    t = [b.op("Sub", v, f) for v, f in zip(where, base)]
    for corner in product((0, 1), repeat=2):
        weight: Value | None = None
        places = []
        for k, f, s, size in zip(corner, base, t, x.shape[2:]):
            w = s if k else b.op("Sub", b.like(1, s), s)
            weight = w if weight is None else b.op("Mul", weight, w)
            places.append(clamped(b, b.op("Add", f, b.like(k, f)), size))
        assert weight is not None
        pixel = b.op("Mul", gather_pixels(b, x, places), cast(b, declare.unsqueeze(b, weight, (2,)), x.type.dtype))
        best = pixel if best is None else b.op("Max", best, pixel)
    assert best is not None
    return best


@onnx_op("MaxRoiPool")
def max_roi_pool(
    b: Scope, x: Value, rois: Value, *, pooled_shape: Positives, spatial_scale: Finite = 1.0
) -> Value:
    """The maximum of each bin of each region (batch, x1, y1, x2, y2), one axis after the other, with what is
    outside of the bin masked."""
    count = rois.shape[0]
    column = [declare.reshape(b, declare.slice_axis(b, rois, 1, i, 1), (count, 1, 1)) for i in range(5)]
    images = b.op("Gather", x, declare.reshape(b, cast(b, column[0], I64), (count,)), axis=0)
    y = images
    for axis in (3, 2):  # columns, then rows
        low, high = (
            _half_up(b, b.op("Mul", column[i], b.like(spatial_scale, rois))) for i in ((1, 3) if axis == 3 else (2, 4))
        )
        length = b.op("Max", b.op("Add", b.op("Sub", high, low), b.like(1, low)), b.like(1, low))
        size, bins = x.shape[axis], pooled_shape[axis - 2]
        step = b.op("Div", length, b.like(bins, length))
        k = declare.reshape(b, b.constant(np.arange(bins).astype(rois.type.dtype.numpy)), (1, bins, 1))
        first = b.op("Add", b.op("Floor", b.op("Mul", k, step)), low)
        last = b.op("Add", b.op("Ceil", b.op("Mul", b.op("Add", k, b.like(1, k)), step)), low)
        i = declare.reshape(b, cast(b, b.op("Range", start=0, step=1, size=size), rois.type.dtype), (1, 1, size))
        within = b.op("And", b.op("GreaterOrEqual", i, first), b.op("Less", i, last))  # [R, bins, size]
        moved = y if axis == 3 else transpose(b, y, (0, 1, 3, 2))
        within = declare.reshape(b, within, (count, 1, 1, bins, size))
        masked = b.op("Where", within, declare.unsqueeze(b, moved, (3,)), b.like(-np.inf, y))
        y = b.op("Reduce", masked, function="max", axes=(4,), keepdims=False)
        y = y if axis == 3 else transpose(b, y, (0, 1, 3, 2))
    return b.op("Where", b.op("Equal", y, b.like(-np.inf, y)), b.like(0, y), y)  # empty bins are 0


def _half_up(b: Scope, x: Value) -> Value:
    return b.op("Floor", b.op("Add", x, b.like(0.5, x)))


@onnx_op("DeformConv")
def deform_conv(
    b: Scope, x: Value, w: Value, offset: Value, bias: Value | None = None, mask: Value | None = None, *,
    dilations: Positives | None = None, group: Positive = 1, kernel_shape: Positives | None = None,
    offset_group: Positive = 1, pads: Counts | None = None, strides: Positives | None = None,
) -> Value:  # fmt: skip
    """Columns sampled at the shifted places, times the filters."""
    n, c, *space = x.shape
    k = len(space)
    window = [s for s in w.shape[2:] if isinstance(s, int)]
    if len(window) != k:
        raise Unsupported(f"a filter of symbolic size: {w.type}", declare.binding(*w.shape))
    taps = math.prod(window)
    check_kernel_shape(w, kernel_shape)
    check_lengths(k, pads, strides=strides, dilations=dilations)
    dilations, strides, pads = dilations or (1,) * k, strides or (1,) * k, pads or (0,) * (2 * k)
    out = offset.shape[2:]
    for i, size in enumerate(out):
        room = d.sum_((space[i], pads[i], pads[k + i], -(window[i] - 1) * dilations[i] - 1))
        whole = d.add(d.floordiv(room, strides[i]), 1)
        if isinstance(size, int) and isinstance(whole, int) and size != whole:
            raise ValueError(f"offsets {offset.type} for {whole} windows on axis {2 + i} of {x.type}")
    shift = declare.reshape(b, offset, (n, offset_group, taps, k, *out))
    dtype = offset.type.dtype
    per = d.floordiv(c, offset_group)
    grid = (n, offset_group, taps, *out)
    where = []
    for axis in range(k):
        place = [np.unravel_index(t, window)[axis] * dilations[axis] - pads[axis] for t in range(taps)]
        start = b.constant(np.array(place, dtype.numpy).reshape(1, 1, taps, *([1] * k)))
        steps = cast(b, b.op("Range", start=0, step=strides[axis], size=out[axis]), dtype)
        steps = declare.reshape(b, steps, (*([1] * (3 + axis)), out[axis], *([1] * (k - 1 - axis))))
        moved = declare.slice_axis(b, shift, 3, axis, 1)
        moved = declare.reshape(b, moved, grid)
        v = b.op("Add", b.op("Add", moved, start), steps)
        where.append(declare.reshape(b, v, (d.mul(n, offset_group), d.product(grid[2:]))))
    images = declare.reshape(b, x, (d.mul(n, offset_group), per, *space))
    columns = weighted(b, images, where, "linear", "zeros", True)  # [N G, taps out, C / G]
    if mask is not None:
        columns = b.op("Mul", columns, declare.reshape(b, mask, (d.mul(n, offset_group), d.product(grid[2:]), 1)))
    columns = declare.reshape(b, columns, (n, offset_group, taps, d.product(out), per))
    columns = declare.reshape(
        b, transpose(b, columns, (0, 1, 4, 2, 3)), (n, group, d.mul(d.floordiv(c, group), taps), d.product(out))
    )
    filters = declare.reshape(b, w, (1, group, d.floordiv(w.shape[0], group), d.mul(w.shape[1], taps)))
    y = declare.reshape(b, b.op("MatMul", filters, columns), (n, w.shape[0], *out))
    return y if bias is None else b.op("Add", y, declare.along_channel(b, bias, y.type.rank))
