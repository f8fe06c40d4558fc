"""The object cache: what makes two compiler calls equal, and what is kept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aitc.build import cache


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "inc" / "a").mkdir(parents=True)
    (tmp_path / "inc" / "a" / "deep.h").write_text("#define DEEP 1\n")
    (tmp_path / "inc" / "a" / "top.h").write_text('  #  include "a/deep.h"\n')
    (tmp_path / "inc" / "a" / "other.h").write_text("#define OTHER 1\n")
    (tmp_path / "x.cpp").write_text('#include <vector>\n#include "a/top.h"\nint f() { return DEEP; }\n')
    return tmp_path


def key(tree: Path, *flags: str, toolchain: str = "g++ 12") -> str:
    found = cache.call_key(
        ["g++", "-I", str(tree / "inc"), *flags, "-MD", "-MF", "x.d", "-o", "x.o", "-c", str(tree / "x.cpp")], toolchain
    )
    assert found is not None
    return found


def test_equal_calls_have_equal_keys_wherever_the_project_lies(
    tree: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    first = key(tree)
    moved = tmp_path_factory.mktemp("moved") / "tree"
    tree.rename(moved)
    assert key(moved) == first


def test_what_changes_the_key(tree: Path) -> None:
    first = key(tree)
    assert key(tree, "-O3") != first
    assert key(tree, toolchain="g++ 13") != first
    (tree / "inc" / "a" / "other.h").write_text("#define OTHER 2\n")
    assert key(tree) == first, "a header that is not included"
    (tree / "inc" / "a" / "deep.h").write_text("#define DEEP 2\n")
    assert key(tree) != first, "a header that is included by a header"
    second = key(tree)
    (tree / "x.cpp").write_text((tree / "x.cpp").read_text() + "// more\n")
    assert key(tree) != second


def test_code_for_the_own_processor_is_another_machines_for_no_one(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {}
    for processor in ("one", "other"):
        monkeypatch.setenv("AITC_CACHE_PROCESSOR", processor)
        keys[processor] = [key(tree, "-march=native"), key(tree, "-mcpu=native"), key(tree, "-mavx2")]
    one, other = keys["one"], keys["other"]
    assert one[0] != other[0] and one[1] != other[1] and one[2] == other[2]


@pytest.mark.parametrize(
    "command",
    [
        ["g++", "a.o", "-o", "a"],
        ["g++", "-E", "x.cpp", "-o", "x.i"],
        ["g++", "x.cpp", "y.cpp", "-o", "a"],
        ["g++", "missing.cpp", "-o", "m.o"],
    ],
)
def test_calls_that_are_not_one_object_are_left_alone(
    command: list[str], tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tree)
    (tree / "y.cpp").write_text("")
    assert cache.call_key(command, "t") is None


def launch(tree: Path, folder: Path, *flags: str, toolchain: str = "t") -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "AITC_CACHE_DIR": str(folder),
        "AITC_CACHE_TOOLCHAIN": toolchain,
        "AITC_CACHE_LOG": str(tree / "log"),
    }
    command = [
        sys.executable,
        "-I",
        "-S",
        cache.__file__,
        "g++",
        *flags,
        "-I",
        "inc",
        "-MD",
        "-MF",
        "x.d",
        "-o",
        "x.o",
        "-c",
        "x.cpp",
    ]
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)


def test_the_launcher_compiles_once(tree: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    assert launch(tree, folder).returncode == 0
    first = (tree / "x.o").read_bytes()
    (tree / "x.o").unlink()
    assert launch(tree, folder).returncode == 0
    assert (tree / "x.o").read_bytes() == first and (tree / "log").read_bytes() == b"-+"
    assert (tree / "x.d").read_text().startswith("x.o:")
    assert not list(folder.rglob("*.tmp"))


def test_a_failure_is_passed_on_and_not_kept(tree: Path, tmp_path: Path) -> None:
    (tree / "x.cpp").write_text("int f( {")
    done = launch(tree, tmp_path / "cache")
    assert done.returncode != 0 and "error" in done.stderr
    assert not (tmp_path / "cache").exists()


def test_without_a_cache_the_compiler_just_runs(tree: Path, tmp_path: Path) -> None:
    assert launch(tree, Path(""), toolchain="").returncode == 0
    assert (tree / "x.o").exists() and not (tree / "log").exists()


def test_a_cache_that_cannot_be_written_is_no_error(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert launch(tree, tmp_path / "file").returncode == 0
    assert (tree / "x.o").exists()


def test_the_oldest_entries_go_first(tmp_path: Path) -> None:
    for i in range(4):
        entry = Path(cache.entry_path(str(tmp_path), f"{i}{i}key"))
        (tmp_path / "s").write_bytes(b"x" * 100)
        cache.keep(str(tmp_path / "s"), str(entry))
        os.utime(entry, (1000 + i, 1000 + i))
    assert cache.fetch(cache.entry_path(str(tmp_path), "00key"), str(tmp_path / "got"))  # a use makes it young
    assert cache.prune(str(tmp_path), 250) == 200
    left = sorted(p.name for p in (tmp_path / "objects").rglob("*key"))
    assert left == ["00key", "33key"]


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AITC_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache.cache_folder() == "/x/aitc"
    monkeypatch.setenv("AITC_CACHE_DIR", "")
    assert cache.cache_folder() == ""
    monkeypatch.setenv("AITC_CACHE_BYTES", "ten")
    assert cache.limit_bytes() == cache.DEFAULT_BYTES


def test_what_the_compiler_said_is_said_again(tmp_path: Path) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text('#!/bin/sh\necho "Used 90 registers" >&2\ncp "$1" "$3"\n')
    compiler.chmod(0o755)
    (tmp_path / "k.cu").write_text("kernel")
    environment = {**os.environ, "AITC_CACHE_DIR": str(tmp_path / "cache"), "AITC_CACHE_TOOLCHAIN": "one", "AITC_CACHE_LOG": str(tmp_path / "log")}
    said = []
    for output in ("a.o", "b.o"):
        command = [sys.executable, "-I", "-S", cache.__file__, str(compiler), str(tmp_path / "k.cu"), "-o", str(tmp_path / output)]
        said.append(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stderr)
    assert said == ["Used 90 registers\n"] * 2 and (tmp_path / "log").read_bytes() == b"-+"
