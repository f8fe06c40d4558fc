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
