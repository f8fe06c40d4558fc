"""Problems, as users see them: a code, a message, where it happened and the way out."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of the command line; documented in docs/commands.md and ``aitc --help``."""

    OK = 0
    INTERNAL = 1  # a defect of aitc: the message asks for a report
    USAGE = 2  # wrong flags or arguments
    MODEL = 3  # the file is not a valid ONNX model
    UNSUPPORTED = 4  # the model is valid, but holds what aitc does not support
    TOOLCHAIN = 5  # no compiler for the target, or it failed
    VERIFY = 6  # the binary does not match the reference
    IO = 7  # a file cannot be read or written, or the disk is full
    RUNTIME = 8  # the compiled model failed while running
    INTERRUPTED = 130


def printable(text: str, keep: str = "\n\t") -> str:
    """``text`` as a terminal may show it: control and direction characters, which names in a model may hold, are escaped but those
    to ``keep``."""
    if text.isprintable():
        return text
    return "".join(_escaped(c) if c not in keep and unicodedata.category(c) in _UNSEEN else c for c in text)


_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def _escaped(c: str) -> str:
    return c.encode("unicode_escape").decode("ascii")


def near(name: str, known: Iterable[str], what: str) -> str:
    """The way out for a name that is none of the ``known``: those that resemble it, or all."""
    known = list(known)
    alike = difflib.get_close_matches(name, known, 3, 0.6)
    return f"did you mean {' or '.join(alike)}?" if alike else f"its {what}: {', '.join(known) or 'none'}"


@dataclass(frozen=True, slots=True)
class Loc:
    """Where a node came from: ``model`` file, ``path`` of nested graphs, node ``index``, ``name``, ``op_type``."""

    model: str
    path: str
    index: int
    name: str
    op_type: str

    def __str__(self) -> str:
        where = f"{self.path}." if self.path not in ("", "main") else ""
        name = f' "{self.name}"' if self.name else ""
        return printable(f"{self.model}: node #{where}{self.index}{name} ({self.op_type})", keep="")


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One problem. ``code`` is explained by ``aitc explain CODE``; ``detail`` lines show types and values."""

    code: str
    message: str
    locs: tuple[Loc, ...] = ()
    stage: str = ""
    detail: tuple[str, ...] = ()
    help: str = ""

    def render(self, severity: str = "error") -> str:
        lines = [f"{severity}[{self.code}]: {self.message}"]
        for loc in self.locs[:4]:
            lines.append(f"  --> {loc}" + (f", stage {self.stage}" if self.stage else ""))
        if not self.locs and self.stage:
            lines.append(f"  --> stage {self.stage}")
        lines += [f"      {line}" for line in self.detail]
        if self.help:
            lines.append(f"  help: {self.help}")
        return printable("\n".join(lines))


class AitcError(Exception):
    """A user's problem (never a defect of aitc): one or several diagnostics and the exit code they lead to."""

    def __init__(self, diagnostics: Diagnostic | Iterable[Diagnostic], exit_code: Exit):
        self.diagnostics = (diagnostics,) if isinstance(diagnostics, Diagnostic) else tuple(diagnostics)
        self.exit_code = exit_code
        super().__init__("\n".join(d.render() for d in self.diagnostics))
