"""A Target is a machine, as data: ``targets/<name>.toml``."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover
    import tomli as tomllib

from aitc.errors import AitcError, Diagnostic, Exit


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
    tflops: dict[str, float] = field(hash=False)  # by operand: fp32, tf32, fp16, bf16, fp8
    launch_us: float = field(kw_only=True)
    doc: str = field(kw_only=True)

    @property
    def gpu(self) -> bool:
        return self.api != "cpu"


@lru_cache(maxsize=1)
def all_targets() -> tuple[Target, ...]:
    """Every target that ships, by name."""
    found = []
    for entry in sorted(resources.files("aitc.targets").iterdir(), key=lambda e: e.name):
        if entry.name.endswith(".toml"):
            raw = tomllib.loads(entry.read_text(encoding="utf-8"))
            raw["features"] = frozenset(raw["features"])
            raw["aliases"] = tuple(raw["aliases"])
            found.append(Target(name=entry.name[: -len(".toml")], **raw))
    return tuple(found)


def find_target(name: str) -> Target:
    """The target of that name or alias. Raises AitcError (USAGE) that lists what there is."""
    for t in all_targets():
        if name.lower() == t.name or name.lower() in t.aliases:
            return t
    known = ", ".join(f"{t.name} ({', '.join(t.aliases)})" if t.aliases else t.name for t in all_targets())
    raise AitcError(Diagnostic("T01", f"no target is called {name!r}", help=f"one of: {known}"), Exit.USAGE)
