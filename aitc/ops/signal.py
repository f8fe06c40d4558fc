"""Signals: DFT and STFT as products with matrices of cosines and sines, MelWeightMatrix."""

from __future__ import annotations

import math

import numpy as np

from aitc.ir import dim as d
from aitc.ir.dim import Dim
from aitc.ir.dtype import F32, F64, I64, DType
from aitc.ir.graph import Value
from aitc.ops import declare, runtime
from aitc.ops.declare import Scope, cast, dtype_of, normalize_axis, numbers, onnx_op, scalar, transpose
from aitc.ops.sample import size_of


def angles(b: Scope, rows: Dim, columns: Dim, length: Dim, dtype: DType) -> Value:
    """2 pi i j / length, [rows, columns]; i j is reduced by the length first, so that nothing is lost."""
    i = declare.reshape(b, b.op("Range", start=0, step=1, size=rows), (rows, 1))
    j = declare.reshape(b, b.op("Range", start=0, step=1, size=columns), (1, columns))
    n = size_of(b, length, I64)
    turn = cast(b, b.op("Mod", b.op("Mul", i, j), n), dtype)
    return b.op("Mul", turn, b.op("Div", b.like(2 * math.pi, turn), size_of(b, length, dtype)))


def dft(b: Scope, x: Value, length: Dim, axis: int, inverse: bool, onesided: bool) -> Value:
    """x [..., 1 or 2] transformed along ``axis``, cut or filled up with zeros to ``length``."""
    rank = x.type.rank
    axis = normalize_axis(axis, rank)
    if axis == rank - 1:
        raise ValueError("the last axis holds real and imaginary parts")
    parts = x.shape[-1]
    if parts not in (1, 2):
        raise ValueError(f"the last axis of {x.type} must be 1 (real) or 2 (complex)")
    # a plain sum of many products is less exact than a fast transform's: short ones are cheap enough to do in double
    long = d.bounds(length)[0] > 128
    dtype = F32 if long and x.type.dtype is not F64 else F64
    order = (*(i for i in range(rank - 1) if i != axis), axis)
    perm = (rank - 1, *order)
    signal = transpose(b, cast(b, x, dtype), perm)  # [parts, ..., N]
    bins = d.add(d.floordiv(length, 2), 1)
    rows = d.min_(signal.shape[-1], bins if inverse and onesided else length)
    columns = bins if onesided and not inverse else length
    signal = declare.slice_axis(b, signal, rank - 1, 0, rows)
    angle = angles(b, rows, columns, length, dtype)
    cosine, sine = b.op("Cos", angle), b.op("Sin", angle)
    if inverse and onesided:
        weight = _mirror(b, rows, length, dtype)
        cosine, sine = b.op("Mul", cosine, weight), b.op("Mul", sine, weight)

    def part(index: int) -> Value:
        return declare.reshape(b, declare.slice_axis(b, signal, 0, index, 1), signal.shape[1:])

    def times(v: Value, m: Value) -> Value:
        flat = declare.reshape(b, v, (d.product(v.shape[:-1]), rows))
        return declare.reshape(b, b.op("MatMul", flat, m), (*v.shape[:-1], columns))

    real = part(0)
    re, im = times(real, cosine), None if inverse and onesided else times(real, sine)
    if not inverse and im is not None:
        im = b.op("Neg", im)
    if parts == 2:
        other = part(1)
        turned = times(other, sine)
        re = b.op("Sub", re, turned) if inverse else b.op("Add", re, turned)
        if im is not None:
            im = b.op("Add", im, times(other, cosine))
    results = [re] if im is None else [re, im]
    if inverse:
        results = [b.op("Div", v, size_of(b, length, dtype)) for v in results]
    y = declare.unsqueeze(b, results[0], (0,))
    if len(results) == 2:
        y = b.op("Concat", y, declare.unsqueeze(b, results[1], (0,)), axis=0)
    back = [0] * rank
    for i, p in enumerate(perm):
        back[p] = i
    return cast(b, transpose(b, y, tuple(back)), x.type.dtype)


def _mirror(b: Scope, rows: Dim, length: Dim, dtype: DType) -> Value:
    """How often each bin of a one-sided spectrum counts, [rows, 1]: once for 0 and length / 2, else twice."""
    k = declare.reshape(b, b.op("Range", start=0, step=1, size=rows), (rows, 1))
    middle = b.op("Equal", b.op("Mul", k, b.like(2, k)), size_of(b, length, I64))
    once = b.op("Or", b.op("Equal", k, b.like(0, k)), middle)
    return cast(b, b.op("Where", once, b.like(1, k), b.like(2, k)), dtype)


def _length(b: Scope, x: Value, given: Value | None, axis: int, inverse: int, onesided: int) -> Dim:
    if given is not None:
        return b.dims(declare.reshape(b, given, (1,)), "dft_length", lo=1)[0]
    size = x.shape[axis]
    return d.mul(d.add(size, -1), 2) if inverse and onesided else size


@onnx_op("DFT", since=20)
def dft_20(
    b: Scope,
    x: Value,
    dft_length: Value | None = None,
    axis: Value | None = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
) -> Value:
    if axis is not None and numbers(axis) is None:
        return _dft_any_axis(b, x, dft_length, axis, bool(inverse), bool(onesided))
    where = normalize_axis(-2 if axis is None else int(scalar(axis, "axis")), x.type.rank)
    return dft(b, x, _length(b, x, dft_length, where, inverse, onesided), where, bool(inverse), bool(onesided))


def _dft_any_axis(b: Scope, x: Value, dft_length: Value | None, axis: Value, inverse: bool, onesided: bool) -> Value:
    """Along an axis that the data names: the sizes before, of and after it are read first."""
    before, own, after = runtime.around(b, x, axis)
    flat = declare.reshape(b, x, (before, own, d.floordiv(after, x.shape[-1]), x.shape[-1]))
    length = _length(b, flat, dft_length, 1, inverse, onesided)
    y = dft(b, flat, length, 1, inverse, onesided)
    rank = x.type.rank
    listed = runtime.is_axis(b, axis, rank)
    sizes = b.op(
        "Where", listed, runtime.vector(b, [y.shape[1]] * rank), runtime.vector(b, [*x.shape[:-1], y.shape[-1]])
    )
    (shape,) = runtime.read(b, sizes)
    return declare.reshape(b, y, (*shape[:-1], y.shape[-1]))


@onnx_op("DFT", since=17)
def dft_17(
    b: Scope, x: Value, dft_length: Value | None = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0
) -> Value:
    where = normalize_axis(axis, x.type.rank)
    return dft(b, x, _length(b, x, dft_length, where, inverse, onesided), where, bool(inverse), bool(onesided))


@onnx_op("STFT")
def stft(
    b: Scope,
    x: Value,
    frame_step: Value,
    window: Value | None = None,
    frame_length: Value | None = None,
    *,
    onesided: int = 1,
) -> Value:
    """Overlapping frames [B, F, L, 1 or 2], weighted, each transformed."""
    if x.type.rank == 2:
        x = declare.unsqueeze(b, x, (2,))
    (step,) = b.dims(declare.reshape(b, frame_step, (1,)), "frame_step", lo=1)
    if frame_length is not None:
        (length,) = b.dims(declare.reshape(b, frame_length, (1,)), "frame_length", lo=1)
        if window is not None and isinstance(window.shape[0], int):
            length = window.shape[0]
    else:
        length = x.shape[1] if window is None else window.shape[0]
    if d.bounds(step)[1] < 1 or d.bounds(length)[1] < 1 or d.bounds(d.add(x.shape[1], d.mul(length, -1)))[1] < 0:
        raise ValueError(f"frames of {length} every {step} elements of {x.type}")
    frames = d.add(d.floordiv(d.add(x.shape[1], d.mul(length, -1)), step), 1)
    starts = declare.reshape(b, b.op("Range", start=0, step=step, size=frames), (frames, 1))
    places = b.op("Add", starts, declare.reshape(b, b.op("Range", start=0, step=1, size=length), (1, length)))
    pieces = b.op("Gather", x, places, axis=1)
    if window is not None:
        pieces = b.op("Mul", pieces, declare.reshape(b, cast(b, window, x.type.dtype), (1, 1, length, 1)))
    return dft(b, pieces, length, 2, False, bool(onesided))


@onnx_op("MelWeightMatrix")
def mel_weight_matrix(
    b: Scope,
    num_mel_bins: Value,
    dft_length: Value,
    sample_rate: Value,
    lower_edge_hertz: Value,
    upper_edge_hertz: Value,
    *,
    output_datatype: int = 1,
) -> Value:
    """Triangles between neighbouring mel frequencies, [dft_length / 2 + 1, bins]."""
    (bins,) = b.dims(declare.reshape(b, num_mel_bins, (1,)), "num_mel_bins", lo=1)
    (length,) = b.dims(declare.reshape(b, dft_length, (1,)), "dft_length", lo=1)
    low, high, rate = (
        declare.reshape(b, cast(b, v, F64), ()) for v in (lower_edge_hertz, upper_edge_hertz, sample_rate)
    )
    scale = 2595 / math.log(10)

    def mel(hertz: Value) -> Value:
        return b.op(
            "Mul",
            b.op("Log", b.op("Add", b.op("Div", hertz, b.like(700, hertz)), b.like(1, hertz))),
            b.like(scale, hertz),
        )

    count = d.add(bins, 2)
    step = b.op("Div", b.op("Sub", mel(high), mel(low)), size_of(b, count, F64))
    points = b.op("Add", b.op("Mul", cast(b, b.op("Range", start=0, step=1, size=count), F64), step), mel(low))
    hertz = b.op(
        "Mul",
        b.op("Sub", b.op("Exp", b.op("Div", points, b.like(scale, points))), b.like(1, points)),
        b.like(700, points),
    )
    edges = b.op("Floor", b.op("Div", b.op("Mul", hertz, size_of(b, d.add(length, 1), F64)), rate))
    left, centre, right = (declare.slice_axis(b, edges, 0, k, bins) for k in range(3))
    rows = d.add(d.floordiv(length, 2), 1)
    j = declare.reshape(b, cast(b, b.op("Range", start=0, step=1, size=rows), F64), (rows, 1))

    def slope(top: Value, bottom: Value) -> Value:
        return b.op("Div", top, b.op("Max", bottom, b.like(1, bottom)))

    width_up, width_down = b.op("Sub", centre, left), b.op("Sub", right, centre)
    rising = b.op("And", b.op("GreaterOrEqual", j, left), b.op("LessOrEqual", j, centre))
    falling = b.op("And", b.op("GreaterOrEqual", j, centre), b.op("Less", j, right))
    zero, one = b.constant(0.0, np.float64), b.constant(1.0, np.float64)
    up = b.op("Where", b.op("Equal", width_up, zero), one, slope(b.op("Sub", j, left), width_up))
    y = b.op("Where", falling, slope(b.op("Sub", right, j), width_down), b.op("Where", rising, up, zero))
    return cast(b, y, dtype_of(output_datatype, "output_datatype"))
