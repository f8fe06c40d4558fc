"""Under AddressSanitizer plain accesses outside shared memory, to bytes in flight, and outside buffers are reported with their line."""

from __future__ import annotations

from pathlib import Path

import pytest

import emulator

SOURCE = Path(__file__).parent / "kernels" / "asan.cpp"


def run(what: str) -> tuple[int, str]:
    done = emulator.run(SOURCE.read_text(), "sm80", what, asan=True)
    return done.returncode, done.stdout + done.stderr


def test_a_right_kernel_passes() -> None:
    assert run("good") == (0, "")


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        ("shared_overrun", "use-after-poison"),
        ("in_flight", "use-after-poison"),
        ("global_overrun", "heap-buffer-overflow"),
    ],
)
def test_reports(what: str, kind: str) -> None:
    code, text = run(what)
    assert code == 9 and kind in text and f"in {what}" in text


def test_the_emulators_own_errors_still_work() -> None:
    code, text = run("error")
    assert code == 3 and "outside the 512 bytes" in text


def test_without_assembly() -> None:
    """Processors other than x86-64 switch by ucontext."""
    done = emulator.run("#define AITC_EMULATOR_UCONTEXT\n" + SOURCE.read_text(), "sm80", "good")
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
