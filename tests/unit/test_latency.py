"""Choosing among candidates by whole runs: on an instance whose latencies are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from aitc.latency import Settled, Variants, settle


class Known:
    """Runs that take as long as ``seconds`` says of the launches that are chosen. Launch 0 is in all of them."""

    launches = ("first", "a0", "a1", "a2", "b0", "b1", "a0", "a1", "a2")

    def __init__(self, seconds: Callable[[tuple[str, ...]], float], stop_after: int = 10**9) -> None:
        self.seconds, self.left = seconds, stop_after

    def bench(self, iters: int, warmup: int, inputs: Sequence[np.ndarray], chosen: Sequence[bool]) -> list[float]:
        self.left -= 1
        if self.left == -1:
            raise KeyboardInterrupt
        names = tuple(name for name, flag in zip(self.launches, chosen, strict=True) if flag)
        assert names[0] == "first" and [n[0] for n in names[1:]] == ["a", "b", "a"] and names[1] == names[3]  # one candidate in each place
        return [self.seconds(names)] * iters


VARIANTS = [Variants("a", ((1, 2, 3), (6, 7, 8)), (2, 1, 0)), Variants("b", ((4, 5),), (1, 0))]


def choose(known: Known, seconds: float = 60.0) -> Settled:
    return settle(known, [], VARIANTS, seconds, lambda spent, what: None)  # type: ignore[arg-type]


def test_the_fastest_together_not_each_by_itself() -> None:
    """a1 saves 5 %; b1 costs 2 % beside a0 and a2, and saves 3 % beside a1."""

    def seconds(names: tuple[str, ...]) -> float:
        return 1e-3 * (0.95 if "a1" in names else 1.0) * (1.0 if "b0" in names else 0.97 if "a1" in names else 1.02)

    found = choose(Known(seconds))
    assert found.candidates == {"a": 1, "b": 1} and not found.interrupted
    assert found.runs_us == pytest.approx((1000, 950 * 0.97))
    assert found.saved_us["a"] == pytest.approx(50) and found.saved_us["b"] == pytest.approx(950 * 0.03)  # what two runs differ by, together


def test_what_goes_back_to_the_default_saves_nothing() -> None:
    """a1 is faster beside b0 alone, and b1 beside a1 so much that it stays; then a0 is the fastest."""
    us = {("a0", "b0"): 1000, ("a1", "b0"): 900, ("a1", "b1"): 800, ("a0", "b1"): 700}
    found = choose(Known(lambda names: 1e-6 * us.get(names[1:3], 2000)))
    assert found.candidates == {"a": 0, "b": 1} and set(found.saved_us) == {"b"} and found.runs_us == pytest.approx((1000, 700))


def test_what_is_hardly_faster_does_not_replace_the_default() -> None:
    runs = iter(range(10**6))
    found = choose(Known(lambda names: (1e-3 + 1e-9 * next(runs)) * (0.9999 if "a2" in names else 1.0)))
    assert found.candidates == {"a": 0, "b": 0} and found.saved_us == {}
    assert found.runs_us is not None and found.runs_us[0] == found.runs_us[1]  # two figures of the same would differ by noise alone


def test_stopped_keeps_what_is_settled() -> None:
    found = choose(Known(lambda names: 1e-3 * (0.9 if "a2" in names else 1.0), stop_after=18))
    assert found.interrupted and found.candidates == {"a": 2} and found.runs_us is None


def test_stopped_anywhere() -> None:
    """Before the first run, between two, in the last ones: what is known is returned."""
    found = [choose(Known(lambda names: 1e-3 * (0.9 if "a2" in names else 1.0), stop_after)) for stop_after in range(70)]
    assert found[0].interrupted and not found[-1].interrupted
    assert all(f.interrupted == (f.runs_us is None) and f.candidates.get("a") in (None, 2) for f in found)


def test_out_of_time() -> None:
    assert choose(Known(lambda names: 1e-3), seconds=-1).candidates == {}
