"""Latencies to figures, and contenders in turns."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

Sampler = Callable[[int], Sequence[float]]  # how many calls -> seconds of each


def summary(seconds: Sequence[float]) -> dict[str, float]:
    """Median, tenth and ninetieth percentile and minimum in ms, and the number of samples."""
    ordered = sorted(seconds)
    last = len(ordered) - 1
    return {
        "median_ms": round(statistics.median(ordered) * 1e3, 5),
        "p10_ms": round(ordered[round(0.1 * last)] * 1e3, 5),
        "p90_ms": round(ordered[round(0.9 * last)] * 1e3, 5),
        "min_ms": round(ordered[0] * 1e3, 5),
        "samples": len(ordered),
    }


def wall(call: Callable[[], object]) -> Sampler:
    """Samples of `call` by the wall clock."""

    def sample(calls: int) -> list[float]:
        seconds = []
        for _ in range(calls):
            start = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)
        return seconds

    return sample


def in_turns(contenders: Mapping[str, Sampler], calls: int, rounds: int = 5, rest: float = 0.0) -> dict[str, dict[str, float]]:
    """Summaries by name. Each round gives every contender calls/rounds calls, so that a clock or a neighbour that
    changes on the way hits all of them; the first round warms up and is thrown away. ``rest``: seconds before each turn, for
    threads of the contender before that go on spinning after its last call; a call that is not counted follows."""
    each = max(1, calls // rounds)
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds + 1):
        for name, sample in contenders.items():
            time.sleep(rest)
            taken = sample(each + 1)[1:] if rest else sample(each)
            if turn:
                seconds[name] += taken
    return {name: summary(taken) for name, taken in seconds.items()}


def _serve(pipe: Connection, make: Callable[..., Callable[[], object]], arguments: tuple[object, ...]) -> None:
    call = make(*arguments)
    pipe.send(call())
    sample = wall(call)
    while (calls := pipe.recv()) is not None:
        pipe.send(sample(calls))


@contextmanager
def own_process(
    make: Callable[..., Callable[[], object]], *arguments: object
) -> Iterator[tuple[Any, Sampler]]:
    """What the callable of ``make(*arguments)`` returns, and samples of it: made and called in a process of its own, so
    that the threads of one contender are no other's. EOFError if that process fails; its traceback is on stderr."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there, make, arguments), daemon=True)
    process.start()
    there.close()

    def sample(calls: int) -> Sequence[float]:
        here.send(calls)
        seconds: Sequence[float] = here.recv()
        return seconds

    try:
        yield here.recv(), sample
        here.send(None)
    finally:
        here.close()
        process.join(timeout=10)
        process.kill()
