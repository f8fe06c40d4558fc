"""Compiles a source that includes kernel headers, and calls what it defines.

A test module writes one source with a function `void run_<i>(void* const* p, const int64_t* n)` for each of its cases: p are the
arrays, n the sizes that are read at run time. It is compiled once for each instruction set of this machine.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import product
import pytest
from once import alone

from aitc.targets.isa import X86
from aitc.targets.machine import cpu_isa

INCLUDE = Path(__file__).parents[3] / "codegen_templates" / "include"
STRICT = ("-Wall", "-Wextra", "-Werror", "-shared", "-pthread")

HAVE_COMPILER = shutil.which("g++") is not None


def instruction_sets() -> tuple[str, ...]:
    """Those that this machine runs, or the one of AITC_TEST_ISA; `baseline` is what every processor of the architecture has.

    `wide` stands for AVX-512 where that is missing: its vectors, split by the compiler into AVX2's.
    """
    if os.environ.get("AITC_TEST_ISA"):
        return (os.environ["AITC_TEST_ISA"],)
    widest = cpu_isa()
    if widest == "native":
        return ("baseline",) if platform.machine() in ("x86_64", "AMD64") else ("native",)
    return ("avx2", "wide") if widest == "avx2" else tuple(X86)


def flags(isa: str) -> list[str]:
    """What kernels are compiled with, and every warning besides."""
    if isa == "wide":
        return [*flags("avx2"), "-DAITC_VECTOR_BYTES=64"]
    if isa != "baseline":
        return [*product.calls(isa).kernel, *STRICT]
    own = {"-march=native": "", "-DAITC_ISA=native": "-DAITC_ISA=baseline"}
    return [word for flag in product.calls("native").kernel if (word := own.get(flag, flag))] + [*STRICT]


ISAS = tuple(pytest.param(isa, marks=pytest.mark.full) if isa == "wide" else isa for isa in instruction_sets())


@functools.cache
def _headers() -> bytes:
    digest = hashlib.sha256()
    for path in sorted(INCLUDE.rglob("*.h")):
        if "gpu" not in path.parts:
            digest.update(path.read_bytes())
    return digest.digest()


@functools.cache
def _compile(source: str, isa: str) -> ctypes.CDLL | str:
    """The library, or what the compiler said (kept, too: a source that fails is not compiled again for each test).

    Libraries stay in the temporary directory, named by all that they are made of, for the next run and for pytest's other workers.
    """
    text = source + '\n#include "aitc/host/thread_pool.h"\n'
    command = ["g++", *flags(isa), f"-I{INCLUDE}"]
    key = hashlib.sha256(" ".join([*command, text]).encode() + _headers()).hexdigest()[:24]
    directory = Path(tempfile.gettempdir()) / f"aitc-cpu-headers-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    library = directory / f"{key}.so"
    with alone(library):
        if library.exists():
            return ctypes.CDLL(str(library))
        with tempfile.TemporaryDirectory(dir=directory) as work:
            file, made = Path(work) / "cases.cpp", Path(work) / "cases.so"
            file.write_text(text)
            done = subprocess.run([*command, str(file), "-o", str(made)], capture_output=True, text=True, check=False)
            if done.returncode:
                return done.stderr[:4000]
            made.rename(library)
    return ctypes.CDLL(str(library))


def build(source: str, isa: str) -> ctypes.CDLL:
    """The library made of `source`; the thread pool is added to it."""
    library = _compile(source, isa)
    assert not isinstance(library, str), library
    return library


def call(library: ctypes.CDLL, name: str, arrays: Sequence[np.ndarray], sizes: Sequence[int] = ()) -> None:
    pointers = (ctypes.c_void_p * max(1, len(arrays)))(*(a.ctypes.data for a in arrays))
    numbers = (ctypes.c_int64 * max(1, len(sizes)))(*sizes)
    getattr(library, name)(pointers, numbers)


PROLOGUE = """
#define RUN(i) extern "C" __attribute__((visibility("default"))) void run_##i(void* const* p, const int64_t* n)
#define RUN_(i) RUN(i)
template <typename T> static T* as(void* p) { return static_cast<T*>(p); }
"""

STORAGE = {
    "float": np.float32, "double": np.float64, "half_t": np.float16, "bfloat16_t": np.uint16, "int8_t": np.int8, "uint8_t": np.uint8,
    "int32_t": np.int32, "int64_t": np.int64,
}  # fmt: skip


def to_bfloat16(x: np.ndarray) -> np.ndarray:
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def values(rng: np.random.Generator, shape: tuple[int, ...], c_type: str) -> tuple[np.ndarray, np.ndarray]:
    """Random stored values of a C type, and what they are as float64 (integers: as int64)."""
    if c_type in ("int8_t", "int32_t", "int64_t"):
        stored = rng.integers(-100, 100, shape).astype(STORAGE[c_type])
        return stored, stored.astype(np.int64)
    if c_type == "uint8_t":
        stored = rng.integers(0, 255, shape).astype(np.uint8)
        return stored, stored.astype(np.int64)
    x = rng.standard_normal(shape)
    if c_type == "bfloat16_t":
        stored = to_bfloat16(x)
        return stored, (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    stored = x.astype(STORAGE[c_type])
    return stored, stored.astype(np.float64)


def sum_type(a: str, b: str) -> str:
    """The C type in which products of two types are summed."""
    floats = {"float", "half_t", "bfloat16_t"}
    if "double" in (a, b):
        return "double"
    if a in floats or b in floats:
        return "float"
    return "int64_t" if "int64_t" in (a, b) else "int32_t"


def assert_sums(result: np.ndarray, expected: np.ndarray, magnitude: np.ndarray) -> None:
    """`magnitude` is the sum of the absolute products: what rounding errors are relative to."""
    if result.dtype.kind == "i":
        np.testing.assert_array_equal(result.astype(np.int64), expected)
        return
    eps = np.finfo(result.dtype).eps
    assert np.isfinite(result).all(), "some results were never written"
    error = np.abs(result - expected) / (magnitude + np.finfo(result.dtype).tiny)
    assert error.size == 0 or error.max() < 8 * eps, (
        f"largest error {error.max() / eps:.1f} eps of the sum of absolute products"
    )
