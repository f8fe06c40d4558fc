"""Attention on GPUs: mma.sync, MFMA, or plain multiply-adds (include/aitc/gpu/attention/attention_{sm80,cdna,simt}.h)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import ceil
from typing import Any

from aitc.ir.dim import ceildiv, hint, product
from aitc.kernels.attention.attention import (
    AttentionForm,
    AttentionProblem,
    attention_draft,
    attention_form,
    typical_keys,
)
from aitc.kernels.attention.attention_split import (
    AttentionSplit,
    AttentionSplitSimt,
    split_draft,
    split_simt_tiles,
    split_tiles,
    split_us,
)
from aitc.kernels.core import kernel as k
from aitc.kernels.core.functor import StorageOf
from aitc.kernels.core.group import Group
from aitc.kernels.matmul import cdna
from aitc.targets.target import Target


def _up(n: int, to: int) -> int:
    return -(-n // to) * to


@dataclass(frozen=True, slots=True)
class AttentionTile:
    """``AttentionTile<BM, BN, warps>`` of attention_sm80.h."""

    BM: int
    BN: int
    warps: int

    def __str__(self) -> str:
        return f"{self.BM}x{self.BN}_w{self.warps}"

    @property
    def threads(self) -> int:
        return 32 * self.warps

    def smem_bytes(self, D: int, DV: int) -> int:
        d, dv = _up(D, 16), _up(DV, 16)
        return max(2 * (self.BM * d + self.BN * d + self.BN * dv), self.warps * 16 * (dv + 8) * 4)


@dataclass(frozen=True, slots=True)
class AttentionCdnaTile:
    """``AttentionCdnaTile<BN, warps, mfma>`` of attention_cdna.h: ``mfma`` queries a wave."""

    BN: int
    warps: int
    mfma: int = 32

    def __str__(self) -> str:
        return f"{self.BM}x{self.BN}_w{self.warps}"

    @property
    def BM(self) -> int:
        return self.mfma * self.warps

    @property
    def threads(self) -> int:
        return 64 * self.warps

    def smem_bytes(self, D: int, DV: int) -> int:
        pad = 16 if self.mfma == 32 else 32
        return self.BN * (2 * _up(D, 512 // self.mfma) + pad) + _up(DV, self.mfma) * (2 * self.BN + 8)

    def blocks(self, D: int, DV: int, target: Target) -> int:
        """Blocks that a compute unit is meant to run at once: two waves a SIMD, one where heads are long, no more than shared memory holds."""
        waves = target.unit.simds * (2 if max(D, DV) <= 128 else 1)
        return max(1, min(waves // self.warps, target.unit.smem_bytes // self.smem_bytes(D, DV)))


@dataclass(frozen=True, slots=True)
class AttentionSimtTile:
    """``AttentionSimtTile<BM, BN, TM>`` of attention_simt.h."""

    BM: int
    BN: int
    TM: int

    def __str__(self) -> str:
        return f"{self.BM}x{self.BN}_t{self.TM}"

    @property
    def threads(self) -> int:
        return self.BM // self.TM * 16

    def smem_bytes(self, D: int, DV: int, elem_bytes: int) -> int:
        d, dv = _up(D, 4), _up(DV, 4)
        return (self.BM * (d + 4) + self.BN * (max(d, dv) + 4) + self.BM * (self.BN + 4)) * elem_bytes


def attention_us(p: AttentionProblem, BM: int, BN: int, threads: int, smem: int, rate: float, target: Target) -> float:
    """Waves of blocks, each walking over all keys; K and V come from memory once, and once for each block from the L2 cache."""
    queries, keys = hint(p.queries), typical_keys(p)
    blocks = ceil(queries / BM) * hint(p.batch) * p.heads
    resident = max(1, min(2048 // threads, target.smem_bytes // max(smem, 1)))
    active = min(resident, ceil(blocks / target.units))
    waves = ceil(blocks / (target.units * resident))
    seen = keys * (0.55 if p.causal and queries > BM else 1.0)
    work = 2.0 * BM * seen * (p.D + p.DV)
    per_unit = rate * 1e6 / target.units * min(0.6, 0.25 + 0.1 * active)
    steps = ceil(seen / BN)
    row = (8 if p.dtype == "f64" else 4 if p.dtype == "f32" else 2) * (p.D + p.DV)  # bytes of a key and its value
    memory = row * hint(p.batch) * (p.kv_heads * keys + p.heads * queries) / (0.7 * target.gbps) * 1e-3
    again = row * blocks * seen / (2.2 * target.gbps) * 1e-3
    return target.launch_us + max(waves * max(work * active / per_unit, 1.5 + 0.5 * steps), memory, again)


def short_heads(group: Group, storage: StorageOf) -> AttentionProblem | k.No:
    """The problem, if the matrix units take it: 16-bit operands, heads of at most 256, no soft cap."""
    assert group.anchor is not None
    form = attention_form(group.anchor, storage)
    if isinstance(form, k.No):
        return form
    p = form.problem
    if p.dtype not in ("f16", "bf16") or max(p.D, p.DV) > 256 or p.softcap:
        return k.No(f"{p.dtype} with heads of {p.D} and {p.DV}{', softcap' if p.softcap else ''}")
    return p


class TiledAttention(k.Kernel):
    """Attention by blocks of BM queries that walk over tiles of BN keys; a configuration has ``BM``, ``BN`` and ``threads``, or divides the keys."""

    template = "kernel"
    anchors = frozenset({"Attention"})
    tile: str
    """The tile type of the header include/aitc/gpu/<name>.h, whose function has the kernel's name."""
    widest = 8

    def smem_bytes(self, p: AttentionProblem, config: Any) -> int:
        """Dynamic shared memory, the formula at the top of the header."""
        return int(config.smem_bytes(p.D, p.DV))

    def tflops(self, target: Target) -> float:
        """What the target multiplies at best, in this kernel's way."""
        return target.tflops["fp16"]

    def accepts(self, group: Group, storage: StorageOf, target: Target) -> AttentionProblem | k.No:
        return short_heads(group, storage)

    def score_us(self, problem: AttentionProblem, config: Any, target: Target) -> float:
        if isinstance(config, AttentionSplit | AttentionSplitSimt):
            return split_us(problem, config, target)
        smem = self.smem_bytes(problem, config)
        return attention_us(problem, config.BM, config.BN, config.threads, smem, self.tflops(target), target)

    def build(self, group: Group, problem: AttentionProblem, config: Any, storage: StorageOf, target: Target) -> k.Draft:
        if isinstance(config, AttentionSplit | AttentionSplitSimt):
            return split_draft(self.name, group, problem, config, storage, target)
        numbers = ", ".join(str(getattr(config, f.name)) for f in fields(config))
        call = f"{self.name}<{str(problem.causal).lower()}, {self.tile}<{numbers}>>"
        blocks = product((ceildiv(problem.queries, config.BM), problem.heads, problem.batch))
        smem = self.smem_bytes(problem, config)
        return attention_draft(self.name, f"aitc/gpu/attention/{self.name}.h", call, config, config.threads, blocks, group, storage, target, smem, self.widest)


@k.register
class AttentionSm80(TiledAttention):
    name = "attention_sm80"
    requires = frozenset({"mma_sm80"})
    priority = 10
    tile = "AttentionTile"
    doc = "attention on tensor cores by mma.sync: fp16 and bf16, head sizes up to 256; few queries: keys split among blocks"

    def tflops(self, target: Target) -> float:
        return target.tflops["fp16"] * (0.6 if "wgmma" in target.features else 1.0)

    def configs(self, problem: AttentionProblem, target: Target) -> Sequence[AttentionTile | AttentionSplit]:
        D = max(problem.D, problem.DV)
        tiles = (
            [AttentionTile(64, 64, 4), AttentionTile(128, 64, 4), AttentionTile(16, 64, 1), AttentionTile(32, 64, 2)]
            if D <= 64
            else []
        )
        tiles += [AttentionTile(64, 64, 4), AttentionTile(16, 64, 1)] if 64 < D <= 128 else []
        tiles += [AttentionTile(64, 32, 4), AttentionTile(16, 32, 1)] if D > 128 else []
        fitting = [t for t in tiles if t.smem_bytes(problem.D, problem.DV) <= target.smem_bytes]
        return [*fitting, *split_tiles(problem, target)]


@k.register
class AttentionCdna(TiledAttention):
    name = "attention_cdna"
    requires = frozenset({"mfma"})
    priority = 10
    tile = "AttentionCdnaTile"
    doc = "attention by MFMA: fp16 and bf16, head sizes up to 256; compiled and emulated, never timed on AMD hardware"

    def configs(self, problem: AttentionProblem, target: Target) -> Sequence[AttentionCdnaTile | AttentionSplitSimt]:
        D = max(problem.D, problem.DV)  # a wave alone holds all of the next keys and values in its registers
        numbers: tuple[tuple[int, ...], ...] = ((32, 4), (32, 4, 16), (32, 2, 16))
        if D <= 64:
            numbers = (64, 4), (32, 4), (64, 4, 16), (64, 1, 16), (32, 1)
        elif D <= 128:
            numbers = (64, 4), (32, 4), (64, 4, 16), (32, 1, 16), (32, 2)
        tiles = [AttentionCdnaTile(*n) for n in numbers]
        fitting = [t for t in tiles if t.smem_bytes(problem.D, problem.DV) <= target.smem_bytes]
        return [*fitting, *split_simt_tiles(problem, target)]

    def build(
        self, group: Group, problem: AttentionProblem, config: AttentionCdnaTile | AttentionSplitSimt, storage: StorageOf, target: Target
    ) -> k.Draft:
        draft = super().build(group, problem, config, storage, target)
        if isinstance(config, AttentionSplitSimt):
            return draft
        return cdna.claimed(draft, config.blocks(problem.D, problem.DV, target))


@k.register
class AttentionSimt(TiledAttention):
    name = "attention_simt"
    requires = frozenset({"simt"})
    tile = "AttentionSimtTile"
    widest = 4
    doc = "attention by plain multiply-adds: strict float32, double, any head size; few queries: keys split among blocks"

    def smem_bytes(self, p: AttentionProblem, config: AttentionSimtTile) -> int:
        return config.smem_bytes(p.D, p.DV, 8 if p.dtype == "f64" else 4)

    def tflops(self, target: Target) -> float:
        return target.tflops["fp32"]

    def accepts(self, group: Group, storage: StorageOf, target: Target) -> AttentionProblem | k.No:
        assert group.anchor is not None
        form = attention_form(group.anchor, storage)
        if not isinstance(form, AttentionForm):
            return form
        p = form.problem
        if p.softcap:
            return k.No("softcap")
        if not self.configs(p, target):
            return k.No(f"heads of {p.D} and {p.DV} need more shared memory than a block has")
        return p

    def configs(self, problem: AttentionProblem, target: Target) -> Sequence[AttentionSimtTile | AttentionSplitSimt]:
        tiles = (
            AttentionSimtTile(64, 32, 4),
            AttentionSimtTile(32, 32, 2),
            AttentionSimtTile(16, 64, 1),
            AttentionSimtTile(16, 16, 1),
        )
        fits = [t for t in tiles if self.smem_bytes(problem, t) <= target.smem_bytes]
        return [*(t for t in fits if t.threads % target.warp == 0), *split_simt_tiles(problem, target)]
