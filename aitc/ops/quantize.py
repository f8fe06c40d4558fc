"""Quantization: two pointwise core ops, and the ONNX operators that are made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aitc.ir import dim as d
from aitc.ir.dim import Dim
from aitc.ir.dtype import F32, I32, U8, DType
from aitc.ir.graph import Value
from aitc.ir.op import OPS, Kind, Op
from aitc.ir.types import TensorType, broadcast
from aitc.ops import declare
from aitc.ops.attribute import AutoPad, Counts, Positive, Positives
from aitc.ops.cast import CastAttrs, cast_array
from aitc.ops.contract import convolution, matmul
from aitc.ops.declare import Scope, Unsupported, along_channel, cast, dtype_of, normalize_axis, numbers, onnx_op
from aitc.ops.pointwise import widen

Types = Sequence["TensorType | None"]


@dataclass(frozen=True, slots=True)
class QuantizeAttrs:
    to: DType
    saturate: bool = True  # float8 alone


@dataclass(frozen=True, slots=True)
class DequantizeAttrs:
    to: DType


def infer_quantize(types: Types, a: QuantizeAttrs) -> tuple[TensorType, ...]:
    x, scale, zero = types
    assert x is not None and scale is not None
    if zero is not None and zero.dtype is not a.to:
        raise ValueError(f"the zero point {zero} must have the result's element type {a.to}")
    return (TensorType(a.to, broadcast(x.shape, scale.shape, () if zero is None else zero.shape)),)


def quantize_array(x: np.ndarray, scale: np.ndarray, zero: np.ndarray | None, a: QuantizeAttrs) -> np.ndarray:
    with np.errstate(all="ignore"):
        y: np.ndarray = widen(x).astype(np.float32) / widen(scale).astype(np.float32)
        if a.to.is_integer:
            low, high = integer_range(a.to)
            y = np.rint(y) + (0 if zero is None else widen(zero).astype(np.float32))
            y = np.clip(y, low, high)
            return y.astype(np.int32).astype(a.to.numpy)
        if zero is not None:
            y = y + widen(zero).astype(np.float32)
        return cast_array(y, CastAttrs(a.to, a.saturate))


def integer_range(dtype: DType) -> tuple[int, int]:
    """The smallest and largest value of an integer type."""
    return (
        (-(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1) if dtype.kind == "int" else (0, (1 << dtype.bits) - 1)
    )


def infer_dequantize(types: Types, a: DequantizeAttrs) -> tuple[TensorType, ...]:
    x, scale, zero = types
    assert x is not None and scale is not None
    if zero is not None and zero.dtype is not x.dtype:
        raise ValueError(f"the zero point {zero} must have the element type of {x}")
    return (TensorType(a.to, broadcast(x.shape, scale.shape, () if zero is None else zero.shape)),)


def dequantize_array(x: np.ndarray, scale: np.ndarray, zero: np.ndarray | None, a: DequantizeAttrs) -> np.ndarray:
    if x.dtype.kind in "iu":
        y = (x.astype(np.int64) - (0 if zero is None else zero.astype(np.int64))).astype(np.float32)
    else:
        y = x.astype(np.float32) - (np.float32(0) if zero is None else zero.astype(np.float32))
    return (y * widen(scale).astype(np.float32)).astype(a.to.numpy)


def _quantize_expr(a: QuantizeAttrs) -> str:
    if a.to.is_integer:
        low, high = integer_range(a.to)
        return f"quantize<{a.to.c}>({{0}}, {{1}}, {{2}}, {low}, {high})"
    return f"convert<float>(convert<{a.to.c}, {str(a.saturate).lower()}>(float({{0}}) / float({{1}}) + float({{2}})))"


OPS.add("QuantizeLinear", Op("QuantizeLinear", Kind.POINTWISE, infer_quantize, quantize_array, QuantizeAttrs, _quantize_expr, (3, 3),
                             doc="saturate(round(x / scale) + zero); scale and zero broadcast."))  # fmt: skip
OPS.add("DequantizeLinear", Op("DequantizeLinear", Kind.POINTWISE, infer_dequantize, dequantize_array, DequantizeAttrs,
                               "dequantize({0}, {1}, {2})", (3, 3), doc="(x - zero) * scale; scale and zero broadcast."))  # fmt: skip


# --- ONNX -------------------------------------------------------------------------------------------------------------


def spread(b: Scope, v: Value, x: TensorType, axis: int, block: int) -> Value:
    """A scale or zero point so shaped that it broadcasts over ``x``: one for all, one a slice of ``axis``, or
    one a block of it."""
    if v.type.elems == 1 and (not v.type.rank or x.rank == 0 or v.type.rank == 1):
        return declare.reshape(b, v, ())
    axis = normalize_axis(axis, x.rank)
    if not block:
        if v.type.rank != 1:
            return v
        return along_channel(b, v, x.rank, axis)
    if v.type.rank != x.rank:
        raise ValueError(f"scale {v.type} in blocks must have the rank of {x}")
    shape: list[Dim] = list(v.shape)
    apart = declare.reshape(b, v, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
    full = declare.expand(b, apart, (*shape[: axis + 1], block, *shape[axis + 1 :]))
    shape[axis] = d.mul(shape[axis], block)
    return declare.slice_axis(b, declare.reshape(b, full, shape), axis, 0, x.shape[axis])


def quantize(
    b: Scope,
    x: Value,
    scale: Value,
    zero: Value | None,
    to: DType,
    axis: int = 1,
    block: int = 0,
    saturate: bool = True,
) -> Value:
    scale = spread(b, scale, x.type, axis, block)
    zero = b.constant(np.zeros((), to.numpy)) if zero is None else spread(b, zero, x.type, axis, block)
    return b.op("QuantizeLinear", x, scale, zero, to=to, saturate=saturate)


def dequantize(
    b: Scope, x: Value, scale: Value, zero: Value | None, axis: int = 1, block: int = 0, to: DType | None = None
) -> Value:
    to = to or scale.type.dtype
    scale = spread(b, scale, x.type, axis, block)
    zero = b.constant(np.zeros((), x.type.dtype.numpy)) if zero is None else spread(b, zero, x.type, axis, block)
    return b.op("DequantizeLinear", x, scale, zero, to=to)


@onnx_op("QuantizeLinear")
def quantize_linear(
    b: Scope, x: Value, scale: Value, zero: Value | None = None, *, axis: int = 1, block_size: int = 0,
    output_dtype: int = 0, precision: int = 0, saturate: int = 1,
) -> Value:  # fmt: skip
    to = zero.type.dtype if zero is not None else dtype_of(output_dtype, "output_dtype") if output_dtype else U8
    return quantize(b, x, scale, zero, to, axis, block_size, bool(saturate))


@onnx_op("DequantizeLinear")
def dequantize_linear(
    b: Scope,
    x: Value,
    scale: Value,
    zero: Value | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Value:
    return dequantize(
        b, x, scale, zero, axis, block_size, dtype_of(output_dtype, "output_dtype") if output_dtype else None
    )


@onnx_op("DynamicQuantizeLinear")
def dynamic_quantize_linear(b: Scope, x: Value) -> tuple[Value, ...]:
    """uint8 with the scale and zero point that the data's range, widened to hold 0, asks for. Where that range is 0 the
    scale is 1, as in ONNX Runtime: zeros stay zeros behind it."""
    axes = tuple(range(x.type.rank))
    zero = b.constant(0, np.float32)
    low = b.op("Min", b.op("Reduce", x, function="min", axes=axes, keepdims=False), zero)
    high = b.op("Max", b.op("Reduce", x, function="max", axes=axes, keepdims=False), zero)
    step = b.op("Div", b.op("Sub", high, low), b.constant(255, np.float32))
    scale = b.op("Where", b.op("Equal", step, zero), b.constant(1, np.float32), step)
    place = b.op("Div", b.op("Sub", zero, low), scale)
    point = b.op("Cast", b.op("Round", b.op("Min", b.op("Max", place, zero), b.constant(255, np.float32))), to=U8)
    return b.op("QuantizeLinear", x, scale, point, to=U8), scale, point


def centred(b: Scope, x: Value, zero: Value | None, axis: int | None) -> Value:
    """x - zero as int32; a zero point of 0 costs nothing."""
    known = numbers(zero)
    if zero is None or (known is not None and not np.any(known)):
        return x
    if zero.type.elems == 1:
        zero = declare.reshape(b, zero, ())
    elif axis is not None and zero.type.rank == 1:
        zero = along_channel(b, zero, x.type.rank, axis % x.type.rank)
    return b.op("Sub", cast(b, x, I32), cast(b, zero, I32))


def integer_matmul(b: Scope, x: Value, y: Value, x_zero: Value | None, y_zero: Value | None) -> Value:
    x, y = centred(b, x, x_zero, -2 if x.type.rank > 1 else None), centred(b, y, y_zero, -1)
    return matmul(b, x, y, out=I32)


@onnx_op("MatMulInteger")
def matmul_integer(b: Scope, x: Value, y: Value, x_zero: Value | None = None, y_zero: Value | None = None) -> Value:
    return integer_matmul(b, x, y, x_zero, y_zero)


def _rescaled(b: Scope, total: Value, scales: tuple[Value, Value], y_scale: Value, y_zero: Value, axis: int) -> Value:
    """An int32 sum of products as quantized values: the scales are those of the two operands."""
    first, second = (cast(b, s, F32) for s in scales)
    first = (
        declare.reshape(b, first, ())
        if first.type.elems == 1
        else along_channel(b, first, total.type.rank, total.type.rank - 2)
    )
    second = declare.reshape(b, second, ()) if second.type.elems == 1 else second
    if second.type.rank == 1:
        second = along_channel(b, second, total.type.rank, axis)
    real = b.op("Mul", b.op("Cast", total, to=F32), b.op("Mul", first, second))
    return quantize(b, real, cast(b, y_scale, F32), y_zero, y_zero.type.dtype, axis)


@onnx_op("QLinearMatMul")
def qlinear_matmul(
    b: Scope,
    x: Value,
    x_scale: Value,
    x_zero: Value,
    y: Value,
    y_scale: Value,
    y_zero: Value,
    z_scale: Value,
    z_zero: Value,
) -> Value:
    total = integer_matmul(b, x, y, x_zero, y_zero)
    return _rescaled(b, total, (x_scale, y_scale), z_scale, z_zero, total.type.rank - 1)


@onnx_op("ConvInteger")
def conv_integer(
    b: Scope, x: Value, w: Value, x_zero: Value | None = None, w_zero: Value | None = None, *, auto_pad: AutoPad = "NOTSET",
    dilations: Positives | None = None, group: Positive = 1, kernel_shape: Positives | None = None,
    pads: Counts | None = None, strides: Positives | None = None,
) -> Value:  # fmt: skip
    x, w = centred(b, x, x_zero, None), centred(b, w, w_zero, 0)
    return convolution(b, x, w, None, auto_pad, dilations, group, kernel_shape, pads, strides, out=I32)


@onnx_op("QLinearConv")
def qlinear_conv(
    b: Scope, x: Value, x_scale: Value, x_zero: Value, w: Value, w_scale: Value, w_zero: Value, y_scale: Value,
    y_zero: Value, bias: Value | None = None, *, auto_pad: AutoPad = "NOTSET", dilations: Positives | None = None,
    group: Positive = 1, kernel_shape: Positives | None = None, pads: Counts | None = None,
    strides: Positives | None = None,
) -> Value:  # fmt: skip
    if x_zero.type.elems != 1 or x_scale.type.elems != 1:
        way = "quantize the input with one scale, or dequantize it before a Conv"
        raise Unsupported(f"x_scale ({x_scale.type}) or x_zero_point ({x_zero.type}) of several elements", way)
    x, w = centred(b, x, x_zero, None), centred(b, w, w_zero, 0)
    total = convolution(b, x, w, bias, auto_pad, dilations, group, kernel_shape, pads, strides, out=I32)
    return _rescaled(b, total, (x_scale, w_scale), y_scale, y_zero, 1)
