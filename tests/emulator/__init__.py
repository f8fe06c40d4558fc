"""Compiles aitc's GPU kernels for the CPU emulator and launches them on numpy arrays.

    kernels = emulator.build(source, target="sm80")      # source: a path, or the text of a generated kernel file
    x, y = emulator.guarded(x), emulator.poisoned((64, 64), np.float16)
    kernels.launch("gemm_4", (4, 4), 128, smem_bytes, x, w, y, 64)

`launch` raises EmulatorError when the kernel does what hardware forbids or leaves undefined; the text names file, line, block and lane.
Targets: those of the emulator's config.h (`sm80` ... `sm120`, `gfx90a`, `gfx942`). AITC_EMULATOR_ORDER chooses the order of execution.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import mmap
import os
import re
import subprocess
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from once import alone

from aitc.build.cache import call_key

ROOT = Path(__file__).resolve().parents[2]
INCLUDES = (ROOT / "codegen_templates" / "include", ROOT / "tests" / "emulator", ROOT / "tests")
COMPILER = os.environ.get("AITC_EMULATOR_CXX", "g++")
CACHE = Path(os.environ.get("AITC_EMULATOR_CACHE", Path(tempfile.gettempdir()) / f"aitc-emulator-{os.getuid()}"))


class EmulatorError(Exception):
    """A launch that the emulator stopped, or a kernel that did not compile."""


@functools.cache
def _vector_flags() -> tuple[str, ...]:
    """AVX2 and friends where this machine has them: the emulated matrix units run on them."""
    try:
        features = set(re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.M).group(1).split())  # type: ignore[union-attr]
    except (OSError, AttributeError):
        return ()
    return ("-mavx2", "-mfma", "-mf16c") if {"avx2", "fma", "f16c"} <= features else ()


def flags(target: str = "sm80", *, library: bool = False, alignment: bool = False, asan: bool = False) -> list[str]:
    """Compiler flags for `target`; `library`: for a shared one.

    Array indices are checked; `alignment`: every access to memory as well (half as long again to compile; `load`, `store` and the
    instructions check theirs anyway). `asan`: with AddressSanitizer.
    """
    match = re.fullmatch(r"(?:sm_?(\d+)a?|gfx([0-9a-f]+))", target)
    if not match:
        raise ValueError(f"unknown emulator target {target!r}")
    define = f"-DAITC_EMULATOR_SM={match[1]}" if match[1] else f"-DAITC_EMULATOR_GFX=0x{match[2]}"
    result = [
        "-std=c++17",
        "-O1",
        "-g1",
        "-fno-strict-aliasing",
        "-pthread",
        "-Wall",
        "-Wno-unknown-pragmas",
        "-Wno-psabi",
        *_vector_flags(),
    ]
    result += ["-DAITC_EMULATOR", define, *(f"-I{path}" for path in INCLUDES)]
    result += ["-fsanitize=alignment,bounds" if alignment else "-fsanitize=bounds"]
    if library:
        result += ["-shared", "-fPIC", *([] if "clang" in COMPILER else ["-fno-gnu-unique"])]
    if asan:
        result += ["-fsanitize=address", "-fno-omit-frame-pointer"]
    return result


def _digest(*parts: str) -> str:
    state = hashlib.sha256()
    for part in parts:
        state.update(part.encode())
        state.update(b"\0")
    return state.hexdigest()[:24]


@functools.cache
def _compiler() -> str:
    """What the compiler says that it is."""
    return subprocess.run([COMPILER, "--version"], capture_output=True, text=True, check=True).stdout


def compile_text(text: str, options: Sequence[str], suffix: str) -> Path:
    """Compiles C++ text, once for equal text, options and text of the headers that it includes. Returns the program (suffix "") or library (".so")."""
    CACHE.mkdir(parents=True, exist_ok=True)
    source = CACHE / f"{_digest(text)}.cpp"
    if not source.exists():
        written = source.with_name(f"{source.name}.{os.getpid()}")
        written.write_text(text)
        written.replace(source)
    key = call_key([COMPILER, *options, str(source), "-o", suffix], _compiler())
    assert key is not None
    output = CACHE / (key[:24] + suffix)
    if output.exists():
        return output
    with alone(output):
        if output.exists():
            return output
        partial = output.with_name(f"{output.name}.{os.getpid()}")
        command = [COMPILER, *options, str(source), "-o", str(partial)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise EmulatorError(f"{' '.join(command)}\n{done.stderr[:8000]}")
        partial.replace(output)
    return output


def build(source: str | Path, target: str = "sm80", *, alignment: bool = False, entries: Sequence[str] = ()) -> Kernels:
    """Compiles a kernel file (a path, or its text) as a library; every AITC_ENTRY(name) in it (or only `entries`) can be launched."""
    text = source.read_text() if isinstance(source, Path) else source
    bounds = {
        name: threads.split(",")[0]
        for threads, name in re.findall(r"^\s*AITC_KERNEL\((.+?)\)\s+void\s+AITC_ENTRY\((\w+)\)", text, re.M)
    }
    names = entries or tuple(bounds)
    if not names:
        raise ValueError("the source has no AITC_ENTRY(...)")
    origin = f'#line 1 "{source.resolve()}"\n' if isinstance(source, Path) else ""
    wrapped = origin + text + '\n#ifndef AITC_EMULATOR_ENTRY\n#error "include aitc/gpu/core/gpu.h"\n#endif\n'
    wrapped += "".join(f"AITC_EMULATOR_ENTRY({name}, {bounds.get(name, 1024)})\n" for name in names)
    options = [*flags(target, library=True, alignment=alignment), "-fvisibility=hidden"]
    return Kernels(compile_text(wrapped, options, ".so"), tuple(names))


def run(text: str, target: str = "sm80", *arguments: str, asan: bool = False) -> subprocess.CompletedProcess[str]:
    """Compiles a program (with main) and runs it."""
    program = compile_text(text, flags(target, asan=asan), "")
    env = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0:exitcode=9"}
    return subprocess.run([str(program), *arguments], capture_output=True, text=True, env=env, timeout=300)


def _three(size: int | Sequence[int]) -> list[int]:
    values = [size] if isinstance(size, int) else list(size)
    return values + [1] * (3 - len(values))


@dataclass(frozen=True)
class Kernels:
    """A compiled kernel file."""

    path: Path
    names: tuple[str, ...]

    @functools.cached_property
    def _library(self) -> ctypes.CDLL:
        library = ctypes.CDLL(str(self.path))
        library.aitc_emulator_error.restype = ctypes.c_char_p
        return library

    def launch(
        self,
        name: str,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        smem_bytes: int,
        *arguments: NDArray[Any] | int | np.generic | bytes,
        cluster: int | Sequence[int] = 1,
        accesses: Path | None = None,
    ) -> None:
        """Runs entry point `name`. Arguments: arrays (passed as pointers), integers, numpy scalars (by value, of their own size), and bytes
        (structs by value, such as tensor maps). `accesses`: a file for the accesses to shared memory, see banks.py."""
        dims = (ctypes.c_uint * 9)(*_three(grid), *_three(block), *_three(cluster))
        keep: list[object] = []
        pointers = (ctypes.c_void_p * max(1, len(arguments)))()
        for i, argument in enumerate(arguments):
            if isinstance(argument, np.ndarray):
                holder: ctypes.Array[ctypes.c_char] = ctypes.create_string_buffer(
                    argument.ctypes.data.to_bytes(8, "little"), 8
                )
            elif isinstance(argument, int):
                holder = ctypes.create_string_buffer(argument.to_bytes(8, "little", signed=argument < 0), 8)
            else:
                raw = argument if isinstance(argument, bytes) else argument.tobytes()
                holder = ctypes.create_string_buffer(raw, len(raw))
            keep.append(holder)
            pointers[i] = ctypes.addressof(holder)
        function = getattr(self._library, f"aitc_emulator_launch_{name}")
        self._library.aitc_emulator_log_accesses(os.fsencode(accesses or ""))
        failed = function(dims, ctypes.c_size_t(smem_bytes), pointers)
        self._library.aitc_emulator_log_accesses(b"")
        if failed:
            raise EmulatorError(self._library.aitc_emulator_error().decode())

    def tensor_map(
        self,
        values: NDArray[Any],
        box: Sequence[int],
        *,
        swizzle: int = 128,
        size: Sequence[int] | None = None,
        pitch: Sequence[int] | None = None,
        step: Sequence[int] | None = None,
        type_: int | None = None,
    ) -> bytes:
        """A tiled CUtensorMap of a C-ordered array.

        `box`, `size` (elements), `pitch` (bytes, of all but the innermost dimension) and `step`: innermost first.
        `type_`: a CUtensorMapDataType, by default from the array's. Only for sources that include mma_sm90.h."""
        sizes = list(size or values.shape[::-1])
        pitches = list(pitch or values.strides[-2::-1])
        rank = len(sizes)
        out = (ctypes.c_char * 128)()
        result = self._library.cuTensorMapEncodeTiled(
            out,
            _TENSOR_MAP_TYPES[values.dtype.name] if type_ is None else type_,
            rank,
            ctypes.c_void_p(values.ctypes.data),
            (ctypes.c_uint64 * rank)(*sizes),
            (ctypes.c_uint64 * max(1, rank - 1))(*pitches),
            (ctypes.c_uint32 * rank)(*box),
            (ctypes.c_uint32 * rank)(*(step or [1] * rank)),
            0,
            _SWIZZLES[swizzle],
            0,
            0,
        )
        if result:
            raise ValueError(f"cuTensorMapEncodeTiled: error {result}")
        return bytes(out)

    def im2col_map(
        self,
        values: NDArray[Any],
        lower: Sequence[int],
        upper: Sequence[int],
        channels: int,
        pixels: int,
        step: Sequence[int],
        *,
        swizzle: int = 128,
        type_: int | None = None,
    ) -> bytes:
        """An im2col CUtensorMap of an (N, [D,] [H,] W, C) array; corners in the order W, H, D, `step` of every dimension from C on."""
        rank = values.ndim
        out = (ctypes.c_char * 128)()
        result = self._library.cuTensorMapEncodeIm2col(
            out,
            _TENSOR_MAP_TYPES[values.dtype.name] if type_ is None else type_,
            rank,
            ctypes.c_void_p(values.ctypes.data),
            (ctypes.c_uint64 * rank)(*values.shape[::-1]),
            (ctypes.c_uint64 * (rank - 1))(*values.strides[-2::-1]),
            (ctypes.c_int * (rank - 2))(*lower),
            (ctypes.c_int * (rank - 2))(*upper),
            channels,
            pixels,
            (ctypes.c_uint32 * rank)(*step),
            0,
            _SWIZZLES[swizzle],
            0,
            0,
        )
        if result:
            raise ValueError(f"cuTensorMapEncodeIm2col: error {result}")
        return bytes(out)


_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_TENSOR_MAP_TYPES = {
    "uint8": 0,
    "uint16": 1,
    "uint32": 2,
    "int32": 3,
    "uint64": 4,
    "int64": 5,
    "float16": 6,
    "float32": 7,
    "float64": 8,
}


def guarded(values: NDArray[Any]) -> NDArray[Any]:
    """A copy that ends (to within 15 bytes) where memory ends: reading or writing beyond it is an EmulatorError."""
    page = mmap.PAGESIZE
    data = np.ascontiguousarray(values)
    room = (data.nbytes + 15) // 16 * 16
    pages = (room + page - 1) // page
    memory = mmap.mmap(-1, (pages + 1) * page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(address + pages * page), ctypes.c_size_t(page), 0):
        raise OSError(ctypes.get_errno(), "mprotect")
    result: NDArray[Any] = np.frombuffer(memory, dtype=data.dtype, count=data.size, offset=pages * page - room).reshape(
        data.shape
    )
    result[...] = data
    weakref.finalize(result, lambda m: None, memory)  # the map lives as long as the array
    return result


def poisoned(shape: int | Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
    """A guarded output array in which every element is NaN (floats) or -1 (integers): what a kernel leaves out shows."""
    count = int(np.prod(shape))
    bytes_ = np.full(count * np.dtype(dtype).itemsize, 0xFF, np.uint8)
    return guarded(bytes_.view(dtype).reshape(shape))
