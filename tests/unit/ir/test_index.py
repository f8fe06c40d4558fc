"""Index maps through views: composed, they give the element that numpy would."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aitc.ir import dim as dm
from aitc.ir.builder import Builder
from aitc.ir.dtype import F32
from aitc.ir.graph import Graph
from aitc.ir.index import flatten, source_index, target_index, unflatten
from aitc.ir.types import TensorType
from aitc.kernels.core.kernel import coordinate, dim_of
from aitc.registry import load

load("aitc.ops")

VIEWS = [
    ((2, 6, 4), "Reshape", {"shape": (12, 4)}),
    ((2, 6, 4), "Reshape", {"shape": (2, 3, 2, 4)}),
    ((2, 6, 4), "Reshape", {"shape": (4, 12)}),
    ((2, 6, 4), "Transpose", {"perm": (2, 0, 1)}),
    ((2, 6, 4), "Slice", {"starts": (0, 5, 1), "sizes": (2, 3, 2), "steps": (1, -2, 2)}),
    ((2, 1, 4), "Expand", {"shape": (3, 2, 5, 4)}),
]


@pytest.mark.parametrize(("shape", "op", "attrs"), VIEWS)
def test_source_index_is_what_numpy_does(shape: tuple[int, ...], op: str, attrs: dict[str, tuple[int, ...]]) -> None:
    graph = Graph("g")
    x = graph.add_input("x", TensorType(F32, shape))
    node = Builder(graph).node(op, x, **attrs)
    array = np.arange(np.prod(shape)).reshape(shape)
    expected = node.op.reference(array, node.attrs)
    symbols = [coordinate(f"i{a}", d) for a, d in enumerate(node.output.shape)]
    index = source_index(node, tuple(dim_of(s) for s in symbols))
    for at in np.ndindex(*expected.shape):
        values = {s.name: v for s, v in zip(symbols, at, strict=True)}
        assert array[tuple(dm.evaluate(d, values) for d in index)] == expected[at]


@pytest.mark.parametrize(("shape", "op", "attrs"), VIEWS[:4])
def test_there_and_back(shape: tuple[int, ...], op: str, attrs: dict[str, tuple[int, ...]]) -> None:
    graph = Graph("g")
    x = graph.add_input("x", TensorType(F32, shape))
    node = Builder(graph).node(op, x, **attrs)
    index = tuple(dim_of(coordinate(f"i{a}", d)) for a, d in enumerate(shape))
    there = target_index(node, index)
    assert there is not None
    assert source_index(node, there) == index


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_flatten_and_unflatten_are_inverse(shape: list[int]) -> None:
    position = dim_of(coordinate("i", int(np.prod(shape))))
    assert flatten(unflatten(position, tuple(shape)), tuple(shape)) == position


def test_a_window_partition_comes_back_to_where_it_was() -> None:
    """Swin's windows and back: only if this is seen as the identity can the residual be fused."""
    graph = Graph("g")
    x = graph.add_input("x", TensorType(F32, (2, 8, 8, 16)))
    b = Builder(graph)
    v = b.op("Reshape", x, shape=(2, 2, 4, 2, 4, 16))
    v = b.op("Transpose", v, perm=(0, 1, 3, 2, 4, 5))
    v = b.op("Reshape", v, shape=(8, 16, 16))
    v = b.op("Reshape", v, shape=(2, 2, 2, 4, 4, 16))
    v = b.op("Transpose", v, perm=(0, 1, 3, 2, 4, 5))
    v = b.op("Reshape", v, shape=(2, 8, 8, 16))
    index = start = tuple(dim_of(coordinate(f"i{a}", d)) for a, d in enumerate(v.shape))
    while v.producer is not None:
        index = source_index(v.producer, index)
        v = v.producer.input
    assert index == start
