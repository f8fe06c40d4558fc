"""Work in a process of its own, so that whatever an oracle or a binary does there is an answer: a crash, an endless loop, a signal.

onnxruntime holds Python's lock while it computes and hears no signal; the process that waits for it does.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing as mp
import os
import pickle
import resource
import signal
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from aitc.build.scratch import scratch
from aitc.errors import AitcError

T = TypeVar("T")

TIMEOUT_S = 600.0  # of a step, unless one is given
GRACE_S = 2.0  # what a child has beyond a step's limit: it may have a clock of its own, whose answer says more
_PR_SET_PDEATHSIG = 1


class ChildFailed(Exception):
    """The child gave no result. ``step`` is what it was at, ``why`` says how it ended."""

    def __init__(self, step: str, why: str):
        self.step = step
        self.why = why
        super().__init__(f"{step} {why}")


class Crashed(ChildFailed):
    """A signal, or an exit in the middle, ended the child."""


class TooLong(ChildFailed):
    """A step took longer than its limit."""


@dataclass(frozen=True, slots=True)
class _Raised:
    """An exception on its way to the parent."""

    error: Any  # what is raised again; AitcError as its parts
    trace: str


class _Remote(Exception):
    """The traceback of the child, as the cause of what the parent raises."""

    def __str__(self) -> str:
        return str(self.args[0])


_parent: list[Connection] = []  # in a child: where its words go


def begin(step: str = "") -> None:
    """Says what is computed from here on, the subject of a sentence (none: the same step goes on); the clock of the limit starts
    again. Outside of a child nothing happens."""
    for pipe in _parent:
        pipe.send(("step", step))


def apart(work: Callable[[], T], step: str, limit_s: float = float("inf")) -> T:
    """``work()`` in a child; what it raises is raised here. ``step`` is the first step's name, see ``begin``; ``limit_s`` bounds each.

    The child is forked: it starts in milliseconds, and ``work`` may hold anything. It and all that it started are killed when the
    limit is over or an exception, such as that of Ctrl-C, ends the wait; its temporary files go away with it, at the latest with
    the next one. Raises ChildFailed.
    """
    if _parent:
        return work()  # is in a child already
    with scratch("child") as folder:
        return _apart(work, step, limit_s, str(folder))


def _apart(work: Callable[[], T], step: str, limit_s: float, folder: str) -> T:
    receive, send = mp.Pipe(duplex=False)
    # A signal between the fork and the wait would leave the child alone: it has to wait itself.
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        with warnings.catch_warnings():
            # Python 3.12 warns where threads run (a progress display): the child touches nothing that they lock
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            receive.close()
            _serve(work, send, folder, held)
        patience_s = 0.0
        try:
            send.close()
            with contextlib.suppress(OSError):
                os.setpgid(child, child)  # the child does it, too: whoever comes first
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
            answer = _wait(receive, step, limit_s)
            patience_s = 1.0  # how a child ends whose pipe has closed, is worth knowing
        finally:
            code = _end(child, patience_s)
        if isinstance(answer, str):
            raise Crashed(answer, _how_it_ended(code))
        return _result(answer)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
        receive.close()
        send.close()


def _serve(work: Callable[[], Any], pipe: Connection, folder: str, mask: set[int | signal.Signals]) -> None:
    """The child's life."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's; the parent decides
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
            score.write("1000")  # where memory ends, this process goes and not the compiler
        tempfile.tempdir = folder
        _parent.append(pipe)
        try:
            answer: tuple[str, Any] = ("done", work())
        except BaseException as error:
            parts = (error.diagnostics, error.exit_code) if isinstance(error, AitcError) else error
            answer = ("raised", _Raised(parts, traceback.format_exc()))
        try:
            data = pickle.dumps(answer)
            pickle.loads(data)  # exceptions may pickle, and not come back
        except Exception:
            assert isinstance(answer[1], _Raised), answer
            text = RuntimeError(f"{type(answer[1].error).__name__}: {answer[1].error}")
            data = pickle.dumps(("raised", _Raised(text, answer[1].trace)))
        pipe.send_bytes(data)
        code = 0
    finally:
        os._exit(code)


def _wait(pipe: Connection, step: str, limit_s: float) -> tuple[str, Any] | str:
    """What the child answers, or the step at which its words end. Raises TooLong."""
    deadline = time.monotonic() + limit_s + GRACE_S
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TooLong(step, f"did not finish within {limit_s:g} s")
        if not pipe.poll(min(left, 3600)):
            continue
        try:
            kind, value = pipe.recv()
        except (EOFError, OSError):
            return step
        if kind != "step":
            return kind, value
        step, deadline = value or step, time.monotonic() + limit_s + GRACE_S


def _end(child: int, patience_s: float) -> int:
    """Kills the child, unless it ends by itself within ``patience_s``, and all that it started; its status."""
    deadline = time.monotonic() + patience_s
    done, status = os.waitpid(child, os.WNOHANG)
    while not done and time.monotonic() < deadline:
        time.sleep(0.002)
        done, status = os.waitpid(child, os.WNOHANG)
    with contextlib.suppress(OSError):
        os.killpg(child, signal.SIGKILL)
    return status if done else os.waitpid(child, 0)[1]


def _how_it_ended(status: int) -> str:
    if not os.WIFSIGNALED(status):
        return f"ended with exit code {os.waitstatus_to_exitcode(status)} and without an answer"
    number = os.WTERMSIG(status)
    name = signal.Signals(number).name
    return f"was ended by {name}" + (", probably for want of memory" if number == signal.SIGKILL else "")


def _result(answer: tuple[str, Any]) -> Any:
    kind, value = answer
    if kind == "done":
        return value
    error = AitcError(*value.error) if isinstance(value.error, tuple) else value.error
    raise error from _Remote(value.trace)
