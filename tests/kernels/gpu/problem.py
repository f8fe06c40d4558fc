"""What a GPU kernel test is: a source text, its launch, its arguments, and the results that float64 arithmetic gives."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

CTYPES = {
    "f16": "half_t",
    "bf16": "bfloat16_t",
    "f32": "float",
    "f64": "double",
    "i8": "int8_t",
    "u8": "uint8_t",
    "i32": "int",
    "i64": "int64_t",
    "bool": "bool",
    "e4m3": "float8_e4m3_t",
    "e5m2": "float8_e5m2_t",
    "e4m3fnuz": "float8_e4m3fnuz_t",
    "e5m2fnuz": "float8_e5m2fnuz_t",
}
SIZES = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8, "i8": 1, "u8": 1, "i32": 4, "i64": 8, "bool": 1, "e4m3": 1, "e5m2": 1, "e4m3fnuz": 1, "e5m2fnuz": 1}
_NUMPY = {
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
    "i8": np.int8,
    "u8": np.uint8,
    "i32": np.int32,
    "i64": np.int64,
    "bool": np.bool_,
}
_FLOAT8 = {
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
}
TOLERANCE = {"f16": 1e-3, "bf16": 8e-3, "f32": 2e-5, "f64": 1e-12}
"""Greatest |result - expected| / (|expected| + rms(expected)) by the type of the result."""


def encode(values: np.ndarray, dtype: str) -> np.ndarray:
    """The stored form of `values`, one-dimensional (bfloat16 as uint16, float8 as uint8)."""
    flat = np.ascontiguousarray(values).reshape(-1)
    if dtype in _FLOAT8:
        return flat.astype(_FLOAT8[dtype]).view(np.uint8)
    if dtype != "bf16":
        return flat.astype(_NUMPY[dtype])
    bits = flat.astype(np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(flat), 0x7FFF, rounded).astype(np.uint16)


def decode(stored: np.ndarray, dtype: str) -> np.ndarray:
    """Stored elements as float64 (integers and bool: as they are)."""
    if dtype == "bf16":
        return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if dtype in _FLOAT8:
        return stored.view(_FLOAT8[dtype]).astype(np.float64)
    return stored.astype(np.float64) if dtype in ("f16", "f32", "f64") else stored


def storage(dtype: str) -> type[np.generic]:
    """The numpy type that holds stored elements."""
    return np.uint16 if dtype == "bf16" else _NUMPY[dtype]


def rounded_tf32(values: np.ndarray) -> np.ndarray:
    """`values` as the tensor cores see them after a load through a TF32 map: rounded to 10 bits of mantissa, ties to even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0xFFF + (bits >> 13 & 1)) & ~np.uint32(0x1FFF)).view(np.float32).astype(np.float64)


def rounded(values: np.ndarray, dtype: str) -> np.ndarray:
    """`values` after a round trip through storage: what the kernel will see."""
    return decode(encode(values, dtype), dtype).reshape(values.shape)


@dataclass(frozen=True, slots=True)
class Input:
    """A buffer that the kernel reads."""

    values: np.ndarray
    dtype: str


@dataclass(frozen=True, slots=True)
class Output:
    """A buffer that the kernel must fill, all of it (NaN in `expected` marks elements that it must leave alone)."""

    expected: np.ndarray
    dtype: str
    tolerance: float | None = None


@dataclass(frozen=True, slots=True)
class Scratch(Output):
    """A buffer of the kernel's own: poisoned, or (``zeroed``) 0 before the launch and after it."""

    zeroed: bool = False


def scratch(elems: int, dtype: str, zeroed: bool = False) -> Scratch:
    """Scratch memory of so many elements."""
    return Scratch(np.zeros(max(elems, 1)), dtype, None, zeroed)


@dataclass(frozen=True, slots=True)
class Scalar:
    """An integer parameter."""

    value: int
    dtype: str = "i32"


@dataclass(frozen=True, slots=True)
class Map(Scalar):
    """A TMA tensor map on the buffer of pointer argument `of`: sizes and boxes innermost first, `strides` in bytes of all but the innermost.

    `dtype` tf32: floats, rounded as they are loaded.

    `im2col`: lower corner, upper corner, channels and pixels.
    """

    of: int = 0
    dtype: str = "f16"
    offset: int = 0
    sizes: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    box: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    swizzle: int = 128
    im2col: tuple[tuple[int, ...], tuple[int, ...], int, int] | None = None


MAP_TYPES = {"f16": 6, "bf16": 9, "f32": 7, "tf32": 11, "e4m3": 0, "e5m2": 0}
"""CUtensorMapDataType by the type of a map."""


def map_bytes(m: Map) -> int:
    """Of an element."""
    return 4 if m.dtype == "tf32" else SIZES[m.dtype]


def operand_map_type(dtype: str) -> str:
    """The type of a map of wgmma's operands: floats are rounded."""
    return "tf32" if dtype == "f32" else dtype


def rounded_operand(values: np.ndarray, dtype: str) -> np.ndarray:
    """What wgmma multiplies of stored `values`."""
    return rounded_tf32(values) if dtype == "f32" else rounded(values, dtype)


@dataclass(frozen=True, slots=True)
class Problem:
    """One kernel in one configuration on one problem."""

    name: str
    source: str
    entry: str
    blocks: int
    threads: int
    smem_bytes: int
    arguments: tuple[Input | Output | Scalar, ...]
    warp: int = 0
    """32: only where warps have 32 lanes (mma.sync); 64: only where they have 64 (MFMA); 0: anywhere."""
    grid_y: int = 1
    notes: str = ""
    cluster: int = 1
    arch: str = ""
    """The compute architecture that it needs, e.g. 90a; "": any."""

    @property
    def digest(self) -> str:
        """Names the compiled object: equal sources are compiled once."""
        return hashlib.sha256(self.source.encode()).hexdigest()[:16]


@dataclass(slots=True)
class Verdict:
    """How a problem came out."""

    name: str
    error: float = 0.0
    limit: float = 0.0
    faults: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether every output is right and nothing beside it was touched."""
        return not self.faults


RIM = 512
"""Bytes around every buffer; all ones, so NaN in every float type. A kernel must not write there, and what it reads there shows."""


def with_rims(stored: np.ndarray) -> np.ndarray:
    """The bytes of a buffer between its rims."""
    body = np.ascontiguousarray(stored).view(np.uint8).reshape(-1)
    return np.concatenate([np.full(RIM, 0xFF, np.uint8), body, np.full(RIM, 0xFF, np.uint8)])


def initial_bytes(argument: Input | Output) -> np.ndarray:
    """What is in memory before the launch: inputs as they are, outputs poisoned."""
    if isinstance(argument, Input):
        return with_rims(encode(argument.values, argument.dtype))
    if isinstance(argument, Scratch) and argument.zeroed:
        return with_rims(encode(argument.expected, argument.dtype))
    return with_rims(np.full(argument.expected.size * SIZES[argument.dtype], 0xFF, np.uint8))


def judge(problem: Problem, after: list[np.ndarray]) -> Verdict:
    """Compares the buffers (with rims, in the order of the pointer arguments) after the launch."""
    verdict = Verdict(problem.name)
    buffers = [a for a in problem.arguments if not isinstance(a, Scalar)]
    for index, (argument, raw) in enumerate(zip(buffers, after, strict=True)):
        if isinstance(argument, Input):
            if not np.array_equal(raw, initial_bytes(argument)):
                verdict.faults.append(f"input {index} was written")
            continue
        if (raw[:RIM] != 0xFF).any() or (raw[-RIM:] != 0xFF).any():
            verdict.faults.append(f"output {index}: written outside")
        if isinstance(argument, Scratch) and not argument.zeroed:
            continue
        got = decode(raw[RIM:-RIM].view(storage(argument.dtype)), argument.dtype).reshape(argument.expected.shape)
        expected = argument.expected
        if argument.dtype not in TOLERANCE:
            wrong = int((got != expected).sum())
            if wrong:
                where = np.argwhere(got != expected)[0]
                verdict.faults.append(
                    f"output {index}: {wrong} of {got.size} differ, first at {where.tolist()}: {got[tuple(where)]} for {expected[tuple(where)]}"
                )
            continue
        limit = argument.tolerance if argument.tolerance is not None else TOLERANCE[argument.dtype]
        verdict.limit = max(verdict.limit, limit)
        inside = ~np.isnan(expected)
        finite = inside & np.isfinite(expected)
        scale = np.sqrt(np.mean(np.square(expected[finite]))) if finite.any() else 1.0
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.abs(got - expected) / (np.abs(expected) + scale + 1e-30)
        error = np.where(
            inside,
            np.where(np.isfinite(expected), error, np.where(got == expected, 0.0, np.inf)),
            np.where(np.isnan(got), 0.0, np.inf),
        )
        error = np.where(np.isnan(error), np.inf, error)
        worst = float(error.max()) if error.size else 0.0
        verdict.error = max(verdict.error, worst)
        if worst > limit:
            bad = error > limit
            where = np.argwhere(bad)[0]
            verdict.faults.append(
                f"output {index}: {int(bad.sum())} of {got.size} off by up to {worst:.2e} (limit {limit:.0e}), first at {where.tolist()}:"
                f" {got[tuple(where)]} for {expected[tuple(where)]}"
            )
    return verdict
