"""What has to be true of every Plan, always checked: a mistake here would be wrong results, silently."""

from __future__ import annotations

from bisect import bisect_left
from heapq import heappop, heappush
from itertools import combinations, pairwise, product

from aitc.ir.dim import bounds
from aitc.schedule.plan.plan import Buffer, DimArg, Plan, PointerArg, Space, TensorMapArg
from aitc.targets.target import find_target


class InvalidPlan(Exception):
    """A defect of the scheduler; the message lists what is wrong."""


def check_plan(plan: Plan) -> Plan:
    """Returns ``plan``. Raises InvalidPlan if buffers that live at the same time overlap, something names what is not
    there, or a launch wants more shared memory than a target has."""
    problems: list[str] = []
    buffers = {b.name: b for b in plan.buffers}
    kernels = {k.entry for k in plan.kernels}
    if len(buffers) != len(plan.buffers):
        problems.append("two buffers have one name")
    problems += [
        f"{p.name} is in buffer {p.buffer}, which is not there"
        for p in (*plan.inputs, *plan.outputs)
        if p.buffer not in buffers
    ]
    room = min((find_target(t).smem_bytes for t in plan.targets if plan.api != "cpu"), default=0)
    for i, launch in enumerate(plan.launches):
        if launch.smem_bytes > room > 0:
            problems.append(f"{launch.name} wants {launch.smem_bytes} bytes of shared memory, a block has {room}")
        if launch.entry not in kernels:
            problems.append(f"{launch.name} launches {launch.entry}, which is not there")
        for arg in launch.args:
            if not isinstance(arg, (PointerArg, TensorMapArg)):
                continue
            b = buffers.get(arg.buffer)
            if b is None:
                problems.append(f"{launch.name} uses buffer {arg.buffer}, which is not there")
            elif b.space is Space.ARENA and not b.first <= i <= b.last:
                problems.append(
                    f"{launch.name} (launch {i}) uses buffer {b.name}, which lives from {b.first} to {b.last}"
                )
            elif not arg.const and b.space in (Space.INPUT, Space.WEIGHT):
                problems.append(f"{launch.name} writes buffer {b.name}, which is read-only")
    problems += _overlaps([b for b in plan.buffers if b.space is Space.ARENA and b.offset >= 0], plan.arena_bytes)
    problems += [
        f"weights {a.name} and {b.name} overlap" for a, b in _pairs(plan) if a.offset + a.upper_bytes > b.offset
    ]
    problems += _forks(plan, buffers)
    if problems:
        raise InvalidPlan("the plan does not hold together:\n  " + "\n  ".join(problems[:20]))
    return plan


def _forks(plan: Plan, buffers: dict[str, Buffer]) -> list[str]:
    """What is wrong with forks: launches that may run at the same time touch the same memory, and not all of them only read it."""
    problems = []
    end = 0
    for f in plan.forks:
        if f.first < end or len(f.lanes) < 2 or min(f.lanes) < 1 or f.first + sum(f.lanes) > len(plan.launches) or plan.steps or plan.api == "cpu":
            problems.append(f"a fork of {f.lanes} launches from {f.first} on cannot be")
            continue
        lanes = []
        end = f.first
        for count in f.lanes:
            lanes.append([(launch, arg) for launch in plan.launches[end : end + count] for arg in launch.args])
            end += count
        for one, other in combinations(lanes, 2):
            for (a, x), (b, y) in product(one, other):
                if isinstance(x, DimArg) or isinstance(y, DimArg) or (x.const and y.const) or (x.part and y.part and x.buffer == y.buffer):
                    continue
                if x.buffer == y.buffer or _share(buffers.get(x.buffer), buffers.get(y.buffer)):
                    problems.append(f"{a.name} and {b.name} may run at the same time, and {x.buffer} of the one is {y.buffer} of the other")
    return problems


def _share(a: Buffer | None, b: Buffer | None) -> bool:
    """Whether two buffers have memory in common. Those that are placed at run time lie one behind the other."""
    if a is None or b is None or a.space is not b.space or a.space not in (Space.ARENA, Space.STATE) or min(a.offset, b.offset) < 0:
        return False
    return a.offset < b.offset + b.upper_bytes and b.offset < a.offset + a.upper_bytes


def _pairs(plan: Plan) -> list[tuple[Buffer, Buffer]]:
    weights = sorted((b for b in plan.buffers if b.space is Space.WEIGHT), key=lambda b: b.offset)
    return list(pairwise(weights))


def _overlaps(arena: list[Buffer], arena_bytes: int) -> list[str]:
    """Overlapping pairs, by a sweep over launches: of the buffers that are live, sorted by offset, a new one can only meet its
    neighbours. What overlaps is not put among them, so that one fault is one line."""
    problems = []
    live: list[tuple[int, int, str]] = []  # (offset, end, name)
    ends: list[tuple[int, tuple[int, int, str]]] = []  # (last launch, entry of live), a heap
    for b in sorted(arena, key=lambda b: b.first):
        while ends and ends[0][0] < b.first:
            del live[bisect_left(live, heappop(ends)[1])]
        entry = (b.offset, b.offset + b.upper_bytes, b.name)
        at = bisect_left(live, entry)
        met = [o for o in live[max(at - 1, 0) : at + 1] if entry[0] < o[1] and o[0] < entry[1]]
        problems += [f"{b.name} and {o[2]} live at the same time and overlap" for o in met]
        if not met and b.upper_bytes:
            live.insert(at, entry)
            heappush(ends, (b.last, entry))
        if 0 <= arena_bytes < b.offset + b.upper_bytes:
            problems.append(f"{b.name} ends behind the arena")
        if (isinstance(b.bytes, int) and b.bytes > b.upper_bytes) or bounds(b.bytes)[1] < 0:
            problems.append(f"{b.name} has room for {b.upper_bytes} bytes and holds {b.bytes}")
    return problems
