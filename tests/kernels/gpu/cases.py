"""All problems of the GPU kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

from . import (
    attention_cases,
    attention_sm90_cases,
    chain_sm90_cases,
    conv_cases,
    conv_sm90_cases,
    gemm_cases,
    gemm_sm90_cases,
    group_norm_cases,
    grouped_sm90_cases,
    instruction_cases,
    map_cases,
    moments_cases,
    rounding_cases,
    rowwise_cases,
)
from .problem import Problem

GENERATORS: dict[str, Callable[[], Iterator[Problem]]] = {
    "instruction": instruction_cases.cases,
    "rounding": rounding_cases.cases,
    "gemm_sm80": gemm_cases.sm80_cases,
    "gemm_sm90": gemm_sm90_cases.cases,
    "grouped_sm90": grouped_sm90_cases.cases,
    "chain_sm90": chain_sm90_cases.cases,
    "moments_sm90": moments_cases.cases,
    "gemm_simt": gemm_cases.simt_cases,
    "gemv": gemm_cases.gemv_cases,
    "conv_sm80": conv_cases.sm80_cases,
    "conv_sm90": conv_sm90_cases.cases,
    "conv_simt": conv_cases.simt_cases,
    "attention_sm80": attention_cases.sm80_cases,
    "attention_split_sm80": attention_cases.split_cases,
    "attention_split_simt": attention_cases.split_simt_cases,
    "attention_sm90": attention_sm90_cases.cases,
    "attention_simt": attention_cases.simt_cases,
    "gemm_cdna": gemm_cases.cdna_cases,
    "conv_cdna": conv_cases.cdna_cases,
    "attention_cdna": attention_cases.cdna_cases,
    "map": map_cases.cases,
    "reduce": rowwise_cases.reduce_cases,
    "normalize": rowwise_cases.normalize_cases,
    "group_norm_sm90": group_norm_cases.cases,
    "statistics": group_norm_cases.statistics_cases,
    "transpose": rowwise_cases.transpose_cases,
    "depthwise": rowwise_cases.depthwise_cases,
}
"""By kernel."""


@cache
def problems_of(kernel: str) -> tuple[Problem, ...]:
    """A kernel's problems, drawn and computed once in a process."""
    return tuple(GENERATORS[kernel]())


def problems(only: str = "") -> Iterator[Problem]:
    """Every problem whose kernel or name contains `only`."""
    for kernel in GENERATORS:
        for problem in problems_of(kernel):
            if only in kernel or only in problem.name:
                yield problem
