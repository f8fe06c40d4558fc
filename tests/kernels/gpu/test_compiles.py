"""One source of each GPU kernel through the real compilers: nvcc for sm_80, clang for gfx90a. Nothing is run.

``make test`` compiles one problem of each kernel, ``make test-rest`` another.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from . import device
from .cases import GENERATORS, problems_of
from .problem import Problem

HIP_CLANG = shutil.which("clang++-15")
BITCODE = Path("/usr/lib/x86_64-linux-gnu/amdgcn/bitcode")


def _examples(foreign_warp: int) -> list[object]:
    result = []
    for kernel in GENERATORS:
        problems = [p for p in problems_of(kernel) if p.warp != foreign_warp and p.arch != "gfx942"]
        two = problems[:: max(1, len(problems) // 2)][:2]
        result += [pytest.param(p, id=f"{kernel}: {p.name}", marks=pytest.mark.full if n else ()) for n, p in enumerate(two)]
    return result


@pytest.mark.cuda
@pytest.mark.skipif(not shutil.which("nvcc"), reason="nvcc is not installed")
@pytest.mark.parametrize("problem", _examples(64))
def test_nvcc(problem: Problem, tmp_path: Path) -> None:
    assert device.build(problem, tmp_path, "80").stat().st_size > 0


@pytest.mark.hip
@pytest.mark.skipif(not HIP_CLANG or not BITCODE.exists(), reason="hipcc is not installed")
@pytest.mark.parametrize("problem", _examples(32))
def test_hip(problem: Problem, tmp_path: Path) -> None:
    source, output = tmp_path / "kernel.hip", tmp_path / "kernel.co"
    source.write_text(problem.source)
    command = [
        str(HIP_CLANG),
        "-x",
        "hip",
        "--offload-arch=gfx90a",
        "--rocm-path=/usr",
        f"--rocm-device-lib-path={BITCODE}",
        "-D__HIP_PLATFORM_AMD__",
    ]
    command += [
        "-O3",
        "-std=c++17",
        "--offload-device-only",
        "--no-gpu-bundle-output",
        f"-I{device.INCLUDE}",
        str(source),
        "-o",
        str(output),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:3000]
    notes = subprocess.run(["llvm-readelf-15", "--notes", str(output)], capture_output=True, text=True, check=False)
    if problem.warp == 64 and notes.returncode == 0:
        assert ".vgpr_spill_count: 0" in notes.stdout.replace("  ", " ").replace("  ", " ")
