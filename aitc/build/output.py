"""Output folders that are complete or untouched: everything is made in a folder of its own and moved into place at the end."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import signal
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aitc.build.ownership import require_ours
from aitc.build.scratch import KEEP, scratch, sweep
from aitc.errors import AitcError, Diagnostic, Exit

_PREFIX = ".aitc-"


def io_error(error: OSError, path: Path, what: str) -> AitcError:
    """``error`` as users see it: the path, what was being done, and the way out where there is one."""
    reason = error.strerror or str(error)
    helps = {
        errno.ENOSPC: "free some space on that disk, or choose another folder with -o",
        errno.EDQUOT: "the user's quota is used up: choose another folder with -o",
        errno.EACCES: "choose a folder that may be written with -o",
        errno.EPERM: "choose a folder that may be written with -o",
        errno.EROFS: "choose a folder on a disk that may be written with -o",
    }
    return AitcError(
        Diagnostic("B04", f"cannot {what} {path}: {reason}", stage="build", help=helps.get(error.errno or 0, "")),
        Exit.IO,
    )


@contextmanager
def staged(out: Path, names: Iterable[str] = ()) -> Iterator[Path]:
    """A new empty folder. When the block ends well its entries replace those of ``out`` of the same names (others stay; all of it is
    one rename if ``out`` is new); when it raises, Ctrl-C included, or when an entry cannot be moved, ``out`` is as it was.

    ``names``: entries that will be made. Raises AitcError (IO), before the block begins if it can be known, when ``out`` cannot be
    written or when it holds an entry of such a name that aitc did not write.
    """
    out = Path(os.path.abspath(out))
    if os.path.lexists(out) and not out.is_dir():
        raise AitcError(
            Diagnostic("B04", f"{out} exists and is no folder", stage="build", help="choose another folder with -o"),
            Exit.IO,
        )
    made = [p for p in out.parents if not p.exists()]
    try:
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            for place in (out, out.parent):
                sweep(place, _PREFIX, _recover)
            if out.exists():
                if not os.access(out, os.W_OK | os.X_OK):
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
                require_ours(out, names)
            # In the folder itself if there is one: it may be another file system than what is around it.
            with scratch("", out if out.exists() else out.parent, _PREFIX) as stage:
                yield stage
                with _uninterrupted():
                    _publish(stage, out)
        except OSError as e:
            raise io_error(e, out, "write to") from e
    except BaseException:
        for folder in made:
            with contextlib.suppress(OSError):
                folder.rmdir()  # fails where somebody else put something in
        raise


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait until the block, a few renames, is over."""
    if threading.current_thread() is not threading.main_thread():
        yield  # no handler runs here
        return
    came: list[int] = []
    # Handlers, and not a mask: a mask is of this thread alone, and another would take the signal and interrupt this one.
    before = {s: signal.signal(s, lambda number, _: came.append(number)) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
    if came:
        signal.raise_signal(came[0])


@contextmanager
def _locked(out: Path) -> Iterator[None]:
    """One process at a time moves entries of ``out``."""
    handle = os.open(out, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _publish(stage: Path, out: Path) -> None:
    """Moves the entries of ``stage`` into ``out``: all of them or none."""
    if not os.path.lexists(out):
        try:
            os.rename(stage, out)
            return
        except OSError as e:
            if e.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # another compile was faster
                raise
    # Folders first, the library last: whoever sees the new library sees all that belongs to it.
    entries = sorted(stage.iterdir(), key=lambda e: (not e.is_dir(), e.suffix == ".so", e.name))
    names = [e.name for e in entries]
    with _locked(out):
        require_ours(out, names)
        folder = stage.parent
        (folder / "old").mkdir()
        inside = os.path.samefile(folder.parent, out)
        (folder / KEEP).write_text(json.dumps({"out": "" if inside else out.name, "names": names}), encoding="utf-8")
        try:
            for entry in entries:
                _put(entry, out / entry.name, folder / "old" / entry.name)
        except BaseException:
            _undo(folder, out, names)
            raise
        (folder / KEEP).unlink()


def _put(new: Path, target: Path, old: Path) -> None:
    if new.is_dir():
        if target.exists():
            os.rename(target, old)
        os.rename(new, target)
        return
    if target.exists():
        try:
            os.link(target, old)  # so that there is no moment without the file
        except OSError:
            os.rename(target, old)
    os.replace(new, target)


def _undo(folder: Path, out: Path, names: list[str]) -> None:
    """Makes ``out`` what it was before ``_publish`` began, however far that came. If this fails, the journal stays, and the next
    compile tries again."""
    for name in reversed(names):
        new, target, old = folder / "new" / name, out / name, folder / "old" / name
        if not new.exists() and target.exists() and (target.is_dir() or not old.exists()):
            os.rename(target, new)
        if old.exists():
            os.replace(old, target)
    (folder / KEEP).unlink()


def _recover(folder: Path) -> None:
    """Takes back what a process that was killed among its renames had done."""
    raw = json.loads((folder / KEEP).read_text(encoding="utf-8"))
    out = folder.parent / raw["out"]
    with _locked(out):
        _undo(folder, out, raw["names"])


def replace_file(path: Path, text: str) -> None:
    """Writes ``text`` to ``path`` in one step: a reader sees the old file or the new one, and a failure leaves the old. What a link
    leads to stays as it is. Raises OSError."""
    handle, part = tempfile.mkstemp(prefix=".aitc-", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            os.fchmod(handle, 0o666 & ~_umask())
            file.write(text)
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


def replace_json(path: Path, content: Mapping[str, Any], keys: AbstractSet[str]) -> None:
    """Like ``replace_file``, of JSON. Raises AitcError as ``require_json_place`` does."""
    require_json_place(path, keys)
    text = json.dumps(content, indent=1) + "\n"
    try:
        if _is_stream(path):
            path.write_text(text, encoding="utf-8")
        else:
            replace_file(path, text)
    except OSError as e:
        raise io_error(e, path, "write") from e


def require_json_place(path: Path, keys: AbstractSet[str]) -> None:
    """Raises AitcError (IO) unless ``path`` can be written: it is new, empty, or a JSON object that has ``keys``, so that an earlier
    call wrote it. A device or a pipe may be written at any time."""
    try:
        if not path.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, f"there is no folder {path.parent}")
        if _is_stream(path):
            return
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not os.access(path.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        if os.path.lexists(path) and not (path.is_file() and not path.is_symlink() and _has(path, keys)):
            raise FileExistsError(errno.EEXIST, "it exists, and no earlier call wrote it")
    except OSError as e:
        raise io_error(e, path, "write") from e


def _has(path: Path, keys: AbstractSet[str]) -> bool:
    if path.stat().st_size == 0:
        return True
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        return False
    return isinstance(raw, dict) and keys <= raw.keys()


def _is_stream(path: Path) -> bool:
    return path.is_char_device() or path.is_fifo()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
