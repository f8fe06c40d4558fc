"""Whatever is registered says what it is, every setting and error code is documented, documents name what is there."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from aitc import registry
from aitc.codes import CODES
from aitc.errors import Exit
from aitc.settings import Settings, documented

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(p for folder in ("aitc", "cli") for p in (ROOT / folder).rglob("*.py"))


def entries() -> list[tuple[str, str]]:
    """(what, its documentation) of every registered thing."""
    for package in ("aitc.ops", "aitc.passes", "aitc.rules", "aitc.kernels"):
        registry.load(package)
    from aitc.ir.op import OPS
    from aitc.ir.rewrite import FUSE, SIMPLIFY
    from aitc.kernels.core.kernel import KERNELS
    from aitc.passes.base import PASSES
    from aitc.targets.target import all_targets

    found = [(f"rule {r.name}", r.doc) for r in (*SIMPLIFY, *FUSE)]
    found += [(f"pass {p.name}", p.doc) for p in PASSES]
    found += [(f"kernel {k.name}", k.doc) for k in KERNELS]
    found += [(f"target {t.name}", t.doc) for t in all_targets()]
    for o in OPS:
        if o.expr is None:  # a pointwise op's row is its documentation
            own = (o.attrs.__doc__ or "") if not (o.attrs.__doc__ or "").startswith(f"{o.attrs.__name__}(") else ""
            found.append((f"op {o.name}", o.doc or own))
    return found


ENTRIES = entries()


@pytest.mark.parametrize(("what", "doc"), ENTRIES, ids=[what for what, _ in ENTRIES])
def test_has_a_doc(what: str, doc: str) -> None:
    assert len(doc.split()) >= 2, what


def strings(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def test_every_setting_is_documented() -> None:
    known = {env for env, _, _ in documented()}
    internal = {"AITC_CACHE_TOOLCHAIN", "AITC_CACHE_PROCESSOR", "AITC_CACHE_LOG"}  # from the build to its own launcher
    sources = [p for p in SOURCES if p.name not in ("settings.py", "codes.py")]
    used = {s for path in sources for s in strings(path) if re.fullmatch(r"AITC_[A-Z_]+", s)}
    assert used - known - internal == set()


def test_settings_come_from_the_environment() -> None:
    given = {env: f"value of {env}" for env, _, _ in documented()}
    read = Settings.read(given)
    assert {getattr(read, f) for f in Settings.__dataclass_fields__} == set(given.values())


def codes_used() -> set[str]:
    """Codes in the source: string constants of one letter and two digits that are the first argument of a call or a
    keyword `code`."""
    found = set()
    for path in SOURCES:
        if path.name == "codes.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and re.fullmatch(r"[BCILOPRSTVX]\d\d", node.value)
            ):
                found.add(node.value)
    return found


def test_error_codes_are_explained() -> None:
    assert codes_used() - set(CODES) == set()


def test_no_explanation_is_left_over() -> None:
    assert set(CODES) - codes_used() == set()


def test_exit_codes_are_in_help_and_documents() -> None:
    from aitc_cli.main import EXITS

    assert set(EXITS) == set(Exit)
    page = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
    for code in Exit:
        assert re.search(rf"^\| {int(code)} \|", page, re.MULTILINE), (
            f"docs/commands.md does not explain exit code {int(code)}"
        )


def test_stages_of_the_command_line_are_those_of_the_pipeline() -> None:
    from aitc_cli import options

    from aitc.passes.base import PRECISIONS
    from aitc.pipeline import STAGES

    assert options.STAGES == STAGES
    assert options.PRECISIONS == PRECISIONS


def test_help_imports_nothing_heavy() -> None:
    import subprocess

    heavy = "('onnx', 'numpy', 'jinja2', 'onnxruntime', 'rich')"
    code = f"import sys, aitc_cli.main as m; m.main(['--help']); print([x for x in {heavy} if x in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("name", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "codegen_templates/KERNELS.md"])
def test_documents_name_files_that_exist(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    wrong = []
    for path in re.findall(r"`((?:aitc|cli|codegen_templates|tests|models|bench)/[\w./-]+)`", text):
        places = (ROOT / path, ROOT / "codegen_templates" / "include" / path)
        if not any(p.exists() for p in places) and not list(ROOT.glob(path + "*")):
            wrong.append(path)
    assert not wrong
