"""One runner for ``<stage>/<case>.md``: prose, an ``input`` block, optionally ``options``, and blocks of what is expected.

``make golden`` writes what comes out into the expected blocks; people review the difference. A case of a graph stage also checks that
the stage kept what the graph computes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from graph_inputs import random_inputs

from aitc.emit.project import emit
from aitc.errors import AitcError
from aitc.ir.interpret import interpret
from aitc.ir.rewrite import FUSE, SIMPLIFY
from aitc.ir.text import from_text, to_text
from aitc.ir.verify import verify
from aitc.passes import stages
from aitc.passes.base import Context
from aitc.schedule.plan.check import check_plan
from aitc.schedule.plan.plan import PointerArg
from aitc.schedule.schedule import PlanOptions, schedule
from aitc.targets.target import find_target

HERE = Path(__file__).parent
CASES = sorted(HERE.glob("*/*.md"))
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _graph_stage(stage: str) -> Callable[[dict[str, str]], dict[str, str]]:
    def run(blocks: dict[str, str]) -> dict[str, str]:
        options = dict(line.split(" = ", 1) for line in blocks.get("options", "").splitlines() if line)
        context = Context(
            precision=options.get("precision", "model"), keep_fp32=tuple(options.get("keep_fp32", "").split())
        )
        graph = from_text(blocks["input"])
        verify(graph, "the case itself")
        sizes = dict(pair.split("=") for pair in options.get("sizes", "").split())
        inputs = random_inputs(graph, sizes={name: int(size) for name, size in sizes.items()})
        before = interpret(graph, inputs)
        try:
            getattr(stages, stage)(graph, context)
        except AitcError as e:
            return {"error": f"{e}\n"}
        verify(graph, stage)
        after = interpret(graph, inputs)
        for name, x in before.items():
            close(x, after[name], float(options.get("tolerance", "1e-5")))
        wanted: dict[str, str] = {"expected": to_text(graph, locs=False)}
        if "matches" in blocks:
            wanted["matches"] = "".join(f"{n} {rule}\n" for rule, n in context.log.counts().items())
        if "misses" in blocks:
            wanted["misses"] = "".join(f"{e.rule}: {e.reason}\n" for e in context.log.misses)
        if "decisions" in blocks:
            lines = (f"{d.node} {d.op} {d.dtype}" + (f": {d.reason}" if d.reason else "") for d in context.decisions)
            wanted["decisions"] = "".join(f"{line}\n" for line in lines)
        return wanted

    return run


def close(x: np.ndarray, y: np.ndarray, tolerance: float) -> None:
    assert x.dtype == y.dtype and x.shape == y.shape
    if x.dtype.kind in "biu":
        np.testing.assert_array_equal(x, y)
    else:
        wide = x.astype(np.float64)
        scale = max(1.0, float(np.max(np.abs(wide[np.isfinite(wide)]), initial=0.0)))
        np.testing.assert_allclose(y.astype(np.float64), wide, rtol=0, atol=tolerance * scale)


def _schedule(blocks: dict[str, str]) -> dict[str, str]:
    """Launches with what each fuses and where it reads and writes; ``kernel`` names a kernel whose text is expected as ``code``."""
    options = dict(line.split(" = ", 1) for line in blocks.get("options", "").splitlines() if line)
    target = find_target(options.get("target", "cpu"))
    graph = from_text(blocks["input"])
    context = Context(target)
    for stage in (stages.simplify, stages.fuse, stages.layout):
        stage(graph, context)
    plan = check_plan(schedule(graph, target, PlanOptions("case", "case.onnx")))
    lines = []
    for launch in plan.launches:
        args = (f"{'' if a.const else '&'}{a.buffer}" for a in launch.args if isinstance(a, PointerArg))
        lines.append(f"{launch.entry}({', '.join(args)})  {launch.note}\n")
    wanted = {"launches": "".join(lines)}
    if "kernel" in options:
        wanted["code"] = emit(plan)[f"kernels/{options['kernel']}.{'cu' if target.gpu else 'cpp'}"]
    return wanted


STAGES = {stage: _graph_stage(stage) for stage in ("simplify", "fuse", "layout")} | {"schedule": _schedule}


@pytest.mark.parametrize("path", CASES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_golden(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text(encoding="utf-8")
    blocks = dict(_BLOCK.findall(text))
    actual = STAGES[path.parent.name](blocks)
    if request.config.getoption("--rewrite", default=False):
        for kind, body in actual.items():
            block = f"```{kind}\n{body}```"
            if kind in blocks:
                text = text.replace(f"```{kind}\n{blocks[kind]}```", block)
            else:
                text = text.rstrip() + f"\n\n{block}\n"
        path.write_text(text, encoding="utf-8")
        return
    for kind, body in actual.items():
        assert blocks.get(kind) == body, f"{path.name}: block {kind} differs; `make golden` writes it anew"


def test_every_rule_has_a_case() -> None:
    matched: set[str] = set()
    for path in CASES:
        blocks = dict(_BLOCK.findall(path.read_text(encoding="utf-8")))
        graph, context = from_text(blocks["input"]), Context()
        stages.simplify(graph, context)
        stages.fuse(graph, context)
        matched.update(context.log.counts())
    assert {rule.name for rule in (*SIMPLIFY, *FUSE)} - matched == set()


def test_every_stage_has_cases() -> None:
    assert {p.parent.name for p in CASES} == set(STAGES)
