"""Memory: lifetimes, in-place reuse, and the places of buffers in the arena."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from aitc.ir.dim import Dim, hint, max_
from aitc.ir.dtype import DType
from aitc.schedule.plan import ALIGNMENT, Buffer, Space


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

    Static sizes: each, the largest first, goes to the smallest gap that holds it among those alive at the same time (best fit).
    Symbolic sizes: each takes the free buffer whose size at the dims' hints is nearest (the buffer grows to the larger of both), or a new
    one; buffers follow each other, which is right whatever the dims are.
    """
    if all(isinstance(b.bytes, int) for b in lifetimes):
        buffers, arena = _best_fit(sorted(lifetimes, key=lambda b: (-hint(b.bytes), b.first, b.name)))
        return buffers, {b.name: b.name for b in lifetimes}, arena
    slots: list[Lifetime] = []
    owner: dict[str, str] = {}
    for b in sorted(lifetimes, key=lambda b: (b.first, -hint(b.bytes), b.name)):
        free = [s for s in slots if s.last < b.first]
        slot = min(free, key=lambda s: abs(hint(s.bytes) - hint(b.bytes)), default=None)
        if slot is not None and not (hint(slot.bytes) > 8 * hint(b.bytes) and len(slots) < 4):
            slot.bytes, slot.last = max_(slot.bytes, b.bytes), b.last
            slot.holds += b.holds
        else:
            slot = Lifetime(b.name, b.dtype, b.bytes, b.first, b.last, list(b.holds))
            slots.append(slot)
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


def _best_fit(by_size: Sequence[Lifetime]) -> tuple[tuple[Buffer, ...], int]:
    placed: list[Buffer] = []
    total = 0
    for b in by_size:
        size = b.bytes
        assert isinstance(size, int)
        busy = sorted(
            (p.offset, p.offset + _aligned(p.upper_bytes)) for p in placed if p.first <= b.last and b.first <= p.last
        )
        best: tuple[int, int] | None = None
        end = 0
        for start, stop in busy:
            gap = start - end
            if gap >= _aligned(size) and (best is None or gap < best[0]):
                best = (gap, end)
            end = max(end, stop)
        offset = best[1] if best is not None else end
        placed.append(Buffer(b.name, Space.ARENA, b.dtype, size, size, offset, b.first, b.last, tuple(b.holds)))
        total = max(total, offset + _aligned(size))
    return tuple(placed), total
