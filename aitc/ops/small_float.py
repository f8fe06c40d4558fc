"""Conversions to element types of a byte or less, with ONNX's rounding and saturation, in numpy."""

from __future__ import annotations

import numpy as np

from aitc.ir.dtype import DType

# name -> (largest finite value, whether the format has infinities)
_FLOAT8 = {
    "f8e4m3fn": (448.0, False),
    "f8e4m3fnuz": (240.0, False),
    "f8e5m2": (57344.0, True),
    "f8e5m2fnuz": (57344.0, False),
}


def to_small(x: np.ndarray, to: DType, saturate: bool = True, rounding: str = "nearest") -> np.ndarray:
    """``x`` as float8, float4 or an exponent (f8e8m0). Rounds halves to even; beyond the largest value
    saturates, or gives NaN or infinity."""
    wide = x.astype(np.float32)
    if to.name == "f8e8m0":
        return to_exponent(wide, saturate, rounding)
    if to.name == "f4e2m1":
        return np.clip(wide, -6.0, 6.0).astype(to.numpy)
    largest, infinite = _FLOAT8[to.name]
    if saturate:
        return np.where(np.isnan(wide), wide, np.clip(wide, -largest, largest)).astype(to.numpy)
    result = wide.astype(to.numpy)
    if not infinite:  # no infinities: all that overflows is NaN
        back = result.astype(np.float32)
        result = np.where(np.isinf(wide) | np.isinf(back), np.float32(np.nan), back).astype(to.numpy)
    return result


def to_exponent(x: np.ndarray, saturate: bool, rounding: str) -> np.ndarray:
    """Powers of two, stored as their exponent plus 127; 255 is NaN. Signs are dropped. ``rounding``: up (away
    from zero), down, or nearest, halves up."""
    import ml_dtypes

    bits = np.abs(x).astype(np.float32).view(np.uint32)
    exponent = (bits >> 23).astype(np.int64)
    mantissa = bits & 0x7FFFFF
    special = exponent == 255
    up = mantissa > 0 if rounding == "up" else (mantissa >= 0x400000) & (rounding == "nearest")
    up &= ~((exponent == 0) & (mantissa <= 0x400000))
    code = exponent + np.where(up & ~special, 1, 0)
    nan = np.isnan(x) | (special & (not saturate)) | ((code > 254) & (not saturate))
    code = np.where(nan, 255, np.minimum(code, 254))
    return code.astype(np.uint8).view(ml_dtypes.float8_e8m0fnu)


def to_int4(x: np.ndarray, to: DType) -> np.ndarray:
    """``x`` truncated to an integer and cut to the type's bits, as C would."""
    wide = np.where(np.isfinite(x), x, 0).astype(np.int64) if x.dtype.kind == "f" else x.astype(np.int64)
    span = 1 << to.bits
    low = wide & (span - 1)
    if to.kind == "int":
        low = np.where(low >= span // 2, low - span, low)
    return low.astype(np.int8).astype(to.numpy)


# TensorProto.DataType's names, as Cast's attribute spelt them before opset 6
ONNX_NAMES = {
    "FLOAT": "f32", "UINT8": "u8", "INT8": "i8", "UINT16": "u16", "INT16": "i16", "INT32": "i32", "INT64": "i64",
    "BOOL": "bool", "FLOAT16": "f16", "DOUBLE": "f64", "UINT32": "u32", "UINT64": "u64", "COMPLEX64": "c64",
    "COMPLEX128": "c128",
}  # fmt: skip
