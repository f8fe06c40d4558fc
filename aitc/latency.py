"""Choosing among candidates by what a whole run of the model takes, recorded and replayed as it is for callers, but launch after launch:
what is built for tuning has no lanes and no launches that groups share (``aitc/schedule/launch/lanes.py``).

Marks around a launch hide what it does to its neighbours: a kernel that leaves room on the multiprocessors lets the next one begin, and fetch its
weights, before it has ended. So candidates that are about as fast by themselves take turns in the model.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from aitc import runtime

WORTH = 0.0008  # of a run: what saves less is noise
SAMPLE_S = 0.02  # of replays for one figure
TURNS = 6  # that a candidate and what was chosen so far take before one replaces the other
SURE = 2.5  # standard errors that what is saved has to be away from nothing


@dataclass(frozen=True, slots=True)
class Variants:
    """A problem's places in the model: the launches of each, by candidate, the default first. ``likely``: the candidates worth a try."""

    key: str
    places: tuple[tuple[int, ...], ...]
    likely: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Settled:
    """The candidate of each problem that was tried in the model, and what it saves of a run in all its places together. ``runs_us``: a run with the
    defaults and one with these, the same figure if these are the defaults; None if interrupted before both were measured. In us."""

    candidates: Mapping[str, int]
    saved_us: Mapping[str, float]
    runs_us: tuple[float, float] | None
    interrupted: bool = False


class _Runs:
    """The latency of the model with one candidate in all places of each problem."""

    def __init__(self, instance: runtime.Model, inputs: Sequence[np.ndarray], variants: Sequence[Variants]) -> None:
        self.instance, self.inputs, self.variants = instance, inputs, variants
        self.runs = 3
        self.runs = max(3, min(200, int(SAMPLE_S / max(self.seconds({}), 1e-9))))

    def seconds(self, picks: Mapping[str, int], times: int = 1) -> float:
        chosen = [True] * len(self.instance.launches)
        for v in self.variants:
            for place in v.places:
                for candidate, launch in enumerate(place):
                    chosen[launch] = candidate == picks.get(v.key, 0)
        return statistics.median(self.instance.bench(self.runs * times, 1, self.inputs, chosen))

    def compare(self, picks: Mapping[str, int], other: Mapping[str, int]) -> float:
        """What ``other`` saves of a run, as a part of it; 0 where that is not more than noise: the two take turns, since clocks wander."""
        saved: list[float] = []
        before = self.seconds(picks)
        for turn in range(1, TURNS + 1):
            now, after = self.seconds(other), self.seconds(picks)
            saved.append(1 - 2 * now / (before + after))
            before = after
            mean = statistics.fmean(saved)
            error = statistics.stdev(saved) / turn**0.5 if turn > 1 else 0.0
            if mean < WORTH or (turn > 2 and mean < error):
                return 0.0
        return mean if mean > SURE * error else 0.0


def settle(
    instance: runtime.Model, inputs: Sequence[np.ndarray], variants: Sequence[Variants], seconds: float, say: Callable[[int, str], None]
) -> Settled:
    """Tries each problem's likely candidates where the others are as chosen so far, those problems first that come first, and twice, since they depend on
    each other; ends after ``seconds``, or when interrupted, at whatever point."""
    begun = time.monotonic()
    picks: dict[str, int] = {}
    saved: dict[str, float] = {}
    try:
        runs = _Runs(instance, inputs, variants)
        now = before = runs.seconds(picks, 3) * 1e6
        for v, candidate in _turns(variants, picks):
            spent = time.monotonic() - begun
            if spent > seconds:
                break
            part = runs.compare(picks, {**picks, v.key: candidate})
            if part > 0:  # of a run as chosen so far, not of one with the defaults
                picks[v.key] = candidate
                saved[v.key] = saved.get(v.key, 0.0) + part * now
                now -= part * now
                if candidate == 0:
                    del saved[v.key]
            say(int(spent), f"a run {before:.1f} us, saved {sum(saved.values()):.1f}")
        return Settled(picks, saved, (before, runs.seconds(picks, 3) * 1e6 if any(picks.values()) else before))
    except KeyboardInterrupt:
        return Settled(picks, saved, None, interrupted=True)


def _turns(variants: Sequence[Variants], picks: dict[str, int]) -> Iterator[tuple[Variants, int]]:
    """What to try next, twice over all of them, or once if nothing changed. A problem that has been through has a pick, its default at the least."""
    for _ in range(2):
        old = dict(picks)
        for v in variants:
            yield from ((v, candidate) for candidate in v.likely if candidate != picks.get(v.key, 0))
            picks.setdefault(v.key, 0)
        if all(old.get(key, 0) == candidate for key, candidate in picks.items()):
            break
