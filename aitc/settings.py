"""Every setting that comes from the environment, in one place; ``aitc list settings`` prints this table."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from aitc.errors import AitcError, Diagnostic, Exit


def _setting(default: str, env: str, doc: str) -> str:
    """A field read from the environment variable ``env``."""
    value: str = field(default=default, metadata={"env": env, "doc": doc})
    return value


@dataclass(frozen=True, slots=True)
class Settings:
    """What the environment says. A flag on the command line wins over it. An empty string means: not set."""

    target: str = _setting("", "AITC_TARGET", "default of --target; without it the GPU of the machine, else cpu")
    cache: str = _setting(
        "", "AITC_CACHE_DIR", "where compiled objects are kept; default $XDG_CACHE_HOME/aitc or ~/.cache/aitc"
    )
    cache_bytes: str = _setting(
        "4294967296", "AITC_CACHE_BYTES", "the cache is trimmed to this size, least recently used first"
    )
    jobs: str = _setting("", "AITC_JOBS", "default of --jobs; without it the number of processors, bounded by memory")
    cxx: str = _setting("", "CXX", "C++ compiler for host code and cpu kernels; default g++, else clang++ or c++")
    nvcc: str = _setting(
        "", "AITC_NVCC", "CUDA compiler; default: $CUDA_HOME, PATH, `pip install aitc[cuda]`, /usr/local/cuda"
    )
    hipcc: str = _setting("", "AITC_HIPCC", "HIP compiler, hipcc or clang++; default: $ROCM_PATH, PATH, /opt/rocm")
    cmake: str = _setting("", "AITC_CMAKE", "CMake; default: PATH, then the wheel that aitc depends on")
    ninja: str = _setting("", "AITC_NINJA", "Ninja; default: PATH, then the wheel that aitc depends on")
    isa: str = _setting(
        "",
        "AITC_ISA",
        "instruction sets of cpu code, comma-separated: what compile builds without --isa (unset: avx2,avx512), and what a library may "
        "take when it is loaded (unset: the widest that it holds and the processor runs)",
    )
    tuning: str = _setting(
        "", "AITC_TUNING", "default of --tuning: measured configurations that win over the shipped ones; none: the machine model alone"
    )
    dump: str = _setting("", "AITC_DUMP", "default of --dump: a folder for the text of every stage")
    max_nodes: str = _setting("1000000", "AITC_MAX_NODES", "the most nodes that a model may stand for, its functions and short loops written out")
    device: str = _setting("0", "AITC_DEVICE", "number of the GPU that verify and bench run on")

    @classmethod
    def read(cls, environ: Mapping[str, str] | None = None) -> "Settings":
        """The settings in ``environ`` (the process's own by default)."""
        environ = os.environ if environ is None else environ
        return cls(**{f.name: environ.get(f.metadata["env"], str(f.default)) for f in fields(cls)})

    @property
    def cache_dir(self) -> Path:
        """Where compiled objects are kept; it need not exist yet."""
        if self.cache:
            return Path(self.cache).expanduser()
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "aitc"

    @property
    def job_count(self) -> int:
        """Compilers to run at once, at least 1. Raises AitcError (USAGE) if AITC_JOBS is no positive integer."""
        if not self.jobs:
            return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return _number("AITC_JOBS", self.jobs, least=1)

    @property
    def node_limit(self) -> int:
        """The most nodes that import makes of a model. Raises AitcError (USAGE) if AITC_MAX_NODES is no positive integer."""
        return _number("AITC_MAX_NODES", self.max_nodes, least=1)

    @property
    def device_index(self) -> int:
        """The GPU to run on. Raises AitcError (USAGE) if AITC_DEVICE is no integer of 0 or more."""
        return _number("AITC_DEVICE", self.device, least=0)


def _number(env: str, text: str, least: int) -> int:
    if not text.isdigit() or int(text) < least:
        raise AitcError(Diagnostic("C02", f"{env}={text!r} is not a whole number of {least} or more"), Exit.USAGE)
    return int(text)


def documented() -> list[tuple[str, str, str]]:
    """(environment variable, default, what it does) of each setting."""
    return [(f.metadata["env"], str(f.default), f.metadata["doc"]) for f in fields(Settings)]
