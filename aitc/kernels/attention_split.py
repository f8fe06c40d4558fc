"""Attention of a few query rows over many keys, the keys divided among blocks (include/aitc/gpu/attention_split_sm80.h).

Configurations of the attention kernels of NVIDIA's tensor cores: a decoding step of a language model reads K and V once, at the speed of memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from aitc.ir.dim import ceildiv, hint, min_, mul, product
from aitc.kernels import kernel as k
from aitc.kernels.attention import AttentionProblem, attention_draft, typical_keys
from aitc.kernels.functor import StorageOf
from aitc.kernels.group import Group
from aitc.targets.target import Target

GROUPS = 1024
"""split_groups of the header: with more groups of rows nothing is split."""
ROWS = 64
"""Rows (queries times the heads that share K and V) at most: more are better multiplied in larger tiles."""


@dataclass(frozen=True, slots=True)
class AttentionSplit:
    """``AttentionSplitTile<BN, warps, stages, slabs, splits>`` of attention_split_sm80.h."""

    BN: int
    warps: int
    stages: int
    slabs: int
    splits: int

    def __str__(self) -> str:
        return f"split{self.splits}_{16 * self.slabs}x{self.BN}_w{self.warps}_s{self.stages}"

    @property
    def text(self) -> str:
        return f"AttentionSplitTile<{self.BN}, {self.warps}, {self.stages}, {self.slabs}, {self.splits}>"

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def rows(self) -> int:
        return 16 * self.slabs

    def smem_bytes(self, D: int, DV: int) -> int:
        """Dynamic shared memory, the formula at the top of the header."""
        d, dv = -(-D // 16) * 16, -(-DV // 16) * 16
        ring = 2 * self.warps * self.stages * self.BN * (d + dv)
        return 2 * self.rows * d + max(ring, 4 * self.warps * self.rows * (dv + 4), 4 * self.rows * self.splits)

    def registers(self, D: int, DV: int) -> int:
        """Of a thread, about: output, Q's fragments, scores, and the rest."""
        held = min(D, 128) // 4 if D * self.slabs <= 128 else 0
        return min(255, 60 + self.slabs * (DV // 2 + held + self.BN // 2))


def split_tiles(p: AttentionProblem, target: Target) -> list[AttentionSplit]:
    """Configurations for ``p``: none where there are many rows or few keys."""
    rows, keys = hint(p.queries) * (p.heads // p.kv_heads), typical_keys(p)
    if rows > ROWS or keys < 64:
        return []
    wide = max(p.D, p.DV)
    slabs = 2 if rows > 16 and wide <= 128 else 1
    shapes = ((32, 4, 3), (32, 4, 2)) if wide <= 64 else ((16, 4, 3), (16, 4, 4), (16, 8, 3)) if wide <= 128 else ((16, 4, 2),)
    found = []
    for BN, warps, stages in shapes:
        for splits in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64):
            tile = AttentionSplit(BN, warps, stages, slabs, splits)
            if tile.smem_bytes(p.D, p.DV) <= target.smem_bytes and (splits == 1 or splits * BN * warps <= keys):
                found.append(tile)
    return found


def split_us(p: AttentionProblem, c: AttentionSplit, target: Target) -> float:
    """The bytes of K and V over what the blocks can draw: bounded by memory, by a multiprocessor's share, and by the bytes it has in flight.

    A multiprocessor draws 45 bytes a ns at the most, and waits 0.9 µs for memory; adding up the parts costs another round trip.
    """
    queries, keys, batch = hint(p.queries), typical_keys(p), hint(p.batch)
    units = max(target.units, 1)
    groups = batch * p.kv_heads * ceil(queries * (p.heads // p.kv_heads) / c.rows)
    parted = c.splits if groups <= GROUPS else 1
    blocks = groups * parted
    smem = c.smem_bytes(p.D, p.DV)
    resident = max(1, min(target.smem_bytes // (smem + 1024), 65536 // (c.threads * c.registers(p.D, p.DV)), 2048 // c.threads))
    own = ceil(keys / (c.BN * c.warps * parted)) * c.BN * c.warps * (p.D + p.DV) * 2.0  # bytes that a block reads
    active = min(resident, ceil(blocks / units))
    in_flight = active * min(c.warps * (c.stages - 1) * c.BN * (p.D + p.DV) * 2.0, own)
    rate = min(45.0, in_flight / 900, 0.95 * target.gbps / min(blocks, units))  # bytes a ns, of one multiprocessor
    rounds = ceil(blocks / (units * resident))
    compute = 2.0 * c.rows * own / 2 * active / (0.25 * target.tflops["fp16"] * 1e6 / units)
    body = rounds * max(own * active / rate * 1e-3, compute)
    return target.launch_us + 1.8 + body + (1.5 + 0.02 * parted if parted > 1 else 0.0)


def split_draft(name: str, group: Group, p: AttentionProblem, c: AttentionSplit, storage: StorageOf, target: Target) -> k.Draft:
    """The instance of the header, for kernel ``name``."""
    groups = product((ceildiv(mul(p.queries, p.heads // p.kv_heads), c.rows), p.kv_heads, p.batch))
    floats = c.splits * c.rows * (-(-p.DV // 16) * 16 + 2)
    scratch: tuple[k.ScratchSpec, ...] = ()
    call = f"attention_split_sm80<{str(p.causal).lower()}, {c.text}>"
    if c.splits > 1:
        tickets = min(groups, GROUPS) if isinstance(groups, int) else GROUPS
        scratch = (k.ScratchSpec("parts", "float", mul(min_(groups, GROUPS), floats)), k.ScratchSpec("tickets", "int32_t", tickets, zeroed=True))
    blocks, smem = mul(groups, c.splits), c.smem_bytes(p.D, p.DV)
    return attention_draft(name, "aitc/gpu/attention_split_sm80.h", call, c, c.threads, blocks, group, storage, target, smem, 4, scratch)
