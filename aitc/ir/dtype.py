"""Element types, with their numpy, C and ONNX spellings."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np


@dataclass(frozen=True, slots=True)
class DType:
    """An element type. ``bits`` in memory as kernels see it (sub-byte types are unpacked to one byte)."""

    name: str  # as the text IR spells it: f32, f16, bf16, i64, bool ...
    kind: str  # float, int, uint, bool, complex, string
    bits: int
    c: str  # the C++ storage type of codegen_templates/include/aitc/types.h
    numpy: np.dtype
    onnx: int  # TensorProto.DataType

    @property
    def bytes(self) -> int:
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def compute_c(self) -> str:
        """The C++ type that expressions on it are computed in."""
        return "float" if self.is_float and self.bits < 32 else self.c

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name


def _d(name: str, kind: str, bits: int, c: str, dtype: object, onnx: int) -> DType:
    return DType(name, kind, bits, c, np.dtype(dtype), onnx)  # type: ignore[call-overload]


F32 = _d("f32", "float", 32, "float", np.float32, 1)
U8 = _d("u8", "uint", 8, "uint8_t", np.uint8, 2)
I8 = _d("i8", "int", 8, "int8_t", np.int8, 3)
U16 = _d("u16", "uint", 16, "uint16_t", np.uint16, 4)
I16 = _d("i16", "int", 16, "int16_t", np.int16, 5)
I32 = _d("i32", "int", 32, "int32_t", np.int32, 6)
I64 = _d("i64", "int", 64, "int64_t", np.int64, 7)
STRING = _d("string", "string", 8, "", np.object_, 8)
BOOL = _d("bool", "bool", 8, "bool", np.bool_, 9)
F16 = _d("f16", "float", 16, "half_t", np.float16, 10)
F64 = _d("f64", "float", 64, "double", np.float64, 11)
U32 = _d("u32", "uint", 32, "uint32_t", np.uint32, 12)
U64 = _d("u64", "uint", 64, "uint64_t", np.uint64, 13)
C64 = _d("c64", "complex", 64, "complex64_t", np.complex64, 14)
C128 = _d("c128", "complex", 128, "complex128_t", np.complex128, 15)
BF16 = _d("bf16", "float", 16, "bfloat16_t", ml_dtypes.bfloat16, 16)
F8E4M3FN = _d("f8e4m3fn", "float", 8, "float8_e4m3_t", ml_dtypes.float8_e4m3fn, 17)
F8E4M3FNUZ = _d("f8e4m3fnuz", "float", 8, "float8_e4m3fnuz_t", ml_dtypes.float8_e4m3fnuz, 18)
F8E5M2 = _d("f8e5m2", "float", 8, "float8_e5m2_t", ml_dtypes.float8_e5m2, 19)
F8E5M2FNUZ = _d("f8e5m2fnuz", "float", 8, "float8_e5m2fnuz_t", ml_dtypes.float8_e5m2fnuz, 20)
U4 = _d("u4", "uint", 4, "uint8_t", ml_dtypes.uint4, 21)
I4 = _d("i4", "int", 4, "int8_t", ml_dtypes.int4, 22)
F4E2M1 = _d("f4e2m1", "float", 4, "float4_e2m1_t", ml_dtypes.float4_e2m1fn, 23)
F8E8M0 = _d("f8e8m0", "float", 8, "float8_e8m0_t", ml_dtypes.float8_e8m0fnu, 24)
U2 = _d("u2", "uint", 2, "uint8_t", ml_dtypes.uint2, 25)
I2 = _d("i2", "int", 2, "int8_t", ml_dtypes.int2, 26)

ALL = (F32, U8, I8, U16, I16, I32, I64, STRING, BOOL, F16, F64, U32, U64, C64, C128, BF16,
       F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, U4, I4, F4E2M1, F8E8M0, U2, I2)  # fmt: skip
BY_NAME = {d.name: d for d in ALL}
BY_ONNX = {d.onnx: d for d in ALL}
BY_NUMPY = {d.numpy: d for d in ALL if d is not STRING}


def of(array: np.ndarray) -> DType:
    """The DType of a numpy array. Raises KeyError for types that have none (object arrays)."""
    return BY_NUMPY[array.dtype]
