"""Every pass, every rule and every stage keeps what a graph computes, and the text IR keeps the graph."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from graph_inputs import random_inputs
from graph_strategies import graphs
from hypothesis import HealthCheck, given, settings

from aitc.ir.graph import Graph
from aitc.ir.interpret import interpret
from aitc.ir.rewrite import FUSE, SIMPLIFY, apply_rules
from aitc.ir.text import from_text, to_text
from aitc.ir.verify import verify
from aitc.passes import stages
from aitc.passes.base import PASSES, Context

QUICK = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def keeps(graph: Graph, change: Callable[[Graph], object], tolerance: float = 2e-4) -> None:
    inputs = random_inputs(graph)
    before = interpret(graph, inputs)
    names = [v.name for v in graph.outputs]
    change(graph)
    verify(graph, "the change")
    graph.output_names = names
    after = interpret(graph, inputs)
    for name in names:
        x, y = before[name], after[name]
        assert x.shape == y.shape and x.dtype == y.dtype
        with np.errstate(all="ignore"):
            same = np.isclose(
                x,
                y,
                rtol=tolerance,
                atol=tolerance * max(1.0, np.max(np.abs(x[np.isfinite(x)]), initial=0.0)),
                equal_nan=True,
            )
        unsure = ~np.isfinite(x) | ~np.isfinite(y)  # an overflow may come a rounding earlier
        assert np.all(same | unsure)


@QUICK
@given(graphs())
def test_text_keeps_the_graph(graph: Graph) -> None:
    constants: dict[str, np.ndarray] = {}
    text = to_text(graph, constants)
    back = from_text(text, constants)
    assert to_text(back) == text
    inputs = random_inputs(graph)
    for x, y in zip(interpret(graph, inputs).values(), interpret(back, inputs).values(), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("name", [n for n in PASSES.names() if n not in ("simplify_rules", "fuse_rules")])
@QUICK
@given(graph=graphs())
def test_each_pass_keeps_the_values(name: str, graph: Graph) -> None:
    keeps(graph, lambda g: PASSES[name].run(g, Context()))


@pytest.mark.parametrize("rule", [*SIMPLIFY, *FUSE], ids=lambda r: r.name)
@settings(QUICK, max_examples=12)
@given(graph=graphs())
def test_each_rule_keeps_the_values(rule: object, graph: Graph) -> None:
    keeps(graph, lambda g: apply_rules(g, [rule]))


@settings(QUICK, max_examples=150)
@given(graphs())
def test_the_stages_keep_the_values(graph: Graph) -> None:
    def all_stages(g: Graph) -> None:
        context = Context()
        stages.simplify(g, context)
        stages.fuse(g, context)
        stages.layout(g, context)

    keeps(graph, all_stages)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@QUICK
@given(graph=graphs())
def test_narrowing_keeps_the_types_of_inputs_and_outputs(precision: str, graph: Graph) -> None:
    types = [v.type for v in (*graph.inputs, *graph.outputs)]
    context = Context(precision=precision)
    stages.layout(graph, context)
    verify(graph, "layout")
    assert [(v.type.dtype, v.type.shape) for v in (*graph.inputs, *graph.outputs)] == [(t.dtype, t.shape) for t in types]
    interpret(graph, random_inputs(graph))
    narrow = "f16" if precision == "fp16" else "bf16"
    for d in context.decisions:
        assert d.dtype == narrow or d.reason or d.op in ("Cast", "Min", "Max", "Expand"), d


@QUICK
@given(graphs())
def test_simplifying_twice_changes_nothing_more(graph: Graph) -> None:
    stages.simplify(graph, Context())
    once = to_text(graph)
    stages.simplify(graph, Context())
    assert to_text(graph) == once
