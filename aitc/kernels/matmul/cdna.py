"""What the kernels for AMD's matrix cores share: tiles, what they claim of a compute unit, and a machine model (include/aitc/gpu/matmul/tile_cdna.h)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from aitc.kernels.core import kernel as k
from aitc.targets.target import Target

MATRIX_TYPES = {"f16": ("fp16", 2), "bf16": ("bf16", 2), "f32": ("fp32_matrix", 4)}  # rate, bytes; MFMA on float is exact
FLOAT8_TYPES = {"f8e4m3fnuz": ("fp8", 1), "f8e5m2fnuz": ("fp8", 1)}  # of gfx942, with sums in float


@dataclass(frozen=True, slots=True)
class CdnaTile:
    """``CdnaTile<BM, BN, BK, warps_m, warps_n, mfma, split>`` of tile_cdna.h; ``blocks``: so many are to run on a compute unit at once.

    The compiler is told (``AITC_KERNEL``), and tests hold its registers and the shared memory against it.
    """

    BM: int
    BN: int
    BK: int
    warps_m: int
    warps_n: int
    blocks: int
    mfma: int = 32
    split: int = 1

    def __str__(self) -> str:
        more = (f"_m{self.mfma}" if self.mfma != 32 else "") + (f"_k{self.split}" if self.split > 1 else "")
        return f"{self.BM}x{self.BN}x{self.BK}_w{self.warps_m}{self.warps_n}_b{self.blocks}{more}"

    @property
    def threads(self) -> int:
        return 64 * self.warps_m * self.warps_n * self.split

    @property
    def step(self) -> int:
        """Depth of the contraction that a block takes at a time."""
        return self.BK * self.split

    @property
    def text(self) -> str:
        last = ", ".join(map(str, (self.mfma, self.split) if self.split > 1 else (self.mfma,) if self.mfma != 32 else ()))
        return f"CdnaTile<{self.BM}, {self.BN}, {self.BK}, {self.warps_m}, {self.warps_n}{', ' + last if last else ''}>"

    def smem_bytes(self, elem_bytes: int) -> int:
        """Dynamic shared memory, the formula at the top of tile_cdna.h."""
        stages = self.split * 2 * (self.BM + self.BN) * self.BK * elem_bytes
        patches = self.warps_m * self.warps_n * self.mfma * (self.mfma + 4) * 4
        return max(stages, patches, (self.split - 1) * self.BM * self.BN * 4)

    def pieces(self, width: int) -> int:
        """Loads of operand A that a thread has in flight, of ``width`` elements each."""
        return -(-self.BM * self.BK * self.split // (width * self.threads))


HALF_TILES = (
    CdnaTile(128, 128, 32, 2, 2, 2),
    CdnaTile(256, 128, 32, 2, 2, 1),
    CdnaTile(128, 64, 32, 2, 2, 2),
    CdnaTile(64, 64, 64, 2, 2, 2),
    CdnaTile(64, 64, 32, 2, 2, 3),
    CdnaTile(32, 64, 64, 1, 2, 2),
    CdnaTile(32, 32, 32, 1, 1, 2, split=4),
    CdnaTile(16, 64, 64, 1, 4, 3, mfma=16),
    CdnaTile(16, 32, 64, 1, 2, 2, mfma=16, split=2),
)
FLOAT8_TILES = (
    CdnaTile(128, 128, 64, 2, 2, 2),
    CdnaTile(256, 128, 64, 2, 2, 1),
    CdnaTile(128, 64, 64, 2, 2, 2),
    CdnaTile(64, 64, 128, 2, 2, 2),
    CdnaTile(64, 64, 64, 2, 2, 3),
    CdnaTile(32, 64, 128, 1, 2, 2),
    CdnaTile(16, 64, 128, 1, 4, 3, mfma=16),
)
FLOAT_TILES = (
    CdnaTile(128, 128, 16, 2, 2, 2),
    CdnaTile(64, 64, 32, 2, 2, 2),
    CdnaTile(32, 32, 16, 1, 1, 2, split=4),
    CdnaTile(16, 64, 32, 1, 4, 3, mfma=16),
)


def claimed(draft: k.Draft, blocks: int) -> k.Draft:
    """``draft``, whose kernel is compiled so that ``blocks`` of it run on a compute unit at once."""
    return replace(draft, context=replace(draft.context, min_blocks=blocks))


def tile_us(config: CdnaTile, batch: int, M: int, N: int, K: int, rate: str, bytes_: float, elem_bytes: int, target: Target) -> float:
    """Time of a product on a machine that nobody has timed: its rates on paper (AMD's CDNA 2 and 3 white papers), and waves of blocks.

    A step of the blocks that share a unit takes the longest of: their matrix instructions, at nine tenths of the rate; the shared memory that waves read
    and fill; the L2 cache, whose share for a unit is three tenths of the speed of shared memory; and the time until the next tiles arrive, half a
    microsecond. A fifth of the other three comes on top: nothing overlaps perfectly.
    """
    units = max(target.units, 1)
    blocks = batch * ceil(M / config.BM) * ceil(N / config.BN)
    waves = ceil(blocks / (units * config.blocks))
    active = min(config.blocks, ceil(blocks / units))
    depth = config.BK * config.split
    matrix = 2.0 * config.BM * config.BN * depth / (0.9 * target.tflops[rate] * 1e6 / units)
    inside = config.split * config.BK * elem_bytes
    filled = (config.BM + config.BN) * inside
    read = config.warps_m * config.warps_n * (config.BM // config.warps_m + config.BN // config.warps_n) * inside
    smem = target.unit.smem_gbps * 1e3  # bytes a microsecond
    parts = (active * matrix, active * (filled + read) / smem, active * filled / (0.3 * smem), 0.5)
    step = 0.8 * max(parts) + 0.2 * (sum(parts) - 0.5) if max(parts) > 0.5 else 0.5
    store = active * config.BM * config.BN * 4 / smem * 3 + (1.0 if config.split > 1 else 0.5)
    memory = bytes_ / target.gbps * 1e-3
    body = waves * (ceil(K / depth) * step + store)
    return target.launch_us + max(body, memory) + 0.1 * min(body, memory)
