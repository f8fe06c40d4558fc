"""Places in the arena: whoever is alive at the same time never shares bytes, however many there are."""

from __future__ import annotations

import random

import pytest

from aitc.ir import dtype as dt
from aitc.ir.dim import hint, symbol
from aitc.schedule.plan import memory
from aitc.schedule.plan.memory import Lifetime, place


def lifetimes(count: int, seed: int, longest: int) -> list[Lifetime]:
    rng = random.Random(seed)
    found = []
    for n in range(count):
        first = rng.randrange(count)
        found.append(Lifetime(f"b{n}", dt.F32, rng.choice([0, 4, 100, 256, 4096, 5000, 65536]), first, min(count - 1, first + rng.randrange(longest))))
    return found


def most_alive(found: list[Lifetime]) -> int:
    return max(sum(-(-int(b.bytes) // 256) * 256 for b in found if b.first <= t <= b.last) for t in range(len(found)))


@pytest.mark.parametrize("limit", [0, 1 << 22])
@pytest.mark.parametrize("seed", range(8))
def test_static_buffers_that_live_together_are_apart(seed: int, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MOST_ALIVE", limit)
    found = lifetimes(120, seed, 3 if seed % 2 else 60)
    buffers, owner, arena = place(found)
    assert set(owner) == {b.name for b in found}
    for i, a in enumerate(buffers):
        assert a.offset % 256 == 0 and a.offset >= 0 and a.offset + a.upper_bytes <= arena
        for b in buffers[:i]:
            if a.first <= b.last and b.first <= a.last and a.upper_bytes and b.upper_bytes:
                assert a.offset + a.upper_bytes <= b.offset or b.offset + b.upper_bytes <= a.offset, (a, b)
    assert most_alive(found) <= arena <= 1.6 * most_alive(found)


def test_a_buffer_of_symbolic_size_takes_the_free_one_that_is_nearest() -> None:
    n = symbol("n", 1, 100, hint=10)
    sizes = [n * 4, n * 64, n * 60, n * 5]
    found = [Lifetime(f"b{i}", dt.F32, s, i // 2, i // 2) for i, s in enumerate(sizes)]
    buffers, owner, arena = place(found)
    assert arena == -1 and [hint(b.bytes) for b in buffers] == [640, 50]
    assert owner["b2"] == owner["b1"] and owner["b3"] == owner["b0"]
