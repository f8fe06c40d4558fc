"""For all tests: settings of the user's environment are left out, compiled objects are shared between tests and runs,
and cpu code is compiled for one instruction set alone, unless a test asks for more: that halves the time of most. It is the
one that a user's library takes on this machine, or that of ``AITC_TEST_ISA`` (avx2, where avx512 would be taken). Hypothesis
draws the same examples in each run, so that a change is judged by itself: ``AITC_TEST_FUZZ=1`` draws fresh ones (``make
fuzz``). ``--cpu-times FILE`` adds a line for each test: seconds of processor time (its compilers' included), seconds of the
clock, and the test's name. The last lines say how long the GPU kernels on the emulator took."""

from __future__ import annotations

import getpass
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a worker for each processor: numpy's own threads would only wait for each other

import pytest
from hypothesis import settings
from product import isa_of_tests

CACHE = Path(tempfile.gettempdir()) / f"aitc-test-cache-{getpass.getuser()}"

settings.register_profile("same", derandomize=True)
settings.register_profile("fresh", derandomize=False, print_blob=True)
settings.load_profile("fresh" if os.environ.get("AITC_TEST_FUZZ") else "same")

for name in [n for n in os.environ if n.startswith("AITC_") and not n.startswith("AITC_TEST_")]:
    del os.environ[name]
os.environ["AITC_CACHE_DIR"] = str(CACHE)
os.environ["AITC_ISA"] = isa_of_tests()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu-times", metavar="FILE", help="add each test's seconds of processor time and of the clock to FILE")


def _processor_seconds() -> float:
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    used, begin = _processor_seconds(), time.monotonic()
    done = yield
    if path := item.config.getoption("--cpu-times"):
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{_processor_seconds() - used:.2f}\t{time.monotonic() - begin:.2f}\t{item.nodeid}\n")
    return done


EMULATED = (
    "tests/emulator/",
    "tests/kernels/gpu/test_emulated.py",
    "tests/kernels/gpu/test_every_configuration.py",
    "tests/kernels/gpu/test_configurations.py",
    "tests/kernels/gpu/test_planted_faults.py",
    "tests/models/test_emulated_models.py",
    "tests/conformance/test_gpu.py::test_a_test_of_each_operator_on_the_emulator",
    "tests/conformance/test_gpu.py::test_a_kernel_that_does_not_compile",
    "tests/conformance/test_cases.py::test_on_an_emulated_gpu",
)
"""Tests that run GPU kernels on the CPU."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The emulator's share of the time: minutes of tests, and of the clock when all workers are busy."""
    reports = [r for found in terminalreporter.stats.values() for r in found if isinstance(r, pytest.TestReport)]
    minutes = sum(r.duration for r in reports if r.nodeid.startswith(EMULATED)) / 60
    workers = getattr(config.option, "numprocesses", None) or 1
    if minutes > 0.1:
        terminalreporter.write_line(f"GPU kernels on the emulator: {minutes:.1f} minutes of tests, {minutes / workers:.1f} with {workers} workers")
