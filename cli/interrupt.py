"""Ctrl-C and SIGTERM: exit code 130 at any moment, with nothing half-written.

While modules are imported nothing has been written, and an exception in the middle of an import ends in tracebacks, in
half-imported modules, or in aborts of extension modules: there the process ends at once. While a command works,
KeyboardInterrupt unwinds it, so that temporary folders and compilers go away.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_AGAIN_S = 1.0  # a second signal this soon is the same impatience, and must not break off the cleaning up

_pending = False
_last = 0.0


def end_at_once() -> None:
    """From now on a signal ends the process with code 130 and one line. Only for the process of the command line
    itself."""
    for s in _SIGNALS:
        signal.signal(s, _end)


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, b"error[C01]: interrupted\n")
    if "--json" in sys.argv:
        os.write(1, b'{"ok": false, "exit": 130, "errors": [{"code": "C01", "message": "interrupted"}]}\n')
    os._exit(INTERRUPTED)


@contextmanager
def unwinding() -> Iterator[None]:
    """Inside, a signal raises KeyboardInterrupt. In threads other than the main one it changes nothing."""
    global _pending
    _pending = False
    try:
        before = [signal.signal(s, _raise) for s in _SIGNALS]
    except ValueError:
        yield
        return
    try:
        yield
    finally:
        for s, handler in zip(_SIGNALS, before):
            signal.signal(s, handler)


def _raise(number: int, frame: FrameType | None) -> None:
    global _pending, _last
    now = time.monotonic()
    if _pending and now - _last < _AGAIN_S:
        return
    _pending, _last = True, now
    raise KeyboardInterrupt


def check() -> None:
    """Raises KeyboardInterrupt if a signal came and its exception was lost (in a destructor or a callback of an
    extension module)."""
    if _pending:
        raise KeyboardInterrupt
