"""Statistics of rows apart from what is done with them: what a layer norm is made of where its neighbours compute it.

``Moments`` describes each ``part`` neighbouring elements of a row, ``MergedMoments`` the whole row from its parts, ``Standardize`` applies
them. LayerNormalization(x) is Standardize(x, mean, inverse) with both from MergedMoments(Moments(x)).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aitc.ir.dtype import F32
from aitc.ir.op import OPS, Kind, Op
from aitc.ir.types import TensorType, broadcast
from aitc.ops.pointwise import row, widen

Types = Sequence["TensorType | None"]


@dataclass(frozen=True, slots=True)
class MomentsAttrs:
    """``part``: elements of the last axis that are described together; it divides the axis."""

    part: int


@dataclass(frozen=True, slots=True)
class MergedMomentsAttrs:
    """``part``: elements that each of the parts describes; ``epsilon`` is added to the variance. Without ``center`` the mean counts as 0."""

    part: int
    epsilon: float
    center: bool = True


def _infer_moments(types: Types, a: MomentsAttrs) -> tuple[TensorType, ...]:
    (x,) = types
    assert x is not None
    size = x.shape[-1] if x.shape else 0
    if not x.dtype.is_float or not isinstance(size, int) or size % a.part:
        raise ValueError(f"needs floats in rows of whole parts of {a.part}, got {x}")
    return (TensorType(F32, (*x.shape[:-1], size // a.part, 2)),)


def _infer_merged(types: Types, a: MergedMomentsAttrs) -> tuple[TensorType, ...]:
    (x,) = types
    assert x is not None
    if x.dtype is not F32 or x.rank < 2 or x.shape[-1] != 2 or not isinstance(x.shape[-2], int):
        raise ValueError(f"needs the moments of parts, got {x}")
    return (TensorType(F32, (*x.shape[:-2], 2)),)


def _infer_standardize(types: Types, attrs: Any) -> tuple[TensorType, ...]:
    x, mean, inverse = types
    assert x is not None and mean is not None and inverse is not None
    if not x.dtype.is_float or mean.dtype is not F32 or inverse.dtype is not F32:
        raise ValueError(f"needs floats and their statistics in float32, got {x}, {mean} and {inverse}")
    return (TensorType(x.dtype, broadcast(x.shape, mean.shape, inverse.shape)),)


def moments_array(x: np.ndarray, a: MomentsAttrs) -> np.ndarray:
    parts = widen(x).reshape(*x.shape[:-1], x.shape[-1] // a.part, a.part)
    mean = parts.mean(axis=-1)
    return np.stack([mean, np.square(parts - mean[..., None]).sum(axis=-1)], axis=-1).astype(np.float32)


def merged_moments_array(x: np.ndarray, a: MergedMomentsAttrs) -> np.ndarray:
    """The variance is that of the differences from the mean, part by part (Chan, Golub and LeVeque 1979, for parts of one size)."""
    mean = x[..., 0].mean(axis=-1) if a.center else np.zeros_like(x[..., 0, 0])
    squares = x[..., 1].sum(axis=-1) + a.part * np.square(x[..., 0] - mean[..., None]).sum(axis=-1)
    variance = squares / (a.part * x.shape[-2])
    return np.stack([mean, 1 / np.sqrt(variance + np.float32(a.epsilon))], axis=-1).astype(np.float32)


OPS.add(
    "Moments",
    Op(
        "Moments", Kind.WINDOW, _infer_moments, moments_array, MomentsAttrs, tolerance=4.0,
        doc="Mean, and sum of squared differences from it, of each part of a row: (..., parts, 2).",
    ),
)  # fmt: skip
OPS.add(
    "MergedMoments",
    Op(
        "MergedMoments", Kind.MOVE, _infer_merged, merged_moments_array, MergedMomentsAttrs, tolerance=4.0,
        doc="Mean and 1 / sqrt(variance + epsilon) of a row from the moments of its parts: (..., 2).",
    ),
)  # fmt: skip
row(
    "Standardize", "(({0}) - ({1})) * ({2})", lambda x, mean, inverse: (x - mean) * inverse, arity=3, infer=_infer_standardize, tolerance=2.0, flops=2,
    doc="(x - mean) * inverse, in the type of x; mean and inverse are float32.",
)  # fmt: skip
