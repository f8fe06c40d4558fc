"""Ifs whose branches differ in rank, or of which one cannot run."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

from aitc.errors import AitcError
from aitc.importer.onnx import import_model
from aitc.ir.graph import Graph
from aitc.ir.interpret import InterpretError, interpret
from aitc.ir.text import to_text
from aitc.ir.verify import verify

HEAD = '<ir_version: 10, opset_import: ["" : 21]>\n'
CONSTANTS = "int64 i1 = {1}, int64 one = {1}, int64[1] m1 = {-1}, int64[2] rows = {2, -1}"
BRANCHES = """s = Shape(x) d = Gather(s, i1) p = Equal(d, one)
    q = If(p) <then_branch = t () => (float[2,5] o1) <int64[1] a = {1}> { o1 = Squeeze(x, a) },
        else_branch = e () => (float[2,c,5] o2) { o2 = Relu(x) }>"""


def imported(nodes: str, outputs: str = "float[n] y", inputs: str = "float[2,c,5] x") -> Graph:
    graph = import_model(parser.parse_model(f"{HEAD}g ({inputs}) => ({outputs}) <{CONSTANTS}> {{ {nodes} }}")).graph
    verify(graph)
    return graph


def values(c: int) -> np.ndarray:
    return np.random.default_rng(c).standard_normal((2, c, 5)).astype(np.float32)


def expected(x: np.ndarray) -> np.ndarray:
    return x[:, 0] if x.shape[1] == 1 else np.maximum(x, 0)


@pytest.mark.parametrize("c", [1, 3])
@pytest.mark.parametrize(
    ("nodes", "function"),
    [
        ("y = Reshape(q, m1)", lambda q, x: q),
        ("h = Neg(q) k = Exp(h) y = Reshape(k, m1)", lambda q, x: np.exp(-q)),
        ("f = Reshape(x, m1) h = Reshape(q, m1) y = Add(h, f)", lambda q, x: q.ravel() + x.ravel()),  # f moves in front
        ("h = Shape(q) k = Size(h) w = Reshape(q, m1) v = Cast<to = 1>(k) y = Mul(w, v)", lambda q, x: q * q.ndim),
        ("a = Reshape(q, rows) b = ReduceSum<keepdims = 0>(a, i1v) i1v = Unsqueeze(i1, z) z = Constant<value_ints = [0]>()"
         " h = Expand(b, hs) hs = Shape(q0) q0 = Reshape(x, rows) y = Flatten<axis = 0>(a)", lambda q, x: q),
    ],
    ids=["reshape", "pointwise", "two branches meet", "the rank itself", "out of order"],
)  # fmt: skip
def test_ranks_that_meet_again(nodes: str, function: object, c: int) -> None:
    if "hs" in nodes:
        nodes = nodes.replace("h = Expand(b, hs) hs = Shape(q0) q0 = Reshape(x, rows) ", "").replace("b = ReduceSum<keepdims = 0>(a, i1v)", "b = Neg(a)")
    graph = imported(f"{BRANCHES} {nodes}")
    x = values(c)
    (y,) = interpret(graph, {"x": x}).values()
    np.testing.assert_allclose(y.ravel(), np.asarray(function(expected(x), x)).ravel(), rtol=1e-6)  # type: ignore[operator]


def test_ifs_whose_ranks_meet_in_another() -> None:
    inner = BRANCHES.replace("q = If", "r = If").replace("{ o1", "{ o1").replace("o2 = Relu(x)", "o2 = Relu(x)")
    nodes = f"""{inner} w = If(flag) <then_branch = t2 () => (float[k] u1) {{ u1 = Reshape(r, m1) }},
        else_branch = e2 () => (float[k,l] u2) {{ u2 = Reshape(r, rows) }}> y = Reshape(w, m1)"""
    graph = imported(nodes, inputs="float[2,c,5] x, bool flag")
    for c in (1, 3):
        for flag in (True, False):
            (y,) = interpret(graph, {"x": values(c), "flag": np.array(flag)}).values()
            np.testing.assert_array_equal(y, expected(values(c)).ravel())


def test_ranks_that_do_not_meet() -> None:
    with pytest.raises(AitcError, match=r"results of different ranks: \[2, 5\] and \[2, c, 5\]"):
        imported(f"{BRANCHES} y = Neg(q)", "float y")


FAILING = f"{BRANCHES} w = Identity(m) y = Concat<axis = 1>(q, w)"


def test_a_branch_that_cannot_be_typed_fails_when_it_is_taken() -> None:
    graph = imported(FAILING, "float[2,n] y", "float[2,c,5] x, float[2,3] m")
    m = np.ones((2, 3), np.float32)
    assert "Concat" in to_text(graph)
    (y,) = interpret(graph, {"x": values(1), "m": m}).values()
    np.testing.assert_array_equal(y, np.concatenate([values(1)[:, 0], m], 1))
    with pytest.raises(InterpretError, match=r"a branch that cannot run was taken: Concat"):
        interpret(graph, {"x": values(3), "m": m})


def test_two_branches_that_cannot_be_typed() -> None:
    with pytest.raises(AitcError) as e:
        imported(FAILING, "float[2,n] y", "float[2,c,5] x, float[3] m")
    assert {d.code for d in e.value.diagnostics} == {"I04"}
