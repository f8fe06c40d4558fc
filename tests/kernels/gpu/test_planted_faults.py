"""Faults planted into the kernels' headers: the emulator finds each, and says where it is unless the results alone show it."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import emulator
import pytest

from aitc.kernels.matmul.cdna import CdnaTile

from . import emulated
from .attention_cases import attention
from .cases import GENERATORS
from .gemm_cases import SimtTile, Sm80Tile, gemm
from .problem import Problem

ORDERS = ("forward", "reverse", "1", "2")


@dataclass(frozen=True)
class Fault:
    """``old`` in ``header`` becomes ``new``; some order of execution then shows ``sign``: an error with its place, or "off by": wrong results."""

    name: str
    header: str
    old: str
    new: str
    sign: str
    problem: str


WRONG = "off by"
CDNA, SM80, SIMT = "gemm_cdna", "gemm_sm80", "gemm_simt"
LOOP = "{\n      block_barrier();\n      if (t + 1"
SOME = "{\n      if (t == 0 || thread_index() < 32) block_barrier();\n      if (t + 1"
LANES = "warp_barrier();\n        AITC_UNROLL\n        for (int p"
EXCHANGE = "return op(x, shuffle_xor(x, 32));"
HALF_OF_IT = "return lane_index() < 32 ? op(x, shuffle_xor(x, 32)) : x;"
STEP = "copy_async_wait<Tile::stages - 2>();\n            block_barrier();"
FAULTS = (
    Fault("cp.async not waited for", "matmul/tile_sm80.h", STEP, "block_barrier();", "a copy in flight is writing", SM80),
    Fault("no barrier after cp.async", "matmul/tile_sm80.h", STEP, "copy_async_wait<Tile::stages - 2>();", "a copy in flight is writing", SM80),
    Fault("no barrier between stages", "core/simt.h", LOOP, "{\n      if (t + 1", WRONG, SIMT),
    Fault("no barrier between stages", "matmul/tile_cdna.h", LOOP, "{\n      if (t + 1", WRONG, CDNA),
    Fault("no barrier between lanes", "matmul/tile_cdna.h", LANES, LANES.removeprefix("warp_barrier();"), WRONG, CDNA),
    Fault("no barrier before values are read", "attention/attention_cdna.h", "block_barrier();\n    if (t + 1 < tiles)", "if (t + 1 < tiles)",
          WRONG, "attention_cdna"),
    Fault("no barrier in a tile that turns", "core/transpose.h", "block_barrier();", "", WRONG, "transpose"),
    Fault("a barrier that some threads miss", "core/simt.h", LOOP, SOME, WRONG, SIMT),
    Fault("an exchange of half a wave", "attention/attention_cdna.h", EXCHANGE, HALF_OF_IT, "divergent", "attention_cdna"),
    Fault("misaligned pieces", "matmul/tile_cdna.h", "* 16 + at % 16;", "* 16 + at % 16 + 4;", "not aligned to 16", CDNA),
    Fault("rows beyond the matrix", "core/simt.h", "if (outer < outer_end && k < k_end)", "if (k < k_end)", "invalid address", SIMT),
    Fault("wgmma not waited for", "hopper/product_sm90.h", "        wgmma_wait_all(acc);\n        release", "        release", "wgmma", "gemm_sm90"),
    Fault("wgmma without fence", "hopper/product_sm90.h", "          wgmma_fence();\n", "", "no wgmma.fence", "gemm_sm90"),
)  # fmt: skip


def problem_of(name: str) -> tuple[Problem, int]:
    """The problem and the lanes of a warp."""
    if name == CDNA:
        tile = CdnaTile(64, 64, 32, 2, 2, 3)
        return gemm(name, tile, 64, 72, 128), 64
    if name == SM80:
        return gemm(name, Sm80Tile(64, 64, 32, 2, 2, 3), 64, 64, 224), 32
    if name == SIMT:
        return gemm(name, SimtTile(64, 64, 16, 4, 4), 72, 64, 64, "f32"), 32
    if name == "attention_cdna":
        return attention(name, (64, 32, 2), 1, 1, 64, 96, 32), 64
    return next(iter(GENERATORS[name]())), 32


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f"{f.header} {f.name}")
def test_is_found(fault: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    include = tmp_path / "include"
    shutil.copytree(emulator.INCLUDES[0], include)
    header = include / "aitc" / "gpu" / fault.header
    text = header.read_text()
    assert text.count(fault.old) == 1, "the fault has its place in the header"
    header.write_text(text.replace(fault.old, fault.new))
    monkeypatch.setattr(emulator, "INCLUDES", (include, *emulator.INCLUDES[1:]))
    problem, warp = problem_of(fault.problem)
    found: list[str] = []
    for order in ORDERS:
        monkeypatch.setenv("AITC_EMULATOR_ORDER", order)
        found += emulated.run(problem, warp).faults
        if any(fault.sign in f for f in found):
            break
    seen = [f for f in found if fault.sign in f]
    assert seen, found or "nothing was found"
    if fault.sign != WRONG:
        assert any(re.search(r"\.h:\d+", f) and "lane" in f for f in seen), seen[0]
