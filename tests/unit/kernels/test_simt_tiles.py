"""Tiles of plain multiply-adds fit into the shared memory of every GPU."""

from __future__ import annotations

import pytest

from aitc.kernels.matmul.gemm_simt import accumulator_bytes, simt_tiles
from aitc.kernels.matmul.tiles import SIMT_TILES
from aitc.targets.target import Target, all_targets, find_target


@pytest.mark.parametrize("dtype", ["f32", "i8", "f64"])
@pytest.mark.parametrize("target", [t for t in all_targets() if t.gpu], ids=lambda t: t.name)
def test_tiles_fit(target: Target, dtype: str) -> None:
    tiles = simt_tiles(dtype, target)
    assert tiles and all(t.smem_bytes(accumulator_bytes(dtype)) <= target.smem_bytes for t in tiles)


def test_the_deepest_tile_is_left_out_where_it_does_not_fit() -> None:
    assert list(simt_tiles("f32", find_target("h200"))) == list(SIMT_TILES)
    assert set(SIMT_TILES) - set(simt_tiles("f32", find_target("mi250"))) == {SIMT_TILES[1]}
