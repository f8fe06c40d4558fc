"""Operators of com.microsoft that exported files carry: fused norms, activations and products."""

from __future__ import annotations

from typing import Literal

import numpy as np

from aitc.ir.dtype import I32, U4, U8, DType
from aitc.ir.graph import Value
from aitc.ops import declare
from aitc.ops.attribute import (
    AutoPad,
    Counts,
    Finite,
    FusedActivation,
    Positive,
    Positives,
)
from aitc.ops.contract import convolution, gemm_of, matmul
from aitc.ops.declare import Scope, Unsupported, add_importer, cast, known, onnx_op, refuse, transpose
from aitc.ops.elementwise import gelu
from aitc.ops.normalize import layer_normalization, rms_normalization
from aitc.ops.quantize import dequantize

MS = "com.microsoft"

add_importer("Gelu", gelu, MS)


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
    raise Unsupported(f"activation = {activation!r}", "take Relu, Sigmoid, Tanh, LeakyRelu, HardSigmoid or Clip, or apply it in a node of its own")


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
    refuse("quantize without reordering columns or packing for one processor", g_idx=g_idx, weight_prepacked=weight_prepacked)
    if bits not in (2, 4, 8):
        raise Unsupported(f"bits = {bits}", "quantize to 2, 4 or 8 bits")
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
        raise Unsupported(f"zero_points of {zero_points.type}", "give them as uint8, packed as the weights are")
    weights = cast(b, dequantize(b, quantized, scale, zero, 1, block_size), x.type.dtype)
    y = matmul(b, x, transpose(b, weights, (1, 0)))
    return y if bias is None else b.op("Add", y, bias)


@onnx_op("CDist", domain=MS)
def pairwise_distance(b: Scope, x: Value, y: Value, *, metric: Literal["sqeuclidean", "euclidean"] = "sqeuclidean") -> Value:
    """Between the rows of x [M, N] and of y [K, N], from their differences: near ones keep their digits."""
    if x.type.rank != 2 or y.type.rank != 2:
        raise ValueError(f"matrices needed, got {x.type} and {y.type}")
    apart = b.op("Sub", declare.unsqueeze(b, x, (1,)), declare.unsqueeze(b, y, (0,)))
    return b.op("Reduce", apart, function="sumsquare" if metric == "sqeuclidean" else "l2", axes=(2,), keepdims=False)
