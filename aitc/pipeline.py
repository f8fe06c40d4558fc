"""From an ONNX file to a verified binary: the stages, in order, on one page."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from aitc import describe, registry
from aitc.build.cmake import BuildOptions, BuildResult, build
from aitc.build.naming import given_name, library_name
from aitc.build.output import staged
from aitc.build.ownership import output_names
from aitc.build.resources import Resources
from aitc.build.scratch import scratch
from aitc.build.toolchain import emulator_toolchain, find_toolchain
from aitc.build.weights import write_weights
from aitc.emit.project import emit
from aitc.errors import AitcError, Diagnostic, Exit
from aitc.importer.check import file_name
from aitc.importer.onnx import Imported, import_model
from aitc.importer.values import Bound
from aitc.ir.graph import Graph
from aitc.ir.use import input_uses
from aitc.passes.base import Context
from aitc.passes.stages import fuse, layout, simplify
from aitc.progress import Progress, Silent, Stages, Stopped
from aitc.report import digest, report_of
from aitc.schedule.choose.table import load_table
from aitc.schedule.core.why import Fusions
from aitc.schedule.launch.lanes import MOST
from aitc.schedule.plan.check import check_plan
from aitc.schedule.plan.dims import dim_sources
from aitc.schedule.plan.plan import Plan, Port
from aitc.schedule.schedule import PlanOptions, schedule
from aitc.settings import Settings
from aitc.targets.isa import ISAS
from aitc.targets.machine import can_run, default_target
from aitc.targets.target import Target, find_target
from aitc.verify.bisect import Steps, first_difference
from aitc.verify.child import TIMEOUT_S, ChildFailed, apart
from aitc.verify.compare import asked_tolerance, depth, roundoff
from aitc.verify.data import Given, read_given
from aitc.verify.inputs import Arrays, random_inputs
from aitc.verify.ranges import measured_ranges
from aitc.verify.reference import load_oracle
from aitc.verify.run import Subject, Verification, run_binary, verify

STAGES = ("import", "simplify", "fuse", "layout", "schedule", "plan", "emit", "build", "verify")


@dataclass(frozen=True, slots=True)
class Options:
    """What a compile can be told; every field has a flag of the same name."""

    targets: tuple[str, ...] = ()  # of one API; none: the GPU of this machine, else cpu
    output: Path | None = None  # none: nothing is kept
    name: str = ""  # of the library; none: the file's
    dims: tuple[tuple[str, int | tuple[int, int] | str], ...] = ()  # a size, inclusive bounds, or an expression over other dims
    input_shapes: tuple[tuple[str, tuple[int | str, ...]], ...] = ()
    values: tuple[tuple[str, Any], ...] = ()  # inputs that become constants: a number, a bool or a list of them
    input_files: tuple[tuple[str, Path], ...] = ()  # .npy files to verify on, by input
    data: Path | None = None  # a folder of such, or of ONNX's test data
    precision: str = "model"
    keep_fp32: tuple[str, ...] = ()  # node names, op types or regular expressions
    lanes: int = MOST  # of GPU launches side by side at the most; 1: one after another
    weights: str = "embed"  # or "file"
    isas: tuple[str, ...] = ()  # of cpu code, see ISAS; none: as the settings say, else all of x86-64's
    tuning: Path | None = None
    nvcc: str | None = None  # the compiler of CUDA kernels; None: found, see `aitc list toolchains`
    hipcc: str | None = None  # the compiler of HIP kernels: hipcc or a clang++; None: found
    emulate: bool = False  # GPU kernels run on the CPU, see tests/emulator/
    jobs: int = 0  # 0: processors, bounded by memory
    verify: str = "auto"  # auto, require, skip
    verify_timeout: float = TIMEOUT_S  # seconds for each step of a verification
    rtol: float | None = None  # |binary - reference| <= atol + rtol * |reference|, instead of aitc's own tolerance
    atol: float | None = None
    bisect: bool = False
    seed: int = 0
    stop_after: str = "verify"
    dump: Path | None = None


@dataclass(slots=True)
class Result:
    """What came of a compile, as far as it went (``stop_after``)."""

    name: str
    targets: tuple[Target, ...]
    context: Context
    seconds: dict[str, float] = field(default_factory=dict)  # by stage
    graph: Graph | None = None
    facts: PlanOptions | None = None  # what the plan records besides the graph; known after layout
    fusions: Fusions = field(default_factory=Fusions)  # what the schedule put together, and what it left apart
    plan: Plan | None = None
    sources: dict[str, str] | None = None
    resources: tuple[Resources, ...] = ()  # of GPU kernels, once they are built
    verification: Verification | None = None
    output: Path | None = None  # where the files are
    report: dict[str, Any] = field(default_factory=dict)  # <name>.json

    @property
    def failed(self) -> bool:
        """Whether the binary differs from the reference."""
        return self.verification is not None and self.verification.status == "failed"


def compile(model: str | Path | bytes, options: Options, progress: Progress | None = None) -> Result:
    """Compiles an ONNX model. Raises AitcError for whatever is the user's to mend.

    A mismatch is no exception: see ``Result.verification``. Its output goes to ``<output>.failed``, and what was at
    ``output`` stays.
    """
    file = "model.onnx" if isinstance(model, bytes) else file_name(Path(model))
    targets = choose_targets(options.targets)
    asked = asked_tolerance(options.rtol, options.atol)
    context = Context(targets[0], options.precision, options.keep_fp32)
    result = Result(given_name(options.name) if options.name else library_name(Path(file).stem), targets, context)
    stages = Stages(STAGES, options.stop_after, options.dump, progress or Silent())
    result.seconds = stages.seconds
    place = options.output if options.stop_after == STAGES[-1] else None
    run = stages.run
    with contextlib.suppress(Stopped), _folder(place, result, options.weights) as folder:
        bindings, shapes, values = dict(options.dims), dict(options.input_shapes), dict(options.values)
        imported = run("import", lambda: import_model(model, bindings, shapes, values=values), describe.import_said)
        graph = result.graph = imported.graph
        uses = tuple(input_uses(graph).items())
        given = _given(imported, options)
        run("simplify", lambda: changed(simplify, graph, context), describe.graph_said)
        run("fuse", lambda: changed(fuse, graph, context), lambda g: describe.fuse_said(g, context))
        if options.precision == "fp16":
            context.ranges = measured_ranges(model, graph, dict(uses), options.seed, options.verify_timeout, imported.bound)
        run("layout", lambda: changed(layout, graph, context), lambda g: describe.layout_said(g, context))
        names, metadata = tuple(t.name for t in targets), tuple(imported.metadata.items())
        facts = result.facts = PlanOptions(
            result.name, file, options.precision, names, metadata, stages.statistics, imported.dim_names, uses, options.lanes
        )
        table = load_table(targets[0], options.tuning, Settings.read().cache_dir)
        draft = result.plan = run("schedule", lambda: schedule(graph, targets[0], facts, table, result.fusions), describe.launches_said)
        plan = result.plan = run("plan", lambda: check_plan(draft), describe.plan_said)
        sources = result.sources = run("emit", lambda: emit(plan), describe.sources_said)
        if options.dump is not None and plan.weights_bytes:
            stages.write_file("emit", "weights.bin", lambda path: write_weights(plan, path))
        built = run("build", lambda: build_plan(plan, sources, folder, options, stages.progress), describe.build_said)
        result.resources = built.resources
        subject = subject_of_plan(plan, folder, roundoff(graph, options.precision), depth(graph), imported.bound)
        subject = replace(subject, limit_s=options.verify_timeout, asked=asked)
        checked = run("verify", lambda: _verify(subject, model, result, options, facts, given), describe.verification_said)
        result.verification = checked
        result.report = report_of(plan, stages.seconds, checked, subject, context, built, digest(model))
        (folder / f"{result.name}.json").write_text(json.dumps(result.report, indent=1) + "\n", encoding="utf-8")
    return result


def _given(imported: Imported, options: Options) -> tuple[Given, ...]:
    """The inputs that a user gives, read and checked before anything takes long."""
    if not options.input_files and options.data is None:
        return ()
    graph = imported.graph
    ports = tuple(Port(v.name, v.type.dtype, v.shape, "") for v in graph.inputs)
    return read_given(options.input_files, options.data, ports, graph.output_names, dim_sources(graph, {}), imported.bound)


_IN_PLACE = (("simplify", simplify), ("fuse", fuse), ("layout", layout))


def changed(stage: Callable[[Graph, Context], None], graph: Graph, context: Context) -> Graph:
    """``graph`` after a stage that works in place."""
    stage(graph, context)
    return graph


def load_all(verifying: bool) -> None:
    """Imports all that a compile may need. Otherwise it is done on the way, which is as good but for Ctrl-C in the
    middle of it."""
    for package in ("aitc.ops", "aitc.passes", "aitc.rules", "aitc.kernels"):
        registry.load(package)
    if verifying:
        load_oracle()


def choose_targets(names: Sequence[str]) -> tuple[Target, ...]:
    """The targets by name, without doubles, the one with the fewest features first: it decides which kernels are used.
    Without names the default one. Raises AitcError (USAGE) for unknown names and for targets of several APIs.
    """
    asked = names or [Settings.read().target or default_target()]
    targets = list(dict.fromkeys(find_target(n) for n in asked))
    apis = sorted({t.api for t in targets})
    if len(apis) > 1:
        raise AitcError(
            Diagnostic(
                "T02", f"one binary has one API, and the targets are of {', '.join(apis)}", help="compile once for each"
            ),
            Exit.USAGE,
        )
    common = frozenset.intersection(*(t.features for t in targets))
    first, *rest = sorted(targets, key=lambda t: (len(t.features), t.name))
    return (replace(first, features=common, smem_bytes=min(t.smem_bytes for t in targets)), *rest)


def build_plan(plan: Plan, sources: dict[str, str], folder: Path, options: Options, progress: Progress) -> BuildResult:
    """Builds a plan as ``options`` say: with which compilers, for which instruction sets, with how many jobs."""
    if options.emulate:
        chain = emulator_toolchain(plan.api)
    else:
        arches = [find_target(name).arch for name in plan.targets]
        chain = find_toolchain(plan.api, arches, nvcc=options.nvcc, hipcc=options.hipcc)
    for tool in (chain.cxx, chain.device, chain.cmake, chain.ninja):
        if tool is not None:
            progress.note(f"{tool.name} {tool.version}: {tool.path}, found by {tool.origin}")
    isas = options.isas or tuple(i for i in Settings.read().isa.split(",") if i)
    how = BuildOptions(
        jobs=options.jobs, weights_file=options.weights == "file", isas=check_isas(isas) if plan.api == "cpu" else ()
    )
    return build(plan, sources, folder, chain, how, progress.step)


def check_isas(isas: tuple[str, ...]) -> tuple[str, ...]:
    """``isas`` without doubles. Raises AitcError (USAGE) for one that there is not."""
    for isa in isas:
        if isa not in ISAS:
            raise AitcError(
                Diagnostic("C02", f"no instruction set is called {isa!r}", help=f"one of: {', '.join(ISAS)}"),
                Exit.USAGE,
            )
    return tuple(dict.fromkeys(isas))


def _verify(
    subject: Subject, model: str | Path | bytes, result: Result, options: Options, facts: PlanOptions, given: tuple[Given, ...]
) -> Verification:
    if options.verify == "skip":
        return Verification("not run", "not asked for")
    if options.emulate or can_run(result.targets):
        answer = verify(subject, model, options.seed, given)
    else:
        answer = Verification(
            "not run",
            f"this machine has no {' or '.join(f'{t.name} ({t.doc})' for t in result.targets)}",
            help="run `aitc verify` on a machine that has one, or compile with --emulate beside it: the same kernels, run on the CPU",
        )
    if options.verify == "require" and answer.ok and answer.hollow:
        which = ", ".join(f"{n} is {why}" for n, why in answer.vacuous.items())
        answer = replace(answer, status="not run", reason=f"on made-up inputs its outputs say little: {which}")
    if options.verify == "require" and answer.status == "not run":
        raise AitcError(
            Diagnostic("V02", f"{result.name} could not be verified: {answer.reason}", stage="verify", help=answer.help), Exit.VERIFY
        )
    if options.bisect and answer.status == "failed":
        steps = _steps(model, options, result, facts)
        feeds = random_inputs(subject.inputs, answer.dims, answer.seed, answer.attempt, answer.manner)
        feeds |= {b.name: b.array for b in subject.bound}
        feeds |= next((g.inputs for g in given if g.where == answer.where), {})
        try:
            found = apart(lambda: first_difference(steps, model, feeds, subject.tolerance), "the search for the first difference")
        except ChildFailed as failed:
            found = str(failed)
        answer = replace(answer, first_difference=found)
    return answer


def _steps(model: str | Path | bytes, options: Options, result: Result, facts: PlanOptions) -> Steps:
    """The stages again, for the search of a difference."""
    target = result.targets[0]
    context = Context(target, options.precision, options.keep_fp32, ranges=result.context.ranges)
    table = load_table(target, options.tuning, Settings.read().cache_dir)

    def run(plan: Plan, arrays: Arrays) -> dict[str, np.ndarray]:
        with scratch("bisect") as folder:
            build_plan(plan, emit(plan), folder, options, Silent())
            return run_binary(subject_of_plan(plan, folder), arrays)

    return Steps(
        lambda: import_model(model, dict(options.dims), dict(options.input_shapes), values=dict(options.values)).graph,
        tuple((name, partial(changed, stage, context=context)) for name, stage in _IN_PLACE),
        lambda g: check_plan(schedule(g, target, facts, table)),
        run,
    )


def subject_of_plan(plan: Plan, folder: Path, roundoff: float = 0.0, depth: int = 1, bound: tuple[Bound, ...] = ()) -> Subject:
    """What verify needs to know of a plan that was built into ``folder``."""
    device = Settings.read().device_index
    return Subject(folder, plan.name, plan.api, plan.inputs, plan.outputs, plan.dims, roundoff, depth, device, plan.requires, bound=bound)


@contextlib.contextmanager
def _folder(output: Path | None, result: Result, weights: str) -> Iterator[Path]:
    """A folder to build in: it becomes ``output``, or ``output.failed`` after a mismatch; it vanishes when a stage
    fails. Raises AitcError (IO) at once if ``output`` cannot be written or holds what aitc may not replace."""
    if output is None:
        with scratch() as temporary:
            yield temporary
        return
    with contextlib.suppress(_Kept), staged(output, output_names(result.name, weights == "file")) as folder:
        yield folder
        result.output = output
        if result.failed:
            result.output = _keep_failed(folder, output)
            raise _Kept


def _keep_failed(folder: Path, output: Path) -> Path:
    """Copies a binary that differs from the reference to a place beside ``output``, or to one for temporary files; which."""
    for suffix in (".failed", ".failed.2", ".failed.3"):  # another one where the folder of that name is not aitc's
        place = Path(os.path.abspath(output))
        place = place.with_name(place.name + suffix) if place.name else place / suffix
        with contextlib.suppress(AitcError), staged(place, [entry.name for entry in folder.iterdir()]) as kept:
            shutil.copytree(folder, kept, dirs_exist_ok=True, symlinks=True)
            return place if output.is_absolute() else Path(os.path.relpath(place))
    place = Path(tempfile.mkdtemp(prefix="aitc-failed-"))
    shutil.copytree(folder, place, dirs_exist_ok=True, symlinks=True)
    return place


class _Kept(Exception):
    """The output went somewhere else: leave the usual place alone."""
