"""Builds and runs problems on the CPU, through the emulator."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

import numpy as np

from tests.emulator import flags

from .problem import RIM, Problem, Scalar, Verdict, initial_bytes, judge


def build(problem: Problem, folder: Path, warp: int) -> Path:
    """Compiles the problem's source for an emulated warp of 32 (sm_80) or 64 (gfx90a) lanes; returns the shared library."""
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / f"{problem.digest}_{warp}.so"
    if library.exists():
        return library
    source = folder / f"{problem.digest}_{warp}.cpp"
    source.write_text(problem.source + f"\nAITC_EMULATOR_ENTRY({problem.entry})\n")
    part = library.with_suffix(f".{os.getpid()}")
    command = ["g++", *flags("sm80" if warp == 32 else "gfx90a", library=True), "-w", str(source), "-o", str(part)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{problem.name}: {done.stderr[:4000]}")
    part.replace(library)
    return library


def run(problem: Problem, folder: Path, warp: int = 32) -> Verdict:
    """Builds, launches and judges one problem."""
    library = ctypes.CDLL(str(build(problem, folder, warp)))
    launch = getattr(library, f"aitc_emulator_launch_{problem.entry}")
    buffers: list[np.ndarray] = []
    holders: list[ctypes._SimpleCData] = []
    for argument in problem.arguments:
        if isinstance(argument, Scalar):
            holders.append((ctypes.c_int64 if argument.dtype == "i64" else ctypes.c_int32)(argument.value))
            continue
        raw = initial_bytes(argument)
        aligned = np.empty(raw.size + 512, np.uint8)
        start = -aligned.ctypes.data % 256
        buffer = aligned[start : start + raw.size]
        buffer[:] = raw
        buffers.append(buffer)
        holders.append(ctypes.c_void_p(buffer.ctypes.data + RIM))
    pointers = (ctypes.c_void_p * len(holders))(*[ctypes.addressof(h) for h in holders])
    dims = (ctypes.c_uint * 9)(problem.blocks, problem.grid_y, 1, problem.threads, 1, 1, 1, 1, 1)
    if launch(dims, ctypes.c_size_t(problem.smem_bytes), pointers):
        library.aitc_emulator_error.restype = ctypes.c_char_p
        return Verdict(problem.name, faults=[library.aitc_emulator_error().decode()])
    return judge(problem, buffers)
