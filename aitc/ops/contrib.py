"""Operators of com.microsoft that exported files carry: fused norms, activations, products and quantized arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np

from aitc.ir import dim as d
from aitc.ir.dtype import F32, I32, U4, U8, DType
from aitc.ir.graph import Value
from aitc.ops import declare
from aitc.ops.attend import attend, join_heads, padding_mask, split_heads
from aitc.ops.attribute import (
    Activations,
    AutoPad,
    Count,
    Counts,
    Direction,
    Finite,
    Finites,
    FusedActivation,
    Positive,
    Positives,
)
from aitc.ops.contract import convolution, gemm_of, matmul
from aitc.ops.declare import Scope, Unsupported, add_importer, cast, known, normalize_axis, onnx_op, transpose
from aitc.ops.elementwise import gelu
from aitc.ops.normalize import layer_normalization, rms_normalization
from aitc.ops.quantize import dequantize, dequantize_linear, integer_matmul, quantize, quantize_linear

MS = "com.microsoft"

add_importer("Gelu", gelu, MS)
add_importer("QuantizeLinear", quantize_linear, MS)
add_importer("DequantizeLinear", dequantize_linear, MS)


# --- norms ------------------------------------------------------------------------------------------------------------


def simplified_layer_normalization(
    b: Scope, x: Value, scale: Value, *, axis: int = -1, epsilon: Finite = 1e-5, stash_type: int = 1
) -> Value:
    return rms_normalization(b, x, scale, axis=axis, epsilon=epsilon, stash_type=stash_type)


add_importer("SimplifiedLayerNormalization", simplified_layer_normalization)  # onnxruntime writes it without a domain
add_importer("SimplifiedLayerNormalization", simplified_layer_normalization, MS)


@onnx_op("SkipLayerNormalization", domain=MS)
def skip_layer_normalization(
    b: Scope,
    x: Value,
    skip: Value,
    gamma: Value,
    beta: Value | None = None,
    bias: Value | None = None,
    *,
    epsilon: Finite = 1e-12,
) -> tuple[Value | None, ...]:
    total = b.op("Add", x, skip)
    if bias is not None:
        total = b.op("Add", total, bias)
    y, mean, inverse = layer_normalization(b, total, gamma, beta, axis=-1, epsilon=epsilon)
    return y, mean, inverse, total


@onnx_op("SkipSimplifiedLayerNormalization", domain=MS)
def skip_simplified_layer_normalization(
    b: Scope, x: Value, skip: Value, gamma: Value, bias: Value | None = None, *, epsilon: Finite = 1e-12
) -> tuple[Value | None, ...]:
    total = b.op("Add", x, skip)
    if bias is not None:
        total = b.op("Add", total, bias)
    return rms_normalization(b, total, gamma, axis=-1, epsilon=epsilon), None, None, total


@onnx_op("EmbedLayerNormalization", domain=MS)
def embed_layer_normalization(
    b: Scope, input_ids: Value, segment_ids: Value | None, word_embedding: Value, position_embedding: Value,
    segment_embedding: Value | None = None, gamma: Value | None = None, beta: Value | None = None,
    mask: Value | None = None, position_ids: Value | None = None, *, epsilon: Finite = 1e-12, mask_index_type: int = 0,
) -> tuple[Value | None, ...]:  # fmt: skip
    if gamma is None:
        raise ValueError("gamma missing")
    length = input_ids.shape[1]
    total = b.op("Gather", word_embedding, input_ids, axis=0)
    if position_ids is None:
        place = declare.slice_axis(b, position_embedding, 0, 0, length)
        total = b.op("Add", total, declare.unsqueeze(b, place, (0,)))
    else:
        total = b.op("Add", total, b.op("Gather", position_embedding, position_ids, axis=0))
    if segment_ids is not None and segment_embedding is not None:
        total = b.op("Add", total, b.op("Gather", segment_embedding, segment_ids, axis=0))
    y, *_ = layer_normalization(b, total, gamma, beta, axis=-1, epsilon=epsilon)
    lengths = None
    if b.wants(1):
        if mask is None:
            lengths = b.op("Fill", value=0, shape=(input_ids.shape[0],), dtype=I32)
        else:
            lengths = cast(b, b.op("Reduce", mask, function="sum", axes=(1,), keepdims=False), I32)
    return y, lengths, total


# --- activations ------------------------------------------------------------------------------------------------------


@onnx_op("FastGelu", domain=MS)
def fast_gelu(b: Scope, x: Value, bias: Value | None = None) -> Value:
    return b.op("Gelu", x if bias is None else b.op("Add", x, bias), approximate="tanh")


@onnx_op("BiasGelu", domain=MS)
def bias_gelu(b: Scope, x: Value, bias: Value) -> Value:
    return b.op("Gelu", b.op("Add", x, bias), approximate="none")


@onnx_op("QuickGelu", domain=MS)
def quick_gelu(b: Scope, x: Value, *, alpha: float = 1.702) -> Value:
    return b.op("Mul", x, b.op("Sigmoid", b.op("Mul", x, b.like(alpha, x))))


def activated(b: Scope, x: Value, activation: str, parameters: tuple[float, ...]) -> Value:
    """The activation that FusedConv and FusedGemm end with."""
    if not activation:
        return x
    if activation in ("Relu", "Sigmoid", "Tanh"):
        return b.op(activation, x)
    if activation == "LeakyRelu":
        return b.op("LeakyRelu", x, alpha=parameters[0] if parameters else 0.01)
    if activation == "HardSigmoid":
        alpha, beta = parameters if len(parameters) == 2 else (0.2, 0.5)
        return b.op("HardSigmoid", x, alpha=alpha, beta=beta)
    if activation == "Clip" and len(parameters) == 2:
        return b.op("Min", b.op("Max", x, b.like(parameters[0], x)), b.like(parameters[1], x))
    raise Unsupported(f"activation {activation!r}")


# --- products ---------------------------------------------------------------------------------------------------------


@onnx_op("FusedMatMul", "TransposeMatMul", domain=MS)
def fused_matmul(
    b: Scope,
    x: Value,
    y: Value,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Value:
    def turned(v: Value, trans: int, batch: int) -> Value:
        rank = v.type.rank
        if batch and rank > 2:  # the first axis moves behind the other batch axes
            v = transpose(b, v, (*range(1, rank - 1), 0, rank - 1))
        return transpose(b, v, (*range(rank - 2), rank - 1, rank - 2)) if trans and rank > 1 else v

    z = matmul(b, turned(x, transA, transBatchA), turned(y, transB, transBatchB))
    return z if alpha == 1 else b.op("Mul", z, b.like(alpha, z))


@onnx_op("FusedGemm", domain=MS)
def fused_gemm(
    b: Scope, x: Value, y: Value, c: Value | None = None, *, activation: FusedActivation = "", activation_alpha: float = 0.0,
    activation_beta: float = 0.0, activation_gamma: float = 0.0, alpha: float = 1.0, beta: float = 1.0, transA: int = 0,
    transB: int = 0,
) -> Value:  # fmt: skip
    z = gemm_of(b, x, y, c, alpha, beta, bool(transA), bool(transB))
    two = activation in ("HardSigmoid", "Clip")
    return activated(b, z, activation, (activation_alpha, activation_beta) if two else (activation_alpha,))


@onnx_op("FusedConv", domain=MS)
def fused_conv(
    b: Scope, x: Value, w: Value, bias: Value | None = None, z: Value | None = None, *, activation: FusedActivation = "",
    activation_params: tuple[float, ...] = (), auto_pad: AutoPad = "NOTSET", dilations: Positives | None = None,
    group: Positive = 1, kernel_shape: Positives | None = None, pads: Counts | None = None,
    strides: Positives | None = None,
) -> Value:  # fmt: skip
    y = convolution(b, x, w, bias, auto_pad, dilations, group, kernel_shape, pads, strides)
    return activated(b, y if z is None else b.op("Add", y, z), activation, activation_params)


def unpacked(packed: np.ndarray, bits: int, count: int) -> np.ndarray:
    """The first ``count`` of the ``bits``-wide numbers along the last axis of bytes, lowest bits first."""
    if bits == 8:
        return packed[..., :count]
    per = 8 // bits
    shifts = np.arange(per, dtype=np.uint8) * bits
    wide = (packed[..., None] >> shifts) & ((1 << bits) - 1)
    return wide.reshape(*packed.shape[:-1], -1)[..., :count]


@onnx_op("MatMulNBits", domain=MS)
def matmul_nbits(
    b: Scope, x: Value, w: Value, scales: Value, zero_points: Value | None = None, g_idx: Value | None = None,
    bias: Value | None = None, *, K: Positive, N: Positive, bits: Positive = 4, block_size: Positive = 32, accuracy_level: int = 0,
    weight_prepacked: int = 0,
) -> Value:  # fmt: skip
    """Weights [N, K] of 4 (or 2, 8) bits with a scale and zero point for each block of K."""
    if g_idx is not None or bits not in (2, 4, 8) or weight_prepacked:
        raise Unsupported(f"bits = {bits}, g_idx, weight_prepacked")
    blocks = -(-K // block_size)
    codes = unpacked(known(w, "the weights").reshape(N, blocks, -1), bits, block_size).reshape(N, blocks * block_size)[
        :, :K
    ]
    store: DType = U4 if bits == 4 else U8
    quantized = b.constant(np.ascontiguousarray(codes).astype(store.numpy), name="weights")
    scale = declare.reshape(b, scales, (N, blocks))
    if zero_points is None:
        zero = b.constant(np.full((N, blocks), 1 << (bits - 1)).astype(store.numpy))
    elif zero_points.type.dtype is U8:
        rows = known(zero_points, "the zero points").reshape(N, -1)
        zero = b.constant(np.ascontiguousarray(unpacked(rows, bits, blocks)).astype(store.numpy))
    else:
        raise Unsupported("zero points that are not packed integers")
    weights = cast(b, dequantize(b, quantized, scale, zero, 1, block_size), x.type.dtype)
    y = matmul(b, x, transpose(b, weights, (1, 0)))
    return y if bias is None else b.op("Add", y, bias)


# --- quantized arithmetic ---------------------------------------------------------------------------------------------


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
        raise Unsupported("QLinearSoftmax of before opset 13")
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
    if do_rotary or past_present_share_buffer or past is not None:
        raise Unsupported("do_rotary, past and past_present_share_buffer")
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
