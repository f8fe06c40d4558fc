"""Tuning: measures configurations of a model's problems where they run, in the model, and remembers the fastest.

The model is built once with a launch for every candidate of a problem, all of which compute the same. Passes over the model then
leave all but one of each problem's candidates out, so that each is measured with its operands where they are in the model,
in cache or not. Candidates that are clearly slower drop out after a round; the others are measured until the time is over. On a GPU
those that come near the fastest then take turns in whole runs, without marks (``latency.py``).
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from aitc import runtime
from aitc.build.cmake import default_jobs
from aitc.build.scratch import scratch
from aitc.emit.project import emit
from aitc.errors import AitcError, Diagnostic, Exit
from aitc.latency import Settled, Variants, settle
from aitc.pipeline import Options, build_plan, choose_targets, compile
from aitc.profile import mark_cost_us, without_mark
from aitc.progress import Progress, Silent
from aitc.schedule.choose.select import Candidates, Choice
from aitc.schedule.choose.table import (
    Entry,
    load_table,
    merge_into,
    own_table,
    read_table,
    require_place,
    shipped_table,
)
from aitc.schedule.plan.check import check_plan
from aitc.schedule.plan.plan import Plan
from aitc.schedule.schedule import schedule_with
from aitc.settings import Settings
from aitc.targets.machine import cpu_isa, devices
from aitc.targets.target import Target, find_target

RUNS = 3  # of the model in a pass, after one that is not counted
SAMPLES = 60  # of a candidate are enough
SLOWER = (2.5, 1.5, 1.25, 1.12)  # times the fastest: beyond it a candidate drops out after the first, second ... round
PLACES = 4  # of a problem on a GPU that have all its candidates: what they save together has to stand out of a run
MARKED = 0.4  # of the time for single launches, on a GPU; the rest for whole runs
LIKELY, NEAR = 8, 1.35  # at most so many candidates of a problem in whole runs: those within this of the fastest
WORTH = 0.98  # of the default's time: what is not faster than that does not replace it


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """``seconds`` of measuring, after the build (each candidate is measured once in any case); ``most`` configurations of
    a problem, the likely best; ``again``: also those that the table has; ``table``: where results go (none: the user's,
    see ``own_table``; with ``emulate`` nowhere)."""

    seconds: float = 120.0
    most: int = 12
    again: bool = False
    table: Path | None = None
    use_table: bool = True  # False: the default is the machine model's choice, whatever was measured before


@dataclass(frozen=True, slots=True)
class Problem:
    """What was measured of a problem: ``times`` and ``scores`` (predicted) by configuration, in us; ``default``: what a compile took
    so far. ``launches`` of the model have this problem."""

    key: str
    kernel: str
    launches: int
    default: str
    times: Mapping[str, float]
    scores: Mapping[str, float]
    settled: str | None = None  # what whole runs chose, where they did
    saved_us: float = 0.0  # of a run by that, in all places of the problem
    beaten: frozenset[str] = frozenset()  # measured in earlier runs alone, which chose another, or gone from aitc

    @property
    def best(self) -> str:
        """What whole runs chose; without them the fastest, or the default where nothing is clearly faster. What an earlier run left does not
        come back: that may have been for what whole runs said."""
        if self.settled is not None:
            return self.settled
        fastest = min(self.times.keys() - self.beaten, key=lambda c: (self.times[c], c))
        return fastest if self.times[fastest] < WORTH * self.times[self.default] else self.default

    @property
    def gained_us(self) -> float:
        """Of all its launches in the model."""
        if self.settled is not None:
            return self.saved_us
        return (self.times[self.default] - self.times[self.best]) * self.launches

    def entry(self) -> Entry:
        """The line of a table."""
        times = {c: round(us, 3) for c, us in self.times.items()}
        return Entry(self.key, self.best, times.pop(self.best), times)


@dataclass(frozen=True, slots=True)
class Tuned:
    """The problems that were measured; ``others``: those with one configuration alone, for what was predicted of them.
    ``before``: how many of the model's were measured in an earlier run."""

    target: Target
    device: str = ""
    problems: tuple[Problem, ...] = ()
    others: tuple[Problem, ...] = ()
    before: int = 0
    passes: int = 0
    seconds: float = 0.0
    interrupted: bool = False
    missing: bool = False  # candidates were not measured, and the next run would
    table: Path | None = None  # where they were put
    keys: tuple[str, ...] = ()  # of all problems of the model
    runs_us: tuple[float, float] | None = None  # a whole run with the defaults, and with what whole runs chose in the measured places

    @property
    def default_us(self) -> float:
        """What the launches of the measured problems take together as they were chosen before."""
        return sum(p.times[p.default] * p.launches for p in self.problems)

    @property
    def gained_us(self) -> float:
        return sum(p.gained_us for p in self.problems)


@dataclass(slots=True)
class _Slot:
    """A group with its candidates: their launches, their samples in seconds, and which are still measured."""

    choices: tuple[Choice, ...]
    launches: list[int]
    samples: list[list[float]]
    alive: list[int] = field(default_factory=list)
    mark_us: float = 0.0  # what the marks around a launch add to a sample

    def us(self, candidate: int) -> float:
        """The lower quartile: other work on the machine only makes samples longer."""
        ordered = sorted(self.samples[candidate])
        return without_mark(ordered[len(ordered) // 4] * 1e6, self.mark_us)

    @property
    def fastest(self) -> int:
        return min((i for i, taken in enumerate(self.samples) if taken), key=self.us, default=0)

    def drop(self, factor: float) -> None:
        """Candidates slower than ``factor`` times the fastest go; the default stays while there is another."""
        times = {i: self.us(i) for i in self.alive}
        limit = factor * min(times.values())
        self.alive = [i for i in self.alive if times[i] <= limit or (i == 0 and len(times) > 1)]
        if self.alive == [0]:
            self.alive = []


def tune(
    model: str | Path | bytes, options: Options, how: TuneOptions = TuneOptions(), progress: Progress | None = None
) -> Tuned:
    """Measures and merges the results into a table. KeyboardInterrupt while it measures ends it early, and keeps what is known.

    Raises AitcError: RUNTIME without a device of the target; as ``compile`` otherwise.
    """
    progress = progress or Silent()
    target = _only(choose_targets(options.targets), options)
    cache = Settings.read().cache_dir
    place = how.table or (None if options.emulate else own_table(target, cache))
    known: dict[str, Entry] = {}
    if place is not None:
        require_place(place)
        old = read_table(place) if place.exists() else []  # with ``again``, too: better no table now than after the measuring
        known = {} if how.again else {e.problem: e for e in old}
    table = load_table(target, options.tuning, cache) if how.use_table else {}
    if options.emulate is False and target.api == "cpu" and not options.isas and not Settings.read().isa:
        options = replace(options, isas=(cpu_isa(),))
    options = replace(options, targets=(target.name,), output=None, stop_after="layout")
    result = compile(model, options, progress)
    assert result.graph is not None and result.facts is not None
    places = PLACES if target.gpu else 2
    select = Candidates(table, how.most, places, known=lambda key: (known[key].config, *known[key].tried) if key in known else ())
    plan, choices = schedule_with(result.graph, result.targets[0], result.facts, select)
    before = sum(key in known for key in select.counts)
    if all(len(s) == 1 for s in select.slots):
        return Tuned(target, before=before, table=place, keys=tuple(select.counts))
    with scratch("tune") as folder:
        tuned = _build_and_measure(check_plan(plan), choices, select, known, folder, options, how, progress)
    if place is not None and tuned.problems:
        merge_into(place, [p.entry() for p in tuned.problems])
    return replace(tuned, target=target, before=before, table=place, keys=tuple(select.counts))


def promote(tuned: Tuned) -> Path:
    """Puts what is known of the model's problems, now or from before, into the table that ships with aitc.

    Raises AitcError (IO) if it cannot be written.
    """
    path = shipped_table(tuned.target)
    known = read_table(tuned.table) if tuned.table is not None and tuned.table.is_file() else []
    merge_into(path, [replace(e, tried={}) for e in known if e.problem in tuned.keys])
    return path


def _only(targets: Sequence[Target], options: Options) -> Target:
    """The one target to measure on, with a device of its own architecture."""
    if len(targets) > 1:
        raise AitcError(Diagnostic("C02", "tune measures on one target", help="tune for each by itself"), Exit.USAGE)
    (target,) = targets
    if target.gpu and not options.emulate and all(d.target != target.name for d in devices()):
        what = f"this machine has no {target.name} ({target.doc}) to measure on"
        raise AitcError(Diagnostic("T03", what, help="tune on such a machine; compiling needs no device"), Exit.RUNTIME)
    return target


def _build_and_measure(
    plan: Plan,
    choices: Sequence[Choice],
    select: Candidates,
    known: Mapping[str, Entry],
    folder: Path,
    options: Options,
    how: TuneOptions,
    progress: Progress,
) -> Tuned:
    launch_of = {id(choice): n for n, choice in enumerate(choices)}
    slots = [
        _Slot(s, [launch_of[id(c)] for c in s], [[] for _ in s], list(range(len(s))) if len(s) > 1 else [])
        for s in select.slots
        if id(s[0]) in launch_of  # what the host does is no launch
    ]
    progress.begin("plan")
    progress.end("plan", 0.0, estimate(plan, options, how))
    progress.begin("build")
    begun = time.monotonic()
    built = build_plan(plan, emit(plan), folder, options, progress)
    several = [s for s in slots if s.alive]
    count = sum(len(s.choices) for s in several)
    progress.end("build", time.monotonic() - begun, f"{count} candidates for {len({s.choices[0].key for s in several})} problems")
    progress.begin("measure")
    begun = time.monotonic()
    gpu = find_target(plan.targets[0]).gpu
    until = how.seconds * (MARKED if gpu else 1.0)
    settled: Settled | None = None
    passes, most, interrupted = 0, max(len(s.choices) for s in slots), False  # a round is measured in any case
    with runtime.load(built.library, Settings.read().device_index) as instance:
        inputs = instance.random_inputs(options.seed)
        mark = _mark_us(instance, inputs)
        for slot in slots:
            slot.mark_us = mark
        left = 0.0
        try:
            while any(s.alive for s in slots) and (passes < most or time.monotonic() - begun < until):
                _pass(instance, inputs, slots, passes)
                passes += 1
                _drop(slots)
                seconds = time.monotonic() - begun
                progress.step(int(seconds), int(how.seconds), _gained(_problems(slots, select, known)))
            left = how.seconds - (time.monotonic() - begun)
        except KeyboardInterrupt:
            interrupted = True
        variants = _variants(_problems(slots, select, known), slots) if gpu and left > 0 else []
        if variants:
            spent = how.seconds - left
            settled = settle(instance, inputs, variants, left, lambda s, what: progress.step(int(spent + s), int(how.seconds), what))
            interrupted = settled.interrupted
        device = instance.device_name
    problems = _problems(slots, select, known, settled=settled)
    others = _problems(slots, select, known, alone=True)
    seconds = time.monotonic() - begun
    if not interrupted:
        progress.end("measure", seconds, f"{passes} passes; {_gained(problems)}")
    runs_us = settled.runs_us if settled else None
    missing = any(not slot.samples[i] for slot in slots for i in slot.alive)
    return Tuned(find_target(plan.targets[0]), device, problems, others, 0, passes, seconds, interrupted, missing, runs_us=runs_us)


OBJECT_SECONDS = {"cpu": 0.6, "cuda": 1.1, "hip": 1.5}  # of a processor, for a kernel and an instruction set or architecture


def estimate(plan: Plan, options: Options, how: TuneOptions) -> str:
    """How long the build in front of the measuring takes, with nothing in the cache: said before it begins."""
    jobs = options.jobs or default_jobs(plan.api)
    objects = len(plan.kernels) * max(1, len(options.isas))
    minutes = objects * OBJECT_SECONDS[plan.api] / jobs / 60
    took = f"about {minutes:.0f} min" if minutes >= 1 else "less than a minute"
    return f"{objects} objects to build first, {took} with {jobs} at once; then {how.seconds:.0f} s of measuring. --candidates 4 builds fewer"


def _variants(problems: Sequence[Problem], slots: Sequence[_Slot]) -> list[Variants]:
    """What whole runs are to try, the problems that take longest first."""
    places: dict[str, list[_Slot]] = defaultdict(list)
    for slot in slots:
        if len(slot.choices) > 1:
            places[slot.choices[0].key].append(slot)
    found = []
    for p in sorted(problems, key=lambda p: -p.times[p.default] * p.launches):
        near = NEAR * min(p.times.values())
        candidates = {str(c.config): i for i, c in enumerate(places[p.key][0].choices)}
        likely = [candidates[c] for c in sorted(p.times, key=lambda c: p.times[c]) if c in candidates and p.times[c] <= near]
        found.append(Variants(p.key, tuple(tuple(s.launches) for s in places[p.key]), tuple(likely[:LIKELY])))
    return found


def _mark_us(instance: runtime.Model, inputs: Sequence[np.ndarray]) -> float:
    """What the marks around a launch cost, from runs of all candidates with and without."""
    spans = instance.profile(RUNS, 1, inputs)
    seconds = [sum(s.end - s.begin for s in spans if s.run == run) for run in range(RUNS)]
    latency = statistics.median(instance.bench(RUNS, 2, inputs))
    return mark_cost_us(statistics.median(seconds) * 1e6, latency * 1e6, len(spans) // RUNS)


def _pass(instance: runtime.Model, inputs: Sequence[np.ndarray], slots: Sequence[_Slot], number: int) -> None:
    """Runs the model with one candidate of each slot and keeps their times."""
    chosen = [True] * len(instance.launches)
    taken: dict[int, list[float]] = {}
    for slot in slots:
        one = slot.alive[number % len(slot.alive)] if slot.alive else slot.fastest
        for i, launch in enumerate(slot.launches):
            chosen[launch] = i == one
        taken[slot.launches[one]] = slot.samples[one]
    seconds: dict[tuple[int, int], float] = defaultdict(float)
    for span in instance.profile(RUNS, 1, inputs, chosen):
        seconds[span.launch, span.run] += span.end - span.begin
    for (launch, _), sample in seconds.items():
        if launch in taken:
            taken[launch].append(sample)
    for slot in slots:
        if not any(slot.samples):  # of a branch or a loop that these inputs do not take: it would not run in later passes either
            slot.alive = []


def _drop(slots: Sequence[_Slot]) -> None:
    for slot in slots:
        rounds = [len(slot.samples[i]) // RUNS for i in slot.alive]
        if rounds and min(rounds) == max(rounds) > 0:
            slot.drop(SLOWER[min(rounds[0], len(SLOWER)) - 1])
            if rounds[0] * RUNS >= SAMPLES:
                slot.alive = []


def _problems(
    slots: Sequence[_Slot], select: Candidates, known: Mapping[str, Entry], alone: bool = False, settled: Settled | None = None
) -> tuple[Problem, ...]:
    """Those of which the default and another candidate have times, and all that was known of them before; or, ``alone``,
    those of which there is one configuration. ``settled``: what whole runs chose."""
    by_key: dict[str, list[_Slot]] = defaultdict(list)
    for slot in slots:
        by_key[slot.choices[0].key].append(slot)
    problems = []
    for key, places in by_key.items():
        first = places[0].choices
        measured = [[s.us(i) for s in places if i < len(s.samples) and s.samples[i]] for i in range(len(first))]
        times = {str(c.config): statistics.fmean(us) for c, us in zip(first, measured, strict=True) if us}
        default = str(first[0].config)
        if default not in times or (len(first) > 1) == alone or (not alone and len(times) < 2):
            continue
        old = known[key].times if key in known else {}
        scale = times[default] / old[default] if old.get(default) else 1.0  # the clock may be another today
        scores = {str(c.config): c.score_us for c in first}
        chosen, saved = None, 0.0
        if settled is not None and key in settled.candidates:
            chosen = str(first[settled.candidates[key]].config)
            saved = settled.saved_us.get(key, 0.0) * select.counts[key] / sum(len(s.choices) > 1 for s in places)
        every = {**{c: us * scale for c, us in old.items()}, **times}
        beaten = frozenset(old.keys() - times.keys())
        problems.append(Problem(key, first[0].kernel, select.counts[key], default, every, scores, chosen, saved, beaten))
    return tuple(sorted(problems, key=lambda p: (-p.gained_us, p.key)))


def _gained(problems: Sequence[Problem]) -> str:
    total = sum(p.times[p.default] * p.launches for p in problems)
    gained = sum(p.gained_us for p in problems)
    return f"gained {gained:.1f} of {total:.1f} us ({gained / total:.1%})" if total else "nothing known yet"
