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
    monkeypatch.setattr(toolchain, "HIP_BITCODE", (str(tmp_path / "bitcode"),))
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


def test_so_is_a_variable_that_names_a_program(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, says in (("g++", "g++ 12.2.0"), ("cmake", "cmake version 3.25.1"), ("ninja", "1.11.1")):
        program(empty / "path" / name, says)
    assert toolchain.find_toolchain("cpu").cxx.origin == "PATH"
    monkeypatch.setenv("CXX", "/no/such/g++")
    monkeypatch.setenv("AITC_NINJA", str(empty))
    with pytest.raises(AitcError) as e:
        toolchain.find_toolchain("cpu")
    assert e.value.exit_code is Exit.TOOLCHAIN and [d.code for d in e.value.diagnostics] == ["B01", "B01"]
    assert "CXX=/no/such/g++ is no c++ compiler that runs" in str(e.value) and f"AITC_NINJA={empty}" in str(e.value)


@pytest.mark.parametrize("value", ["g++", "ccache g++", "g++ -m64", "/usr/bin/sccache  g++ -O1"])
def test_words_around_the_compiler(empty: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    mine = program(empty / "path" / "g++", "g++ 12.2.0")
    program(empty / "path" / "ccache", "ccache 4.8")
    monkeypatch.setenv("CXX", value)
    found = toolchain.find_cxx()
    assert found and (found.path, found.origin) == (str(mine), "environment CXX")


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


HIP5 = "HIP version: 5.2.21153-0\nDebian clang version 15.0.6"
HIP6 = "HIP version: 6.2.41133-0\nAMD clang version 18.0.0git (https://github.com/RadeonOpenCompute/llvm-project)"
CLANG = "Debian clang version 19.1.7 (3~deb12u1)"


def test_a_clang_where_hipcc_is_too_old(empty: Path) -> None:
    hipcc, clang = program(empty / "path" / "hipcc", HIP5), program(empty / "path" / "clang++-19", CLANG)
    program(empty / "path" / "clang++-16", "Debian clang version 16.0.6")
    without_library = toolchain.find_hipcc(arches=("gfx942",))
    assert without_library and toolchain.lacking(without_library, ("gfx90a", "gfx942")) == ("gfx942",)
    (empty / "bitcode").mkdir()  # ROCm's device library, which a clang of LLVM's needs
    old, new, both = (toolchain.find_hipcc(arches=a) for a in (("gfx90a",), ("gfx942",), ("gfx90a", "gfx942")))
    assert old and (old.name, old.path, old.version) == ("hipcc", str(hipcc), "5.2.21153-0 (clang 15)")
    assert new == both and new and (new.name, new.path, new.version) == ("clang++", str(clang), "19.1.7 (clang 19)")
    shown = {name: tool for name, tool, _ in toolchain.found_tools()}
    assert (shown["hip gfx90a"], shown["hip gfx942"]) == (old, new)


def test_rocm_by_its_variable_and_the_flag(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(empty / "path" / "hipcc", HIP5)
    rocm = program(empty / "rocm-6" / "bin" / "hipcc", HIP6)
    monkeypatch.setenv("ROCM_PATH", str(empty / "rocm-6"))
    found = toolchain.find_hipcc(arches=("gfx90a", "gfx942"))
    assert found and (found.path, found.origin, found.root) == (str(rocm), "environment ROCM_PATH", str(empty / "rocm-6"))
    mine = program(empty / "mine" / "hipcc", HIP5)
    flag = toolchain.find_hipcc(str(mine), ("gfx942",))  # an order, even where it cannot be followed
    assert flag and flag.path == str(mine) and toolchain.lacking(flag, ("gfx942",))


def test_too_old_for_the_target(empty: Path) -> None:
    for name, says in (("hipcc", HIP5), ("g++", "g++ 12.2.0"), ("cmake", "3.25.1"), ("ninja", "1.11")):
        program(empty / "path" / name, says)
    assert toolchain.find_toolchain("hip", ("gfx90a",)).device is not None
    with pytest.raises(AitcError, match="does not know gfx942") as e:
        toolchain.find_toolchain("hip", ("gfx90a", "gfx942"))
    assert e.value.exit_code is Exit.TOOLCHAIN and e.value.diagnostics[0].code == "B05"
    assert "clang-19" in e.value.diagnostics[0].help


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
