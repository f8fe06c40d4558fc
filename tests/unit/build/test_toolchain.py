"""Compilers are found in a fixed order, and what is missing is named with the way to get it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aitc.build import toolchain
from aitc.errors import AitcError, Exit


def program(path: Path, says: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with nothing but a shell: tests add compilers."""
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(toolchain.sys, "executable", str(tmp_path / "venv" / "python"))
    for name in (
        "CXX",
        "AITC_NVCC",
        "CUDA_HOME",
        "CUDA_PATH",
        "AITC_HIPCC",
        "ROCM_PATH",
        "HIP_PATH",
        "AITC_CMAKE",
        "AITC_NINJA",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(toolchain.metadata, "distribution", _none)
    return tmp_path


def _none(name: str) -> None:
    raise toolchain.metadata.PackageNotFoundError(name)


def test_flag_before_environment_before_path(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path = program(empty / "path" / "nvcc", "Cuda compilation tools, release 12.0, V12.0.1")
    home = program(empty / "cuda" / "bin" / "nvcc", "Cuda compilation tools, release 13.0, V13.0.88")
    flag = program(empty / "mine" / "nvcc", "Cuda compilation tools, release 13.1, V13.1.2")
    found = toolchain.find_nvcc()
    assert found and (found.path, found.version, found.origin) == (str(on_path), "12.0.1", "PATH")
    monkeypatch.setenv("CUDA_HOME", str(empty / "cuda"))
    found = toolchain.find_nvcc()
    assert found and (found.path, found.version, found.origin, found.root) == (
        str(home),
        "13.0.88",
        "environment CUDA_HOME",
        str(empty / "cuda"),
    )
    found = toolchain.find_nvcc(str(flag))
    assert found and (found.version, found.origin) == ("13.1.2", "flag")


def test_a_flag_is_an_order(empty: Path) -> None:
    program(empty / "path" / "cmake", "cmake version 3.25.1")
    assert toolchain.find_cmake() is not None
    assert toolchain.find_cmake(str(empty / "no" / "cmake")) is None


def test_the_root_behind_a_wrapper_script(empty: Path) -> None:
    program(empty / "path" / "nvcc", "V13.0.88\n#$ _HERE_=/opt/cuda-13/bin")
    found = toolchain.find_nvcc()
    assert found and found.root == "/opt/cuda-13"


def test_programs_beside_python_and_from_wheels(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(empty / "venv" / "ninja", "1.13.2")
    found = toolchain.find_ninja()
    assert found and (found.version, found.origin) == ("1.13.2", "pip")
    nvcc = program(empty / "site" / "nvidia" / "cu13" / "bin" / "nvcc", "release 13.0, V13.0.88")

    class File:
        name, parts = "nvcc", nvcc.parts

        @staticmethod
        def locate() -> Path:
            return nvcc

    class Distribution:
        files = (File(),)

    monkeypatch.setattr(
        toolchain.metadata, "distribution", lambda name: Distribution() if name == "nvidia-cuda-nvcc" else _none(name)
    )
    found = toolchain.find_nvcc()
    assert found and (found.origin, found.root) == ("pip", str(empty / "site" / "nvidia" / "cu13"))


def test_what_cannot_run_is_not_found(empty: Path) -> None:
    path = program(empty / "path" / "ninja", "1.11")
    path.write_text("#!/bin/sh\nexit 1\n")
    assert toolchain.find_ninja() is None
    os.chmod(path, 0o644)
    assert toolchain.find_ninja() is None


def test_all_that_is_missing_is_named_at_once(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain.os.path, "isfile", lambda p: False)
    with pytest.raises(AitcError) as e:
        toolchain.find_toolchain("cuda")
    assert e.value.exit_code is Exit.TOOLCHAIN
    text = str(e.value)
    for name, help_ in (
        ("c++ compiler", "g++"),
        ("cmake", "pip install cmake"),
        ("ninja", "pip install ninja"),
        ("nvcc", "pip install aitc[cuda]"),
    ):
        assert f"no {name} was found" in text and help_ in text


def test_the_identity_follows_the_compilers() -> None:
    def chain(version: str) -> toolchain.Toolchain:
        tool = toolchain.Tool("g++", "/usr/bin/g++", version, "PATH")
        return toolchain.Toolchain("cpu", tool, tool, tool)

    assert chain("12").identity == chain("12").identity != chain("13").identity
