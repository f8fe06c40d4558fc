from __future__ import annotations

import numpy as np
import pytest

from aitc import registry
from aitc.ir import dtype as dt
from aitc.ir.builder import Builder
from aitc.ir.dim import symbol
from aitc.ir.dtype import DType
from aitc.ir.graph import Graph, Value
from aitc.ir.types import TensorType
from aitc.ir.use import input_uses

registry.load("aitc.ops")


def graph_with(dtype: DType, *shape: object, name: str = "x") -> tuple[Graph, Builder, Value]:
    graph = Graph("g")
    x = graph.add_input(name, TensorType(dtype, tuple(shape)))  # type: ignore[arg-type]
    return graph, Builder(graph), x


def test_ids_are_below_the_size_of_the_table_they_index() -> None:
    graph, b, x = graph_with(dt.I64, symbol("n", 1), 16)
    narrow = b.op("Cast", b.op("Reshape", x, shape=(symbol("n", 1) * 16,)), to=dt.I32)
    b.op("Gather", b.constant(np.zeros((1000, 8), np.float32)), narrow, axis=0)
    assert input_uses(graph) == {"x": "ids:1000"}


def test_the_smallest_table_counts_and_a_comparison_does_not_make_a_mask_of_ids() -> None:
    graph, b, x = graph_with(dt.I64, 16)
    b.op("Equal", x, b.constant(0, np.int64))
    b.op("Gather", b.constant(np.zeros((512, 8), np.float32)), x, axis=0)
    b.op("Gather", b.constant(np.zeros((4, 30), np.float32)), x, axis=1)
    assert input_uses(graph) == {"x": "ids:30"}


@pytest.mark.parametrize("how", ["cast", "equal", "bool", "name"])
def test_masks(how: str) -> None:
    graph, b, x = graph_with(
        dt.BOOL if how == "bool" else dt.I64, 2, 16, name="attention_mask" if how == "name" else "x"
    )
    if how == "cast":
        b.op("Cast", b.op("Reshape", x, shape=(2, 1, 16)), to=dt.F32)
    elif how == "equal":
        b.op("Equal", x, b.constant(1, np.int64))
    else:
        b.op("Not" if how == "bool" else "Neg", x)
    assert list(input_uses(graph).values()) == ["mask"]


@pytest.mark.parametrize(
    ("shape", "want"),
    [
        ((1, 3, 224, 224), "image"),
        ((1, 224, 224, 3), "image"),
        ((1, 1, 28, 28), "image"),
        ((1, 64, 7, 7), ""),
        ((3, 224, 224), ""),
    ],
)
def test_images(shape: tuple[int, ...], want: str) -> None:
    graph, _, _ = graph_with(dt.F32, *shape)
    assert input_uses(graph) == {"x": want}


def test_other_integers_are_just_integers() -> None:
    graph, b, x = graph_with(dt.I64, 4)
    b.op("Add", x, b.constant(1, np.int64))
    assert input_uses(graph) == {"x": ""}


N, M = symbol("n", 1), symbol("m", 1)


@pytest.mark.parametrize(
    ("op", "shape", "attrs", "want"),
    [
        ("Gather", (2, M), {"axis": 0}, "ids:n"),
        ("GatherElements", (M, 4), {"axis": 0}, "ids:n"),
        ("GatherND", (M, 2), {}, "ids:min(6, n)"),
        ("ScatterND", (M, 1), {}, "ids:n"),
        ("ScatterElements", (M, 6), {"axis": 0}, "ids:n"),
    ],
)
def test_ids_of_an_axis_whose_size_the_inputs_give(op: str, shape: tuple[object, ...], attrs: dict[str, int], want: str) -> None:
    graph, b, x = graph_with(dt.I64, *shape)
    table = graph.add_input("t", TensorType(dt.F32, (N, 6)))
    if op.startswith("Scatter"):
        updates = graph.add_input("u", TensorType(dt.F32, (M, 6)))
        b.op(op, table, x, updates, reduction="add", **attrs)
    else:
        b.op(op, table, b.op("Add", x, b.constant(0, np.int64)), **attrs)
    assert input_uses(graph)["x"] == want


def test_what_is_added_on_the_way_is_taken_off_the_limit() -> None:
    graph, b, x = graph_with(dt.I64, 16)
    moved = b.op("Add", x, b.constant(2, np.int64))
    b.op("Gather", b.constant(np.zeros((50, 8), np.float32)), moved, axis=0)
    assert input_uses(graph) == {"x": "ids:48"}


def test_lengths_are_compared_with_positions() -> None:
    graph, b, x = graph_with(dt.I64, N)
    b.op("Less", b.op("Range", start=0, step=1, size=M), b.op("Reshape", x, shape=(N, 1)))
    graph.add_input("t", TensorType(dt.F32, (N, M)))
    assert input_uses(graph)["x"] == "length:m"


def test_what_becomes_a_size_is_a_count() -> None:
    graph, b, x = graph_with(dt.I64, 1)
    b.op("ReadDims", x, dims=(symbol("u", 0),))
    assert input_uses(graph) == {"x": "count"}


def test_bytes_are_images_and_no_masks() -> None:
    for shape, want in (((N, 3, 32, 32), "image"), ((N, 100), "")):
        graph, b, x = graph_with(dt.U8, *shape)
        b.op("Cast", x, to=dt.F32)
        assert input_uses(graph) == {"x": want}


def test_what_a_logarithm_reads_is_positive() -> None:
    graph, b, x = graph_with(dt.F32, N, 4)
    b.op("Log", b.op("Reshape", x, shape=(N * 4,)))
    assert input_uses(graph) == {"x": "positive"}
