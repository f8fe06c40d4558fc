"""The matrix kernels for AMD on the emulator: right, and without bank conflicts. ``make test`` runs a few of the tiles."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from emulator import banks

from aitc.kernels.matmul.cdna import FLOAT_TILES, HALF_TILES, CdnaTile

from . import emulated
from .attention_cases import attention
from .gemm_cases import gemm
from .problem import Problem


def product(tile: CdnaTile, dtype: str = "f16") -> Problem:
    """256 x 256 x 256; A is contiguous along k, and B is not."""
    return gemm(f"{tile}", tile, 256, 256, 256, dtype, ("K", "N"), dynamic=False)


def assert_no_conflicts(problem: Problem, folder: Path, mfma: int) -> None:
    """Every bank is asked once in each phase. With 16 x 16 a sixth of the phases may take two turns: the epilogue's patches, and A where rows are few."""
    verdict = emulated.run(problem, 64, folder / "accesses")
    assert verdict.good, verdict.faults
    found = banks.conflicts(folder / "accesses", 64)
    assert {kind for _, kind, _ in found} == {"r", "w"}
    for place, c in found.items():
        assert c.worst == 1 if mfma == 32 else c.worst <= 2 and c.cycles <= 1.2 * c.phases, (place, c)


def _some(tiles: Sequence[object], every: int) -> list[object]:
    return [pytest.param(tile, id=str(tile), marks=pytest.mark.full if n % every else ()) for n, tile in enumerate(tiles)]


@pytest.mark.parametrize("tile", [*_some(HALF_TILES, 6), *_some(FLOAT_TILES, 4)])
def test_products_have_no_bank_conflicts(tile: CdnaTile, tmp_path: Path) -> None:
    assert_no_conflicts(product(tile, "f32" if tile in FLOAT_TILES else "f16"), tmp_path, tile.mfma)


@pytest.mark.parametrize("tile", _some([(128, 64, 4), (64, 64, 4), (128, 32, 4)], 3))
@pytest.mark.parametrize("size", [64, 128])
def test_attention_has_no_bank_conflicts(tile: tuple[int, int, int], size: int, tmp_path: Path) -> None:
    assert_no_conflicts(attention("attention_cdna", tile, 1, 1, 128, 128, size), tmp_path, 32)


def test_the_count_of_conflicts(tmp_path: Path) -> None:
    """A column of 16-byte pieces in rows of 64 bytes: each phase of eight lanes meets two groups of four banks four times; padded by 16, each once."""
    for pitch, worst, cycles in ((64, 4, 32), (80, 1, 8)):
        lines = [f"{lane} a.h:1 r {lane * pitch} 16" for lane in range(64)]
        (tmp_path / "log").write_text("\n".join(lines))
        assert banks.conflicts(tmp_path / "log", 64) == {("a.h:1", "r", 16): banks.Conflicts(worst, 8, cycles)}
    (tmp_path / "log").write_text("\n".join(f"{lane} a.h:1 w {lane % 2 * 2 + lane // 2 * 128} 2" for lane in range(32)))
    assert banks.conflicts(tmp_path / "log", 32) == {("a.h:1", "w", 2): banks.Conflicts(16, 1, 16)}  # two halves of a word are one
