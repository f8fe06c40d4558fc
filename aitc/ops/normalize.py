"""Softmax and layer normalization, and the ONNX normalizations that lower to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aitc.ir import dim as d
from aitc.ir.dtype import F32, F64, DType
from aitc.ir.graph import Value
from aitc.ir.op import OPS, Kind, Op
from aitc.ir.types import TensorType
from aitc.ops import declare
from aitc.ops.attribute import Finite, Positive
from aitc.ops.declare import (
    Scope,
    Unsupported,
    add_importer,
    along_channel,
    cast,
    dtype_of,
    normalize_axis,
    numbers,
    onnx_op,
)
from aitc.ops.pointwise import widen

Types = Sequence["TensorType | None"]


@dataclass(frozen=True, slots=True)
class SoftmaxAttrs:
    axis: int
    log: bool = False


@dataclass(frozen=True, slots=True)
class LayerNormalizationAttrs:
    """Over ``axes``: (x - mean) / sqrt(variance + epsilon); without ``center``: x / sqrt(mean of squares + epsilon)."""

    axes: tuple[int, ...]
    epsilon: Finite = 1e-5
    center: bool = True


def infer_same(types: Types, a: Any) -> tuple[TensorType, ...]:
    (x,) = types
    assert x is not None
    if not x.dtype.is_float:
        raise ValueError(f"needs floats, got {x}")
    return (TensorType(x.dtype, x.shape),)


def softmax_array(x: np.ndarray, a: SoftmaxAttrs) -> np.ndarray:
    w = widen(x)
    if w.size == 0:
        return x
    with np.errstate(all="ignore"):
        w = w - np.max(w, axis=a.axis, keepdims=True)
        e = np.exp(w)
        total = np.sum(e, axis=a.axis, keepdims=True)
        return (w - np.log(total) if a.log else e / total).astype(x.dtype)


def layer_norm_array(x: np.ndarray, a: LayerNormalizationAttrs) -> np.ndarray:
    w = widen(x)
    with np.errstate(all="ignore"):
        if a.center:
            w = w - np.mean(w, axis=a.axes, keepdims=True)
        square = np.mean(w * w, axis=a.axes, keepdims=True)
        return (w / np.sqrt(square + np.asarray(a.epsilon, w.dtype))).astype(x.dtype)


OPS.add(
    "Softmax",
    Op(
        "Softmax",
        Kind.NORMALIZE,
        infer_same,
        softmax_array,
        SoftmaxAttrs,
        tolerance=2.0,
        doc="exp(x) / sum(exp(x)) along an axis, or its logarithm.",
    ),
)
OPS.add(
    "LayerNormalization",
    Op("LayerNormalization", Kind.NORMALIZE, infer_same, layer_norm_array, LayerNormalizationAttrs, tolerance=4.0),
)


# --- ONNX -------------------------------------------------------------------------------------------------------------


def _softmax(log: bool) -> tuple[Any, Any]:
    def importer(b: Scope, x: Value, *, axis: int = -1) -> Value:
        return b.op("Softmax", x, axis=normalize_axis(axis, x.type.rank), log=log)

    def flattened(b: Scope, x: Value, *, axis: int = 1) -> Value:
        """Before opset 13 all axes from ``axis`` on are one row."""
        axis = normalize_axis(axis, x.type.rank)
        if axis == x.type.rank - 1:
            return b.op("Softmax", x, axis=axis, log=log)
        rows = declare.reshape(b, x, (d.product(x.shape[:axis]), d.product(x.shape[axis:])))
        return declare.reshape(b, b.op("Softmax", rows, axis=1, log=log), x.shape)

    return importer, flattened


for _name in ("Softmax", "LogSoftmax"):
    _new, _old = _softmax(_name == "LogSoftmax")
    add_importer(_name, _old)
    add_importer(_name, _new, since=13)


@onnx_op("Hardmax", since=13)
def hardmax(b: Scope, x: Value, *, axis: int = -1) -> Value:
    axis = normalize_axis(axis, x.type.rank)
    best = b.op("ArgReduce", x, function="max", axis=axis, keepdims=True)
    place = declare.reshape(
        b, b.op("Range", start=0, step=1, size=x.shape[axis]), (x.shape[axis], *([1] * (x.type.rank - 1 - axis)))
    )
    return cast(b, b.op("Equal", best, place), x.type.dtype)


@onnx_op("Hardmax", since=1)
def hardmax_flattened(b: Scope, x: Value, *, axis: int = 1) -> Value:
    axis = normalize_axis(axis, x.type.rank)
    rows = declare.reshape(b, x, (d.product(x.shape[:axis]), d.product(x.shape[axis:])))
    return declare.reshape(b, hardmax(b, rows, axis=1), x.shape)


def affine(b: Scope, x: Value, scale: Value | None, bias: Value | None) -> Value:
    """x * scale + bias, both already shaped to broadcast."""
    if scale is not None:
        x = b.op("Mul", x, scale)
    return x if bias is None else b.op("Add", x, bias)


def stash(dtype: DType, stash_type: int) -> DType:
    """The type that a normalization is computed in: ``stash_type`` where it is wider than the data."""
    wanted = dtype_of(stash_type, "stash_type")
    return wanted if wanted.bits > dtype.bits else dtype


@onnx_op("LayerNormalization")
def layer_normalization(
    b: Scope,
    x: Value,
    scale: Value,
    bias: Value | None = None,
    *,
    axis: int = -1,
    epsilon: Finite = 1e-5,
    stash_type: int = 1,
) -> tuple[Value | None, ...]:
    first = normalize_axis(axis, x.type.rank)
    axes = tuple(range(first, x.type.rank))
    y = affine(b, b.op("LayerNormalization", x, axes=axes, epsilon=epsilon, center=True), scale, bias)
    mean = inverse = None
    if b.wants(1) or b.wants(2):
        wide = cast(b, x, stash(x.type.dtype, stash_type))
        mean = b.op("Reduce", wide, function="mean", axes=axes, keepdims=True)
        centred = b.op("Sub", wide, mean)
        variance = b.op("Reduce", b.op("Mul", centred, centred), function="mean", axes=axes, keepdims=True)
        inverse = b.op("Rsqrt", b.op("Add", variance, b.like(epsilon, variance)))
        mean, inverse = (cast(b, v, dtype_of(stash_type, "stash_type")) for v in (mean, inverse))
    return y, mean, inverse


@onnx_op("RMSNormalization")
def rms_normalization(
    b: Scope, x: Value, scale: Value, *, axis: int = -1, epsilon: Finite = 1e-5, stash_type: int = 1
) -> Value:
    axes = tuple(range(normalize_axis(axis, x.type.rank), x.type.rank))
    y = b.op("LayerNormalization", x, axes=axes, epsilon=epsilon, center=False)
    return b.op("Mul", cast(b, y, scale.type.dtype), scale)


def batch_norm(b: Scope, x: Value, scale: Value, bias: Value, mean: Value, variance: Value, epsilon: float) -> Value:
    """x * s + t per channel, with s and t computed at compile time where the statistics are constant."""
    known = [numbers(v) for v in (scale, bias, mean, variance)]
    if all(k is not None for k in known):
        s, t, m, v = (np.asarray(k, np.float64) for k in known)
        factor = s / np.sqrt(v + epsilon)
        shift = t - m * factor
        factor_value = b.constant(factor.astype(x.type.dtype.numpy), name="scale")
        shift_value = b.constant(shift.astype(x.type.dtype.numpy), name="shift")
    else:  # scale, statistics and data may be of three types
        wide = F64 if any(v.type.dtype is F64 for v in (x, scale, bias, mean, variance)) else F32
        scale, bias, mean, variance = (cast(b, v, wide) for v in (scale, bias, mean, variance))
        factor_value = b.op("Div", scale, b.op("Sqrt", b.op("Add", variance, b.like(epsilon, variance))))
        shift_value = b.op("Sub", bias, b.op("Mul", mean, factor_value))
        factor_value, shift_value = cast(b, factor_value, x.type.dtype), cast(b, shift_value, x.type.dtype)
    rank = x.type.rank
    return b.op("Add", b.op("Mul", x, along_channel(b, factor_value, rank)), along_channel(b, shift_value, rank))


@onnx_op("BatchNormalization", since=14)
def batch_normalization(
    b: Scope,
    x: Value,
    scale: Value,
    bias: Value,
    mean: Value,
    variance: Value,
    *,
    epsilon: Finite = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> tuple[Value | None, ...]:
    if not training_mode:
        return (batch_norm(b, x, scale, bias, mean, variance, epsilon),)
    axes = tuple(i for i in range(x.type.rank) if i != 1)
    now_mean = b.op("Reduce", x, function="mean", axes=axes, keepdims=True)
    centred = b.op("Sub", x, now_mean)
    now_variance = b.op("Reduce", b.op("Mul", centred, centred), function="mean", axes=axes, keepdims=True)
    y = b.op("Mul", centred, b.op("Rsqrt", b.op("Add", now_variance, b.like(epsilon, now_variance))))
    scale, bias = cast(b, scale, x.type.dtype), cast(b, bias, x.type.dtype)
    y = affine(b, y, along_channel(b, scale, x.type.rank), along_channel(b, bias, x.type.rank))

    def blend(old: Value, now: Value) -> Value:
        now = cast(b, declare.reshape(b, now, old.shape), old.type.dtype)
        return b.op("Add", b.op("Mul", old, b.like(momentum, old)), b.op("Mul", now, b.like(1 - momentum, now)))

    return y, blend(mean, now_mean), blend(variance, now_variance)


@onnx_op("BatchNormalization", since=1)
def batch_normalization_old(
    b: Scope, x: Value, scale: Value, bias: Value, mean: Value, variance: Value, *, epsilon: Finite = 1e-5,
    momentum: float = 0.9, spatial: int = 1, is_test: int = 1,
) -> tuple[Value | None, ...]:  # fmt: skip
    if not spatial:
        raise Unsupported("spatial = 0: a scale for each element", "export with opset 9 or newer")
    return (batch_norm(b, x, scale, bias, mean, variance, epsilon),)


@onnx_op("InstanceNormalization")
def instance_normalization(b: Scope, x: Value, scale: Value, bias: Value, *, epsilon: Finite = 1e-5) -> Value:
    if x.type.rank < 2:
        raise ValueError(f"an instance has a batch axis and channels, not {x.type}")
    y = b.op("LayerNormalization", x, axes=tuple(range(2, x.type.rank)), epsilon=epsilon, center=True)
    return affine(b, y, along_channel(b, scale, x.type.rank), along_channel(b, bias, x.type.rank))


def _groups(b: Scope, x: Value, groups: int, epsilon: float) -> Value:
    n, c, *rest = x.shape
    apart = declare.reshape(b, x, (n, groups, d.floordiv(c, groups), *rest))
    return b.op("LayerNormalization", apart, axes=tuple(range(2, len(rest) + 3)), epsilon=epsilon, center=True)


@onnx_op("GroupNormalization", since=21)
def group_normalization(
    b: Scope, x: Value, scale: Value, bias: Value, *, num_groups: Positive, epsilon: Finite = 1e-5, stash_type: int = 1
) -> Value:
    y = declare.reshape(b, _groups(b, x, num_groups, epsilon), x.shape)
    return affine(b, y, along_channel(b, scale, x.type.rank), along_channel(b, bias, x.type.rank))


@onnx_op("GroupNormalization", since=18)
def group_normalization_18(
    b: Scope, x: Value, scale: Value, bias: Value, *, num_groups: Positive, epsilon: Finite = 1e-5
) -> Value:
    """With one scale and bias a group."""
    y = _groups(b, x, num_groups, epsilon)
    y = affine(b, y, along_channel(b, scale, y.type.rank), along_channel(b, bias, y.type.rank))
    return declare.reshape(b, y, x.shape)


@onnx_op("LpNormalization")
def lp_normalization(b: Scope, x: Value, *, axis: int = -1, p: Positive = 2) -> Value:
    if p not in (1, 2):
        raise ValueError(f"p = {p}")
    axis = normalize_axis(axis, x.type.rank)
    norm = b.op("Reduce", x, function=f"l{p}", axes=(axis,), keepdims=True)
    zero = b.op("Equal", norm, b.like(0, norm))
    return b.op("Where", zero, b.like(0, x), b.op("Div", x, norm))


@onnx_op("MeanVarianceNormalization")
def mean_variance_normalization(b: Scope, x: Value, *, axes: tuple[int, ...] = (0, 2, 3)) -> Value:
    where = declare.normalize_axes(axes, x.type.rank)
    mean = b.op("Reduce", x, function="mean", axes=where, keepdims=True)
    centred = b.op("Sub", x, mean)
    variance = b.op("Reduce", b.op("Mul", centred, centred), function="mean", axes=where, keepdims=True)
    return b.op("Div", centred, b.op("Add", b.op("Sqrt", variance), b.like(1e-9, variance)))
