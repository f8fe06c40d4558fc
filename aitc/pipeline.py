"""From an ONNX file to a verified binary: the stages, in order, on one page."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from aitc.errors import AitcError, Diagnostic, Exit
from aitc.ir.graph import Graph
from aitc.ir.text import to_text
from aitc.ir.use import input_uses
from aitc.ir.verify import verify as check_graph
from aitc.output import Staging, identifier
from aitc.schedule.plan import Plan
from aitc.settings import Settings
from aitc.targets.machine import can_run, default_target
from aitc.targets.target import Target, find_target
from aitc.verify.run import Verification

T = TypeVar("T")

STAGES = ("import", "simplify", "fuse", "layout", "schedule", "plan", "emit", "build", "verify")
PRECISIONS = ("model", "fp32", "tf32", "fp16", "bf16")


@dataclass(frozen=True, slots=True)
class Options:
    """What a compile can be told; every field has a flag of the same name."""

    targets: tuple[str, ...] = ()  # of one API; none: the GPU of this machine, else cpu
    output: Path | None = None  # none: nothing is kept
    name: str = ""  # of the library; none: the file's
    dims: tuple[tuple[str, int | tuple[int, int]], ...] = ()  # a size or inclusive bounds
    input_shapes: tuple[tuple[str, tuple[int | str, ...]], ...] = ()
    precision: str = "model"
    keep_fp32: tuple[str, ...] = ()  # node names, op types or regular expressions
    weights: str = "embed"  # or "file"
    tuning: Path | None = None
    jobs: int = 0  # 0: settings
    verify: str = "auto"  # auto, require, skip
    bisect: bool = False
    seed: int = 0
    stop_after: str = "verify"
    dump: Path | None = None


class Progress(Protocol):
    """Who wants to know how far a compile is."""

    def begin(self, stage: str) -> None: ...
    def step(self, done: int, total: int, what: str = "") -> None: ...
    def end(self, stage: str, elapsed: float, result: str) -> None: ...
    def note(self, text: str) -> None: ...


class Silent:
    """Progress that nobody looks at."""

    def begin(self, stage: str) -> None: ...
    def step(self, done: int, total: int, what: str = "") -> None: ...
    def end(self, stage: str, elapsed: float, result: str) -> None: ...
    def note(self, text: str) -> None: ...


@dataclass(slots=True)
class Result:
    """What came of a compile, as far as it went (``stop_after``)."""

    name: str
    model: str
    targets: tuple[str, ...]
    api: str
    precision: str
    seconds: dict[str, float] = field(default_factory=dict)  # by stage
    graph: Graph | None = None
    match_log: str = ""
    plan: Plan | None = None
    sources: dict[str, str] | None = None
    output: Path | None = None
    artifacts: dict[str, int] = field(default_factory=dict)  # bytes by file name
    verification: Verification | None = None
    report: dict[str, Any] = field(default_factory=dict)  # <name>.json


class _Stop(Exception):
    """``stop_after`` was reached."""
