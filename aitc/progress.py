"""Who wants to know how far a compile is, and the record of its stages: times, dumps, where to stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from aitc.build.output import replace_file
from aitc.errors import AitcError, Diagnostic, Exit

T = TypeVar("T")

LISTED = ".aitc-dump"  # in a folder of dumps: the files that dumps wrote


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
        self._listed: set[str] = set()  # what dumps wrote, this one and earlier ones

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

    def _stem(self, name: str) -> str:
        return f"{self.names.index(name) + 1:02}-{name}"

    def _write(self, name: str, texts: Mapping[str, str]) -> None:
        assert self.dump is not None
        stem = self._stem(name)
        paths = {f"{stem}{s}" if s.startswith("/") else f"{stem}.{s}": text for s, text in texts.items()}
        place = self.dump
        try:
            if not self._listed:
                place.mkdir(parents=True, exist_ok=True)
                self._listed |= _require_dump(place, tuple(self._stem(n) for n in self.names))
            self._list(paths)
            for path, text in paths.items():
                place = self.dump / path
                place.parent.mkdir(parents=True, exist_ok=True)
                replace_file(place, text)
        except OSError as error:
            raise AitcError(Diagnostic("O02", f"cannot write the dump: {place}: {error.strerror}"), Exit.IO) from None

    def write_file(self, name: str, file: str, write: Callable[[Path], None]) -> None:
        """Puts ``file`` next to the texts that stage ``name`` has dumped into its own folder; ``write`` makes it."""
        assert self.dump is not None
        path = f"{self._stem(name)}/{file}"
        try:
            self._list((path,))
            (self.dump / path).unlink(missing_ok=True)
            write(self.dump / path)
        except OSError as error:
            raise AitcError(Diagnostic("O02", f"cannot write the dump: {self.dump / path}: {error.strerror}"), Exit.IO) from None

    def _list(self, paths: Iterable[str]) -> None:
        """Notes that these files are the dump's own."""
        assert self.dump is not None
        self._listed |= set(paths)
        replace_file(self.dump / LISTED, "".join(f"{path}\n" for path in sorted(self._listed)))


def _require_dump(folder: Path, stems: tuple[str, ...]) -> set[str]:
    """The files that earlier dumps wrote into ``folder``. Raises AitcError (IO) where others are called like those of a dump."""
    try:
        listed = set((folder / LISTED).read_text(encoding="utf-8").splitlines())
    except (OSError, ValueError):
        listed = set()
    found = []
    for stem in stems:
        for top in sorted(folder.glob(f"{stem}*")):
            below = [p for p in top.rglob("*") if p.is_symlink() or not p.is_dir()] if top.is_dir() and not top.is_symlink() else [top]
            found += [p.relative_to(folder).as_posix() for p in below if p.relative_to(folder).as_posix() not in listed or p.is_symlink()]
    if found:
        more = f" and {len(found) - 4} more" if len(found) > 4 else ""
        raise AitcError(
            Diagnostic(
                "O02",
                f"{folder} holds files named like a dump's that no dump of aitc wrote: {', '.join(found[:4])}{more}",
                help="choose another folder with --dump, or move these away",
            ),
            Exit.IO,
        )
    return listed
