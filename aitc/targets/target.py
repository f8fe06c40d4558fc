"""A Target is a machine, as data: ``targets/<name>.toml``."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover
    import tomli as tomllib

from aitc.errors import AitcError, Diagnostic, Exit


@dataclass(frozen=True, slots=True)
class Unit:
    """What one multiprocessor or compute unit holds at once: warps, blocks, 32-bit registers, and bytes of shared memory.

    Registers are handed out in steps of ``register_step`` a lane, shared memory in steps of ``smem_step`` bytes with ``smem_reserved`` a block besides.
    """

    simds: int
    warps: int
    blocks: int
    registers: int
    register_step: int
    smem_bytes: int
    smem_step: int
    smem_reserved: int = 0
    smem_gbps: float = 0.0  # of one unit; 0: no kernel's model asks for it


CORE = Unit(1, 1, 1, 1, 1, 1, 1)
"""A CPU's core, for whose threads nothing is counted."""


@dataclass(frozen=True, slots=True)
class Target:
    """``arch`` is the compiler's spelling; rates are per second and dense; ``features`` gate kernels (``Kernel.requires``)."""

    name: str
    api: str  # cpu, cuda, hip
    arch: str
    aliases: tuple[str, ...]
    warp: int
    units: int  # multiprocessors, compute units or cores (0: ask the machine)
    smem_bytes: int  # per block at most
    l2_bytes: int
    features: frozenset[str]  # mma_sm80, wgmma, tma, mfma, avx512 ...
    gbps: float
    tflops: dict[str, float] = field(hash=False)  # by operand: fp32, tf32, fp16, bf16, fp8; fp32_matrix: AMD's matrix cores on fp32
    launch_us: float = field(kw_only=True)
    doc: str = field(kw_only=True)
    unit: Unit = field(kw_only=True, default=CORE)

    @property
    def gpu(self) -> bool:
        return self.api != "cpu"

    def resident_blocks(self, threads: int, registers: int, smem_bytes: int) -> int:
        """Blocks that one unit runs at once: of ``threads``, with ``registers`` of 32 bits a lane and ``smem_bytes`` a block. 0: it cannot."""
        unit = self.unit
        warps = -(-threads // self.warp)
        lane = -(-max(registers, 1) // unit.register_step) * unit.register_step
        on_simd = min(unit.warps // unit.simds, unit.registers // unit.simds // (lane * self.warp))
        smem = -(-(smem_bytes + unit.smem_reserved) // unit.smem_step) * unit.smem_step
        return min(on_simd * unit.simds // warps, unit.blocks, unit.smem_bytes // smem if smem else unit.blocks)

    @classmethod
    def read(cls, name: str, text: str) -> "Target":
        """The target that the text of a ``.toml`` file describes."""
        raw: dict[str, Any] = tomllib.loads(text)
        unit = Unit(**raw.pop("unit")) if "unit" in raw else CORE
        features, aliases = frozenset(raw.pop("features")), tuple(raw.pop("aliases"))
        return cls(name=name, features=features, aliases=aliases, unit=unit, **raw)


@lru_cache(maxsize=1)
def all_targets() -> tuple[Target, ...]:
    """Every target that ships, by name."""
    found = []
    for entry in sorted(resources.files("aitc.targets").iterdir(), key=lambda e: e.name):
        if entry.name.endswith(".toml"):
            found.append(Target.read(entry.name[: -len(".toml")], entry.read_text(encoding="utf-8")))
    return tuple(found)


def find_target(name: str) -> Target:
    """The target of that name or alias. Raises AitcError (USAGE) that lists what there is."""
    for t in all_targets():
        if name.lower() == t.name or name.lower() in t.aliases:
            return t
    known = ", ".join(f"{t.name} ({', '.join(t.aliases)})" if t.aliases else t.name for t in all_targets())
    raise AitcError(Diagnostic("T01", f"no target is called {name!r}", help=f"one of: {known}"), Exit.USAGE)
