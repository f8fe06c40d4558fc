"""The statistics of a norm as a tensor of their own: what a large image's group norm is made of, see schedule/split_norms.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aitc.ir.dtype import F32
from aitc.ir.op import OPS, Kind, Op
from aitc.ir.types import TensorType, broadcast
from aitc.ops.normalize import LayerNormalizationAttrs
from aitc.ops.pointwise import row, widen
from aitc.ops.reduce import reduced_shape

Types = Sequence["TensorType | None"]


def infer_statistics(types: Types, a: LayerNormalizationAttrs) -> tuple[TensorType, ...]:
    x, scale, bias = types
    assert x is not None and scale is not None and bias is not None
    if not x.dtype.is_float or scale.dtype is not F32 or bias.dtype is not F32:
        raise ValueError(f"needs floats, and a scale and a bias in float32, got {x}, {scale} and {bias}")
    return (TensorType(F32, (2, *broadcast(reduced_shape(x.shape, a.axes, True), scale.shape, bias.shape))),)


def statistics_array(x: np.ndarray, scale: np.ndarray, bias: np.ndarray, a: LayerNormalizationAttrs) -> np.ndarray:
    w = widen(x)
    with np.errstate(all="ignore"):
        mean = np.mean(w, axis=a.axes, keepdims=True) if a.center else np.zeros(reduced_shape(x.shape, a.axes, True), w.dtype)  # type: ignore[type-var]
        square = np.mean(np.square(w - mean), axis=a.axes, keepdims=True)
        factor = scale / np.sqrt(square + np.asarray(a.epsilon, w.dtype))
    return np.stack(np.broadcast_arrays(factor, bias - mean * factor)).astype(np.float32)


OPS.add(
    "Statistics",
    Op(
        "Statistics", Kind.NORMALIZE, infer_statistics, statistics_array, LayerNormalizationAttrs, arity=(3, 3), tolerance=4.0,
        doc="What LayerNormalization(x) * scale + bias multiplies x by, and then adds, in float32: of shape (2, kept axes and those of scale and bias).",
    ),
)  # fmt: skip


def infer_scale_shift(types: Types, attrs: Any) -> tuple[TensorType, ...]:
    x, factor, shift = types
    assert x is not None and factor is not None and shift is not None
    if not x.dtype.is_float or factor.dtype is not F32 or shift.dtype is not F32:
        raise ValueError(f"needs floats, and what they are multiplied by in float32, got {x}, {factor} and {shift}")
    return (TensorType(x.dtype, broadcast(x.shape, factor.shape, shift.shape)),)


row(
    "ScaleShift", "({0}) * ({1}) + ({2})", lambda x, factor, shift: x * factor + shift, arity=3, infer=infer_scale_shift, tolerance=2.0, flops=2,
    doc="x * factor + shift, in the type of x; factor and shift are float32.",
)  # fmt: skip
