"""Dims that may be 0 because the graph bears it."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

from aitc.importer.onnx import import_model
from aitc.ir import dim as d
from aitc.ir.interpret import interpret

CACHED = """(float[b,2,s,4] q, float[b,2,past,4] pk, float[b,2,past,4] pv, int64[b,total] mask) => (float[b,2,s,4] y, float[b,2,t,4] k)
 <int64[2] ax = {1, 2}, float one = {1}, float big = {-10000}> {
 k = Concat<axis = 2>(pk, q) v = Concat<axis = 2>(pv, q) kt = Transpose<perm = [0,1,3,2]>(k) s0 = MatMul(q, kt)
 f = Cast<to = 1>(mask) i = Sub(one, f) m = Mul(i, big) m4 = Unsqueeze(m, ax) s1 = Add(s0, m4) w = Softmax<axis = -1>(s1) y = MatMul(w, v) }"""
ATTENTION = """(float[b,4,s,8] q, float[b,2,s,8] k, float[b,2,s,8] v, float[b,2,p,8] p1, float[b,2,p,8] p2) =>
 (float[b,4,s,8] y, float[b,2,t,8] pk, float[b,2,t,8] pv) { y, pk, pv = Attention<is_causal = 1>(q, k, v, , p1, p2) }"""
IN_BRANCH = """(float[n] x, float[m] c, bool flag) => (float[k] y) {
 y = If(flag) <then_branch = t () => (float[k] a) { a = Concat<axis = 0>(x, c) }, else_branch = e () => (float[k2] z) { z = Concat<axis = 0>(c, x) }> }"""
FINDS = {  # a model, and which of its dims may be 0
    "plain ops": (CACHED, {"past"}),
    "Attention": (ATTENTION, {"p"}),
    "through views": ("(float[b,n,8] x, float[b,1,8] c) => (float[b,m,8] y) { z = Relu(x) j = Concat<axis = 1>(c, z) y = Softmax(j) }", {"n"}),
    "its size, too": ("(float[n] x, float[1] c) => (float[m] y, int64[1] s) { y = Concat<axis = 0>(c, x) s = Shape(x) }", {"n"}),
    "in branches": (IN_BRANCH, {"n", "m"}),
    "both of two": ("(float[n] x, float[m] c) => (float[k] y) { y = Concat<axis = 0>(c, x) }", {"n", "m"}),
    "one of two": ("(float[n] x, float[m] c) => (float[k] y) { z = Softmax(c) y = Concat<axis = 0>(z, x) }", {"n"}),
    "a mean of nothing": ("""(float[b,n] x, float[b,1] c) => (float[b,m] y) {
        z = ReduceMean<keepdims = 1, axes = [1]>(x) w = Add(x, z) y = Concat<axis = 1>(c, w) }""", set()),
    "the other axis": ("(float[n,2] x, float[n,3] c) => (float[n,5] y) { y = Concat<axis = 1>(x, c) }", set()),
    "to itself": ("(float[n] x) => (float[m] y) { y = Concat<axis = 0>(x, x) }", set()),
    "divided by": ("""(float[n] x, float[1] c, float[6] v) => (float[m] y, float[a,b] z) <int64[1] m1 = {-1}> { y = Concat<axis = 0>(c, x)
        s = Shape(x) t = Concat<axis = 0>(s, m1) z = Reshape(v, t) }""", set()),
    "picked from": ("(float[n] x, float[1] c) => (float[m] y, float z) <int64 i = {0}> { y = Concat<axis = 0>(c, x) z = Gather(x, i) }", set()),
    "nothing joined": ("(float[n] x) => (float[n] y) { y = Relu(x) }", set()),
}  # fmt: skip


def graph_of(text: str, **options):
    return import_model(parser.parse_model(f'<ir_version: 10, opset_import: ["": {23 if "Attention" in text else 13}]> g {text}'), **options).graph


def empty(graph) -> set[str]:
    return {s.name for v in graph.inputs for x in v.shape for s in d.symbols(x) if s.lo == 0}


@pytest.mark.parametrize("what", FINDS)
def test_what_is_joined_may_be_empty_where_all_ops_bear_it(what: str) -> None:
    text, names = FINDS[what]
    assert empty(graph_of(text)) == names


def test_a_size_or_bounds_that_are_given_stay() -> None:
    assert empty(graph_of(CACHED, dims={"past": (1, 8)})) == set()
    assert empty(graph_of(CACHED, dims={"past": 8})) == set()
    assert empty(graph_of(CACHED, dims={"total": "past + s"})) == {"past"}


def test_an_empty_past_computes_what_no_past_does() -> None:
    q = np.random.default_rng(0).standard_normal((1, 2, 3, 4), np.float32)
    none = np.zeros((1, 2, 0, 4), np.float32)
    graph = graph_of(CACHED)
    y, k = interpret(graph, {"q": q, "pk": none, "pv": none, "mask": np.ones((1, 3), np.int64)}).values()
    score = np.exp(q @ q.swapaxes(2, 3))
    np.testing.assert_allclose(y, score / score.sum(-1, keepdims=True) @ q, rtol=1e-5)
    np.testing.assert_array_equal(k, q)
