"""Tile configurations of the GPU matrix kernels, their shared memory, and a machine model that orders them."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from aitc.targets.target import Target


@dataclass(frozen=True, slots=True)
class Sm80Tile:
    """``Tile<BM, BN, BK, warps_m, warps_n, stages, warps_k>`` of include/aitc/gpu/matmul/tile_sm80.h."""

    BM: int
    BN: int
    BK: int
    warps_m: int
    warps_n: int
    stages: int
    warps_k: int = 1

    def __str__(self) -> str:
        return f"{self.BM}x{self.BN}x{self.BK}_w{self.warps_m}{self.warps_n}{self.warps_k}_s{self.stages}"

    @property
    def threads(self) -> int:
        return 32 * self.warps_m * self.warps_n * self.warps_k

    @property
    def step(self) -> int:
        """Depth of the contraction that a block takes at a time."""
        return self.BK

    @property
    def text(self) -> str:
        last = f", {self.warps_k}" if self.warps_k > 1 else ""
        return f"Tile<{self.BM}, {self.BN}, {self.BK}, {self.warps_m}, {self.warps_n}, {self.stages}{last}>"

    def smem_bytes(self, elem_bytes: int) -> int:
        """Dynamic shared memory, the formula at the top of tile_sm80.h."""
        partial = (self.warps_k - 1) * (self.BM // self.warps_m) * (self.BN // self.warps_n) if self.warps_k > 1 else 0
        epilogue = self.warps_m * self.warps_n * 4 * max(16 * (self.BN // self.warps_n + 8), partial)
        return max(self.stages * (self.BM + self.BN) * self.BK * elem_bytes, epilogue)


HALF_TILES = (
    Sm80Tile(128, 128, 64, 2, 2, 3),
    Sm80Tile(128, 96, 64, 2, 2, 3),
    Sm80Tile(128, 128, 32, 2, 2, 4),
    Sm80Tile(128, 64, 32, 2, 2, 4),
    Sm80Tile(64, 64, 64, 2, 2, 4),
    Sm80Tile(32, 64, 64, 1, 2, 4, 2),
    Sm80Tile(32, 32, 64, 1, 1, 6, 4),
    Sm80Tile(32, 32, 128, 1, 1, 4, 4),
    Sm80Tile(16, 32, 128, 1, 1, 4, 8),
)
TF32_TILES = (
    Sm80Tile(128, 128, 32, 2, 2, 3),
    Sm80Tile(128, 128, 16, 2, 2, 4),
    Sm80Tile(128, 64, 16, 2, 2, 4),
    Sm80Tile(64, 64, 32, 2, 2, 4),
)


@dataclass(frozen=True, slots=True)
class SimtTile:
    """``SimtTile<BM, BN, BK, TM, TN, split>`` of include/aitc/gpu/core/simt.h."""

    BM: int
    BN: int
    BK: int
    TM: int
    TN: int
    split: int = 1

    def __str__(self) -> str:
        return f"{self.BM}x{self.BN}x{self.BK}_t{self.TM}x{self.TN}_{self.split}"

    @property
    def threads(self) -> int:
        return (self.BM // self.TM) * (self.BN // self.TN) * self.split

    @property
    def step(self) -> int:
        """Depth of the contraction that a block takes at a time."""
        return self.BK * self.split

    @property
    def text(self) -> str:
        last = f", {self.split}" if self.split > 1 else ""
        return f"SimtTile<{self.BM}, {self.BN}, {self.BK}, {self.TM}, {self.TN}{last}>"

    def smem_bytes(self, acc_bytes: int) -> int:
        """Dynamic shared memory, the formula at the top of simt.h."""
        rings = self.split * 2 * self.BK * (self.BM + 4 + self.BN + 4)
        return max(rings, (self.split - 1) * self.BM * self.BN) * acc_bytes


SIMT_TILES = (
    SimtTile(128, 128, 8, 8, 8),
    SimtTile(64, 64, 16, 8, 8, 4),
    SimtTile(32, 32, 16, 4, 4, 4),
    SimtTile(128, 64, 8, 8, 4),
    SimtTile(64, 64, 16, 4, 4),
)
SIMT_TILES_DOUBLE = (SimtTile(64, 64, 8, 4, 4), SimtTile(32, 32, 16, 2, 2))


def product_us(
    batch: int,
    M: int,
    N: int,
    K: int,
    BM: int,
    BN: int,
    BK: int,
    threads: int,
    smem: int,
    bytes_: float,
    tflops: float,
    target: Target,
) -> float:
    """Time of a tiled matrix product: whole waves of blocks, each limited by the matrix rate of its share of a multiprocessor or by latency.

    A block alone on a multiprocessor reaches a fraction of its rate that grows with the tile; ``resident`` blocks share it.
    """
    tiles = batch * ceil(M / BM) * ceil(N / BN)
    resident = max(1, min(2048 // max(threads, 1), target.smem_bytes // max(smem, 1), 8))
    slots = max(target.units, 1) * resident
    waves = ceil(tiles / slots)
    active = min(resident, ceil(tiles / max(target.units, 1)))
    rate = tflops * 1e6 / max(target.units, 1)  # flops per microsecond of one multiprocessor
    efficiency = min(0.8, 0.28 + 0.12 * (BM * BN / 4096) ** 0.5 + 0.05 * (active - 1))
    compute = 2.0 * BM * BN * K * active / (rate * efficiency)
    latency = 1.0 + ceil(K / BK) * 0.12
    memory = bytes_ / target.gbps * 1e-3
    return target.launch_us + max(waves * max(compute, latency), memory)
