"""Contents of small tensors: arithmetic on partly known shapes, and decisions only where bounds prove them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aitc import registry
from aitc.ir import content
from aitc.ir import dim as d
from aitc.ir import dtype as dt
from aitc.ir.builder import Builder
from aitc.ir.graph import Graph, Value
from aitc.ir.scalar import Ratio

registry.load("aitc.ops")
N, M = d.symbol("N", 1), d.symbol("M", 4, 10)


@pytest.fixture
def b() -> Builder:
    return Builder(Graph("g"))


def vector(b: Builder, *dims: Any) -> Value:
    return b.op("Dims", content=dims, shape=(len(dims),))


def held(v: Value) -> list[Any] | None:
    return None if v.content is None else v.content.ravel().tolist()


def test_arithmetic(b: Builder) -> None:
    x, y = vector(b, N, M, 3), vector(b, 2, N, 5)
    assert held(b.op("Add", x, y)) == [N + 2, M + N, 8]
    assert held(b.op("Sub", x, y)) == [N - 2, M - N, -2]
    assert held(b.op("Mul", x, y)) == [N * 2, M * N, 15]
    assert held(b.op("Div", x, vector(b, 2, 3, 2))) == [d.floordiv(N, 2), d.floordiv(M, 3), 1]
    assert held(b.op("Mod", x, vector(b, 2, 3, 2), fmod=False)) == [d.mod(N, 2), d.mod(M, 3), 1]
    assert held(b.op("Max", x, vector(b, 1, 20, 7))) == [N, 20, 7]
    assert held(b.op("Min", x, vector(b, 1, 20, 7))) == [1, M, 3]


def test_division_truncates_so_negative_dividends_are_left_open(b: Builder) -> None:
    assert held(b.op("Div", vector(b, N - 5), vector(b, 2))) is None
    assert held(b.op("Div", vector(b, -7), vector(b, 2))) == [-3]
    assert held(b.op("Div", vector(b, N * 2 - 6), vector(b, 2))) == [N - 3]


@pytest.mark.parametrize(
    ("op", "x", "y", "expected"),
    [
        ("Equal", N, -1, False), ("Equal", N, N, True), ("Equal", N, 1, None), ("Equal", N * 2, 3, False),
        ("Less", N, 1, False), ("Less", N, 2, None), ("Less", M, 11, True), ("LessOrEqual", M, 10, True),
        ("LessOrEqual", M, 9, None), ("Greater", M, 3, True), ("Greater", M, 4, None), ("Greater", N + M, N, True),
        ("GreaterOrEqual", M, 4, True), ("GreaterOrEqual", N, M, None),
    ],
)  # fmt: skip
def test_comparisons_are_decided_by_bounds_alone(b: Builder, op: str, x: Any, y: Any, expected: bool | None) -> None:
    assert held(b.op(op, vector(b, x), vector(b, y))) == (None if expected is None else [expected])


def test_an_open_comparison_leaves_the_whole_choice_open(b: Builder) -> None:
    c = b.op("Equal", vector(b, N), vector(b, 1))
    assert held(b.op("Where", c, vector(b, 5), vector(b, 7))) is None


def test_moving_elements(b: Builder) -> None:
    x = vector(b, N, M, 3, 4)
    assert held(b.op("Gather", x, b.constant([3, 0]), axis=0)) == [4, N]
    assert held(b.op("Slice", x, starts=(3,), sizes=(2,), steps=(-2,))) == [4, M]
    assert held(b.op("Concat", x, vector(b, N), axis=0)) == [N, M, 3, 4, N]
    assert held(b.op("Transpose", b.op("Reshape", x, shape=(2, 2)), perm=(1, 0))) == [N, 3, M, 4]
    assert held(b.op("Expand", vector(b, N), shape=(3,))) == [N, N, N]
    assert held(b.op("Reduce", x, function="prod", axes=(0,), keepdims=False)) == [N * M * 12]
    assert held(b.op("CumSum", vector(b, N, 2, M), axis=0, exclusive=True)) == [0, N, N + 2]
    places, new = b.constant([[1], [3]]), vector(b, 8, N)
    assert held(b.op("ScatterND", x, places, new, reduction="none")) == [N, 8, 3, N]
    assert held(b.op("Range", start=N, step=2, size=3)) == [N, N + 2, N + 4]


def test_floats_hold_fractions_of_dims(b: Builder) -> None:
    x = b.op("Cast", vector(b, N, M * 2), to=dt.F32)
    half = b.op("Mul", x, b.constant([0.5, 0.5], np.float32))
    assert held(half) == [Ratio(N, 2), M]
    assert held(b.op("Cast", half, to=dt.I64)) == [d.floordiv(N, 2), M]
    assert held(b.op("Ceil", half)) == [d.ceildiv(N, 2), M]
    assert held(b.op("Floor", b.op("Mul", half, b.constant([4.0, 4.0], np.float32)))) == [N * 2, M * 4]
    assert held(b.op("Div", x, b.op("Cast", vector(b, N, M), to=dt.F32))) == [1, 2]


def test_numbers_go_through_the_reference_of_any_op(b: Builder) -> None:
    assert held(b.op("Sqrt", b.constant([4.0, 9.0], np.float32))) == [2.0, 3.0]
    assert held(b.op("Not", b.constant([True, False]))) == [False, True]


def test_large_and_unknown_tensors_have_none(b: Builder) -> None:
    x = b.graph.add_input("x", b.constant(np.zeros(3, np.int64)).type)
    assert held(b.op("Add", x, x)) is None
    assert held(b.op("Neg", b.constant(np.zeros(content.LIMIT + 1)))) is None


def test_elements_of_empty_tensors_are_known(b: Builder) -> None:
    x = b.graph.add_input("x", b.constant(np.zeros(0, np.int64)).type)
    assert content.elements(x) == ()
