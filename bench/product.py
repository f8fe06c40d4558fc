"""aitc as its users see it: the command line and `aitc.load`; models at full size from the catalog."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.record import ROOT
from models import catalog

if TYPE_CHECKING:
    import torch

MODELS = ROOT / "out" / "bench" / "models"


@dataclass(frozen=True, slots=True)
class Compiled:
    """A finished compile: its folder, the seconds the command took by the clock and on processors, its report (<name>.json)."""

    folder: Path
    seconds: float
    cpu_seconds: float  # compilers included; what a busy machine does not stretch
    report: Mapping[str, Any] = field(repr=False)

    def inputs(self) -> list[str]:
        """Names of the inputs, in the graph's order."""
        return [i["name"] for i in self.report["inputs"]]

    def sizes(self) -> dict[str, int]:
        """Launches, kernel files, and bytes of the arena and of the weights."""
        return {
            "launches": len(self.report["launches"]),
            "kernels": self.report["kernels"]["files"],
            "arena_bytes": self.report["bytes"]["arena"],
            "weight_bytes": self.report["bytes"]["weights"],
        }


def aitc() -> list[str]:
    """The command line: the `aitc` of this Python, else this repository's, uninstalled."""
    beside = Path(sys.executable).parent / "aitc"
    if beside.exists():
        return [str(beside)]
    return [sys.executable, "-m", "cli"]


def compile_model(
    model: Path,
    folder: Path,
    target: str,
    *flags: str,
    environment: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> Compiled:
    """`aitc compile`; RuntimeError with its stderr when it fails, subprocess.TimeoutExpired past `timeout` seconds."""
    command = [*aitc(), "compile", str(model), "--target", target, "-o", str(folder), "--json", *flags]
    start, cpu = time.perf_counter(), children_seconds()
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
            **(environment or {}),
        },
        timeout=timeout,
    )
    seconds, cpu = time.perf_counter() - start, children_seconds() - cpu
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} exited with {done.returncode}:\n{done.stderr[-2000:]}")
    return Compiled(folder, seconds, cpu, json.loads(done.stdout))


def children_seconds() -> float:
    """Processor seconds of this process's finished children and theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def full_model(name: str, dtype: str = "float32", module: torch.nn.Module | None = None, **dims: int) -> Path:
    """A catalog model at full size by the new exporter, static, made once per type and dims. Needs torch.

    `module`: the architecture's, on the CPU, where the caller has it; it is left in `dtype`.
    """
    architecture = catalog.find(name)
    bound = {**architecture.dims("full"), **dims}
    kind = "" if dtype == "float32" else f"-{dtype}"
    path = MODELS / f"{name}{kind}-{'-'.join(f'{k}{v}' for k, v in bound.items())}.onnx"
    if not path.exists():
        from models.export import export

        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        export(architecture, part, dims=bound, dtype=dtype, module=module)
        part.replace(path)
    return path
