"""Work in a child process: its answer, and every way in which there is none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from aitc.errors import AitcError, Diagnostic, Exit
from aitc.verify import child
from aitc.verify.child import Crashed, TooLong, apart, begin
from aitc.verify.reference import NoReference


def test_the_answer_comes_back() -> None:
    array = np.arange(1 << 20)
    assert (apart(lambda: array * 2, "work") == array * 2).all()
    assert apart(lambda: apart(os.getpid, "inner"), "outer") != os.getpid()


def test_starting_one_is_cheap() -> None:
    """In processor time of both sides, which a busy machine changes little."""
    before = os.times()
    for _ in range(5):
        apart(int, "work")
    assert sum(os.times()[:4]) - sum(before[:4]) < 1.5


def test_what_it_raises_is_raised() -> None:
    def fails() -> None:
        raise AitcError(Diagnostic("R05", "it was ended"), Exit.RUNTIME)

    with pytest.raises(AitcError) as caught:
        apart(fails, "work")
    assert caught.value.exit_code is Exit.RUNTIME and caught.value.diagnostics[0].code == "R05"
    assert "fails" in str(caught.value.__cause__)  # the child's traceback

    def refuses() -> None:
        raise NoReference("no kernel")

    with pytest.raises(NoReference, match="no kernel"):
        apart(refuses, "work")

    class Local(Exception):
        pass

    def odd() -> None:
        raise Local("cannot be pickled")

    with pytest.raises(RuntimeError, match="Local: cannot be pickled"):
        apart(odd, "work")


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL, signal.SIGTERM])
def test_a_signal_ends_it(number: signal.Signals) -> None:
    def dies() -> None:
        begin("the second step")
        signal.signal(number, signal.SIG_DFL) if number != signal.SIGKILL else None
        os.kill(os.getpid(), number)

    with pytest.raises(Crashed, match=f"the second step was ended by {number.name}") as caught:
        apart(dies, "the first step")
    assert caught.value.step == "the second step"


def test_an_exit_is_no_answer() -> None:
    with pytest.raises(Crashed, match="exit code 3 and without an answer"):
        apart(lambda: os._exit(3), "work")


def test_each_step_has_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "GRACE_S", 0.0)

    def long() -> str:
        for n in range(4):
            begin(f"step {n}")
            time.sleep(0.6)
        return "done"

    assert apart(long, "step", 2.0) == "done"  # 2.4 s in all; a busy machine starts each step late
    started = time.monotonic()
    with pytest.raises(TooLong, match=r"step( 0)? did not finish within"):
        apart(lambda: time.sleep(100), "step 0", 0.1)
    assert time.monotonic() - started < 30


def test_what_holds_pythons_lock_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    """Ctrl-C while the child sleeps in C with the lock held, and a grandchild beside it."""
    script = f"""
import ctypes, os, signal, subprocess, tempfile
from aitc.verify.child import apart
def work():
    tempfile.mkdtemp()
    other = subprocess.Popen(["sleep", "100"])
    open({str(tmp_path / "pids")!r}, "w").write(f"{{os.getpid()}} {{other.pid}}\\n")
    ctypes.PyDLL(None).sleep(100)
apart(work, "work")
"""
    (tmp_path / "tmp").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", script], env={**os.environ, "TMPDIR": str(tmp_path / "tmp")}, stderr=subprocess.PIPE, text=True
    )
    pids = tmp_path / "pids"
    deadline = time.monotonic() + 30
    while not (pids.exists() and pids.read_text().endswith("\n")) and time.monotonic() < deadline:
        time.sleep(0.02)
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert time.monotonic() - started < 30 and "KeyboardInterrupt" in err
    for pid in map(int, pids.read_text().split()):
        status = Path(f"/proc/{pid}/stat")  # gone, or waits for its parent, which here may be a process that never asks
        assert not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z"
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_signal_beside_the_fork_ends_the_child_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ctrl-C when the child has begun, and the parent does not wait for it yet."""
    fork, pid = os.fork, tmp_path / "pid"

    def slow_fork() -> int:
        child = fork()
        if child:
            while not pid.exists():
                time.sleep(0.01)
            signal.raise_signal(signal.SIGINT)
        return child

    monkeypatch.setattr(os, "fork", slow_fork)
    with pytest.raises(KeyboardInterrupt):
        apart(lambda: (pid.write_text(str(os.getpid())), time.sleep(100)), "work")
    assert not Path("/proc", pid.read_text()).exists()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()


def test_beside_threads() -> None:
    stop = threading.Event()
    threads = [threading.Thread(target=lambda: [np.ones((64, 64)) @ np.ones((64, 64)) for _ in iter(stop.is_set, True)])]
    for t in threads:
        t.start()
    try:
        for _ in range(10):
            assert apart(lambda: float((np.ones((200, 200)) @ np.ones((200, 200))).sum()), "work", 20) == 200.0**3
    finally:
        stop.set()
        for t in threads:
            t.join()


def test_temporary_files_go_away() -> None:
    folder = apart(lambda: tempfile.mkdtemp(), "work")
    assert not Path(folder).exists()


def test_what_a_killed_process_left_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = """
import os, signal, tempfile
from aitc.verify.child import apart
def work():
    tempfile.mkdtemp()
    os.kill(os.getppid(), signal.SIGKILL)
    signal.pause()
apart(work, "work")
"""
    own = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=own, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL and list(tmp_path.glob("aitc-child-*"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    deadline = time.monotonic() + 30
    while list(tmp_path.iterdir()) and time.monotonic() < deadline:  # until the kernel has ended its child, too
        apart(int, "work")
    assert not list(tmp_path.iterdir())
