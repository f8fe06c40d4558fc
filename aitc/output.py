"""The output folder: filled beside its place and moved there in one step, so that nobody sees half of it."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from aitc.errors import AitcError, Diagnostic, Exit

_KEYWORDS = frozenset(
    "alignas alignof and asm auto bool break case catch char class const continue default delete do double else enum explicit export"
    " extern false float for friend goto if inline int long main mutable namespace new not operator or private protected public"
    " register return short signed sizeof static struct switch template this throw true try typedef typename union unsigned using"
    " virtual void volatile while xor".split()
)


def identifier(name: str) -> str:
    """``name`` as a C identifier: a file's stem may hold anything."""
    text = re.sub(r"[^0-9a-zA-Z_]+", "_", name).strip("_") or "model"
    return f"model_{text}" if text[0].isdigit() or text in _KEYWORDS else text


class Staging:
    """A temporary folder next to ``target`` that becomes ``target`` by ``publish``, or vanishes.

    With ``target`` None it is in the system's temporary folder and always vanishes. Raises AitcError (IO) when the place cannot be
    written to.
    """

    def __init__(self, target: Path | None):
        self.target = target.absolute() if target is not None else None
        self._holds_others = False
        try:
            if self.target is None:
                self.folder = Path(tempfile.mkdtemp(prefix="aitc-"))
            else:
                if self.target.exists() and not self.target.is_dir():
                    raise NotADirectoryError(20, "exists and is not a folder", str(self.target))
                self.target.parent.mkdir(parents=True, exist_ok=True)
                if self.target.exists() and not os.access(self.target, os.W_OK):
                    raise PermissionError(13, "no permission to write", str(self.target))
                self.folder = Path(tempfile.mkdtemp(prefix=f".{self.target.name}-", dir=self.target.parent))
                os.chmod(self.folder, 0o755)
        except OSError as error:
            where = error.filename or self.target
            raise AitcError(Diagnostic("O01", f"cannot write the output: {where}: {error.strerror}"), Exit.IO) from None

    def __enter__(self) -> Staging:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self._holds_others:
            shutil.rmtree(self.folder, ignore_errors=True)

    def publish(self, mine: frozenset[str], to: Path | None = None) -> Path | None:
        """Moves everything to ``to`` (default: the target) and returns the place, or None when there is no target.

        What an old folder at the place holds beside ``mine`` (the names that this output may consist of) is the user's and stays.
        """
        place = to or self.target
        if place is None:
            return None
        with _uninterrupted():
            if not place.is_dir():
                os.rename(self.folder, place)
                return place
            self._holds_others = True  # from here on the temporary folder is the old one: not to be deleted before it is emptied
            _exchange(self.folder, place)
            for old in list(self.folder.iterdir()):
                if old.name not in mine and not (place / old.name).exists():
                    os.rename(old, place / old.name)
            self._holds_others = False
        return place


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait until the block is over (it takes a few renames)."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _exchange(a: Path, b: Path) -> None:
    """Swaps two folders: atomically where the kernel can, else by two renames."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
        if renameat2(-100, os.fsencode(a), -100, os.fsencode(b), 2) == 0:  # AT_FDCWD, RENAME_EXCHANGE
            return
    except (AttributeError, OSError):
        pass
    aside = a.with_name(a.name + "-old")
    os.rename(b, aside)
    os.rename(a, b)
    os.rename(aside, a)
