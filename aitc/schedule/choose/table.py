"""Measured configurations: JSON lines, sorted, one file a target, ``tuning/<target>.json``:

``{"problem": "gemm_sm90 f16 1x128x768x768 ... tail 2 1v", "config": "128x128_s4", "us": 12.3, "tried": {"64x64_s8": 14.0}}``

``problem`` is ``aitc.schedule.choose.select.problem_key``: kernel, types, dims, layouts, epilogue class; the target is the file.
A table is looked up by that alone, never by a model's or an op's name. The user's file wins over the user's cache, and that
over what ships. An entry whose configuration is gone is passed over, and the compile says so.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from aitc.errors import AitcError, Diagnostic, Exit
from aitc.schedule.choose.select import Table
from aitc.targets.target import Target

NONE = Path("none")
"""In the place of a table: the machine model alone."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The best ``config`` measured for ``problem`` on a target, and its time in microseconds; ``tried``: those of the others. On a GPU whole runs
    may have chosen one that is not the fastest by itself."""

    problem: str
    config: str
    us: float
    tried: Mapping[str, float] = field(default_factory=dict)

    @property
    def times(self) -> dict[str, float]:
        """All that was measured: configuration -> microseconds."""
        return {**self.tried, self.config: self.us}


def load_table(target: Target, file: Path | None, cache: Path) -> Table:
    """All that is known for ``target``: what ships, ``cache``/tuning/<target>.json over it, ``file`` over both; nothing if ``file`` is ``none``.

    Raises AitcError (IO) if ``file`` cannot be read, and (USAGE) if it, or a file of the cache, is no table.
    """
    if file == NONE:
        return {}
    own = own_table(target, cache)
    paths = [p for p in (shipped_table(target), own) if os.path.isfile(p)] + ([file] if file is not None else [])
    return {e.problem: e.config for path in paths for e in read_table(path)}


def own_table(target: Target, cache: Path) -> Path:
    """Where the user's own measurements for ``target`` are kept."""
    return cache / "tuning" / f"{target.name}.json"


def shipped_table(target: Target) -> Path:
    """The table of ``target`` that ships; it need not exist."""
    return Path(str(resources.files("aitc") / "tuning" / f"{target.name}.json"))


def read_table(path: Path) -> list[Entry]:
    """The entries of a file. Raises AitcError (IO) if it cannot be read, (USAGE) if it is no table."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        way_out = "`aitc tune` writes tables; `--tuning none` compiles without"
        raise AitcError(Diagnostic("S03", f"cannot read the tuning table {path}: {reason}", help=way_out), Exit.IO) from None
    return parse(text, str(path))


def parse(text: str, name: str) -> list[Entry]:
    """The entries of a table; ``name`` is for the message. Raises AitcError (USAGE) that names the line."""
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            raw = json.loads(line)
            tried = {str(config): float(us) for config, us in raw.get("tried", {}).items()}
            entries.append(Entry(str(raw["problem"]), str(raw["config"]), float(raw["us"]), tried))
            if not all(0 <= us < math.inf for us in entries[-1].times.values()):
                raise ValueError("no time")
        except (ValueError, KeyError, TypeError, AttributeError):
            way_out = 'a line is {"problem": "gemm_sm80 ...", "config": "...", "us": 12.3}; `aitc tune` writes them, and `--tuning none` compiles without'
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
    lines = []
    for _, e in sorted(best.items()):
        more = {"tried": dict(sorted(e.tried.items()))} if e.tried else {}
        lines.append(json.dumps({"problem": e.problem, "config": e.config, "us": e.us, **more}) + "\n")
    return "".join(lines)


def require_place(path: Path) -> None:
    """Raises AitcError (IO) if a table cannot be written to ``path``, for those who measure first. Nothing is left there."""
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        folder = next(p for p in path.absolute().parents if p.exists())
        with tempfile.NamedTemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise _cannot_write(path, error) from None


def _cannot_write(path: Path, error: OSError) -> AitcError:
    return AitcError(Diagnostic("S03", f"cannot write the tuning table {path}: {error.strerror}"), Exit.IO)


def merge_into(path: Path, entries: Iterable[Entry]) -> None:
    """Puts ``entries`` into the table at ``path``, in place of those for the same problems. All of it or nothing is written.

    Raises AitcError: (IO) if it cannot be written, (USAGE) if what is there is no table.
    """
    path = Path(os.path.realpath(path))  # of a link, what it leads to is written
    merged = {e.problem: e for e in (read_table(path) if os.path.isfile(path) else [])}
    merged.update((e.problem, e) for e in entries)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(prefix=path.name, dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(to_text(merged.values()))
            os.chmod(part, 0o644)
            os.replace(part, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part)
            raise
    except OSError as error:
        raise _cannot_write(path, error) from None
