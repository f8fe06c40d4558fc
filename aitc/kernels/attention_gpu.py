"""Attention on GPUs: mma.sync, MFMA, or plain multiply-adds (include/aitc/gpu/attention_{sm80,cdna,simt}.h)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from aitc.ir.dim import ceildiv, hint, product
from aitc.kernels import kernel as k
from aitc.kernels.attention import AttentionForm, AttentionProblem, attention_draft, attention_form
from aitc.kernels.functor import StorageOf
from aitc.kernels.group import Group
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
    """``AttentionCdnaTile<BN, warps>`` of attention_cdna.h: 32 queries a wave."""

    BN: int
    warps: int

    def __str__(self) -> str:
        return f"{self.BM}x{self.BN}_w{self.warps}"

    @property
    def BM(self) -> int:
        return 32 * self.warps

    @property
    def threads(self) -> int:
        return 64 * self.warps

    def smem_bytes(self, D: int, DV: int) -> int:
        return self.BN * (2 * _up(D, 16) + 16) + _up(DV, 32) * (2 * self.BN + 16)


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
    """Waves of blocks, each walking over all keys."""
    queries, keys = hint(p.queries), hint(p.keys)
    blocks = ceil(queries / BM) * hint(p.batch) * p.heads
    resident = max(1, min(2048 // threads, target.smem_bytes // max(smem, 1)))
    active = min(resident, ceil(blocks / target.units))
    waves = ceil(blocks / (target.units * resident))
    seen = keys * (0.55 if p.causal and queries > BM else 1.0)
    work = 2.0 * BM * seen * (p.D + p.DV)
    per_unit = rate * 1e6 / target.units * min(0.6, 0.25 + 0.1 * active)
    steps = ceil(seen / BN)
    return target.launch_us + waves * max(work * active / per_unit, 1.5 + 0.5 * steps)


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


@k.register
class AttentionSm80(k.Kernel):
    name = "attention_sm80"
    template = "kernel"
    requires = frozenset({"mma_sm80"})
    anchors = frozenset({"Attention"})
    priority = 10
    doc = "attention on tensor cores by mma.sync: fp16 and bf16, head sizes up to 256"

    def accepts(self, group: Group, storage: StorageOf, target: Target) -> AttentionProblem | k.No:
        return short_heads(group, storage)

    def configs(self, problem: AttentionProblem, target: Target) -> Sequence[AttentionTile]:
        D = max(problem.D, problem.DV)
        tiles = (
            [AttentionTile(64, 64, 4), AttentionTile(128, 64, 4), AttentionTile(16, 64, 1), AttentionTile(32, 64, 2)]
            if D <= 64
            else []
        )
        tiles += [AttentionTile(64, 64, 4), AttentionTile(16, 64, 1)] if 64 < D <= 128 else []
        tiles += [AttentionTile(64, 32, 4), AttentionTile(16, 32, 1)] if D > 128 else []
        return [t for t in tiles if t.smem_bytes(problem.D, problem.DV) <= target.smem_bytes]

    def score_us(self, problem: AttentionProblem, config: AttentionTile, target: Target) -> float:
        rate = target.tflops["fp16"] * (0.6 if "wgmma" in target.features else 1.0)
        return attention_us(
            problem, config.BM, config.BN, config.threads, config.smem_bytes(problem.D, problem.DV), rate, target
        )

    def build(
        self, group: Group, problem: AttentionProblem, config: AttentionTile, storage: StorageOf, target: Target
    ) -> k.Draft:
        causal = str(problem.causal).lower()
        call = f"attention_sm80<{causal}, AttentionTile<{config.BM}, {config.BN}, {config.warps}>>"
        blocks = product((ceildiv(problem.queries, config.BM), problem.heads, problem.batch))
        smem = config.smem_bytes(problem.D, problem.DV)
        return attention_draft(
            self.name,
            "aitc/gpu/attention_sm80.h",
            call,
            config,
            config.threads,
            blocks,
            group,
            storage,
            target,
            smem,
            8,
        )


@k.register
class AttentionCdna(k.Kernel):
    name = "attention_cdna"
    template = "kernel"
    requires = frozenset({"mfma"})
    anchors = frozenset({"Attention"})
    priority = 10
    doc = "attention by MFMA: fp16 and bf16, head sizes up to 256; compiled and emulated, never timed on AMD hardware"

    def accepts(self, group: Group, storage: StorageOf, target: Target) -> AttentionProblem | k.No:
        return short_heads(group, storage)

    def configs(self, problem: AttentionProblem, target: Target) -> Sequence[AttentionCdnaTile]:
        tiles = (AttentionCdnaTile(64, 4), AttentionCdnaTile(32, 4), AttentionCdnaTile(64, 1), AttentionCdnaTile(32, 1))
        return [t for t in tiles if t.smem_bytes(problem.D, problem.DV) <= target.smem_bytes]

    def score_us(self, problem: AttentionProblem, config: AttentionCdnaTile, target: Target) -> float:
        smem = config.smem_bytes(problem.D, problem.DV)
        return attention_us(problem, config.BM, config.BN, config.threads, smem, target.tflops["fp16"], target)

    def build(
        self, group: Group, problem: AttentionProblem, config: AttentionCdnaTile, storage: StorageOf, target: Target
    ) -> k.Draft:
        call = f"attention_cdna<{str(problem.causal).lower()}, AttentionCdnaTile<{config.BN}, {config.warps}>>"
        blocks = product((ceildiv(problem.queries, config.BM), problem.heads, problem.batch))
        smem = config.smem_bytes(problem.D, problem.DV)
        return attention_draft(
            self.name,
            "aitc/gpu/attention_cdna.h",
            call,
            config,
            config.threads,
            blocks,
            group,
            storage,
            target,
            smem,
            8,
        )


@k.register
class AttentionSimt(k.Kernel):
    name = "attention_simt"
    template = "kernel"
    requires = frozenset({"simt"})
    anchors = frozenset({"Attention"})
    doc = "attention by plain multiply-adds: strict float32, double, any head size"

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

    def configs(self, problem: AttentionProblem, target: Target) -> Sequence[AttentionSimtTile]:
        size = 8 if problem.dtype == "f64" else 4
        tiles = (
            AttentionSimtTile(64, 32, 4),
            AttentionSimtTile(32, 32, 2),
            AttentionSimtTile(16, 64, 1),
            AttentionSimtTile(16, 16, 1),
        )
        fits = [t for t in tiles if t.smem_bytes(problem.D, problem.DV, size) <= target.smem_bytes]
        return [t for t in fits if t.threads % target.warp == 0]

    def score_us(self, problem: AttentionProblem, config: AttentionSimtTile, target: Target) -> float:
        size = 8 if problem.dtype == "f64" else 4
        smem = config.smem_bytes(problem.D, problem.DV, size)
        return attention_us(problem, config.BM, config.BN, config.threads, smem, target.tflops["fp32"], target)

    def build(
        self, group: Group, problem: AttentionProblem, config: AttentionSimtTile, storage: StorageOf, target: Target
    ) -> k.Draft:
        causal = str(problem.causal).lower()
        call = f"attention_simt<{causal}, AttentionSimtTile<{config.BM}, {config.BN}, {config.TM}>>"
        blocks = product((ceildiv(problem.queries, config.BM), problem.heads, problem.batch))
        smem = config.smem_bytes(problem.D, problem.DV, 8 if problem.dtype == "f64" else 4)
        return attention_draft(
            self.name,
            "aitc/gpu/attention_simt.h",
            call,
            config,
            config.threads,
            blocks,
            group,
            storage,
            target,
            smem,
            4,
        )
