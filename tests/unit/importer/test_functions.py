"""Local functions, as exporters of opset 18 write them, beside ONNX Runtime, or ``onnx.reference`` where that fails."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from conformance.cases.case import onnxruntime_gives, specification_gives

from aitc.errors import AitcError
from aitc.importer.onnx import import_model
from aitc.ir.interpret import interpret
from aitc.verify.reference import Reference

IN, OUT = "(float[2, 4] x)", "(float[A, B] y)"
SCALE = "scale <alpha: float = 2.0> (a) => (b) { c = Constant <value_float: float = @alpha> () b = Mul(a, c) }"
# name -> the graph, and functions of domain "loc" unless they say another
MODELS = {
    "a default": (f"g {IN} => {OUT} {{ t = loc.scale(x) y = loc.scale <alpha = 3.0> (t) }}", SCALE),
    "a default of integers": (f"g {IN} => {OUT} {{ y = loc.turn(x) }}", "turn <p: ints = [1, 0]> (a) => (b) { b = Transpose <perm: ints = @p> (a) }"),
    "a tensor": (
        f"g {IN} => {OUT} {{ y = loc.add <v = float[4] {{1, 2, 3, 4}}> (x) }}",
        "add <v> (a) => (b) { c = Constant <value: tensor = @v> () b = Add(a, c) }",
    ),
    "an attribute that is not given": (f"g {IN} => {OUT} {{ y = loc.soft(x) }}", "soft <axis> (a) => (b) { b = Softmax <axis: int = @axis> (a) }"),
    "nested, with references to references": (
        f"g {IN} => {OUT} {{ y = loc.outer <ax = 0> (x) }}",
        "outer <ax, eps: float = 0.5> (a) => (b) { b = loc.inner <axis: int = @ax, alpha: float = @eps> (a) }",
        "inner <axis, alpha> (a) => (b) { c = Constant <value_float: float = @alpha> () d = Add(a, c) b = Softmax <axis: int = @axis> (d) }",
    ),
    "an input left out": (f"g {IN} => {OUT} {{ y = loc.clamp(x, , x) }}", "clamp (a, lo, hi) => (b) { h = ReduceMax <keepdims = 0> (hi) b = Clip(a, lo, h) }"),
    "inputs left out at the end": (f"g {IN} => {OUT} {{ y = loc.clamp(x) }}", "clamp (a, lo, hi) => (b) { b = Clip(a, lo, hi) }"),
    "an output that nobody reads": (f"g {IN} => {OUT} {{ y, z = loc.two(x) }}", "two (a) => (b, c) { b = Neg(a) c = Abs(a) }"),
    "names used inside and outside": (f"g {IN} => {OUT} {{ t = Neg(x) u = loc.f(t) y = Add(t, u) }}", "f (x) => (y) { t = Abs(x) y = Mul(t, t) }"),
    "called in a body": (
        f"g (float[2, 4] x, bool k) => {OUT} {{ y = If (k) <then_branch = t () => (float[A, B] o) {{ o = loc.scale <alpha = 4.0> (x) }}, "
        "else_branch = e () => (float[A, B] p) { p = loc.scale(x) }> }",
        SCALE,
    ),
    "references in a body": (
        f"g (float[2, 4] x, bool k) => {OUT} {{ y = loc.pick <n = 3> (x, k) }}",
        "pick <n> (x, k) => (y) { y = If (k) <then_branch = t () => (float[A, B] o) { w = Constant <value_int: int = @n> () v = CastLike(w, x) "
        "o = Mul(x, v) }, else_branch = e () => (float[A, B] p) { p = Neg(x) }> }",
    ),
    "one name in two domains": (
        f"g {IN} => {OUT} {{ t = loc.f(x) y = other.f(t) }}", "f (x) => (y) { y = Abs(x) }", 'other: f (x) => (y) { z = loc.f(x) y = Neg(z) }',
    ),
    "an operator of com.microsoft": (f"g {IN} => {OUT} {{ y = loc.q(x) }}", "q (a) => (b) { b = com.microsoft.QuickGelu <alpha = 1.5> (a) }"),
    "named as an operator of ONNX": (f"g {IN} => {OUT} {{ y = Relu(x) }}", ": Relu (a) => (b) { b = Neg(a) }"),
    "named as an operator of com.microsoft": (f"g {IN} => {OUT} {{ y = com.microsoft.QuickGelu(x) }}", "com.microsoft: QuickGelu (a) => (b) { b = Neg(a) }"),
}  # fmt: skip
FEEDS = {"x": np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32), "k": np.array(True)}
DOMAINS = '"loc" : 1, "other" : 1, "com.microsoft" : 1'


def model(graph: str, *functions: str) -> onnx.ModelProto:
    text = f'<ir_version: 10, opset_import: ["" : 18, {DOMAINS}]>\n{graph}'
    for function in functions:
        domain, _, rest = function.rpartition(": ") if function.split("<")[0].count(": ") else ("loc", "", function)
        text += f'\n<domain: "{domain}", opset_import: ["" : 18, {DOMAINS}]>\n{rest}'
    return onnx.parser.parse_model(text)


def values(m: onnx.ModelProto) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    feeds = {i.name: FEEDS[i.name] for i in m.graph.input}
    (y,) = interpret(import_model(m).graph, feeds).values()
    return y, feeds


@pytest.mark.parametrize("name", MODELS)
def test_as_onnxruntime(name: str) -> None:
    m = model(*MODELS[name])
    y, feeds = values(m)
    (expected,) = onnxruntime_gives(m)(**feeds)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


def test_an_output_that_is_an_input() -> None:
    m = model(f"g {IN} => {OUT} {{ z = loc.same(x) y = Neg(z) }}", "same (a) => (a) { b = Neg(a) }")
    y, feeds = values(m)
    np.testing.assert_array_equal(y, specification_gives(m)(**feeds)[0])


def overloaded() -> onnx.ModelProto:
    """f[one] calls f[two]."""
    m = model(f"g {IN} => {OUT} {{ t = loc.f(x) y = loc.f(t) }}", "f (a) => (b) { c = Abs(a) b = loc.f(c) }", "f (a) => (b) { b = Sub(a, a) }")
    for part, overload in zip((m.functions[0], m.functions[1], m.functions[0].node[1], *m.graph.node), ("one", "two", "two", "one", "two")):
        part.overload = overload
    return m


def test_overloads() -> None:
    y, _ = values(overloaded())
    np.testing.assert_array_equal(y, np.zeros((2, 4)))


def test_a_function_that_calls_itself_is_refused() -> None:
    m = overloaded()
    m.functions[0].node[1].overload = "one"
    with pytest.raises(AitcError, match="calls itself"):
        import_model(m)


@pytest.mark.parametrize("version, expected", [(11, (1, 2)), (13, (1,))])
def test_a_function_of_another_opset(version: int, expected: tuple[int, ...]) -> None:
    """Its operators are those that it imports: Softmax of opset 11 takes all axes from ``axis`` on."""
    m = model("g (float[2, 3, 4] x) => (float[A, B, C] y) { y = loc.soft(x) }", "soft (a) => (b) { b = Softmax <axis = 1> (a) }")
    m.functions[0].opset_import[0].version = version
    x = np.random.default_rng(1).standard_normal((2, 3, 4)).astype(np.float32)
    (y,) = interpret(import_model(m).graph, {"x": x}).values()
    e = np.exp(x)
    np.testing.assert_allclose(y, e / e.sum(expected, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(Reference(m).run({"x": x})["y"], y, rtol=1e-5)
