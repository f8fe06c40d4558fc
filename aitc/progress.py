"""Who wants to know how far a compile is, and the record of its stages: times, dumps, where to stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
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


class Stages:
    """Runs the stages: ``seconds`` by stage; with ``dump`` each stage's text goes to DIR/<number>-<stage>.<suffix>."""

    def __init__(self, names: tuple[str, ...], stop_after: str, dump: Path | None, progress: Progress):
        self.names = names
        self.stop_after = stop_after
        self.dump = dump
        self.progress = progress
        self.seconds: dict[str, float] = {}

    def run(self, name: str, work: Callable[[], T], summary: Callable[[T], str], text: Callable[[T], Mapping[str, str]]) -> T:
        """Does the stage's ``work``; ``summary`` and ``text`` (suffix or path to text) describe its result.

        Raises Stopped after the stage at which to stop.
        """
        self.progress.begin(name)
        start = time.perf_counter()
        result = work()
        self.seconds[name] = time.perf_counter() - start
        self.progress.end(name, self.seconds[name], summary(result))
        if self.dump is not None:
            self._write(name, text(result))
        if name == self.stop_after:
            raise Stopped
        return result

    def _write(self, name: str, texts: Mapping[str, str]) -> None:
        assert self.dump is not None
        stem = f"{self.names.index(name) + 1:02}-{name}"
        for suffix, text in texts.items():
            path = self.dump / (f"{stem}.{suffix}" if "/" not in suffix else f"{stem}/{suffix.lstrip('/')}")
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            except OSError as error:
                raise AitcError(Diagnostic("O02", f"cannot write the dump: {path}: {error.strerror}"), Exit.IO) from None
