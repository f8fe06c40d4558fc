"""``aitc list WHAT``: what aitc knows."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import click

from aitc.errors import Exit

from .. import options as flags
from ..render import tell

Rows = tuple[tuple[str, ...], Sequence[tuple[str, ...]]]  # column names, rows


def targets() -> Rows:
    from aitc.targets.machine import devices
    from aitc.targets.target import all_targets

    here = {d.target for d in devices()} | {"cpu"}
    rows = [
        (t.name, t.api, t.arch, ", ".join(t.aliases), "yes" if t.name in here else "", t.doc) for t in all_targets()
    ]
    return ("name", "api", "arch", "also called", "here", "what"), rows


def ops() -> Rows:
    """The table of docs/operators.md, as far as it fits a line, and what the registry has beside it."""
    from aitc.ops.support import table

    known = table()
    targets = list(dict.fromkeys(r.target for r in known.runs))
    rows = []
    for (domain, name), o in sorted(known.operators.items()):
        verdicts = [known.verdict(o, t) for t in targets]
        forms = ", ".join(str(v) for v in o.versions if v not in o.missing)
        marks = [f"{v.good}/{v.tests}{'' if v.how == 'run' else f' {v.how}'}" if v.tests else "" for v in verdicts]
        rows.append((domain or "ai.onnx", name, forms or "none", *marks, o.unsupported))
    return ("domain", "operator", "forms since opset", *targets, "not compiled because"), rows


def core() -> Rows:
    from aitc.ir.op import OPS
    from aitc.registry import load

    load("aitc.ops")
    return ("name", "kind", "what"), [(o.name, o.kind.value, _first(o.doc)) for o in OPS]


def kernels() -> Rows:
    from aitc.kernels.core.kernel import KERNELS
    from aitc.registry import load

    load("aitc.kernels")
    return ("name", "requires", "for", "what"), [
        (k.name, ", ".join(sorted(k.requires)), ", ".join(sorted(k.anchors)) or "pointwise and copies", _first(k.doc))
        for k in KERNELS
    ]


def rules() -> Rows:
    from aitc.ir.rewrite import FUSE, SIMPLIFY
    from aitc.registry import load

    load("aitc.rules")
    return ("stage", "name", "looks at", "what"), [
        (stage, r.name, ", ".join(r.anchors), _first(r.doc))
        for stage, rs in (("simplify", SIMPLIFY), ("fuse", FUSE))
        for r in rs
    ]


def passes() -> Rows:
    from aitc.passes.base import PASSES
    from aitc.registry import load

    load("aitc.passes")
    return ("name", "what"), [(p.name, p.doc) for p in PASSES]


def toolchains() -> Rows:
    from aitc.build.toolchain import found_tools

    return ("tool", "version", "path", "found by", "for"), [
        (name, t.version if t else "not found", t.path if t else "", t.origin if t else "", use)
        for name, t, use in found_tools()
    ]


def settings() -> Rows:
    from aitc.settings import documented

    return ("variable", "default", "what"), documented()


def stages() -> Rows:
    from aitc.pipeline import STAGES

    return ("number", "stage"), [(str(i + 1), s) for i, s in enumerate(STAGES)]


WIDEST = 48  # characters of a column, but the last

LISTS: dict[str, Callable[[], Rows]] = {
    "targets": targets,
    "ops": ops,
    "core": core,
    "kernels": kernels,
    "rules": rules,
    "passes": passes,
    "stages": stages,
    "toolchains": toolchains,
    "settings": settings,
}


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _first(doc: str) -> str:
    return doc.strip().splitlines()[0] if doc.strip() else ""


@click.command("list", short_help="targets, ops, kernels, rules, passes, toolchains, settings")
@click.argument("what", type=click.Choice(tuple(LISTS)), metavar="WHAT")
@flags.json_flag
def command(what: str, as_json: bool) -> int:
    """List what aitc knows. WHAT is one of:

    \b
    targets     machines to compile for
    ops         ONNX operators
    core        aitc's own operators, which ONNX operators become
    kernels     algorithms, and the operators that they run
    rules       rewrites of the simplify and fuse stages
    passes      changes to a whole graph
    stages      steps from file to binary
    toolchains  compilers found on this machine
    settings    environment variables
    """
    columns, rows = LISTS[what]()
    if as_json:
        print(json.dumps([dict(zip(columns, row)) for row in rows], indent=2))
        return int(Exit.OK)
    last = len(columns) - 1
    widths = [
        min(max(len(row[i]) for row in [columns, *rows]), WIDEST if i < last else 10**6) for i in range(len(columns))
    ]
    for row in [columns, *rows]:
        tell("  ".join(_cut(cell, w).ljust(w) for cell, w in zip(row, widths)).rstrip())
    return int(Exit.OK)
