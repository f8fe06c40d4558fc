"""From an ONNX file to a verified binary: the stages, in order, on one page."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aitc.build.cmake import BuildOptions, build
from aitc.emit.project import emit
from aitc.errors import AitcError, Diagnostic, Exit
from aitc.importer.onnx import Imported, import_model
from aitc.ir.graph import Graph
from aitc.ir.rewrite import MatchLog
from aitc.ir.text import to_text
from aitc.ir.use import input_uses
from aitc.ir.verify import verify as check_graph
from aitc.output import Staging, identifier
from aitc.passes.context import PASSES, Context
from aitc.progress import Progress, Silent, Stages, Stopped
from aitc.report import report_of, verification_json
from aitc.schedule.plan import Plan
from aitc.schedule.schedule import schedule
from aitc.schedule.serialize import plan_to_json
from aitc.settings import Settings
from aitc.targets.machine import can_run, default_target
from aitc.targets.target import Target, find_target
from aitc.verify.bisect import first_difference
from aitc.verify.compare import depth, roundoff
from aitc.verify.run import Subject, Verification, verify

STAGES = ("import", "simplify", "fuse", "layout", "schedule", "plan", "emit", "build", "verify")
PRECISIONS = ("model", "fp32", "tf32", "fp16", "bf16")

# The passes of each stage, in order.
SIMPLIFY = ("fold_constants", "merge_duplicates", "simplify", "sink_views", "drop_dead")
FUSE = ("fuse", "fold_constants", "merge_duplicates", "drop_dead")
LAYOUT = ("choose_precision", "choose_layout", "drop_dead")


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
    jobs: int = 0  # 0: as the settings say
    verify: str = "auto"  # auto, require, skip
    bisect: bool = False
    seed: int = 0
    stop_after: str = "verify"
    dump: Path | None = None


@dataclass(slots=True)
class Result:
    """What came of a compile, as far as it went (``stop_after``)."""

    name: str
    targets: tuple[str, ...]
    api: str
    seconds: dict[str, float] = field(default_factory=dict)  # by stage
    graph: Graph | None = None
    matches: MatchLog = field(default_factory=MatchLog)
    plan: Plan | None = None
    sources: dict[str, str] | None = None
    output: Path | None = None
    verification: Verification | None = None
    report: dict[str, Any] = field(default_factory=dict)  # <name>.json


def compile(model: str | Path | bytes, options: Options, progress: Progress | None = None) -> Result:
    """Compiles an ONNX model. Raises AitcError for whatever is the user's to mend.

    ``Result.verification`` holds the comparison. After a mismatch the output is at ``<output>.failed``, and what was at ``output`` stays.
    """
    targets = choose_targets(options.targets)
    stages = Stages(STAGES, options.stop_after, options.dump, progress or Silent())
    result = Result(options.name or model_name(model), tuple(t.name for t in targets), targets[0].api)
    context = Context(targets, options.precision, options.keep_fp32, result.matches)
    with Staging(options.output) as staging:
        try:
            imported = stages.run("import", lambda: _import(model, options), _summary, _text)
            graph = result.graph = imported.graph
            uses = input_uses(graph)
            stages.run("simplify", lambda: _passes(SIMPLIFY, graph, context), _summary, _text)
            stages.run("fuse", lambda: _passes(FUSE, graph, context), _summary, lambda g: {**_text(g), "rules.txt": result.matches.to_text()})
            stages.run("layout", lambda: _passes(LAYOUT, graph, context), _summary, _text)
            launches = stages.run("schedule", lambda: schedule(graph, context), _summary, _text)
            plan = stages.run("plan", lambda: _plan(launches, uses, result.name), _plan_summary, lambda p: {"json": plan_to_json(p)})
            result.plan = plan
            sources = result.sources = stages.run("emit", lambda: emit(plan), _sources_summary, lambda s: {f"/{n}": t for n, t in s.items()})
            stages.run("build", lambda: build(), _summary, _text)
            result.verification = stages.run("verify", lambda: _verify(), str, _text)
        except Stopped:
            pass
        result.seconds = stages.seconds
    return result
