"""The matrix kernels' configurations on the emulator: right and fast enough to be used in tests, and without bank conflicts on AMD."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from emulator import Kernels, banks

from aitc.kernels.cdna import FLOAT_TILES, HALF_TILES, CdnaTile
from aitc.kernels.tiles import HALF_TILES as SM80_TILES

from . import emulated
from .attention_cases import attention
from .gemm_cases import Sm80Tile, gemm
from .problem import Problem

SM80 = [Sm80Tile(t.BM, t.BN, t.BK, t.warps_m, t.warps_n, t.stages, t.warps_k) for t in SM80_TILES[::4]]


def product(tile: CdnaTile | Sm80Tile, dtype: str = "f16") -> Problem:
    """256 x 256 x 256; A is contiguous along k, and B is not."""
    return gemm(f"{tile}", tile, 256, 256, 256, dtype, ("K", "N"), dynamic=False)


@pytest.mark.parametrize("tile", [*HALF_TILES, *SM80], ids=str)
def test_a_product_takes_no_longer_than_a_fifth_of_a_second(tile: CdnaTile | Sm80Tile, monkeypatch: pytest.MonkeyPatch) -> None:
    """256^3 in fp16, in 0.2 s of one processor (the best of three: the machine may be busy). A launch takes 40 to 65 ms of an idle one."""
    seconds: list[float] = []
    launch = Kernels.launch

    def timed(*arguments: object, **more: object) -> None:
        for _ in range(3):
            begin = time.process_time()
            launch(*arguments, **more)  # type: ignore[arg-type]
            seconds.append(time.process_time() - begin)

    monkeypatch.setattr(Kernels, "launch", timed)
    verdict = emulated.run(product(tile), 64 if isinstance(tile, CdnaTile) else 32)
    assert verdict.good, verdict.faults
    assert min(seconds) < 0.2


def assert_no_conflicts(problem: Problem, folder: Path, mfma: int) -> None:
    """Every bank is asked once in each phase. With 16 x 16 a sixth of the phases may take two turns: the epilogue's patches, and A where rows are few."""
    verdict = emulated.run(problem, 64, folder / "accesses")
    assert verdict.good, verdict.faults
    found = banks.conflicts(folder / "accesses", 64)
    assert {kind for _, kind, _ in found} == {"r", "w"}
    for place, c in found.items():
        assert c.worst == 1 if mfma == 32 else c.worst <= 2 and c.cycles <= 1.2 * c.phases, (place, c)


@pytest.mark.parametrize("tile", [*HALF_TILES, *FLOAT_TILES], ids=str)
def test_products_have_no_bank_conflicts(tile: CdnaTile, tmp_path: Path) -> None:
    assert_no_conflicts(product(tile, "f32" if tile in FLOAT_TILES else "f16"), tmp_path, tile.mfma)


@pytest.mark.parametrize("tile", [(128, 64, 4), (64, 64, 4), (128, 32, 4)], ids=str)
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
