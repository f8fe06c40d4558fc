"""Which tiles of mma.sync are offered."""

from __future__ import annotations

import pytest

from aitc.ir.dim import Dim, symbol
from aitc.kernels.matmul.gemm_sm80 import GemmSm80
from aitc.kernels.matmul.matmul import MatMulProblem
from aitc.targets.target import find_target

A100 = find_target("a100")


def largest(dtype: str, M: Dim, N: Dim, K: Dim, a: tuple[str, int], b: tuple[str, int]) -> int:
    """The most sums of a thread in a tile that is offered."""
    problem = MatMulProblem(dtype, 1, M, N, K, *a, *b, True)
    return max(t.BM * t.BN // t.threads for t in GemmSm80().configs(problem, A100))


@pytest.mark.parametrize(
    ("dtype", "N", "K", "a", "b", "sums"),
    [
        ("f16", 304, 64, ("K", 8), ("N", 8), 128),
        ("f16", 304, 64, ("M", 8), ("K", 8), 128),
        ("f16", 300, 64, ("K", 8), ("N", 4), 64),
        ("f16", 300, 64, ("K", 8), ("N", 8), 64),  # rows of 300 that lie 304 apart: the last piece is half a one
        ("f16", 304, 64, ("none", 1), ("N", 8), 64),
        ("f32", 300, 64, ("K", 4), ("N", 4), 128),
        ("f32", 300, 62, ("K", 2), ("N", 4), 64),
    ],
)
def test_operands_that_do_not_come_by_16_bytes_get_no_tile_that_spills(dtype: str, N: int, K: int, a: tuple[str, int], b: tuple[str, int], sums: int) -> None:
    assert largest(dtype, 1104, N, K, a, b) == sums


def test_sizes_known_at_run_time_count_by_what_divides_them() -> None:
    n = symbol("n")
    assert [largest("f16", n * f, 304, 64, ("M", 8), ("N", 8)) for f in (8, 4)] == [128, 64]
