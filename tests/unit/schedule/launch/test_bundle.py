"""Small independent products share a launch, and everything still runs after what it needs."""

from __future__ import annotations

import numpy as np
import pytest

from aitc.ir.builder import Builder
from aitc.ir.dtype import F16
from aitc.ir.graph import Graph, Value
from aitc.ir.types import TensorType
from aitc.passes import stages
from aitc.passes.base import Context
from aitc.schedule.plan.check import check_plan
from aitc.schedule.plan.plan import Plan, Space, TensorMapArg
from aitc.schedule.schedule import PlanOptions, schedule
from aitc.targets.target import find_target

H200 = find_target("h200")


def finish(graph: Graph, *outputs: Value) -> Plan:
    graph.outputs = list(outputs)
    graph.output_names = [f"y{i}" for i in range(len(outputs))]
    stages.layout(graph, Context(target=H200))
    return check_plan(schedule(graph, H200, PlanOptions("m", "m.onnx")))


def product(b: Builder, graph: Graph, x: Value, N: int) -> Value:
    K = int(x.shape[-1])  # type: ignore[arg-type]
    return b.op("MatMul", x, graph.constant(np.ones((K, N), np.float16)), out=None)


def inputs(graph: Graph, *shapes: tuple[int, ...]) -> list[Value]:
    return [graph.add_input(f"x{i}", TensorType(F16, s)) for i, s in enumerate(shapes)]


def test_products_of_different_shapes_share_a_launch() -> None:
    graph = Graph("g")
    b = Builder(graph)
    x, y, z = inputs(graph, (17, 96), (40, 200), (5, 64))
    plan = finish(graph, b.op("Sigmoid", product(b, graph, x, 72)), product(b, graph, y, 136), b.op("Relu", product(b, graph, z, 264)))
    (launch,) = plan.launches
    assert launch.note == "MatMul + Sigmoid | MatMul | MatMul + Relu"
    assert plan.kernels[0].kernel == "product_sm90"
    assert len({a.parameter for a in launch.args}) == len(launch.args)
    assert sum(isinstance(a, TensorMapArg) for a in launch.args) == 9
    assert launch.flops == 2 * (17 * 96 * 72 + 40 * 200 * 136 + 5 * 64 * 264)


def test_what_needs_another_does_not() -> None:
    graph = Graph("g")
    b = Builder(graph)
    (x,) = inputs(graph, (17, 96))
    chain = product(b, graph, b.op("Softmax", product(b, graph, product(b, graph, x, 96), 96), axis=1), 96)
    assert [launch.note for launch in finish(graph, chain).launches] == ["MatMul", "MatMul", "Softmax", "MatMul"]


def test_what_a_bundle_needs_moves_ahead_of_it() -> None:
    """Two chains of product, softmax, product, one after the other in the graph."""
    graph = Graph("g")
    b = Builder(graph)
    ends = [product(b, graph, b.op("Softmax", product(b, graph, x, 64), axis=1), 72) for x in inputs(graph, (30, 96), (50, 64))]
    plan = finish(graph, *ends)
    notes = [launch.note for launch in plan.launches]
    assert notes == ["MatMul | MatMul", "Softmax | Softmax", "MatMul | MatMul"]
    written = {"x0", "x1"}
    for launch in plan.launches:
        results = {a.buffer for a in launch.args if a.parameter.startswith(("y", "map_d"))}
        reads = {a.buffer for a in launch.args if plan.buffer(a.buffer).space is not Space.WEIGHT} - results
        assert reads <= written
        written |= results


def test_parts_of_one_result_are_written_side_by_side() -> None:
    graph = Graph("g")
    b = Builder(graph)
    x, y = inputs(graph, (16, 96), (16, 64))
    plan = finish(graph, b.op("Concat", product(b, graph, x, 64), product(b, graph, y, 128), axis=1))
    (launch,) = plan.launches
    assert launch.note == "MatMul | MatMul"


@pytest.mark.parametrize("M", [4096, 20000])
def test_what_fills_the_device_runs_alone(M: int) -> None:
    graph = Graph("g")
    b = Builder(graph)
    x, y = inputs(graph, (M, 256), (M, 512))
    assert len(finish(graph, product(b, graph, x, 1024), product(b, graph, y, 1024)).launches) == 2


def test_a_weight_that_an_epilogue_reads_too_keeps_its_order() -> None:
    graph = Graph("g")
    b = Builder(graph)
    x, y = inputs(graph, (64, 64), (64, 64))
    w = graph.constant(np.ones((64, 64), np.float16))
    first = b.op("Add", product(b, graph, x, 64), w)
    plan = finish(graph, first, b.op("MatMul", y, w, out=None))
    assert len(plan.launches) == 2


def test_norms_of_different_widths_share_a_launch() -> None:
    """As those of queries and keys do."""
    graph = Graph("g")
    b = Builder(graph)
    q, k, r = inputs(graph, (40, 128), (10, 64), (6, 36))
    scale = graph.constant(np.ones(128, np.float16))
    plan = finish(
        graph, b.op("Mul", b.op("LayerNormalization", q, axes=(1,), epsilon=1e-5, center=False), scale), b.op("Softmax", k, axis=1),
        b.op("Reduce", r, axes=(1,), function="sum", keepdims=False),
    )  # fmt: skip
    (launch,) = plan.launches
    assert launch.note == "LayerNormalization + Mul | Softmax | Reduce"
    assert plan.kernels[0].kernel == "rows"


def test_rows_that_fill_the_device_run_alone() -> None:
    graph = Graph("g")
    b = Builder(graph)
    x, y = inputs(graph, (100000, 128), (100000, 256))
    assert len(finish(graph, b.op("Softmax", x, axis=1), b.op("Softmax", y, axis=1)).launches) == 2


def test_pointwise_groups_share_a_launch() -> None:
    graph = Graph("g")
    b = Builder(graph)
    x, y = inputs(graph, (40, 128), (7, 5, 3))
    (launch,) = finish(graph, b.op("Sigmoid", x), b.op("Transpose", b.op("Relu", y), perm=(2, 0, 1))).launches
    assert launch.note.count(" | ") == 1
    assert launch.entry == "maps_1"


def test_what_writes_into_a_copy_comes_after_it() -> None:
    graph = Graph("g")
    b = Builder(graph)
    x, y = inputs(graph, (8, 16), (1, 16))
    where = graph.constant(np.full((1, 16), 3, np.int64))
    written = b.op("ScatterElements", x, where, y, axis=0, reduction="none")
    notes = [launch.note for launch in finish(graph, written, b.op("Sigmoid", x)).launches]
    assert notes[-1].startswith("ScatterElements")
    assert "Copy" in notes[0]
