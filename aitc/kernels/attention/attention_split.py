"""Attention of a few query rows over many keys, the keys divided among blocks (include/aitc/gpu/attention/attention_split_{sm80,simt}.h).

Configurations of the other attention kernels: a decoding step of a language model reads K and V once, at the speed of memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, gcd

from aitc.ir.dim import ceildiv, hint, min_, mul, product
from aitc.kernels.attention.attention import AttentionProblem, attention_draft, typical_keys
from aitc.kernels.core import kernel as k
from aitc.kernels.core.functor import StorageOf
from aitc.kernels.core.group import Group
from aitc.targets.target import Target

GROUPS = 1024
"""split_groups of the header: with more groups of rows nothing is split."""
ROWS, SIMT_ROWS = 64, 16
"""Rows (queries times the heads that share K and V) at most, with and without tensor cores: more are better multiplied in larger tiles."""
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
DRAWN_GBPS = 45.0
"""Of memory that one multiprocessor draws at the most."""
LATENCY_NS = 900.0
"""Of memory, loaded."""


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


@dataclass(frozen=True, slots=True)
class AttentionSplitSimt:
    """``AttentionSplitSimtTile<MR, V, lanes, unroll, warps, splits>`` of attention_split_simt.h."""

    MR: int
    V: int
    lanes: int
    unroll: int
    warps: int
    splits: int

    def __str__(self) -> str:
        return f"split{self.splits}_{self.MR}x{self.lanes}x{self.V}_u{self.unroll}_w{self.warps}"

    def smem_bytes(self, DV: int, warp: int) -> int:
        """Dynamic shared memory, the formula at the top of the header."""
        workers = self.warps * warp // self.lanes
        return 4 * max(workers * self.MR * (-(-DV // 4) * 4 + 4), self.MR * self.splits) + 16


def split_tiles(p: AttentionProblem, target: Target) -> list[AttentionSplit]:
    """Configurations for tensor cores: none where there are many rows or few keys."""
    rows, keys = hint(p.queries) * (p.heads // p.kv_heads), typical_keys(p)
    if rows > ROWS or keys < 64:
        return []
    wide = max(p.D, p.DV)
    slabs = 2 if rows > 16 and wide <= 128 else 1
    shapes = ((32, 4, 3), (32, 4, 2)) if wide <= 64 else ((16, 4, 3), (16, 4, 4), (16, 8, 3)) if wide <= 128 else ((16, 4, 2),)
    tiles = [AttentionSplit(*shape, slabs, splits) for shape in shapes for splits in SPLITS]
    return [
        t for t in tiles if t.smem_bytes(p.D, p.DV) <= target.smem_bytes and (t.splits == 1 or t.splits * t.BN * t.warps <= keys)
    ]


def split_simt_tiles(p: AttentionProblem, target: Target) -> list[AttentionSplitSimt]:
    """Configurations without tensor cores: none where there are many rows, few keys, or heads that a warp does not hold."""
    rows, keys = hint(p.queries) * (p.heads // p.kv_heads), typical_keys(p)
    widest = {"f32": 4, "f16": 8, "bf16": 8}.get(p.dtype)
    if rows > SIMT_ROWS or keys < 64 or widest is None:
        return []
    V = gcd(gcd(widest, p.align), gcd(p.D, p.DV))
    lanes = 1 << (-(-max(p.D, p.DV) // V) - 1).bit_length()
    if lanes > target.warp:
        return []
    MR = next(n for n in (1, 2, 4, 8) if n >= min(rows, 8))
    unroll = 4 if MR <= 4 else 2
    tiles = [AttentionSplitSimt(MR, V, lanes, unroll, warps, splits) for warps in (4, 2) for splits in SPLITS]
    reach = {t: unroll * t.warps * target.warp // lanes for t in tiles}  # keys that a block takes at a time
    return [t for t in tiles if t.smem_bytes(p.DV, target.warp) <= target.smem_bytes and (t.splits == 1 or t.splits * reach[t] <= keys)]


def split_us(p: AttentionProblem, c: AttentionSplit | AttentionSplitSimt, target: Target) -> float:
    """The bytes of K and V over what the blocks can draw: bounded by memory, by a multiprocessor's share, and by the bytes it has in flight.

    Adding up the parts costs another round trip.
    """
    queries, keys, batch = hint(p.queries), typical_keys(p), hint(p.batch)
    units, row = max(target.units, 1), (p.D + p.DV) * (4.0 if p.dtype == "f32" else 2.0)  # bytes of a key and its value
    if isinstance(c, AttentionSplit):
        rows, threads, step, rate = c.rows, c.threads, c.BN * c.warps, 0.25 * target.tflops["fp16"]
        smem, registers, ahead = c.smem_bytes(p.D, p.DV), c.registers(p.D, p.DV), (c.stages - 1) * step
    else:
        rows, threads, step, rate = c.MR, c.warps * target.warp, c.unroll * c.warps * target.warp // c.lanes, 0.3 * target.tflops["fp32"]
        smem, registers, ahead = c.smem_bytes(p.DV, target.warp), min(255, 50 + 2 * c.MR * (c.V + c.unroll) + 16 * c.unroll), step
    groups = batch * p.kv_heads * ceil(queries * (p.heads // p.kv_heads) / rows)
    parted = c.splits if groups <= GROUPS else 1
    blocks = groups * parted
    resident = max(1, min(target.smem_bytes // (smem + 1024), 65536 // (threads * registers), 2048 // threads))
    own = ceil(keys / (step * parted)) * step * row  # bytes that a block reads
    active = min(resident, ceil(blocks / units))
    drawn = min(DRAWN_GBPS, active * min(ahead * row, own) / LATENCY_NS, 0.95 * target.gbps / min(blocks, units))  # bytes a ns, of one multiprocessor
    compute = rows * own / row * 2 * (p.D + p.DV) * active / (rate * 1e6 / units)
    body = ceil(blocks / (units * resident)) * max(own * active / drawn * 1e-3, compute)
    return target.launch_us + 1.8 + body + (1.5 + 0.02 * parted if parted > 1 else 0.0)


def split_draft(
    name: str, group: Group, p: AttentionProblem, c: AttentionSplit | AttentionSplitSimt, storage: StorageOf, target: Target
) -> k.Draft:
    """The instance of the header, for kernel ``name``."""
    if isinstance(c, AttentionSplit):
        stem, rows, threads, smem, tile, unit = "sm80", c.rows, c.threads, c.smem_bytes(p.D, p.DV), c.text, 16
    else:
        stem, rows, threads, smem, unit = "simt", c.MR, c.warps * target.warp, c.smem_bytes(p.DV, target.warp), 4
        tile = f"AttentionSplitSimtTile<{c.MR}, {c.V}, {c.lanes}, {c.unroll}, {c.warps}, {c.splits}>"
    groups = product((ceildiv(mul(p.queries, p.heads // p.kv_heads), rows), p.kv_heads, p.batch))
    scratch: tuple[k.ScratchSpec, ...] = ()
    if c.splits > 1:
        floats = c.splits * rows * (-(-p.DV // unit) * unit + 4)
        tickets = min(groups, GROUPS) if isinstance(groups, int) else GROUPS
        scratch = (k.ScratchSpec("parts", "float", mul(min_(groups, GROUPS), floats)), k.ScratchSpec("tickets", "int32_t", tickets, zeroed=True))
    header, call = f"aitc/gpu/attention/attention_split_{stem}.h", f"attention_split_{stem}<{str(p.causal).lower()}, {tile}>"
    return attention_draft(name, header, call, c, threads, mul(groups, c.splits), group, storage, target, smem, 4, scratch)
