"""Runs a compiled model on fresh inputs and compares it with the reference. The binary runs in a process of its own, so that a crash
is a result."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from aitc.build.scratch import scratch
from aitc.errors import AitcError, Diagnostic, Exit
from aitc.importer.values import Bound
from aitc.schedule.plan.dims import consistent, fit
from aitc.schedule.plan.plan import DimSource, Port, Require
from aitc.verify.child import TIMEOUT_S, ChildFailed, Crashed, TooLong, apart, begin
from aitc.verify.compare import OutputReport, Tolerance, tolerance
from aitc.verify.data import Given
from aitc.verify.inputs import ATTEMPTS, MANNERS, Arrays, dim_choices, other_choices, random_inputs
from aitc.verify.judge import Evidence, judge
from aitc.verify.reference import NoReference, Reference, avoid_onnxruntime
from aitc.verify.vacuous import vacuous

REFERENCE, COMPARISON = "the reference", "judging the difference"  # steps of a verification
INPUTS_HELP = "give inputs that the model takes with --input NAME=FILE.npy or --data FOLDER, or sizes that fit with --dim NAME=SIZE|EXPRESSION"
TIME_HELP = "; --verify-timeout gives it more"


@dataclass(frozen=True, slots=True)
class Subject:
    """A compiled model: where it is and what it takes. ``roundoff`` and ``depth`` give the tolerance."""

    folder: Path
    name: str
    api: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    dims: tuple[DimSource, ...]
    roundoff: float
    depth: int
    device: int = 0
    requires: tuple[Require, ...] = ()  # what has to be true of the dims
    sizes: Mapping[str, int] = field(default_factory=dict)  # of dims (by C name) that a user wants verified
    bound: tuple[Bound, ...] = ()  # inputs of the model that are constants of the binary
    limit_s: float = TIMEOUT_S  # for each step of a verification: a run of the reference, a run of the binary
    asked: Tolerance | None = None  # what a user wants instead of ours

    @property
    def tolerance(self) -> Tolerance:
        """How far an output may be from its reference."""
        return self.asked or tolerance(self.roundoff, self.depth)


@dataclass(frozen=True, slots=True)
class Verification:
    """``status`` is passed, failed or "not run" (``reason`` says why). ``outputs`` are of the worst of the runs."""

    status: str
    reason: str = ""
    oracle: str = ""
    seed: int = 0
    dims: dict[str, int] = field(default_factory=dict)  # of the worst run, whose seed is ``seed``
    attempt: int = 0  # the kind of values for integers of unknown use, see random_inputs
    manner: str = ""  # the range of values, see there
    where: str = ""  # the given inputs, if there are any
    runs: int = 0
    roundoff: float = 0.0
    depth: int = 0
    rtol: float | None = None  # the tolerance that a user asked for
    atol: float | None = None
    outputs: tuple[OutputReport, ...] = ()
    seconds: float = 0.0
    first_difference: str = ""  # from --bisect
    help: str = ""  # the way out where it did not run
    vacuous: dict[str, str] = field(default_factory=dict)  # outputs of which the comparison says little, and why

    @property
    def hollow(self) -> bool:
        """Whether nothing but vacuous outputs was compared."""
        return bool(self.outputs) and len(self.vacuous) == len(self.outputs)

    @property
    def ok(self) -> bool:
        return self.status == "passed"

    def __str__(self) -> str:
        if self.status == "not run":
            return f"not run: {self.reason}"
        worst = max(self.outputs, key=lambda o: o.rms_rel, default=None)
        if worst is None:
            return f"{self.status}: {self.reason}" if self.reason else self.status
        text = (
            f"max abs {worst.max_abs:.2e}, max rel {worst.max_rel:.2e}, cosine {worst.cosine:.7f} against {self.oracle}"
        )
        bad = [o.name for o in self.outputs if not o.ok]
        judged = [f"; {o.name}: {o.note}" for o in self.outputs if o.ok and o.fault]
        said = f"{self.status}: {text}" + (f"; wrong: {', '.join(bad)}" if bad else "") + "".join(judged)
        if self.rtol is not None:
            said += f"; tolerance asked for: rtol {self.rtol:g}, atol {self.atol:g}"
        if self.vacuous:
            which = ", ".join(f"{n} is {why}" for n, why in self.vacuous.items())
            said += f"; WARNING: on made-up inputs this says little: {which} in the reference"
        return said


def verify(subject: Subject, model: str | Path | bytes, seed: int = 0, given: Sequence[Given] = ()) -> Verification:
    """Compares the binary with the reference (or with the outputs that are ``given``) on inputs made from ``seed``, at two sizes where
    dims are symbolic; or on each of the ``given`` ones, with made-up ones beside where they are not all.

    All of it is done in a child process: a signal ends it at once, and an oracle that crashes or never ends is a reason to say so.
    Raises AitcError (RUNTIME) when the binary fails, crashes or takes longer than ``subject.limit_s``.
    """

    def work() -> Verification:
        return _verify(subject, model, seed, given)

    try:
        return apart(work, REFERENCE, subject.limit_s)
    except Crashed as crash:
        if crash.step == REFERENCE:
            return _without_onnxruntime(work, crash, subject, seed)
        failed: ChildFailed = crash
    except TooLong as late:
        failed = late
    how = f"{failed}{TIME_HELP if isinstance(failed, TooLong) else ''}"
    if failed.step == COMPARISON:  # what agrees plainly is not judged for long
        return replace(_not_run(subject, seed, f"the outputs differ plainly, and {how}"), status="failed")
    return _not_run(subject, seed, how)


def _without_onnxruntime(work: Callable[[], Verification], crash: Crashed, subject: Subject, seed: int) -> Verification:
    """Once more with onnx.reference alone, which is slow and does not crash."""

    def again() -> Verification:
        avoid_onnxruntime(crash.why)
        return work()

    try:
        return apart(again, REFERENCE, subject.limit_s)
    except ChildFailed as failed:
        return _not_run(subject, seed, f"onnxruntime {crash.why}, and then {failed}")


def _not_run(subject: Subject, seed: int, reason: str) -> Verification:
    return Verification("not run", reason, seed=seed, roundoff=subject.roundoff, depth=subject.depth, help=INPUTS_HELP)


def _verify(subject: Subject, model: str | Path | bytes, seed: int, given: Sequence[Given]) -> Verification:
    start = time.perf_counter()
    limit = subject.tolerance
    try:
        reference = Reference(model)
        if subject.outputs and reference.random.issuperset(p.name for p in subject.outputs):
            return _not_run(subject, seed, "every output depends on numbers that the model draws at random")
        trials = [t for g in given or [Given({})] for t in _trials(subject, reference, seed, g)]
        hollow = _hollow(subject, reference, trials)
        for more, (manner, dims) in enumerate(_others(subject, trials[0].dims), 1) if subject.inputs and not given else ():
            if not hollow:
                break
            with contextlib.suppress(NoReference):
                other = _trial(subject, reference, seed + 100 * more, dims, trials[0].attempt, Given({}), manner)
                fewer = _hollow(subject, reference, [*trials, other])
                if fewer != hollow:
                    trials, hollow = [*trials, other], fewer
    except NoReference as none:
        return _not_run(subject, seed, f"no reference: {none}")
    except MemoryError:
        return _not_run(subject, seed, "inputs or outputs of this size do not fit into this machine's memory")
    done = Verification(
        "passed", "", trials[0].oracle, seed, roundoff=subject.roundoff, depth=subject.depth, runs=len(trials)
    )
    if subject.asked is not None:
        done = replace(done, rtol=subject.asked.relative, atol=subject.asked.absolute)
    for trial in trials:
        begin("the binary")
        got = run_binary(subject, trial.arrays)
        begin(COMPARISON)
        evidence = Evidence(reference, trial.arrays, trial.want, subject.roundoff, trial.own)
        reports = judge({p.name: p.dtype for p in subject.outputs}, evidence, got, limit)
        if not done.outputs or _badness(reports) > _badness(done.outputs):
            done = replace(done, outputs=reports, seed=trial.seed, dims=trial.dims, attempt=trial.attempt, manner=trial.manner, where=trial.where)
    wrong = [o for o in done.outputs if not o.ok]
    return replace(
        done,
        status="failed" if wrong else "passed",
        seconds=time.perf_counter() - start,
        reason=f"{len(wrong)} of {len(done.outputs)} outputs differ" if wrong else "",
        vacuous=hollow,
    )


def _others(subject: Subject, dims: dict[str, int]) -> Iterator[tuple[str, dict[str, int]]]:
    """Manners of values and sizes that are tried, each from another seed, for outputs that say something."""
    yield from ((manner, dims) for manner in MANNERS)
    longer = {d.name: fit(dims[d.name] * (1 if d.axis == 0 else 4), d) for d in subject.dims} | dict(subject.sizes)
    sizes = consistent(longer, subject.dims, subject.requires, subject.sizes)
    if sizes is not None and sizes != dims:
        yield "", sizes


def _hollow(subject: Subject, reference: Reference, trials: Sequence[Trial]) -> dict[str, str]:
    # An output that no sizes give an element says all that it has: its shape and its type.
    telling = (p.name for p in subject.outputs if p.name not in reference.random and 0 not in p.shape)
    return vacuous((t.want for t in trials), telling)


@dataclass(frozen=True, slots=True)
class Trial:
    """Inputs made from ``seed`` with run-time ``dims``, and what the reference answers."""

    seed: int
    dims: dict[str, int]
    arrays: Arrays
    want: dict[str, Any]
    attempt: int = 0  # of ``random_inputs``
    manner: str = ""
    oracle: str = ""
    where: str = ""  # of the given inputs among ``arrays``
    own: dict[str, Any] | None = None  # what the reference answers, where ``want`` is given by a user


def _badness(reports: Sequence[OutputReport]) -> tuple[int, float]:
    return sum(not o.ok for o in reports), max((o.rms_rel for o in reports), default=0.0)


def _trials(subject: Subject, reference: Reference, seed: int, given: Given) -> list[Trial]:
    """Trials at the first sizes and values that the reference accepts, and at others if there are any. Raises NoReference.

    What onnxruntime refuses and ``onnx.reference`` takes may be what the model is not for (a size of 1 that is broadcast), and of
    outputs without elements nothing is compared: such a trial is the last choice.
    """
    refusal: NoReference | None = None
    last: list[Trial] = []
    fixed = {**subject.sizes, **given.sizes}
    for attempt, dims in _choices(subject, given, fixed):
        try:
            trial = _trial(subject, reference, seed, dims, attempt, given)
        except NoReference as none:
            refusal = refusal or none
            continue
        if trial.own is None and (reference.refuses or all(np.size(v) == 0 for v in trial.want.values())):
            last = last or [trial]
            continue
        trials = [trial]
        for n, other in enumerate(other_choices(dims, subject.dims, subject.requires, fixed), 1):
            with contextlib.suppress(NoReference):  # some models work at some sizes only
                trials.append(_trial(subject, reference, seed + n, other, attempt, given))
        return trials
    if last:
        return last
    raise refusal or NoReference("no input fits")


def _choices(subject: Subject, given: Given, fixed: Mapping[str, int]) -> Iterator[tuple[int, dict[str, int]]]:
    """Kinds of values, and sizes, to try, best first."""
    sizes = list(dim_choices(subject.dims, subject.inputs, subject.requires, fixed))
    yield from ((0, s) for s in sizes)
    if any(p.dtype.is_integer and p.use in ("", "count") for p in subject.inputs if p.name not in given.inputs):
        yield from ((attempt, s) for attempt in range(1, ATTEMPTS) for s in sizes[:2])


def _trial(subject: Subject, reference: Reference, seed: int, dims: dict[str, int], attempt: int, given: Given, manner: str = "") -> Trial:
    """One trial. Outputs that are all given are believed without a reference."""
    free = [p for p in subject.inputs if p.name not in given.inputs]
    arrays = {**random_inputs(free, dims, seed, attempt, manner), **given.inputs, **{b.name: b.array for b in subject.bound}}
    if not free and {p.name for p in subject.outputs} <= given.expected.keys():
        own: dict[str, Any] = {}  # what misses them is measured by how far the reference moves
        with contextlib.suppress(NoReference):
            begin(REFERENCE)
            own = reference.run(arrays)
        return Trial(seed, dims, arrays, dict(given.expected), attempt, manner, f"{given.where}'s outputs", given.where, own)
    begin(REFERENCE)
    want = reference.run(arrays)
    return Trial(seed, dims, arrays, want, attempt, manner, reference.oracle, given.where)


def run_binary(subject: Subject, arrays: Arrays) -> dict[str, np.ndarray]:
    """Runs the executable on ``arrays`` and returns its outputs by name. Raises AitcError (RUNTIME)."""
    with scratch("run") as place:
        command = [
            str(subject.folder / subject.name),
            "--output-dir",
            str(place / "out"),
            "--device",
            str(subject.device),
        ]
        for i, port in enumerate(subject.inputs):
            save(place / f"{i}.npy", arrays[port.name])
            command += ["--input", f"{port.name}={place / f'{i}.npy'}"]
        run_executable(command, subject.limit_s)
        stems = file_names([p.name for p in subject.outputs])
        return {p.name: load(place / "out" / f"{s}.npy", p) for p, s in zip(subject.outputs, stems, strict=True)}


def file_names(outputs: Sequence[str]) -> list[str]:
    """The stems of the files that the executable writes outputs to (``file_names`` of ``host/command.h``): names like
    "layer/out:0" are no paths, long ones are cut, and no two are the same."""
    stems: list[str] = []
    for name in outputs:
        stem = name.translate(str.maketrans("/\\:", "___")).encode()[:200].decode(errors="ignore")
        while stem in stems:
            stem += "_"
        stems.append(stem)
    return stems


def run_executable(command: Sequence[str], timeout_s: float = TIMEOUT_S) -> str:
    """Runs ``command`` and returns its stdout. Raises AitcError (RUNTIME) with what it said, its signal, or that it
    took too long."""
    try:
        done = subprocess.run(
            list(command), capture_output=True, text=True, errors="replace", timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise AitcError(
            Diagnostic("R04", f"{Path(command[0]).name} did not finish within {timeout_s:g} s"), Exit.RUNTIME
        ) from None
    except OSError as error:
        raise AitcError(Diagnostic("R01", f"{command[0]} cannot be run: {error.strerror}"), Exit.RUNTIME) from error
    if done.returncode < 0:
        what = signal.Signals(-done.returncode).name
        raise AitcError(
            Diagnostic("R05", f"{Path(command[0]).name} was ended by {what}", detail=_tail(done.stderr)), Exit.RUNTIME
        )
    if done.returncode:
        raise AitcError(Diagnostic("R03", f"{Path(command[0]).name} failed", detail=_tail(done.stderr)), Exit.RUNTIME)
    return done.stdout


def _tail(text: str) -> tuple[str, ...]:
    return tuple(text.strip().splitlines()[-8:])


def save(path: Path, array: np.ndarray) -> None:
    """An .npy file; types that numpy does not know (bfloat16, float8, int4 ...) go as raw bytes of the same width."""
    array = np.asarray(array, order="C")  # ascontiguousarray would make a scalar one-dimensional
    np.save(path, array if array.dtype.isbuiltin == 1 else array.view(f"V{array.dtype.itemsize}"), allow_pickle=False)


def load(path: Path, port: Port) -> np.ndarray:
    """The inverse of ``save``, for the element type of ``port``."""
    array = np.load(path, allow_pickle=False)
    return np.asarray(array if array.dtype == port.dtype.numpy else array.view(port.dtype.numpy))
