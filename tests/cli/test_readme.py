"""README.md's commands and programs, run as they are printed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.support import environment

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def command_before(language: str) -> str:
    """The compiler call in parentheses in the line before the program."""
    found = re.search(r"\(`(c[c+]+ [^`]*)`\)[^\n]*\n\n```" + re.escape(language) + "\n", TEXT)
    assert found, f"README.md does not say how to compile its {language} program"
    return found.group(1)


def shell(command: str, folder: Path) -> str:
    own = environment(folder, AITC_ISA="", PATH=f"{Path(sys.executable).parent}:{environment(folder)['PATH']}")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command], cwd=folder, env=own, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the README's compile command was run."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "models").symlink_to(ROOT / "models")
    (compile_block,) = [b for b in blocks("sh") if b.startswith("aitc compile")]
    out = shell(compile_block, folder)
    assert "verification passed" in out
    return folder


def test_every_file_of_the_table_is_there(place: Path) -> None:
    names = re.findall(r"^\| `([\w./]+)` \| ", TEXT, re.MULTILINE)
    assert {"libresnet.so", "resnet", "resnet.h", "resnet.json", "src/"} <= set(names)
    for name in ("libresnet.so", "resnet", "resnet.h", "resnet.json", "src/CMakeLists.txt"):
        assert (place / "out" / name).exists()


def test_shell(place: Path) -> None:
    (block,) = [b for b in blocks("sh") if "out/resnet" in b]
    out = shell(block, place)
    assert '"latency_ms"' in out
    assert (place / "results" / "logits.npy").is_file()


def test_python(place: Path) -> None:
    (block,) = blocks("python")
    (place / "main.py").write_text(block)
    assert shell("python main.py", place) == "(2, 10)\n"


@pytest.mark.parametrize(
    ("language", "file", "output"),
    [("c", "main.c", r"-?\d"), ("cpp", "main.cpp", r"resnet takes x for cpu\n50 logits")],
)
def test_programs(place: Path, language: str, file: str, output: str) -> None:
    (block,) = blocks(language)
    (place / file).write_text(block)
    shell(command_before(language) + " -Wall -Wextra -Werror -o program", place)
    assert re.match(output, shell("./program", place))


def test_it_links_to_nothing_but_the_system(place: Path) -> None:
    needed = re.findall(r"NEEDED.*\[(.*)\]", shell("readelf -d out/libresnet.so", place))
    allowed = ("libc.so", "libm.so", "libstdc++.so", "libgcc_s.so", "libpthread.so", "libdl.so", "ld-linux")
    assert needed and all(n.startswith(allowed) for n in needed), needed


def test_the_project_builds_by_hand(place: Path) -> None:
    shutil.rmtree(place / "b", ignore_errors=True)
    shell("cmake -S out/src -B b -G Ninja && cmake --build b", place)
    assert (place / "b" / "libresnet.so").read_bytes() == (place / "out" / "libresnet.so").read_bytes()
