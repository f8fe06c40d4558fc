"""Nodes out of order: in the main graph, in bodies, in functions, in what a body reads from around it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

from aitc.errors import AitcError, Exit
from aitc.importer.onnx import import_model
from aitc.importer.order import Cycle, ordered, sort
from aitc.ir.interpret import interpret
from aitc.verify.reference import Reference

HEAD = '<ir_version: 10, opset_import: ["" : 21, "own" : 1]>\n'
MAIN = "g (float[2] x) => (float[2] y) { y = Exp(b) b = Relu(a) a = Neg(x) }"
BODY = """g (float[2] x, bool c) => (float[2] y) {
    y = If(c) <then_branch = t () => (float[2] u) { u = Exp(v) v = Neg(x) }, else_branch = e () => (float[2] w) { w = Neg(x) }> }"""
FUNCTION = """g (float[2] x) => (float[2] y) { y = own.f(x) }
    <domain: "own", opset_import: ["" : 21]> f (p) => (r) { r = Exp(q) q = Neg(p) }"""
CAPTURED = """g (float[2] x, bool c) => (float[2] y) {
    y = If(c) <then_branch = t () => (float[2] u) { u = Exp(late) }, else_branch = e () => (float[2] w) { w = Identity(late) }>
    late = Neg(x) }"""


@pytest.mark.parametrize("text", [MAIN, BODY, FUNCTION, CAPTURED])
def test_nodes_out_of_order_are_sorted(text: str) -> None:
    model = parser.parse_model(HEAD + text)
    graph = import_model(model).graph
    x = np.array([-1, 2], np.float32)
    feeds = {"x": x, "c": np.array(True)} if len(model.graph.input) == 2 else {"x": x}
    (y,) = interpret(graph, feeds).values()
    np.testing.assert_allclose(y, np.exp(np.maximum(-x, 0) if text is MAIN else -x), rtol=1e-6)


def test_the_order_of_the_file_stays_where_it_can_and_nodes_keep_their_places() -> None:
    nodes = parser.parse_model(HEAD + "g (float[2] x) => (float[2] y) { a = Neg(x) y = Add(c, a) b = Exp(a) c = Relu(b) d = Exp(c) }").graph.node
    assert [i for i, _ in ordered(nodes, lambda _: False)] == [0, 2, 3, 1, 4]
    assert [i for i, _ in ordered(nodes, lambda name: name == "c")] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("g (float[2] x) => (float[2] y) { y = Exp(c) a = Neg(x) b = Add(a, c) c = Relu(b) d = Exp(c) }", "#2 (Add) -> #3 (Relu) -> #2 (Add)"),
        ("g (float[2] x) => (float[2] y) { y = Add(x, y) }", "#0 (Add) -> #0 (Add)"),
        ("""g (float[2] x, bool c) => (float[2] y) {
            y = If(c) <then_branch = t () => (float[2] u) { u = Exp(z) }, else_branch = e () => (float[2] w) { w = Neg(x) }>
            z = Neg(y) }""", "#1 (Neg) -> #0 (If) -> #1 (Neg)"),
        ("""g (float[2] x, bool c) => (float[2] y) {
            y = If(c) <then_branch = t () => (float[2] u) { u = Exp(v) v = Neg(u) }, else_branch = e () => (float[2] w) { w = Neg(x) }> }""",
         "#1 (Neg) -> #0 (Exp) -> #1 (Neg)"),
    ],
)  # fmt: skip
def test_a_cycle_names_its_nodes(text: str, names: str) -> None:
    with pytest.raises(AitcError) as e:
        import_model(parser.parse_model(HEAD + text))
    (problem,) = e.value.diagnostics
    assert e.value.exit_code is Exit.MODEL and problem.code == "I03"
    assert "cycle" in problem.message and problem.message.endswith(names)
    assert len(problem.locs) == names.count("->")


def test_long_chains_backwards() -> None:
    nodes = [onnx.helper.make_node("Neg", [f"v{i}"], [f"v{i + 1}"]) for i in range(20000)][::-1]
    assert [i for i, _ in ordered(nodes, lambda name: name == "v0")] == list(range(20000))[::-1]
    nodes[-1].input[0] = "v20000"
    with pytest.raises(Cycle) as e:
        ordered(nodes, lambda _: False)
    assert len(e.value.nodes) == 20000


@pytest.mark.parametrize("text", [MAIN, BODY, FUNCTION, CAPTURED])
def test_the_reference_takes_nodes_in_any_order(text: str) -> None:
    model = parser.parse_model(HEAD + text)
    x = np.array([-1, 2], np.float32)
    y = Reference(model).run({"x": x, "c": np.array(True)})["y"]
    np.testing.assert_allclose(y, np.exp(np.maximum(-x, 0) if text is MAIN else -x), rtol=1e-6)
    assert not sort(model)
