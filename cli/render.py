"""What a person sees on stderr: problems and progress. Live where stderr is a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import re
import sys
import time
import traceback
from types import TracebackType
from typing import TYPE_CHECKING, Any

from aitc import __version__
from aitc.errors import Diagnostic, printable

from . import interrupt

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

QUIET_SECONDS = 0.3  # a stage shorter than this is not worth a plain line of its own


def print_diagnostics(diagnostics: tuple[Diagnostic, ...], severity: str = "error") -> None:
    """Every problem, as text on stderr; with colour where that is a terminal: errors red, warnings yellow."""
    for d in diagnostics:
        text = d.render(severity)
        if _colour():
            head, _, rest = text.partition(":")
            text = f"\033[1;{31 if severity == 'error' else 33}m{head}\033[0m:{rest}"
        print(text, file=sys.stderr)
    if len(diagnostics) > 3:
        print(f"{len(diagnostics)} problems", file=sys.stderr)


def tell(text: str, end: str = "\n", flush: bool = False) -> None:
    """A result on stdout, with names of the model as a terminal may show them. JSON escapes them by itself."""
    print(printable(text), end=end, flush=flush)


def diagnostic_json(d: Diagnostic) -> dict[str, Any]:
    """A problem as --json prints it."""
    nodes = [{"model": n.model, "path": n.path, "index": n.index, "name": n.name, "op_type": n.op_type} for n in d.locs]
    return {
        "code": d.code,
        "message": d.message,
        "stage": d.stage,
        "nodes": nodes,
        "detail": list(d.detail),
        "help": d.help,
    }


def defect(error: Exception, verbose: bool) -> Diagnostic:
    """What is said of an error that is no user's mistake; with ``verbose`` its traceback goes to stderr."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "aitc" in f.filename or "cli" in f.filename] or list(frames)
    where = f"at {own[-1].filename.rsplit('/', 1)[-1]}:{own[-1].lineno}, aitc {__version__}" if own else ""
    if verbose:
        traceback.print_exception(error, file=sys.stderr)
    message = f"a defect of aitc, not of your model or command: {type(error).__name__}: {error}"
    way_out = "please report it, with the model or its `aitc show --stage import` text"
    return Diagnostic("X01", message, detail=(where,), help=way_out + ("" if verbose else "; -v shows the traceback"))


def _colour() -> bool:
    return sys.stderr.isatty() and "NO_COLOR" not in os.environ


def seconds(s: float) -> str:
    """A duration as people write it."""
    if s < 0.0995:
        return f"{s * 1e3:.0f} ms"
    return f"{s:.1f} s" if s < 90 else f"{int(s) // 60} min {int(s) % 60:02d} s"


def short(what: str) -> str:
    """Ninja's word for an object, without folders: ``avx2 conv_3`` for
    CMakeFiles/kernels_avx2.dir/kernels/conv_3.cpp.o."""
    host = re.search(r"CMakeFiles/(?:kernels_)?(\w+)\.dir/(?:.*/)?(\w+)\.\w+\.o\b", what)
    device = re.search(r"\bkernels/(\w+)\.\w+$", what)
    return f"{host.group(1)} {host.group(2)}" if host else device.group(1) if device else what


class Display:
    """Shows the stages of a compile; has the methods of ``aitc.progress.Progress``. Inside ``with`` signals unwind the
    work."""

    def __init__(self, quiet: bool = False, verbose: bool = False):
        self.quiet = quiet
        self.verbose = verbose
        self.live = sys.stderr.isatty() and not quiet
        self._bar: RichProgress | None = None
        self._task: Any = None
        self._stage = ""
        self._said = 0.0
        self._signals = interrupt.unwinding()

    def __enter__(self) -> Display:
        self._signals.__enter__()
        if self.live:
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                SpinnerColumn,
                TextColumn,
                TimeElapsedColumn,
                TimeRemainingColumn,
            )

            self._bar = Progress(
                SpinnerColumn(),
                TextColumn("{task.description:<10}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[what]}", style="dim"),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        self._signals.__exit__(kind, error, trace)

    def say(self, text: str) -> None:
        """A line that stays."""
        if self.quiet:
            return
        text = printable(text)
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        """A line for -v."""
        if self.verbose:
            self.say(f"  {text}")

    def begin(self, stage: str) -> None:
        interrupt.check()
        self._stage = stage
        self._said = time.monotonic()
        if self._bar is not None:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task = self._bar.add_task(stage, total=None, what="")

    def step(self, done: int, total: int, what: str = "") -> None:
        interrupt.check()
        what = short(what)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, total=total, what=printable(what[:40], keep=""))
        elif time.monotonic() - self._said > 5 or (self.verbose and done):
            self._said = time.monotonic()
            self.say(f"{self._stage}: {done}/{total} {what}".rstrip())

    def end(self, stage: str, elapsed: float, result: str) -> None:
        if self._bar is not None or self.verbose or elapsed >= QUIET_SECONDS or stage == "verify":
            self.say(f"{stage:<9} {seconds(elapsed):>7}  {result}".rstrip())
