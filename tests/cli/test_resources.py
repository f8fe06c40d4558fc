"""``aitc show --stage schedule --resources``: what GPU kernels take of the machine, as their compilers count it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import onnx
import pytest

from aitc.build.toolchain import find_toolchain
from aitc.errors import AitcError, Exit
from aitc.targets.target import find_target

from .support import Aitc, small_model


@pytest.fixture
def small(tmp_path: Path) -> Path:
    onnx.save(small_model(), tmp_path / "small.onnx")
    return tmp_path / "small.onnx"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        pytest.param("mi250", r"gfx90a: \d+ VGPRs \(\d+ of them AGPRs\), \d+ SGPRs, \d+ bytes of LDS, no spills; \d+ blocks? a unit", marks=pytest.mark.hip),
        pytest.param("a100", r"sm_80: \d+ registers, \d+ bytes of shared memory, no spills; \d+ blocks? a unit", marks=pytest.mark.cuda),
    ],
)
def test_text_and_json(aitc: Aitc, small: Path, target: str, words: str) -> None:
    try:
        find_toolchain(find_target(target).api, [find_target(target).arch])
    except AitcError as error:
        pytest.skip(f"no compiler for {target}: {error.diagnostics[0].message}")
    flags = ("show", small, "--stage", "schedule", "--resources", "-t", target)
    said = aitc(*flags)
    assert said.code == Exit.OK, said.err
    assert re.search(words, said.out), said.out
    found = json.loads(aitc(*flags, "--json").out)["resources"]
    assert len(found) == said.out.count("of LDS" if target == "mi250" else "of shared memory") > 0
    assert all(r["registers"] > 0 and r["blocks"] >= 1 and r["warps_per_simd"] > 0 for r in found)


@pytest.mark.parametrize("flags", [("--stage", "fuse", "-t", "a100"), ("--stage", "schedule", "-t", "cpu")])
def test_where_it_makes_no_sense(aitc: Aitc, small: Path, flags: tuple[str, ...]) -> None:
    done = aitc("show", small, "--resources", *flags)
    assert done.code == Exit.USAGE and "--resources" in done.err
