"""Random numbers: a hash of each element's index, made of integer pointwise operators, so that every target gives the
same ones.

A node without a seed gets one from its place in the graph: results are the same in every run.
"""

from __future__ import annotations

import math
import struct
from zlib import crc32

import numpy as np

from aitc.ir import dim as d
from aitc.ir.dim import Dim
from aitc.ir.dtype import F32, F64, I32, U32, DType
from aitc.ir.graph import Value
from aitc.ops import declare
from aitc.ops.attribute import Finite, Positive
from aitc.ops.declare import Scope, cast, dtype_of, onnx_op


def _u32(b: Scope, n: int) -> Value:
    return b.constant(n & 0xFFFFFFFF, np.uint32)


def seed_of(b: Scope, seed: float | None) -> int:
    """32 bits from the seed given, or from the node's place."""
    if seed is not None:
        return int.from_bytes(struct.pack("<f", seed), "little")
    return crc32("|".join(map(str, b.locs)).encode())


def hashed(b: Scope, count: Dim, seed: int) -> Value:
    """``count`` well mixed 32-bit numbers: multiply and fold, three rounds, over index and seed."""
    x = b.op(
        "BitwiseXor", b.op("Range", start=0, step=1, size=count, dtype=U32), _u32(b, seed * 0x9E3779B9 + 0x85EBCA6B)
    )
    for shift, factor in ((17, 0xED5AD4BB), (11, 0xAC4C1B51), (15, 0x31848BAB)):
        x = b.op("BitwiseXor", x, b.op("BitShift", x, _u32(b, shift), left=False))
        x = b.op("Mul", x, _u32(b, factor))
    return b.op("BitwiseXor", x, b.op("BitShift", x, _u32(b, 14), left=False))


def uniform(b: Scope, shape: tuple[Dim, ...], seed: int, dtype: DType = F32) -> Value:
    """Numbers in (0, 1), multiples of 2^-24 plus a half of it."""
    bits = b.op("BitShift", hashed(b, d.product(shape), seed), _u32(b, 8), left=False)
    x = b.op(
        "Mul",
        b.op("Add", b.op("Cast", bits, to=dtype), b.constant(0.5, dtype.numpy)),
        b.constant(2.0**-24, dtype.numpy),
    )
    return declare.reshape(b, x, shape)


def normal(b: Scope, shape: tuple[Dim, ...], seed: int, dtype: DType = F32) -> Value:
    """Standard normal numbers, from two uniform ones each (Box and Muller)."""
    radius = b.op("Sqrt", b.op("Mul", b.op("Log", uniform(b, shape, seed, dtype)), b.constant(-2.0, dtype.numpy)))
    return b.op(
        "Mul",
        radius,
        b.op("Cos", b.op("Mul", uniform(b, shape, seed ^ 0x5BD1E995, dtype), b.constant(2 * math.pi, dtype.numpy))),
    )


def _uniform(b: Scope, shape: tuple[Dim, ...], dtype: DType, low: float, high: float, seed: float | None) -> Value:
    wide = F64 if dtype is F64 else F32
    x = uniform(b, shape, seed_of(b, seed), wide)
    return cast(b, b.op("Add", b.op("Mul", x, b.like(high - low, x)), b.like(low, x)), dtype)


def _normal(b: Scope, shape: tuple[Dim, ...], dtype: DType, mean: float, scale: float, seed: float | None) -> Value:
    wide = F64 if dtype is F64 else F32
    x = normal(b, shape, seed_of(b, seed), wide)
    return cast(b, b.op("Add", b.op("Mul", x, b.like(scale, x)), b.like(mean, x)), dtype)


@onnx_op("RandomUniform")
def random_uniform(
    b: Scope, *, shape: tuple[int, ...], dtype: int = 1, high: Finite = 1.0, low: Finite = 0.0, seed: float | None = None
) -> Value:
    return _uniform(b, shape, dtype_of(dtype, "dtype"), low, high, seed)


@onnx_op("RandomUniformLike")
def random_uniform_like(
    b: Scope, x: Value, *, dtype: int = 0, high: Finite = 1.0, low: Finite = 0.0, seed: float | None = None
) -> Value:
    return _uniform(b, x.shape, dtype_of(dtype, "dtype") if dtype else x.type.dtype, low, high, seed)


@onnx_op("RandomNormal")
def random_normal(
    b: Scope,
    *,
    shape: tuple[int, ...],
    dtype: int = 1,
    mean: Finite = 0.0,
    scale: Finite = 1.0,
    seed: float | None = None,
) -> Value:
    return _normal(b, shape, dtype_of(dtype, "dtype"), mean, scale, seed)


@onnx_op("RandomNormalLike")
def random_normal_like(
    b: Scope, x: Value, *, dtype: int = 0, mean: Finite = 0.0, scale: Finite = 1.0, seed: float | None = None
) -> Value:
    return _normal(b, x.shape, dtype_of(dtype, "dtype") if dtype else x.type.dtype, mean, scale, seed)


@onnx_op("Bernoulli")
def bernoulli(b: Scope, x: Value, *, dtype: int = 0, seed: float | None = None) -> Value:
    wide = F64 if x.type.dtype is F64 else F32
    drawn = b.op("Less", uniform(b, x.shape, seed_of(b, seed), wide), cast(b, x, wide))
    return cast(b, drawn, dtype_of(dtype, "dtype") if dtype else x.type.dtype)


@onnx_op("Multinomial")
def multinomial(b: Scope, x: Value, *, dtype: int = 6, sample_size: Positive = 1, seed: float | None = None) -> Value:
    """The class with the largest of log-probability plus Gumbel noise is drawn with the class's probability."""
    batch, classes = x.shape
    noise = uniform(b, (batch, sample_size, classes), seed_of(b, seed))
    gumbel = b.op("Neg", b.op("Log", b.op("Neg", b.op("Log", noise))))
    scores = b.op("Add", declare.unsqueeze(b, cast(b, x, F32), (1,)), gumbel)
    return cast(
        b, b.op("ArgReduce", scores, function="max", axis=2, keepdims=False), dtype_of(dtype, "dtype") if dtype else I32
    )


def dropout(b: Scope, x: Value, ratio: Value, seed: int | None) -> tuple[Value, Value]:
    """Each element dropped with probability ``ratio`` and the others scaled up; and the mask of those kept."""
    noise = uniform(b, x.shape, seed_of(b, None if seed is None else float(seed)))
    ratio = declare.reshape(b, cast(b, ratio, F32), ())
    kept = b.op("GreaterOrEqual", noise, ratio)
    scale = b.op("Div", b.constant(1, np.float32), b.op("Sub", b.constant(1, np.float32), ratio))
    return b.op("Where", kept, b.op("Mul", x, cast(b, scale, x.type.dtype)), b.like(0, x)), kept
