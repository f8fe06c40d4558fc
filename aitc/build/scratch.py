"""Folders for work that goes on: each is locked by the process that uses it, and what a killed process left is swept by the next."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

OWNER = "owner"  # the locked file of a scratch folder
MAGIC = b"a folder of a running aitc; the next compile removes it when the process has ended: "
KEEP = "journal.json"  # a folder with this file is not removed when its block ends: see ``aitc.build.output``
PREFIX = "aitc-"


@contextmanager
def scratch(what: str = "", where: Path | None = None, prefix: str = PREFIX) -> Iterator[Path]:
    """An empty folder in a new folder of ``where`` (default: that for temporary files); both are removed when the block ends.

    What killed processes left in ``where`` goes, too. Raises OSError.
    """
    place = Path(tempfile.gettempdir()) if where is None else where
    sweep(place, prefix)
    folder = Path(tempfile.mkdtemp(prefix=f"{prefix}{what}{'-' if what else ''}", suffix=".tmp", dir=place))
    handle = -1
    try:
        handle = os.open(folder / OWNER, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with contextlib.suppress(OSError):  # a file system without locks: the folder is then never taken for a dead one's
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(handle, MAGIC + str(os.getpid()).encode() + b"\n")  # whoever reads this may try the lock
        work = folder / "new"
        work.mkdir()
        yield work
    finally:
        if not (folder / KEEP).exists():
            remove(folder)
        if handle >= 0:
            os.close(handle)


def remove(folder: Path) -> None:
    """Removes a scratch folder, what says whose it is last. What cannot be removed stays."""
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(folder)):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            elif entry.name != OWNER:
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)
        shutil.rmtree(folder, ignore_errors=True)


def sweep(where: Path, prefix: str = PREFIX, recover: Callable[[Path], None] | None = None) -> None:
    """Removes the scratch folders in ``where`` whose process has ended, after ``recover`` of each. Those in use, those of other
    users and whatever only looks like one stay. Never raises OSError."""
    try:
        found = [e.path for e in os.scandir(where) if e.name.startswith(prefix) and e.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for path in found:
        with contextlib.suppress(OSError):
            _sweep_one(Path(path), recover)


def _sweep_one(folder: Path, recover: Callable[[Path], None] | None) -> None:
    if os.lstat(folder).st_uid != os.geteuid():
        return
    handle = os.open(folder / OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if os.read(handle, len(MAGIC)) != MAGIC:
            return  # not ours, or just being made
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises BlockingIOError: in use
        if os.stat(folder / OWNER).st_ino != os.fstat(handle).st_ino:
            return
        if (folder / KEEP).exists():
            if recover is None:
                return
            recover(folder)
        remove(folder)
    finally:
        os.close(handle)
