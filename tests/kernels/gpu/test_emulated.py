"""A cross-section of the GPU kernels' problems on the emulator: NVIDIA's with 32 lanes a warp, and what is not bound to them with 64 too.

``make test`` runs two of each kernel, ``make test-rest`` the rest of the cross-section; run_on_device.py runs all problems on a GPU.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest

from . import emulated
from .cases import GENERATORS, problems_of
from .problem import Output, Problem, initial_bytes, judge

PICK = {
    "rounding": 1,
    "instruction": 1,
    "gemm_sm80": 13,
    "gemm_sm90": 16,
    "grouped_sm90": 4,
    "chain_sm90": 1,
    "moments_sm90": 3,
    "conv_sm90": 7,
    "attention_sm90": 8,
    "gemm_simt": 23,
    "gemv": 17,
    "conv_sm80": 8,
    "conv_simt": 9,
    "attention_sm80": 9,
    "attention_simt": 11,
    "attention_split_sm80": 6,
    "attention_split_simt": 5,
    "gemm_cdna": 7,
    "conv_cdna": 8,
    "attention_cdna": 9,
    "map": 13,
    "reduce": 13,
    "normalize": 9,
}
"""Every how many-th problem of a kernel is run here (the others: every seventh)."""


FEW = 2  # problems of a kernel that `make test` runs
ALL = ("rounding", "instruction")  # whose problems share a few compiles


def _chosen() -> Iterator[object]:
    for kernel in GENERATORS:
        picked = list(enumerate(problems_of(kernel)))[:: PICK.get(kernel, 7)]
        here = {0, len(picked) // 2} if len(picked) > FEW and kernel not in ALL else range(len(picked))
        for n, (index, problem) in enumerate(picked):
            warp = problem.warp or (32 if index % 2 else 64)
            yield pytest.param(problem, warp, id=f"{problem.name} warp {warp}", marks=() if n in here else pytest.mark.full)


@pytest.mark.parametrize(("problem", "warp"), _chosen())
def test_kernel(problem: Problem, warp: int) -> None:
    verdict = emulated.run(problem, warp)
    assert verdict.good, verdict.faults


def _correct_bytes(problem: Problem) -> list[np.ndarray]:
    """The buffers as a right kernel would leave them."""
    from .problem import Scalar, encode, with_rims

    buffers = [a for a in problem.arguments if not isinstance(a, Scalar)]
    return [with_rims(encode(a.expected, a.dtype)) if isinstance(a, Output) else initial_bytes(a) for a in buffers]


@pytest.mark.parametrize("damage", ["none", "value", "unwritten", "outside", "input"])
def test_the_judge_sees(damage: str) -> None:
    problem = next(p for p in problems_of("gemm_simt") if "f32 33" in p.name)
    after = _correct_bytes(problem)
    if damage == "value":
        after[-1][512 + 2 :: 4096][:1] ^= 0x40
    elif damage == "unwritten":
        after[-1][512:516] = 0xFF
    elif damage == "outside":
        after[-1][-1] = 0
    elif damage == "input":
        after[0][600] ^= 1
    verdict = judge(problem, after)
    assert verdict.good == (damage == "none"), (damage, verdict)
    assert dataclasses.asdict(verdict)["name"] == problem.name
