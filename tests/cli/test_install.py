"""Installing aitc as a user does: plain, from the tree, into an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import onnx
import pytest

from tests.cli.support import small_model

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str | Path, env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    done = subprocess.run([str(c) for c in command], env=env, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tracked files, so that pip's build folder does not land in the tree."""
    folder = tmp_path_factory.mktemp("source")
    what = ("aitc", "cli", "codegen_templates", "setup.cfg", "pyproject.toml", "README.md")
    for name in run("git", "ls-files", *what, cwd=ROOT).splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((ROOT / name).read_bytes())
    return folder


@pytest.mark.slow
def test_wheel_has_everything_and_no_package_named_cli(source: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", tmp_path, source)
    (wheel,) = tmp_path.glob("aitc-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder, package in (("aitc", "aitc"), ("cli", "aitc_cli"), ("codegen_templates", "aitc_templates")):
        for path in (source / folder).rglob("*"):
            if path.is_file() and path.suffix in (".py", ".toml", ".j2", ".h", ".json"):
                assert f"{package}/{path.relative_to(source / folder)}" in names
    tops = {n.split("/")[0] for n in names}
    assert {t for t in tops if not t.endswith(".dist-info")} == {"aitc", "aitc_cli", "aitc_templates"}


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.cuda
def test_nvcc_comes_with_the_extra(source: Path, tmp_path: Path) -> None:
    """An empty virtual environment, the machine's own nvcc hidden: `pip install aitc[cuda]` is all that a CUDA build
    needs."""
    venv = tmp_path / "venv"
    run(sys.executable, "-m", "venv", venv)
    run(venv / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{source}[cuda]")
    hidden = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA", "AITC_NVCC", "PYTHONPATH"))}
    env = {**hidden, "PATH": f"{venv / 'bin'}:/usr/bin:/bin", "AITC_CACHE_DIR": str(tmp_path / "cache")}
    aitc = venv / "bin" / "aitc"
    tools = {t["tool"]: t for t in json.loads(run(aitc, "list", "toolchains", "--json", env=env, cwd=tmp_path))}
    assert tools["nvcc"]["found by"] == "pip" and tools["nvcc"]["path"].startswith(str(venv))
    onnx.save(small_model(), tmp_path / "small.onnx")
    out = run(aitc, "compile", "small.onnx", "-t", "a100", "-t", "h100", "--dim", "batch=4", cwd=tmp_path, env=env)
    assert "verification" in out
    assert (tmp_path / "out" / "libsmall.so").is_file()
    needed = run("readelf", "-d", tmp_path / "out" / "libsmall.so")
    assert not [n for n in ("libcudart", "libcuda.so", "libcublas", "libcudnn") if n in needed]
