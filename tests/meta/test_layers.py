"""Imports point down, third parties have one door each, and the lists of the packaging are complete."""

from __future__ import annotations

import ast
import configparser
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# A module may import from its own package and from those of a lower row. aitc itself re-exports `load`.
LAYERS = (
    ("errors",),
    ("settings", "registry", "codes"),
    ("ir",),
    ("targets", "abi", "dlpack", "whole"),
    ("ops",),
    ("importer", "passes", "rules", "runtime"),
    ("kernels",),
    ("schedule",),
    ("emit",),
    ("build",),
    ("verify",),
    ("progress", "report", "describe"),
    ("pipeline",),
    ("profile", "latency", "tune"),
    ("field_report",),
)
RANK = {name: rank for rank, row in enumerate(LAYERS) for name in row}
# The same within these packages: a room imports from those before it.
ROOMS = {
    "kernels": (("core",), ("general", "elements", "matmul", "rows"), ("conv",), ("attention",), ("hopper",)),
    "schedule": (("core", "plan"), ("choose",), ("rewrite",), ("group",), ("launch",), ("schedule",)),
}
ROOM_RANK = {(package, room): rank for package, rows in ROOMS.items() for rank, row in enumerate(rows) for room in row}
MOST_FILES = 15  # of a room
WITHIN = {("report", "progress"), ("describe", "progress"), ("describe", "report"), ("tune", "profile"), ("tune", "latency")}  # (who, whom) in one row

DOORS = {
    "onnx": ("importer/", "verify/reference.py", "verify/exact.py", "verify/noise.py"),
    "jinja2": ("emit/render.py",),
    "onnxruntime": ("verify/reference.py",),
    "subprocess": ("build/", "verify/run.py"),
    "click": (),
    "rich": (),
}


def modules() -> list[Path]:
    return sorted((ROOT / "aitc").rglob("*.py"))


def imports(path: Path) -> Iterator[tuple[str, int, bool]]:
    """(dotted name, line, whether it is only for type checkers) of every import in the file, those inside functions
    too."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, id(node) in typing_only
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = path.relative_to(ROOT).parent.parts[
                    : len(path.relative_to(ROOT).parent.parts) - node.level + 1
                ]
                base = ".".join((*package, base) if base else package)
            for alias in node.names:
                yield f"{base}.{alias.name}", node.lineno, id(node) in typing_only


def own(path: Path) -> str:
    return path.relative_to(ROOT / "aitc").parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    me = own(path)
    if me == "__init__":
        return
    assert me in RANK, f"aitc/{me} has no row in LAYERS"
    for name, line, _ in imports(path):
        parts = name.split(".")
        if parts[0] in ("aitc_cli", "cli"):
            pytest.fail(f"{path}:{line} imports the command line")
        if parts[0] != "aitc" or len(parts) < 2 or parts[1] not in RANK:
            continue
        other = parts[1]
        assert other == me or RANK[other] < RANK[me] or (me, other) in WITHIN, f"{path}:{line}: {me} imports {name}"


@pytest.mark.parametrize("package", ROOMS)
def test_rooms_import_from_those_before_them(package: str) -> None:
    for path in sorted((ROOT / "aitc" / package).rglob("*.py")):
        room = path.relative_to(ROOT / "aitc" / package).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        for name, line, _ in imports(path):
            parts = name.split(".")
            if parts[:2] == ["aitc", package] and len(parts) > 2 and parts[2] != room:
                assert ROOM_RANK[package, parts[2]] < ROOM_RANK[package, room], f"{path}:{line}: {room} imports {name}"


def test_no_room_is_a_hall() -> None:
    folders = [ROOT / "aitc" / package / room for package, room in ROOM_RANK if (ROOT / "aitc" / package / room).is_dir()]
    folders += [f for f in (ROOT / "codegen_templates" / "include" / "aitc" / "gpu").iterdir() if f.is_dir()]
    for folder in folders:
        assert len([f for f in folder.iterdir() if f.suffix in (".py", ".h") and f.stem != "__init__"]) <= MOST_FILES, folder


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_third_parties_have_one_door(path: Path) -> None:
    where = str(path.relative_to(ROOT / "aitc"))
    for name, line, typing_only in imports(path):
        package = name.split(".")[0]
        if package in DOORS and not typing_only:
            assert any(where.startswith(door) for door in DOORS[package]), f"{path}:{line} imports {package}"


def test_emit_sees_no_graph() -> None:
    for path in (ROOT / "aitc" / "emit").glob("*.py"):
        names = [name for name, _, _ in imports(path)]
        forbidden = ("aitc.ir.graph", "aitc.ops", "aitc.kernels", "aitc.passes", "aitc.rules", "aitc.importer")
        assert not [n for n in names if n.startswith(forbidden)], path


def test_packaging_lists_every_package() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    listed = set(config["options"]["packages"].split())
    found = {"aitc_templates"}
    for folder, name in (("aitc", "aitc"), ("cli", "aitc_cli")):
        for init in (ROOT / folder).rglob("__init__.py"):
            found.add(".".join((name, *init.parent.relative_to(ROOT / folder).parts)))
    assert listed == found


def test_every_python_folder_is_a_package() -> None:
    for folder in ("aitc", "cli"):
        for path in (ROOT / folder).rglob("*.py"):
            assert (path.parent / "__init__.py").is_file(), path
