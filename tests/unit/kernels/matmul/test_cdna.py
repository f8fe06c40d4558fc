"""The machine model of AMD's matrix kernels: what it predicts is possible, grows with the work, and picks tiles that fit the problem."""

from __future__ import annotations

import pytest

from aitc.kernels.matmul.cdna import FLOAT8_TILES, FLOAT_TILES, HALF_TILES, CdnaTile, tile_us
from aitc.targets.target import Target, find_target

MI250, MI300 = find_target("mi250"), find_target("mi300x")


def best(M: int, N: int, K: int, target: Target, batch: int = 1) -> tuple[CdnaTile, float]:
    """The tile that the model takes for a product in fp16, and its time in us."""
    bytes_ = 2.0 * batch * (M * K + K * N + M * N)
    scored = [(tile_us(t, batch, M, N, K, "fp16", bytes_, 2, target), n) for n, t in enumerate(HALF_TILES)]
    us, n = min(scored)
    return HALF_TILES[n], us


@pytest.mark.parametrize("target", [MI250, MI300])
@pytest.mark.parametrize("size", [256, 1024, 4096, 8192])
def test_nothing_is_faster_than_the_machine(target: Target, size: int) -> None:
    _, us = best(size, size, size, target)
    floor = max(2.0 * size**3 / target.tflops["fp16"] * 1e-6, 6.0 * size * size / target.gbps * 1e-3)
    assert us > floor
    if size >= 4096:
        assert us < 2.5 * floor  # and large products come near it


def test_tiles_follow_the_problem() -> None:
    large, _ = best(8192, 8192, 4096, MI250)
    assert large.BM * large.BN >= 128 * 128
    for rows in (1, 16):
        few, _ = best(rows, 4096, 4096, MI250)
        assert few.BM == 16 and few.mfma == 16
    deep, deep_us = best(64, 64, 16384, MI250)
    flat = min(tile_us(t, 1, 64, 64, 16384, "fp16", 0.0, 2, MI250) for t in HALF_TILES if t.split == 1)
    assert deep.split > 1 and deep_us < flat  # a contraction that one wave would walk alone


def test_more_work_takes_longer() -> None:
    for a, b in (((512, 512, 512), (1024, 512, 512)), ((512, 512, 512), (512, 512, 4096))):
        assert best(*a, MI250)[1] < best(*b, MI250)[1]
    assert best(4096, 4096, 4096, MI300)[1] < best(4096, 4096, 4096, MI250)[1]


@pytest.mark.parametrize(("tiles", "size"), [(HALF_TILES, 2), (FLOAT_TILES, 4), (FLOAT8_TILES, 1)])
def test_claims_fit_the_shared_memory(tiles: tuple[CdnaTile, ...], size: int) -> None:
    """Registers are the compilers' business: tests/kernels/gpu/test_code_objects.py."""
    assert len({str(t) for t in tiles}) == len(tiles)
    for t in tiles:
        assert t.BK * size in (64, 128)
        for target in (MI250, MI300):
            assert target.resident_blocks(t.threads, 1, t.smem_bytes(size)) >= t.blocks
