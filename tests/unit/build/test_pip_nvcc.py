"""nvcc from pip packages, in an empty virtual environment, with the machine's own nvcc out of reach."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = """
import sys
from pathlib import Path
from hand_plans import hopper_features
from aitc.build.cmake import BuildOptions, build
from aitc.build.toolchain import find_toolchain
from aitc.emit.project import emit
plan = hopper_features()
chain = find_toolchain("cuda")
assert chain.device.origin == "pip" and chain.device.path.startswith(sys.prefix), chain.device
assert build(plan, emit(plan), Path(sys.argv[1]), chain, BuildOptions(use_cache=False)).library.stat().st_size > 500_000
"""
PROGRAMS = ("g++", "as", "ld", "sh", "truncate", "dd", "ar", "ranlib")  # nvcc calls g++ as well


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.cuda
def test_the_cuda_extra_is_a_whole_compiler(tmp_path: Path) -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    extra = config["options.extras_require"]["cuda"].split()
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = [python, "-m", "pip", "install", "-q", *extra, "jinja2", "numpy", "ml_dtypes", "cmake", "ninja"]
    if subprocess.run(install, check=False, capture_output=True).returncode != 0:
        pytest.skip("no package index")
    (tmp_path / "bin").mkdir()
    (tmp_path / "out").mkdir()
    for name in PROGRAMS:
        found = shutil.which(name)
        assert found is not None, name
        (tmp_path / "bin" / name).symlink_to(found)
    environment = {"PATH": str(tmp_path / "bin"), "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "HOME": str(tmp_path)}
    done = subprocess.run(
        [python, "-c", SCRIPT, tmp_path / "out"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
