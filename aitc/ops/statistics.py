"""The statistics of a norm as a tensor of their own: what a large image's group norm is made of, see schedule/split_norms.py."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aitc.ir.dtype import F32
from aitc.ir.op import OPS, Kind, Op
from aitc.ir.types import TensorType
from aitc.ops.normalize import LayerNormalizationAttrs
from aitc.ops.pointwise import widen
from aitc.ops.reduce import reduced_shape

Types = Sequence["TensorType | None"]


def infer_statistics(types: Types, a: LayerNormalizationAttrs) -> tuple[TensorType, ...]:
    (x,) = types
    assert x is not None
    if not x.dtype.is_float:
        raise ValueError(f"needs floats, got {x}")
    return (TensorType(F32, (*reduced_shape(x.shape, a.axes, True), 2)),)


def statistics_array(x: np.ndarray, a: LayerNormalizationAttrs) -> np.ndarray:
    w = widen(x)
    with np.errstate(all="ignore"):
        mean = np.mean(w, axis=a.axes, keepdims=True) if a.center else np.zeros(reduced_shape(x.shape, a.axes, True), w.dtype)  # type: ignore[type-var]
        square = np.mean(np.square(w - mean), axis=a.axes, keepdims=True)
        inverse = 1 / np.sqrt(square + np.asarray(a.epsilon, w.dtype))
    return np.stack([mean, inverse], axis=-1).astype(np.float32)


OPS.add(
    "Statistics",
    Op(
        "Statistics", Kind.NORMALIZE, infer_statistics, statistics_array, LayerNormalizationAttrs, tolerance=4.0,
        doc="Of a LayerNormalization: mean (0 without center) and 1 / sqrt(variance + epsilon), in float32: (kept axes, 1 for the others, 2).",
    ),
)  # fmt: skip
