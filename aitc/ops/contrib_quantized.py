"""Quantized arithmetic of com.microsoft."""

from __future__ import annotations

from typing import Any

import numpy as np

from aitc.ir import dim as d
from aitc.ir.dtype import F32, I64, U4, U8, DType
from aitc.ir.graph import Value
from aitc.ops import declare
from aitc.ops.attend import attend, join_heads, padding_mask, split_heads
from aitc.ops.attribute import Activations, AutoPad, Count, Counts, Direction, Finite, Finites, Positive, Positives
from aitc.ops.contrib import MS, unpacked
from aitc.ops.declare import (
    Scope,
    Unsupported,
    add_importer,
    cast,
    known,
    normalize_axes,
    normalize_axis,
    onnx_op,
    refuse,
    transpose,
)
from aitc.ops.diffusion import channels_first as first
from aitc.ops.diffusion import channels_last as last
from aitc.ops.pool import average_pool
from aitc.ops.quantize import dequantize, dequantize_linear, integer_matmul, qlinear_conv, quantize, quantize_linear

add_importer("QuantizeLinear", quantize_linear, MS)
add_importer("DequantizeLinear", dequantize_linear, MS)


def _scalar(b: Scope, v: Value) -> Value:
    return declare.reshape(b, v, ()) if v.type.elems == 1 else v


def _qlinear_binary(op: str) -> Any:
    def importer(
        b: Scope, x: Value, x_scale: Value, x_zero: Value | None, y: Value, y_scale: Value, y_zero: Value | None,
        z_scale: Value, z_zero: Value | None = None,
    ) -> Value:  # fmt: skip
        z = b.op(op, dequantize(b, x, x_scale, x_zero), dequantize(b, y, y_scale, y_zero))
        return quantize(b, z, z_scale, z_zero, x.type.dtype)

    return importer


def _qlinear_unary(op: str) -> Any:
    def importer(
        b: Scope, x: Value, x_scale: Value, x_zero: Value | None, y_scale: Value, y_zero: Value | None = None
    ) -> Value:
        return quantize(b, b.op(op, dequantize(b, x, x_scale, x_zero)), y_scale, y_zero, x.type.dtype)

    return importer


add_importer("QLinearAdd", _qlinear_binary("Add"), MS)
add_importer("QLinearMul", _qlinear_binary("Mul"), MS)
add_importer("QLinearSigmoid", _qlinear_unary("Sigmoid"), MS)


@onnx_op("QLinearLeakyRelu", domain=MS)
def qlinear_leaky_relu(
    b: Scope,
    x: Value,
    x_scale: Value,
    x_zero: Value | None,
    y_scale: Value,
    y_zero: Value | None = None,
    *,
    alpha: float = 0.01,
) -> Value:
    y = b.op("LeakyRelu", dequantize(b, x, x_scale, x_zero), alpha=alpha)
    return quantize(b, y, y_scale, y_zero, x.type.dtype)


@onnx_op("QLinearSoftmax", domain=MS)
def qlinear_softmax(
    b: Scope,
    x: Value,
    x_scale: Value,
    x_zero: Value | None,
    y_scale: Value,
    y_zero: Value | None = None,
    *,
    axis: int = -1,
    opset: int,
) -> Value:
    if opset < 13:
        raise Unsupported(f"opset = {opset}: the softmax of all axes from axis on", "quantize a model of opset 13 or newer")
    y = b.op("Softmax", dequantize(b, x, x_scale, x_zero), axis=normalize_axis(axis, x.type.rank), log=False)
    return quantize(b, y, y_scale, y_zero, x.type.dtype)


@onnx_op("QLinearConcat", domain=MS)
def qlinear_concat(b: Scope, y_scale: Value, y_zero: Value, *inputs: Value, axis: int) -> Value:
    triples = [inputs[i : i + 3] for i in range(0, len(inputs), 3)]
    parts = [dequantize(b, x, scale, zero) for x, scale, zero in triples]
    return quantize(
        b, b.op("Concat", *parts, axis=normalize_axis(axis, parts[0].type.rank)), y_scale, y_zero, y_zero.type.dtype
    )


@onnx_op("QLinearGlobalAveragePool", domain=MS)
def qlinear_global_average_pool(
    b: Scope, x: Value, x_scale: Value, x_zero: Value, y_scale: Value, y_zero: Value, *, channels_last: int = 0
) -> Value:
    axes = tuple(range(1, x.type.rank - 1)) if channels_last else tuple(range(2, x.type.rank))
    y = b.op("Reduce", dequantize(b, x, x_scale, x_zero), function="mean", axes=axes, keepdims=True)
    return quantize(b, y, y_scale, y_zero, x.type.dtype)


@onnx_op("QLinearAveragePool", domain=MS)
def qlinear_average_pool(
    b: Scope, x: Value, x_scale: Value, x_zero: Value | None, y_scale: Value, y_zero: Value | None = None, *,
    kernel_shape: Positives, auto_pad: AutoPad = "NOTSET", ceil_mode: int = 0, channels_last: int = 0,
    count_include_pad: int = 0, pads: Counts | None = None, strides: Positives | None = None,
) -> Value:  # fmt: skip
    real = dequantize(b, first(b, x) if channels_last else x, x_scale, x_zero)
    y = average_pool(
        b, real, kernel_shape=kernel_shape, auto_pad=auto_pad, ceil_mode=ceil_mode, count_include_pad=count_include_pad,
        pads=pads, strides=strides,
    )  # fmt: skip
    y = quantize(b, y, y_scale, y_zero, x.type.dtype)
    return last(b, y) if channels_last else y


@onnx_op("QLinearReduceMean", domain=MS)
def qlinear_reduce_mean(
    b: Scope, x: Value, x_scale: Value, x_zero: Value | None, y_scale: Value, y_zero: Value | None = None, *,
    axes: tuple[int, ...], keepdims: int,
) -> Value:  # fmt: skip
    """Over all axes where ``axes`` is empty."""
    where = normalize_axes(axes, x.type.rank) or tuple(range(x.type.rank))
    y = b.op("Reduce", dequantize(b, x, x_scale, x_zero), function="mean", axes=where, keepdims=bool(keepdims))
    return quantize(b, y, y_scale, y_zero, x.type.dtype)


@onnx_op("QLinearWhere", domain=MS)
def qlinear_where(
    b: Scope, condition: Value, x: Value, x_scale: Value, x_zero: Value, y: Value, y_scale: Value, y_zero: Value,
    z_scale: Value, z_zero: Value,
) -> Value:  # fmt: skip
    z = b.op("Where", condition, dequantize(b, x, x_scale, x_zero), dequantize(b, y, y_scale, y_zero))
    return quantize(b, z, z_scale, z_zero, x.type.dtype)


@onnx_op("QLinearConv", domain=MS)
def qlinear_conv_ms(
    b: Scope, x: Value, x_scale: Value, x_zero: Value, w: Value, w_scale: Value, w_zero: Value, y_scale: Value,
    y_zero: Value, bias: Value | None = None, *, auto_pad: AutoPad = "NOTSET", channels_last: int = 0,
    dilations: Positives | None = None, group: Positive = 1, kernel_shape: Positives | None = None,
    pads: Counts | None = None, strides: Positives | None = None,
) -> Value:  # fmt: skip
    """``channels_last`` is of the data; the filter is one of Conv."""
    y = qlinear_conv(
        b, first(b, x) if channels_last else x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias,
        auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape, pads=pads, strides=strides,
    )  # fmt: skip
    return last(b, y) if channels_last else y


# --- weights in blocks ------------------------------------------------------------------------------------------------


@onnx_op("GatherBlockQuantized", domain=MS)
def gather_block_quantized(
    b: Scope, data: Value, indices: Value, scales: Value, zero_points: Value | None = None, *, bits: int = 4,
    block_size: Count = 128, gather_axis: int = 0, quantize_axis: int = 1,
) -> Value:  # fmt: skip
    """Rows of a table of numbers with a scale for each block of ``quantize_axis``. An index outside of the table gives
    zeros. Bytes hold numbers of ``bits`` along their last axis, whose zero point is in the middle unless it is given."""
    rank, zero = data.type.rank, zero_points
    if scales.type.rank != rank:
        raise ValueError(f"scales {scales.type} must have the rank of data {data.type}")
    axis, blocked = normalize_axis(gather_axis, rank, "gather_axis"), normalize_axis(quantize_axis, rank, "quantize_axis")
    if data.type.dtype is U8:
        if bits not in (2, 4, 8):
            raise ValueError(f"attribute bits is {bits}, and must be 2, 4 or 8")
        data, zero = _numbers_of_bytes(b, data, scales, zero, bits, axis, blocked)
    if not block_size:
        if data.type.dtype.is_integer:
            raise ValueError(f"attribute block_size is 0, which is for float8 and float4 data alone, not {data.type}")
        size = data.shape[blocked]
        if not isinstance(size, int):
            raise Unsupported(f"block_size = 0 with {size} elements along quantize_axis", declare.binding(size))
        block_size = size
    index = cast(b, indices, I64)
    size = data.shape[axis]
    span = b.op("Dims", content=(size,), shape=())
    inside = b.op("Less", b.op("Where", b.op("Less", index, b.like(0, index)), b.op("Add", index, span), index), span)
    inside = b.op("And", inside, b.op("GreaterOrEqual", b.op("Add", index, span), b.like(0, index)))
    index = b.op("Where", inside, index, b.like(0, index))

    def taken(v: Value) -> Value:
        if v.shape[axis] == 1 and size != 1:  # one for all
            return declare.reshape(b, v, (*v.shape[:axis], *(1,) * indices.type.rank, *v.shape[axis + 1 :]))
        return b.op("Gather", v, index, axis=axis)

    if axis == blocked:
        y = taken(dequantize(b, data, scales, zero, blocked, block_size))
    else:
        where = blocked + (indices.type.rank - 1 if blocked > axis else 0)
        y = dequantize(b, taken(data), taken(scales), None if zero is None else taken(zero), where, block_size)
    keep = declare.reshape(b, inside, (*indices.shape, *(1,) * (rank - 1 - axis)))
    return b.op("Where", keep, y, b.like(0, y))


def _numbers_of_bytes(
    b: Scope, data: Value, scales: Value, zero: Value | None, bits: int, axis: int, blocked: int
) -> tuple[Value, Value]:
    """Packed data and zero points as numbers, one an element."""
    if axis != 0 or (axis == blocked and bits < 8):
        raise ValueError(f"gather_axis {axis} and quantize_axis {blocked} of bytes: gather_axis must be 0, quantize_axis another")
    store: DType = U4 if bits == 4 else U8
    per = 8 // bits

    def opened(v: Value, what: str, count: int) -> Value:
        return b.constant(np.ascontiguousarray(unpacked(known(v, what), bits, count)).astype(store.numpy))

    width, blocks = data.shape[-1], scales.shape[-1]
    if not isinstance(width, int) or not isinstance(blocks, int):
        raise ValueError(f"data {data.type} and scales {scales.type} must have known sizes")
    if zero is None:
        middle = np.full([int(s) for s in scales.shape], 1 << (bits - 1))  # type: ignore[arg-type]
        return opened(data, "data", width * per), b.constant(middle.astype(store.numpy))
    return opened(data, "data", width * per), opened(zero, "zero_points", blocks)


# --- products ---------------------------------------------------------------------------------------------------------


@onnx_op("QGemm", domain=MS)
def qgemm(
    b: Scope, x: Value, x_scale: Value, x_zero: Value, y: Value, y_scale: Value, y_zero: Value, c: Value | None = None,
    z_scale: Value | None = None, z_zero: Value | None = None, *, alpha: float = 1.0, transA: int = 0, transB: int = 0,
) -> Value:  # fmt: skip
    """c is int32 in the scale alpha * x_scale * y_scale; without an output scale the result is float."""
    x = transpose(b, x, (1, 0)) if transA else x
    y = transpose(b, y, (1, 0)) if transB else y
    total = integer_matmul(b, x, y, x_zero, y_zero)
    if c is not None:
        total = b.op("Add", total, c)
    factor = b.op("Mul", _scalar(b, x_scale), _scalar(b, y_scale))
    if alpha != 1:
        factor = b.op("Mul", factor, b.like(alpha, factor))
    real = b.op("Mul", b.op("Cast", total, to=F32), factor)
    if z_scale is None:
        return real
    return quantize(b, real, z_scale, z_zero, x.type.dtype if z_zero is None else z_zero.type.dtype)


@onnx_op("MatMulIntegerToFloat", domain=MS)
def matmul_integer_to_float(
    b: Scope,
    x: Value,
    y: Value,
    x_scale: Value,
    y_scale: Value,
    x_zero: Value | None = None,
    y_zero: Value | None = None,
    bias: Value | None = None,
) -> Value:
    total = b.op("Cast", integer_matmul(b, x, y, x_zero, y_zero), to=F32)
    z = b.op("Mul", total, b.op("Mul", _scalar(b, x_scale), _scalar(b, y_scale)))
    return z if bias is None else b.op("Add", z, bias)


def dynamically_quantized(b: Scope, x: Value) -> tuple[Value, Value, Value]:
    """uint8 values, scale and zero point, as DynamicQuantizeLinear gives them."""
    from aitc.ops.quantize import dynamic_quantize_linear

    y, scale, zero = dynamic_quantize_linear(b, x)
    return y, scale, zero


@onnx_op("DynamicQuantizeMatMul", domain=MS)
def dynamic_quantize_matmul(
    b: Scope, x: Value, y: Value, y_scale: Value, y_zero: Value | None = None, bias: Value | None = None
) -> Value:
    codes, scale, zero = dynamically_quantized(b, x)
    return matmul_integer_to_float(b, codes, y, scale, y_scale, zero, y_zero, bias)


@onnx_op("QAttention", domain=MS)
def qattention(
    b: Scope, x: Value, weights: Value, bias: Value, x_scale: Value, w_scale: Value, mask_index: Value | None = None,
    x_zero: Value | None = None, w_zero: Value | None = None, past: Value | None = None, *, num_heads: int,
    do_rotary: int = 0, mask_filter_value: Finite = -10000.0, past_present_share_buffer: int = 0, scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[Value | None, ...]:  # fmt: skip
    refuse(
        "quantize a model without a past, with RotaryEmbedding where there is one", do_rotary=do_rotary,
        past_present_share_buffer=past_present_share_buffer, past=past,
    )  # fmt: skip
    joined = matmul_integer_to_float(b, x, weights, x_scale, w_scale, x_zero, w_zero, bias)
    size = d.floordiv(weights.shape[1], 3)
    q, k, v = (split_heads(b, declare.slice_axis(b, joined, 2, d.mul(size, i), size), num_heads) for i in range(3))
    allowed = padding_mask(b, mask_index, q.shape[0], q.shape[2], k.shape[2])
    return join_heads(b, attend(b, q, k, v, allowed, scale, bool(unidirectional))), None


@onnx_op("DynamicQuantizeLSTM", domain=MS)
def dynamic_quantize_lstm(
    b: Scope, x: Value, w: Value, r: Value, bias: Value | None, lengths: Value | None, h0: Value | None,
    c0: Value | None, p: Value | None, w_scale: Value, w_zero: Value, r_scale: Value, r_zero: Value, *,
    activations: Activations | None = None, activation_alpha: Finites = (),
    activation_beta: Finites = (), clip: Finite = 0.0, direction: Direction = "forward", hidden_size: Count = 0,
    input_forget: int = 0,
) -> tuple[Value, ...]:  # fmt: skip
    """An LSTM whose weights [D, I, 4 H] and [D, H, 4 H] are 8 bit. onnxruntime also rounds the input and the
    state to 8 bits at every step; here they stay float, which is closer to the model that was quantized."""
    from aitc.ops.recurrent import lstm

    def weights(v: Value, scale: Value, zero: Value) -> Value:
        directions = v.shape[0]

        def shaped(u: Value) -> Value:  # one for each direction, or one for each column too
            return declare.reshape(b, u, (directions, 1, d.floordiv(u.type.elems, directions)))

        return transpose(b, b.op("DequantizeLinear", v, shaped(scale), shaped(zero), to=F32), (0, 2, 1))

    return lstm(
        b, x, weights(w, w_scale, w_zero), weights(r, r_scale, r_zero), bias, lengths, h0, c0, p, activations=activations,
        activation_alpha=activation_alpha, activation_beta=activation_beta, clip=clip, direction=direction,
        hidden_size=hidden_size, input_forget=input_forget,
    )  # fmt: skip
