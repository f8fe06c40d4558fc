"""Measured configurations: JSON lines ``{"problem": "<kernel> <problem>", "config": "<name>", "us": 12.3}``, sorted,
one file a target.

A table is looked up by problem, never by a model's or an op's name. The user's file wins over the user's cache, and
that over what ships.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from aitc.errors import AitcError, Diagnostic, Exit
from aitc.schedule.select import Table
from aitc.targets.target import Target


@dataclass(frozen=True, slots=True)
class Entry:
    """The fastest ``config`` measured for ``problem`` on a target, and its time in microseconds."""

    problem: str
    config: str
    us: float


def load_table(target: Target, file: Path | None, cache: Path) -> Table:
    """All that is known for ``target``: what ships, ``cache``/tuning/<target>.json over it, ``file`` over both.

    Raises AitcError (IO) if ``file`` cannot be read, and (USAGE) if it, or a file of the cache, is no table.
    """
    found: dict[str, str] = {}
    shipped = resources.files("aitc") / "tuning" / f"{target.name}.json"
    if shipped.is_file():
        found.update((e.problem, e.config) for e in parse(shipped.read_text(encoding="utf-8"), str(shipped)))
    own = cache / "tuning" / f"{target.name}.json"
    for path in ([own] if own.is_file() else []) + ([file] if file is not None else []):
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text"
            raise AitcError(Diagnostic("S03", f"cannot read the tuning table {path}: {reason}"), Exit.IO) from None
        found.update((e.problem, e.config) for e in parse(text, str(path)))
    return found


def parse(text: str, name: str) -> list[Entry]:
    """The entries of a table; ``name`` is for the message. Raises AitcError (USAGE) that names the line."""
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            raw = json.loads(line)
            entries.append(Entry(str(raw["problem"]), str(raw["config"]), float(raw["us"])))
        except (ValueError, KeyError, TypeError):
            way_out = 'a line is {"problem": "gemm_sm80 ...", "config": "...", "us": 12.3}'
            raise AitcError(
                Diagnostic("S03", f"{name}:{number} is no entry of a tuning table", help=way_out), Exit.USAGE
            ) from None
    return entries


def to_text(entries: Iterable[Entry]) -> str:
    """A table as it is stored: the best entry of each problem, sorted."""
    best: dict[str, Entry] = {}
    for e in entries:
        if e.problem not in best or e.us < best[e.problem].us:
            best[e.problem] = e
    lines = (json.dumps({"problem": e.problem, "config": e.config, "us": e.us}) for _, e in sorted(best.items()))
    return "".join(line + "\n" for line in lines)
