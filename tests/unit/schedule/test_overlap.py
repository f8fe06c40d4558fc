"""Launches begin early (programmatic dependent launch) only where their code has the instruction that waits for the launch before."""

from __future__ import annotations

import numpy as np
import pytest

from aitc.ir.builder import Builder
from aitc.ir.dtype import F16
from aitc.ir.graph import Graph
from aitc.ir.types import TensorType
from aitc.passes import stages
from aitc.passes.base import Context
from aitc.pipeline import choose_targets
from aitc.schedule.plan.plan import Plan
from aitc.schedule.schedule import PlanOptions, schedule


def plan_for(*names: str) -> Plan:
    target, *_ = choose_targets(names)
    graph = Graph("g")
    b = Builder(graph)
    x = graph.add_input("x", TensorType(F16, (64, 96)))
    w = graph.constant(np.ones((96, 96), np.float16))
    graph.outputs = [b.op("Softmax", b.op("MatMul", x, w, out=None), axis=1)]
    graph.output_names = ["y"]
    stages.layout(graph, Context(target=target))
    return schedule(graph, target, PlanOptions("m", "m.onnx"))


@pytest.mark.parametrize("names", [("h200",), ("b200",), ("rtx50",), ("h200", "b200")])
def test_where_all_targets_can(names: tuple[str, ...]) -> None:
    assert all(launch.overlap for launch in plan_for(*names).launches)


@pytest.mark.parametrize("names", [("a100",), ("a100", "h200"), ("mi250",)])
def test_nowhere_else(names: tuple[str, ...]) -> None:
    """Also code that only happens to run on a newer device: one begun early would read before the launch before it has written."""
    assert not any(launch.overlap for launch in plan_for(*names).launches)
