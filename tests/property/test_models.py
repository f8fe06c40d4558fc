"""Random ONNX models against ``onnx.reference``: through every stage by interpretation, and compiled for cpu."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from conformance.many import build_many, plan_of
from conformance.node_tests import mismatch
from conformance.run_many import run_many
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_models.strategy import RandomModel, models

from aitc.importer.onnx import import_model
from aitc.ir.graph import Graph
from aitc.ir.interpret import interpret
from aitc.passes.base import Context
from aitc.passes.stages import fuse, layout, simplify
from aitc.schedule.plan.check import check_plan
from aitc.schedule.schedule import PlanOptions, schedule
from aitc.targets.target import find_target

FUZZ = not settings.default.derandomize  # make fuzz: see conftest.py
MODELS = settings(deadline=None, suppress_health_check=list(HealthCheck))
BUNDLE = 10  # models in one library: their compile is most of the cost


def right(graph: Graph, drawn: RandomModel, stage: str) -> None:
    for inputs, outputs in drawn.data_sets:
        results = interpret(graph, {v.name: a for v, a in zip(graph.inputs, inputs, strict=True)})
        for (name, actual), expected in zip(results.items(), outputs, strict=True):
            wrong = mismatch(expected, actual, drawn.rtol, drawn.atol)
            assert wrong is None, f"after {stage}, {name}: {wrong}"


@pytest.mark.parametrize("target", ["cpu", "h200", "mi250"])
@settings(MODELS, max_examples=500 if FUZZ else 60)
@given(drawn=models())
def test_stages_keep_what_a_model_computes(target: str, drawn: RandomModel) -> None:
    graph = import_model(drawn.model).graph
    right(graph, drawn, "import")
    context = Context(find_target(target))
    for stage in (simplify, fuse, layout):
        stage(graph, context)
        right(graph, drawn, stage.__name__)
    check_plan(schedule(graph, find_target(target), PlanOptions("m", "m.onnx")))


@pytest.mark.slow
@settings(MODELS, max_examples=60 if FUZZ else 4)
@given(st.lists(models(), min_size=3, max_size=BUNDLE))
def test_compiled_models(drawn: list[RandomModel]) -> None:
    named = [replace(m, name=f"m{n}") for n, m in enumerate(drawn)]
    plans = [plan_of(m.model, f"t{n}", f"{m.name}.onnx") for n, m in enumerate(named)]
    with tempfile.TemporaryDirectory() as folder:
        results = run_many(build_many(plans, Path(folder)), named)
    wrong = {name: what for name, what in results.items() if what is not None}
    assert not wrong
