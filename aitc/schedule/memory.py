"""Memory: lifetimes, in-place reuse, and the places of buffers in the arena."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from aitc.ir.dim import Dim, hint
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


def place(lifetimes: Sequence[Lifetime]) -> tuple[tuple[Buffer, ...], int]:
    """Buffers for ``lifetimes`` and the size of the arena in bytes (-1 when it is known only at run time).

    Static sizes: each buffer, the largest first, goes to the smallest gap that holds it among those alive at the same time (best fit).
    Symbolic sizes: each buffer, the largest at the dims' hints first, lies above all that were placed before and live at the same time, which stays
    right whatever the dims are.
    """
    by_size = sorted(lifetimes, key=lambda b: (-hint(b.bytes), b.first, b.name))
    if all(isinstance(b.bytes, int) for b in lifetimes):
        return _best_fit(by_size)
    placed: list[Buffer] = []
    for b in by_size:
        above = tuple(p.name for p in placed if p.first <= b.last and b.first <= p.last)
        placed.append(Buffer(b.name, Space.ARENA, b.dtype, b.bytes, hint(b.bytes), -1, b.first, b.last, tuple(b.holds), above))
    return tuple(placed), -1


def _best_fit(by_size: Sequence[Lifetime]) -> tuple[tuple[Buffer, ...], int]:
    placed: list[Buffer] = []
    total = 0
    for b in by_size:
        size = b.bytes
        assert isinstance(size, int)
        busy = sorted((p.offset, p.offset + _aligned(p.upper_bytes)) for p in placed if p.first <= b.last and b.first <= p.last)
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


