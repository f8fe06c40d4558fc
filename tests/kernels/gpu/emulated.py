"""Builds and runs problems on the CPU, through the emulator."""

from __future__ import annotations

from pathlib import Path

import emulator
import numpy as np

from .problem import (
    MAP_TYPES,
    RIM,
    Input,
    Map,
    Problem,
    Scalar,
    Verdict,
    encode,
    initial_bytes,
    judge,
    map_bytes,
    with_rims,
)


def _tensor_map(kernels: emulator.Kernels, m: Map, buffer: np.ndarray) -> bytes:
    """The tensor map, made by the emulator's own encoder."""
    raw = buffer.view(np.uint8).reshape(-1)[m.offset * map_bytes(m) :]
    if m.im2col is None:
        return kernels.tensor_map(
            raw,
            m.box,
            swizzle=m.swizzle,
            size=m.sizes,
            pitch=m.strides,
            step=m.steps or None,
            type_=MAP_TYPES[m.dtype],
        )
    lower, upper, channels, pixels = m.im2col
    size = map_bytes(m)
    shape, strides = m.sizes[::-1], (*m.strides[::-1], size)
    view = np.lib.stride_tricks.as_strided(raw[: raw.size // size * size].view({2: np.float16, 4: np.float32}[size]), shape, strides)
    return kernels.im2col_map(view, lower, upper, channels, pixels, m.steps, swizzle=m.swizzle, type_=MAP_TYPES[m.dtype])


def run(problem: Problem, warp: int = 32, accesses: Path | None = None) -> Verdict:
    """Builds, launches and judges one problem, on an emulated sm_80 (warps of 32 lanes) or gfx90a (64).

    `accesses`: a file for its accesses to shared memory.
    """
    amd = problem.arch if problem.arch.startswith("gfx") else "gfx90a"
    kernels = emulator.build(problem.source, ("sm90" if problem.arch else "sm80") if warp == 32 else amd)
    arguments: list[np.ndarray | np.generic | bytes] = []
    buffers: list[tuple[bool, np.ndarray]] = []
    pointers: list[np.ndarray] = []
    for argument in problem.arguments:
        if isinstance(argument, Map):
            arguments.append(_tensor_map(kernels, argument, pointers[argument.of]))
        elif isinstance(argument, Scalar):
            arguments.append((np.int64 if argument.dtype == "i64" else np.int32)(argument.value))
        elif isinstance(argument, Input):
            held = emulator.guarded(encode(argument.values, argument.dtype))
            buffers.append((True, held))
            arguments.append(held)
            pointers.append(held)
        else:
            held = emulator.guarded(initial_bytes(argument))
            buffers.append((False, held))
            arguments.append(held[RIM:-RIM])
            pointers.append(held[RIM:-RIM])
    try:
        kernels.launch(
            problem.entry,
            (problem.blocks, problem.grid_y),
            problem.threads,
            problem.smem_bytes,
            *arguments,
            cluster=problem.cluster,
            accesses=accesses,
        )
    except emulator.EmulatorError as error:
        return Verdict(problem.name, faults=[str(error)])
    return judge(problem, [with_rims(held) if is_input else held for is_input, held in buffers])
