"""Memory: lifetimes, in-place reuse, and the places of buffers in the arena."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from aitc.ir.dim import Dim, hint, max_
from aitc.ir.dtype import DType
from aitc.schedule.plan.plan import ALIGNMENT, Buffer, Space

MOST_ALIVE = 1 << 22  # buffers alive, summed over the launches, up to which the largest is placed first: some seconds of work


@dataclass(slots=True)
class Lifetime:
    """A piece of arena memory that is needed from launch ``first`` to launch ``last``."""

    name: str
    dtype: DType
    bytes: Dim
    first: int
    last: int
    holds: list[str] = field(default_factory=list)


def _aligned(n: int) -> int:
    return -(-n // ALIGNMENT) * ALIGNMENT


def place(lifetimes: Sequence[Lifetime]) -> tuple[tuple[Buffer, ...], dict[str, str], int]:
    """Buffers for ``lifetimes``, which buffer each lifetime got (by name), and the size of the arena in bytes (-1 when it is known only at run time).

    Static sizes: each, the largest first, goes to the smallest gap that holds it among those alive at the same time (best fit); beyond
    MOST_ALIVE they come in the order of the launches.
    Symbolic sizes: each takes the free buffer whose size at the dims' hints is nearest (the buffer grows to the larger of both), or a new
    one; buffers follow each other, which is right whatever the dims are.
    """
    if all(isinstance(b.bytes, int) for b in lifetimes):
        buffers, arena = _static(lifetimes)
        return buffers, {b.name: b.name for b in lifetimes}, arena
    slots: list[Lifetime] = []
    hints: list[int] = []  # of each slot's bytes
    owner: dict[str, str] = {}
    free = _Free()
    busy: list[tuple[int, int]] = []  # (last, slot), a heap
    for b in sorted(lifetimes, key=lambda b: (b.first, -hint(b.bytes), b.name)):
        wanted = hint(b.bytes)
        while busy and busy[0][0] < b.first:
            n = heappop(busy)[1]
            free.add(hints[n], n)
        at = free.nearest(wanted)
        if at is not None and not (hints[at] > 8 * wanted and len(slots) < 4):
            free.remove(hints[at], at)
            slot = slots[at]
            slot.bytes, slot.last = max_(slot.bytes, b.bytes), b.last
            slot.holds += b.holds
            hints[at] = hint(slot.bytes)
        else:
            at, slot = len(slots), Lifetime(b.name, b.dtype, b.bytes, b.first, b.last, list(b.holds))
            slots.append(slot)
            hints.append(wanted)
        heappush(busy, (b.last, at))
        owner[b.name] = slot.name
    buffers = tuple(
        Buffer(
            s.name,
            Space.ARENA,
            s.dtype,
            s.bytes,
            hint(s.bytes),
            -1,
            s.first,
            s.last,
            tuple(s.holds),
            (slots[n - 1].name,) if n else (),
        )
        for n, s in enumerate(slots)
    )
    return buffers, owner, -1


class _Free:
    """Slots that nobody uses, found by the size that is nearest."""

    def __init__(self) -> None:
        self.sizes: list[int] = []  # sorted
        self.slots: dict[int, list[int]] = {}  # size -> slots, sorted

    def add(self, size: int, slot: int) -> None:
        if size not in self.slots:
            insort(self.sizes, size)
        insort(self.slots.setdefault(size, []), slot)

    def remove(self, size: int, slot: int) -> None:
        self.slots[size].remove(slot)
        if not self.slots[size]:
            del self.slots[size]
            self.sizes.remove(size)

    def nearest(self, size: int) -> int | None:
        """The slot whose size is nearest to ``size``, the oldest of those that are as near; None if there is none."""
        at = bisect_left(self.sizes, size)
        near = self.sizes[max(at - 1, 0) : at + 1]
        return min(((abs(s - size), self.slots[s][0]) for s in near), default=(0, None))[1]


def _static(lifetimes: Sequence[Lifetime]) -> tuple[tuple[Buffer, ...], int]:
    """Places of buffers of static sizes, and the size of the arena."""
    alive = sum(b.last - b.first + 1 for b in lifetimes)
    order = sorted(lifetimes, key=lambda b: (-hint(b.bytes), b.first, b.name))
    return _best_fit(order) if alive <= MOST_ALIVE else _first_come(lifetimes)


def _best_fit(by_size: Sequence[Lifetime]) -> tuple[tuple[Buffer, ...], int]:
    """The largest first, each in the smallest gap that holds it among those that are alive with it."""
    placed: list[Buffer] = []
    total = 0
    alive: dict[int, list[tuple[int, int]]] = {}  # launch -> (begin, end) of what is alive there
    begins: dict[int, list[tuple[int, int]]] = {}  # launch -> (begin, end) of what is alive from there on
    for b in by_size:
        taken = list(alive.get(b.first, ()))
        for t in range(b.first + 1, b.last + 1):
            taken += begins.get(t, ())
        best: tuple[int, int] | None = None
        end = 0
        room = _aligned(_static_bytes(b))
        for start, stop in sorted(taken):
            gap = start - end
            if gap >= room and (best is None or gap < best[0]):
                best = (gap, end)
            end = max(end, stop)
        offset = best[1] if best is not None else end
        placed.append(_buffer(b, offset))
        begins.setdefault(b.first, []).append((offset, offset + room))
        for t in range(b.first, b.last + 1):
            alive.setdefault(t, []).append((offset, offset + room))
        total = max(total, offset + room)
    return tuple(placed), total


def _first_come(lifetimes: Sequence[Lifetime]) -> tuple[tuple[Buffer, ...], int]:
    """In the order of the launches, each in the smallest gap that holds it. The work grows with the number of buffers, not with how many
    are alive at once."""
    placed: list[Buffer] = []
    total = 0
    gaps: dict[int, int] = {}  # begin -> end
    ends: dict[int, int] = {}  # end -> begin
    sizes: list[tuple[int, int]] = []  # (size, begin), sorted
    busy: list[tuple[int, int, int]] = []  # (last, begin, end), a heap

    def close(begin: int) -> None:
        end = gaps.pop(begin)
        del ends[end]
        del sizes[bisect_left(sizes, (end - begin, begin))]

    def open_(begin: int, end: int) -> None:
        if end in gaps:  # the gap behind
            after = gaps[end]
            close(end)
            end = after
        if begin in ends:  # the gap before
            begin = ends[begin]
            close(begin)
        if begin < end:
            gaps[begin], ends[end] = end, begin
            insort(sizes, (end - begin, begin))

    for b in sorted(lifetimes, key=lambda b: (b.first, -hint(b.bytes), b.name)):
        while busy and busy[0][0] < b.first:
            _, begin, end = heappop(busy)
            open_(begin, end)
        room = _aligned(_static_bytes(b))
        at = bisect_left(sizes, (room, -1))
        if not room:
            offset = 0
        elif at < len(sizes):
            offset = sizes[at][1]
            end = gaps[offset]
            close(offset)
            open_(offset + room, end)
        else:
            offset = ends.get(total, total)  # a gap at the end grows
            if offset < total:
                close(offset)
            total = offset + room
        if room:
            heappush(busy, (b.last, offset, offset + room))
        placed.append(_buffer(b, offset))
    return tuple(placed), total


def _static_bytes(b: Lifetime) -> int:
    assert isinstance(b.bytes, int)
    return b.bytes


def _buffer(b: Lifetime, offset: int) -> Buffer:
    size = _static_bytes(b)
    return Buffer(b.name, Space.ARENA, b.dtype, size, size, offset, b.first, b.last, tuple(b.holds))
