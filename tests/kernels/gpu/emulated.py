"""Builds and runs problems on the CPU, through the emulator."""

from __future__ import annotations

import emulator
import numpy as np

from .problem import RIM, Input, Problem, Scalar, Verdict, encode, initial_bytes, judge, with_rims


def run(problem: Problem, warp: int = 32) -> Verdict:
    """Builds, launches and judges one problem, on an emulated sm_80 (warps of 32 lanes) or gfx90a (64)."""
    kernels = emulator.build(problem.source, "sm80" if warp == 32 else "gfx90a")
    arguments: list[np.ndarray | np.generic] = []
    buffers: list[tuple[bool, np.ndarray]] = []
    for argument in problem.arguments:
        if isinstance(argument, Scalar):
            arguments.append((np.int64 if argument.dtype == "i64" else np.int32)(argument.value))
        elif isinstance(argument, Input):
            held = emulator.guarded(encode(argument.values, argument.dtype))
            buffers.append((True, held))
            arguments.append(held)
        else:
            held = emulator.guarded(initial_bytes(argument))
            buffers.append((False, held))
            arguments.append(held[RIM:-RIM])
    try:
        kernels.launch(problem.entry, (problem.blocks, problem.grid_y), problem.threads, problem.smem_bytes, *arguments)
    except emulator.EmulatorError as error:
        return Verdict(problem.name, faults=[str(error)])
    return judge(problem, [with_rims(held) if is_input else held for is_input, held in buffers])
