"""Pointwise operators with rules of their own about types: Where, Cast, BitCast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from aitc.ir.dtype import BOOL, DType
from aitc.ir.op import OPS, Kind, NoAttrs, Op
from aitc.ir.types import TensorType, broadcast
from aitc.ops.pointwise import Types, same_dtype, widen


@dataclass(frozen=True, slots=True)
class CastAttrs:
    to: DType
    saturate: bool = True  # for casts to float8
    rounding: str = "up"  # for casts to f8e8m0: up, down, or nearest (halves up)


def _infer_where(types: Types, attrs: Any) -> tuple[TensorType, ...]:
    c, x, y = types
    assert c is not None and x is not None and y is not None
    if c.dtype is not BOOL:
        raise ValueError(f"the condition must be bool, got {c}")
    return (TensorType(same_dtype((x, y)), broadcast(c.shape, x.shape, y.shape)),)


def _where(c: np.ndarray, x: np.ndarray, y: np.ndarray, a: NoAttrs) -> np.ndarray:
    return np.where(c, x, y)


OPS.add("Where", Op("Where", Kind.POINTWISE, _infer_where, _where, NoAttrs, "{0} ? {1} : {2}", (3, 3)))


@dataclass(frozen=True, slots=True)
class BitCastAttrs:
    to: DType
    source: DType


def _infer_bit_cast(types: Types, a: BitCastAttrs) -> tuple[TensorType, ...]:
    (x,) = types
    assert x is not None
    if a.source is not x.dtype or a.to.bits != x.dtype.bits:
        raise ValueError(f"the bits of {x} do not make {a.to}")
    return (TensorType(a.to, x.shape, x.order),)


def _bit_cast_expr(a: BitCastAttrs) -> str:
    """Both types in storage form: the operand is in the compute type, and the result has to be."""
    return f"bit_cast_<{a.source.c}, {a.to.c}>({{0}})"


def _bit_cast(x: np.ndarray, a: BitCastAttrs) -> np.ndarray:
    return np.ascontiguousarray(x).view(a.to.numpy).reshape(x.shape)


_BITS = "The same bits as another element type."
OPS.add("BitCast", Op("BitCast", Kind.POINTWISE, _infer_bit_cast, _bit_cast, BitCastAttrs, _bit_cast_expr, doc=_BITS))


def _infer_cast(types: Types, a: CastAttrs) -> tuple[TensorType, ...]:
    (x,) = types
    assert x is not None
    return (TensorType(a.to, x.shape, x.order),)


def _cast_expr(a: CastAttrs) -> str:
    """Small floats have no compute type of their own: 16-bit ones are rounded when they are stored, shorter ones
    here."""
    if not a.to.is_float or a.to.bits >= 32:
        if a.to.bits < 8:
            return f"cast_{a.to}({{0}})"
        return f"convert<{a.to.c}>({{0}})"
    if a.to.bits == 16:
        return "convert<float>({0})"
    if a.to.name == "f8e8m0":
        return f"cast_f8e8m0<{str(a.saturate).lower()}>(convert<float>({{0}}), RoundE8M0::{a.rounding})"
    return f"convert<float>(convert<{a.to.c}, {str(a.saturate).lower()}>({{0}}))"


def cast_array(x: np.ndarray, a: CastAttrs) -> np.ndarray:
    """Cast with ONNX's rules: floats truncate to integers, saturate (or not) to float8, integers wrap."""
    from aitc.ops import small_float

    to = a.to
    with np.errstate(all="ignore"):
        if to is BOOL:
            return np.asarray(widen(x) != 0)
        if to.kind == "complex" or x.dtype.kind == "c":
            return x.astype(to.numpy)
        if to.is_float and to.bits <= 8:
            return small_float.to_small(x, to, a.saturate, a.rounding)
        if to.is_integer and to.bits < 8:
            return small_float.to_int4(widen(x), to)
        if to.is_float:
            if x.dtype.kind in "fiub" and to.name == "bf16":
                return x.astype(np.float32).astype(to.numpy)
            return x.astype(to.numpy)
        return widen(x).astype(to.numpy)


OPS.add("Cast", Op("Cast", Kind.POINTWISE, _infer_cast, cast_array, CastAttrs, _cast_expr))
