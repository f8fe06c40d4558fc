"""Output folders that are complete or untouched: everything is made in a folder beside and moved into place at the end."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aitc.errors import AitcError, Diagnostic, Exit


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
def staged(out: Path) -> Iterator[Path]:
    """A new empty folder beside ``out``. When the block ends well its entries replace those of ``out`` of the same names (others stay;
    all of it is one rename if ``out`` is new); when it raises, Ctrl-C included, ``out`` is as it was. Raises AitcError (IO)."""
    out = Path(os.path.abspath(out))
    if out.exists() and not out.is_dir():
        raise AitcError(
            Diagnostic("B04", f"{out} exists and is no folder", stage="build", help="choose another folder with -o"),
            Exit.IO,
        )
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        if out.exists() and not os.access(out, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        stage = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".tmp", dir=out.parent))
    except OSError as e:
        raise io_error(e, out, "write to") from e
    try:
        try:
            yield stage
            stage.chmod(0o777 & ~_umask())
            with _uninterrupted():
                _publish(stage, out)
        except OSError as e:
            raise io_error(e, out, "write to") from e
    finally:
        shutil.rmtree(stage, ignore_errors=True)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait until the block, a few renames, is over."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _publish(stage: Path, out: Path) -> None:
    if not out.exists():
        os.rename(stage, out)
        return
    # Folders first, the library last: whoever sees the new library sees all that belongs to it.
    for entry in sorted(stage.iterdir(), key=lambda e: (not e.is_dir(), e.suffix == ".so", e.name)):
        target = out / entry.name
        if entry.is_dir() and target.is_dir() and not target.is_symlink():
            old = stage / f"{entry.name}.old"
            os.rename(target, old)
            os.rename(entry, target)
        else:
            os.replace(entry, target)
