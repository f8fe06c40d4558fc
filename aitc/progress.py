"""Who wants to know how far a compile is, and the record of its stages: times, dumps, where to stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from aitc.errors import AitcError, Diagnostic, Exit

T = TypeVar("T")


class Progress(Protocol):
    """What a display has to have."""

    def begin(self, stage: str) -> None: ...
    def step(self, done: int, total: int, what: str = "") -> None: ...
    def end(self, stage: str, elapsed: float, result: str) -> None: ...
    def note(self, text: str) -> None: ...


class Silent:
    """Progress that nobody looks at."""

    def begin(self, stage: str) -> None: ...
    def step(self, done: int, total: int, what: str = "") -> None: ...
    def end(self, stage: str, elapsed: float, result: str) -> None: ...
    def note(self, text: str) -> None: ...


class Stopped(Exception):
    """The stage after which to stop is done."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a stage says of its result: one ``line``; ``texts`` by suffix ("txt") or path below the stage's own folder
    ("/a.cpp"), made only if somebody dumps them; ``counts`` for the plan's statistics.
    """

    line: str
    texts: Callable[[], Mapping[str, str]] = dict
    counts: tuple[tuple[str, int], ...] = ()


class Stages:
    """Runs the stages: ``seconds`` by stage; with ``dump`` each stage's texts go to DIR/<number>-<stage>.<suffix>."""

    def __init__(self, names: tuple[str, ...], stop_after: str, dump: Path | None, progress: Progress):
        self.names = names
        self.stop_after = stop_after
        self.dump = dump
        self.progress = progress
        self.seconds: dict[str, float] = {}
        self.statistics: tuple[tuple[str, int], ...] = ()

    def run(self, name: str, work: Callable[[], T], said: Callable[[T], Said]) -> T:
        """Does the stage's ``work``; ``said`` describes its result. Raises Stopped instead when the stage at which to
        stop is done."""
        if self.stop_after in self.seconds:
            raise Stopped
        self.progress.begin(name)
        start = time.perf_counter()
        result = work()
        self.seconds[name] = time.perf_counter() - start
        described = said(result)
        self.statistics += tuple((f"{what} after {name}", n) for what, n in described.counts)
        self.progress.end(name, self.seconds[name], described.line)
        if self.dump is not None:
            self._write(name, described.texts())
        return result

    def _write(self, name: str, texts: Mapping[str, str]) -> None:
        assert self.dump is not None
        stem = f"{self.names.index(name) + 1:02}-{name}"
        for suffix, text in texts.items():
            path = self.dump / (f"{stem}{suffix}" if suffix.startswith("/") else f"{stem}.{suffix}")
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            except OSError as error:
                raise AitcError(
                    Diagnostic("O02", f"cannot write the dump: {path}: {error.strerror}"), Exit.IO
                ) from None
