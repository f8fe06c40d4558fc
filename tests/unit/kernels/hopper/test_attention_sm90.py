"""Hopper's attention: every configuration that is offered fits, and the one that measured best is chosen."""

from __future__ import annotations

import pytest

from aitc.kernels.attention.attention import AttentionProblem
from aitc.kernels.hopper.attention_sm90 import AttentionSm90, AttentionTile, best_band
from aitc.targets.target import find_target

H200 = find_target("h200")
KERNEL = AttentionSm90()


def problem(batch: int, heads: int, queries: int, keys: int, D: int, causal: bool = False, mask: str = "none") -> AttentionProblem:
    return AttentionProblem("f16", batch, heads, heads, queries, keys, D, D, causal, False, mask, 8)


@pytest.mark.parametrize(
    ("p", "best"),
    [
        (problem(32, 12, 128, 128, 64), "g1n128s1b3_one"),
        (problem(32, 12, 128, 128, 64, mask="add"), "g1n128s1b3_one"),
        (problem(32, 12, 197, 197, 64), "g1n208s1b2_one"),
        (problem(1, 12, 384, 384, 64), "g1n128s2b2"),
        (problem(1, 12, 384, 384, 64, mask="add"), "g1n128s2b1"),
        (problem(1, 12, 197, 197, 64), "g1n208s1b1_one"),
        (problem(32, 12, 384, 384, 64, mask="add"), "g3n128s2b1"),
        (problem(2, 8, 1024, 1024, 80), "g2n128s2b1"),
        (problem(2, 8, 4096, 77, 40), "g3n80s1b1_one"),
        (problem(1, 32, 2048, 2048, 128, causal=True), "g2n128s2b1"),
        (problem(4, 16, 8192, 8192, 128), "g3n80s2b1"),
    ],
)
def test_what_measured_best_is_chosen(p: AttentionProblem, best: str) -> None:
    configs = KERNEL.configs(p, H200)
    assert str(min(configs, key=lambda c: KERNEL.score_us(p, c, H200))) == best


@pytest.mark.parametrize("D", [8, 40, 64, 128, 160, 256])
@pytest.mark.parametrize("mask", ["none", "add"])
def test_there_is_always_a_configuration_and_it_fits(D: int, mask: str) -> None:
    for keys in (1, 77, 300):
        p = problem(1, 2, 100, keys, D, mask=mask)
        configs = KERNEL.configs(p, H200)
        assert configs
        for c in configs:
            assert c.smem_bytes(D, D) * c.blocks <= H200.smem_bytes
            assert not c.single or keys <= c.BN


def test_a_band_of_heads_spreads_triangles_evenly() -> None:
    def longest(band: int) -> int:
        rows, heads, blocks, BM, BN, keys = 16, 32, 132, 128, 128, 2048
        total = [0] * blocks
        for i in range(rows * heads):
            turn, at = divmod(i, blocks)
            first = i // (band * rows) * band
            row = rows - 1 - (i - first * rows) // min(band, heads - first)
            total[blocks - 1 - at if turn & 1 else at] += 2 * -(-min(keys, (row + 1) * BM) // BN) + 3
        return max(total)

    band = best_band(16, 32, 1 << 20, 132, 128, 128, 2048, 2048)
    assert longest(band) == min(longest(b) for b in range(1, 29))


def test_scores_of_a_whole_row_leave_room_for_addresses() -> None:
    """Three blocks of 160 threads leave 128 registers a thread, and 208 keys take 104 of them: the compiler needs 130."""
    p = problem(32, 12, 197, 197, 64)
    assert not AttentionTile(208, 1, 1, 3, True).fits(p, H200.smem_bytes)
    assert AttentionTile(208, 1, 1, 2, True).fits(p, H200.smem_bytes)
    assert not AttentionTile(208, 3, 1, 1, True).fits(p, H200.smem_bytes)  # of 512 threads, before two groups give theirs to the others
