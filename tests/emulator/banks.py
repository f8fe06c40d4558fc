"""Bank conflicts of shared memory, counted from the accesses that the first block of an emulated launch makes with ``copy_bytes``, ``load`` and ``store``.

Shared memory has 32 banks of 4 bytes. An instruction of a warp is carried out in phases, a few lanes each; the lanes of a phase that want different words of
one bank wait for each other. Which lanes make a phase: NVIDIA, all 32, or 16, or 8 neighbours for 4, 8 and 16 bytes a lane; AMD the same in waves of 64, but
that reads of 16 bytes go by lanes 0-3 with 20-23, 4-7 with 16-19 and so on (AMD's Composable Kernel documentation, "LDS bank conflicts").
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

BANKS = 32
_READ_16 = ((0, 20), (4, 16), (8, 28), (12, 24))  # first lanes of the two fours of a phase


@dataclass(frozen=True)
class Conflicts:
    """What the accesses of one line of source cost: ``worst``: the most words of one bank that a phase wants; ``phases`` and ``cycles`` in all."""

    worst: int
    phases: int
    cycles: int


def phases(bytes_: int, kind: str, warp: int) -> list[list[int]]:
    """The lanes of a warp that are served together."""
    if warp == 64 and bytes_ == 16 and kind == "r":
        return [[*range(half + a, half + a + 4), *range(half + b, half + b + 4)] for half in (0, 32) for a, b in _READ_16]
    size = min(32, 128 // bytes_)
    return [list(range(first, first + size)) for first in range(0, warp, size)]


def cycles(offsets: dict[int, int], bytes_: int, lanes: Sequence[int]) -> int:
    """How often the fullest bank is asked in one phase: ``offsets`` by lane."""
    words: dict[int, set[int]] = defaultdict(set)
    for lane in lanes:
        if lane in offsets:
            for word in range(offsets[lane] // 4, (offsets[lane] + bytes_ + 3) // 4):
                words[word % BANKS].add(word)
    return max((len(w) for w in words.values()), default=0)


def conflicts(log: Path, warp: int) -> dict[tuple[str, str, int], Conflicts]:
    """By place in the source (file name and line), kind ("r" or "w") and bytes a lane.

    The n-th access of each lane at a place is taken for one instruction: true where the lanes of a warp go the same way.
    """
    counts: dict[tuple[str, ...], int] = defaultdict(int)
    together: dict[tuple[object, ...], dict[int, int]] = defaultdict(dict)
    for line in log.read_text().splitlines():
        thread, site, kind, offset, bytes_ = line.split()
        n = counts[thread, site, kind, bytes_]
        counts[thread, site, kind, bytes_] += 1
        together[site.rpartition("/")[2], kind, int(bytes_), int(thread) // warp, n][int(thread) % warp] = int(offset)
    found: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    for (site, kind, size, *_), offsets in together.items():
        assert isinstance(site, str) and isinstance(kind, str) and isinstance(size, int)
        found[site, kind, size] += filter(None, (cycles(offsets, size, lanes) for lanes in phases(size, kind, warp)))
    return {place: Conflicts(max(each), len(each), sum(each)) for place, each in found.items()}
