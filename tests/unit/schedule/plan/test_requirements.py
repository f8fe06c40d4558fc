"""What has to be true of a model's dims when it runs."""

from __future__ import annotations

import numpy as np

from aitc.ir import dtype as dt
from aitc.ir.builder import Builder
from aitc.ir.dim import symbol
from aitc.ir.graph import Graph, Value
from aitc.ir.types import TensorType
from aitc.registry import load
from aitc.schedule.plan.requirements import requirements

load("aitc.ops")
N, M = symbol("n", 1), symbol("m", 1)


def build(*shapes: tuple[object, ...]) -> tuple[Graph, Builder, list[Value]]:
    graph = Graph("main")
    inputs = [graph.add_input(f"x{i}", TensorType(dt.F32, shape)) for i, shape in enumerate(shapes)]  # type: ignore[arg-type]
    return graph, Builder(graph), inputs


def found(graph: Graph) -> list[tuple[str, str, bool]]:
    return [(str(r.less), str(r.more), r.equal) for r in requirements(graph, {"n", "m"})]


def test_terms_with_different_names_have_to_be_equal() -> None:
    graph, b, (x, y) = build((N, 4), (M, 4))
    b.op("Mul", b.op("Add", x, y), y)  # said once
    assert found(graph) == [("m", "n", True)]


def test_what_is_certain_is_not_asked_for() -> None:
    graph, b, (x, y) = build((N, 4), (1, 4))
    total = b.op("Add", b.op("Add", x, y), b.constant(np.ones(4, np.float32)))
    b.op("Reshape", total, shape=(4, N))
    assert found(graph) == []


def test_products_and_parts() -> None:
    graph, b, (x, y, z) = build((2, N), (M, 3), (N, 3))
    b.op("MatMul", x, y)
    b.op("Concat", y, z, axis=1)
    assert found(graph) == [("n", "m", True)]  # either way round it is the same


def test_a_view_and_a_choice_need_enough_elements() -> None:
    graph, b, (x,) = build((N, 4))
    b.op("Reshape", x, shape=(M, 4))
    b.node("TopK", x, k=5, axis=0, largest=True)
    assert found(graph) == [("4*m", "4*n", True), ("5", "n", False)]


def test_slices_of_known_symbols_were_cut_at_import() -> None:
    graph, b, (x,) = build((N, 4))
    late = symbol("late", 0)
    b.op("Slice", x, starts=(1, 0), sizes=(N - 1, 4), steps=(1, 1))
    b.op("Slice", x, starts=(late, 0), sizes=(2, 4), steps=(1, 1))
    assert found(graph) == [("late + 2", "n", False)]
