"""Fixtures: the command, and a small model for it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import onnx
import pytest

from tests.cli.support import Aitc, Done, environment, small_model


@pytest.fixture()
def aitc(tmp_path: Path) -> Aitc:
    """Runs ``aitc ARGUMENTS`` in a fresh folder. Whatever happens, no traceback may be seen."""

    def run(
        *arguments: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None, timeout: float = 300
    ) -> Done:
        command = [sys.executable, "-m", "aitc_cli", *map(str, arguments)]
        done = subprocess.run(
            command,
            cwd=cwd or tmp_path,
            env=environment(tmp_path, **(env or {})),
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
        )
        assert "Traceback" not in done.stderr + done.stdout, done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture()
def small(tmp_path: Path) -> Path:
    """A model of three nodes in a file."""
    path = tmp_path / "small.onnx"
    onnx.save(small_model(), path)
    return path
