"""The commands and programs of README.md and docs/, run as they are printed, and the flags of all other pages."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from aitc_cli.main import COMMANDS, cli

from tests.cli.support import environment

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/compiling.md", "docs/running.md", "docs/commands.md", "docs/reporting.md")
TEXTS = {page: (ROOT / page).read_text(encoding="utf-8") for page in PAGES}
TEXT = "\n".join(TEXTS.values())
OTHER_PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "tests/README.md", "bench/README.md", "models/README.md")


def blocks(language: str, text: str = TEXT) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def command_before(language: str) -> str:
    """The compiler call in parentheses in the line before the program."""
    found = re.search(r"\(`(c[c+]+ [^`]*)`\)[^\n]*\n\n```" + re.escape(language) + "\n", TEXT)
    assert found, f"no page says how to compile its {language} program"
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
    (compile_block,) = [b for b in blocks("sh", TEXTS["README.md"]) if b.startswith("aitc compile")]
    out = shell(compile_block, folder)
    assert "verification passed" in out
    return folder


def test_every_file_of_the_table_is_there(place: Path) -> None:
    names = {n.replace("NAME", "resnet") for n in re.findall(r"^\| `([\w./]+)` \| ", TEXTS["docs/compiling.md"], re.MULTILINE)}
    assert names == {"libresnet.so", "resnet", "resnet.h", "resnet.json", "src/"}
    assert all((place / "out" / name).exists() for name in names)


def test_shell(place: Path) -> None:
    (block,) = [b for b in blocks("sh") if "out/resnet" in b]
    out = shell(block, place)
    assert '"latency_ms"' in out
    assert (place / "results" / "logits.npy").is_file()


def commands(page: str) -> list[str]:
    """The lines of the page's shell blocks that hold for any machine and compile nothing for long."""
    lines = (line for block in blocks("sh", TEXTS[page]) for line in block.splitlines())
    return [line for line in lines if line.startswith(("aitc", "eval"))]


@pytest.mark.parametrize("line", [*commands("docs/compiling.md"), *commands("docs/commands.md")])
def test_command(place: Path, line: str) -> None:
    assert shell(line, place) or line.startswith("eval")


def spoken() -> list[tuple[str, str]]:
    """Page and text of each aitc command in a shell block or between backquotes."""
    texts = {**TEXTS, **{page: (ROOT / page).read_text(encoding="utf-8") for page in OTHER_PAGES}}
    found = []
    for page, text in texts.items():
        lines = [line for block in blocks("sh", text) for line in block.replace("\\\n", " ").splitlines()]
        plain = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        lines += [code.replace("\n", " ") for code in re.findall(r"`([^`]+)`", plain)]
        found += [(page, m.group(1)) for line in lines for m in re.finditer(r"\baitc ([a-z]+\b[^#;|]*)", line)]
    return found


def test_every_command_and_flag_exists() -> None:
    """On every page: of the commands that are run above, and of those that cannot be run in a test."""
    said, wrong = spoken(), []
    assert len(said) > 30
    for page, text in said:
        verb, *words = text.split()
        command = cli.get_command(None, verb) if verb in COMMANDS else None  # type: ignore[arg-type]
        flags = {o for p in command.params for o in p.opts} | {"-h", "--help"} if command else set()
        wrong += [f"{page}: aitc {verb}"] if command is None else []
        wrong += [f"{page}: aitc {verb} {w}" for w in words if command and re.match("--?[a-z]", w) and w not in flags]
    assert not wrong


def test_links_lead_somewhere() -> None:
    pages = [*PAGES, *OTHER_PAGES, "docs/glossary.md"]
    links = [(p, t) for p in pages for t in re.findall(r"\]\(([^)#:]+)\)", (ROOT / p).read_text(encoding="utf-8"))]
    assert links
    assert not [(page, to) for page, to in links if not ((ROOT / page).parent / to).exists()]


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
