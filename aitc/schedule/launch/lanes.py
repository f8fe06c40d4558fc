"""Parallel branches: chains of launches that do not need each other, and leave the device partly idle, run side by side.

A fork is a range of launches whose dependences fall apart into several chains. Each chain goes into a lane, a stream of its own while
the model is recorded, and all lanes join before the launch behind the range. The launches of a lane stand together in the plan's order,
which stays a legal order for one stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aitc.ir.dim import hint, product
from aitc.ir.op import Kind
from aitc.kernels.core.group import Group
from aitc.schedule.core.storage import Storages
from aitc.schedule.launch.bundle import bundle
from aitc.schedule.launch.steps import Scheduled
from aitc.schedule.plan.plan import Fork
from aitc.targets.target import Target

MOST = 4
"""Lanes of a fork."""
WINDOW = 48
"""Launches of a fork, all lanes together."""
GAIN_US = 1.0
GAIN_SHARE = 0.15
"""What a fork must be predicted to save: so many microseconds, and that part of its launches one after another."""
GAIN_FACTOR = 0.95
"""Against launches that are shared: the part of their time that a fork may take."""
PART_US = 1.2
"""By how much launches that several products share take longer than predicted, for each but the first: 1.5 us in Inception, 0.5 in SqueezeNet
(bench/results/lanes_h200.md)."""


@dataclass(frozen=True, slots=True)
class Edges:
    """What forks cost, in microseconds. ``lost``: so much later than behind the launch before it in its stream begins what waits for
    another: the first launch of a side lane, and the one behind the join. ``lane``: of each side lane, until all have joined."""

    lost: float
    lane: float


def edges(target: Target) -> Edges:
    """What edges between streams of a graph cost on ``target``.

    On an H200 (bench/results/lanes_h200.md) a fork and its join take 0.5 us with two lanes and 1.3 us with four if kernels do
    nothing. What waits for another stream does not overlap with what is before it (programmatic dependent launch): Inception's blocks of
    convolutions take 2.2 us longer than that says with it, and 1 us without it. Of AMD's devices nothing is measured: a
    dependence there is a packet in another queue, and counts as dear.
    """
    if target.api == "hip":
        return Edges(4.0, 2.0)
    return Edges(1.8 if "dependent_launch" in target.features else 0.7, 0.4)


@dataclass(frozen=True, slots=True)
class Work:
    """A launch: its predicted time, and the part of the device that it occupies meanwhile."""

    us: float
    share: float


@dataclass(slots=True)
class _Chain:
    """Launches of a range that need each other, directly or not."""

    launches: list[int]
    us: float


class Places:
    """Where the launches of forks are."""

    def __init__(self, forks: Sequence[Fork]):
        self._at: dict[int, tuple[int, int, int]] = {}  # launch -> its lane, the first and the last launch of the fork
        for f in forks:
            end = f.first + sum(f.lanes)
            lanes = [lane for lane, count in enumerate(f.lanes) for _ in range(count)]
            self._at.update({f.first + i: (lane, f.first, end - 1) for i, lane in enumerate(lanes)})

    def __contains__(self, launch: int) -> bool:
        return launch in self._at

    def span(self, first: int, last: int) -> tuple[int, int]:
        """From ``first`` to ``last``, and what may run beside them."""
        return self._at[first][1] if first in self._at else first, self._at[last][2] if last in self._at else last

    def beside(self, a: int, b: int) -> bool:
        """Whether launches ``a`` and ``b`` may run at the same time."""
        one, other = self._at.get(a), self._at.get(b)
        return one is not None and other is not None and one[1:] == other[1:] and one[0] != other[0]


def arrange(
    scheduled: Sequence[Scheduled], storage: Storages, target: Target, most: int = MOST
) -> tuple[list[Scheduled], tuple[Fork, ...]]:
    """``scheduled`` with what can share a launch in one, and the forks. Branches that are faster side by side than with shared launches stay
    apart: a shared launch makes each branch wait for the slowest of the others."""
    plain, forks = fork(scheduled, storage, target, most)
    order: list[Scheduled] = []
    found: list[Fork] = []

    def add(part: tuple[list[Scheduled], tuple[Fork, ...]]) -> None:
        found.extend(Fork(f.first + len(order), f.lanes) for f in part[1])
        order.extend(part[0])

    done = 0
    for f in forks:
        branches = plain[f.first : f.first + sum(f.lanes)]
        if _lanes_us([work(s, target) for s in branches], f.lanes, edges(target)) < GAIN_FACTOR * _shared_us(bundle(branches, storage, target)):
            add(fork(bundle(plain[done : f.first], storage, target), storage, target, most))
            add((branches, (Fork(0, f.lanes),)))
            done = f.first + len(branches)
    add(fork(bundle(plain[done:] if done else scheduled, storage, target), storage, target, most))
    return order, tuple(found)


def _shared_us(bundled: Sequence[Scheduled]) -> float:
    """What launches take one after another, some of them shared."""
    shared = sum(len(s.group.parts) - 1 for s in bundled if s.group.parts and _is_product(s.group.parts[0]))
    return sum(s.choice.score_us for s in bundled) + PART_US * shared


def _is_product(group: Group) -> bool:
    return group.anchor is not None and group.anchor.op.kind is Kind.CONTRACT


def _lanes_us(works: Sequence[Work], lanes: Sequence[int], cost: Edges) -> float:
    """What a fork takes whose launches follow each other lane by lane."""
    times, at = [], 0
    for count in lanes:
        times.append(sum(w.us for w in works[at : at + count]))
        at += count
    area = sum(w.us * w.share for w in works)
    return max(area, times[0], *(us + cost.lost for us in times[1:])) + cost.lost + cost.lane * (len(lanes) - 1)


def fork(scheduled: Sequence[Scheduled], storage: Storages, target: Target, most: int = MOST) -> tuple[list[Scheduled], tuple[Fork, ...]]:
    """``scheduled``, with the launches of each fork lane by lane, and the forks. Where the host takes part nothing is forked."""
    if not target.gpu or most < 2 or any(s.host is not None for s in scheduled):
        return list(scheduled), ()
    cost = edges(target)
    order = list(scheduled)
    forks = []
    for first, lanes in choose(conflicts(order, storage), [work(s, target) for s in order], cost, most):
        order[first : first + sum(map(len, lanes))] = [scheduled[n] for lane in lanes for n in lane]
        forks.append(Fork(first, tuple(map(len, lanes))))
    return order, tuple(forks)


def work(s: Scheduled, target: Target) -> Work:
    """How long a launch takes, and the larger of the parts that it has of the multiprocessors and of the memory's bandwidth."""
    us = max(s.choice.score_us, 1e-3)
    blocks = hint(product(s.draft.grid))
    roots = {id(p.root): p.root for p in s.draft.parameters.pointers.values()}
    moved = sum(hint(product(r.shape)) * r.type.dtype.bytes for r in roots.values())
    return Work(us, min(1.0, max(blocks / max(target.units, 1), moved / target.gbps * 1e-3 / us)))


def conflicts(order: Sequence[Scheduled], storage: Storages) -> list[set[int]]:
    """For each launch those before it that it cannot run beside: one writes what the other reads or writes. Those that write parts of
    what a Concat joins can."""
    found: list[set[int]] = []
    readers: dict[int, set[int]] = {}
    writers: dict[int, set[int]] = {}
    for n, s in enumerate(order):
        pointers = s.draft.parameters.pointers.values()
        reads = {id(p.root) for p in pointers if p.const and p.root.const is None}
        writes = {id(p.root) for p in pointers if not p.const}
        before: set[int] = set()
        for r in reads:
            before |= writers.get(r, set())
        for r in writes:
            before |= readers.get(r, set())
            if not storage.whole(r):
                before |= writers.get(r, set())
        for r in reads:
            readers.setdefault(r, set()).add(n)
        for r in writes:
            writers.setdefault(r, set()).add(n)
        found.append(before)
    return found


def choose(needs: Sequence[set[int]], works: Sequence[Work], cost: Edges, most: int = MOST) -> list[tuple[int, list[list[int]]]]:
    """The forks that make the whole shortest: the first launch of each, and its lanes, the longest first."""
    count = len(works)
    best: list[tuple[float, int, list[list[int]]]] = [(0.0, 0, [])]  # of the first n launches: what is saved, where the last fork begins, its lanes
    ending: list[list[tuple[float, int, list[list[int]]]]] = [[] for _ in range(count + 1)]
    for first in range(count):
        for saved, lanes in _forks(needs, works, cost, first, most):
            ending[first + sum(map(len, lanes))].append((saved, first, lanes))
    for n in range(1, count + 1):
        options: list[tuple[float, int, list[list[int]]]] = [(best[n - 1][0], n - 1, [])]
        options += [(best[first][0] + saved, first, lanes) for saved, first, lanes in ending[n]]
        best.append(max(options, key=lambda o: (round(o[0], 6), o[1])))
    found: list[tuple[int, list[list[int]]]] = []
    n = count
    while n:
        _, first, lanes = best[n]
        if lanes:
            found.insert(0, (first, lanes))
        n = first
    return found


def _forks(
    needs: Sequence[set[int]], works: Sequence[Work], cost: Edges, first: int, most: int
) -> list[tuple[float, list[list[int]]]]:
    """What forks that begin with launch ``first`` save, and their lanes."""
    found: list[tuple[float, list[list[int]]]] = []
    chains: list[_Chain] = []
    serial = 0.0
    for n in range(first, min(first + WINDOW, len(works))):
        joined = [c for c in chains if not needs[n].isdisjoint(c.launches)]
        chains = [c for c in chains if c not in joined]
        chains.append(_Chain(sorted([n, *(m for c in joined for m in c.launches)]), works[n].us + sum(c.us for c in joined)))
        serial += works[n].us
        if len(chains) < 2:
            continue
        lanes = _share_out(chains, most)
        together = _lanes_us([works[m] for lane in lanes for m in lane], [len(lane) for lane in lanes], cost)
        if serial - together >= max(GAIN_US, GAIN_SHARE * serial):
            found.append((serial - together, lanes))
    return found


def _share_out(chains: Sequence[_Chain], most: int) -> list[list[int]]:
    """``chains`` in at most ``most`` lanes, each next longest to the lane that is the shortest so far."""
    lanes: list[list[int]] = []
    us: list[float] = []
    for c in sorted(chains, key=lambda c: (-c.us, c.launches[0])):
        if len(lanes) < most:
            lanes.append(list(c.launches))
            us.append(c.us)
        else:
            at = us.index(min(us))
            lanes[at] += c.launches
            us[at] += c.us
    ordered = sorted(range(len(lanes)), key=lambda i: (-us[i], lanes[i][0]))
    return [sorted(lanes[i]) for i in ordered]
