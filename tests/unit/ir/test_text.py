"""The text IR: what it prints, that it reads back, and its errors."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
import onnx.parser
import pytest

from aitc.errors import Loc
from aitc.importer.onnx import import_model
from aitc.ir import dim as dm
from aitc.ir import dtype as dt
from aitc.ir.builder import Builder
from aitc.ir.graph import Graph
from aitc.ir.op import OPS
from aitc.ir.parse import ParseError, Scanner, format_value, parse_dim
from aitc.ir.parse import value as parse_value
from aitc.ir.text import from_text, to_text
from aitc.ir.types import TensorType
from aitc.ir.verify import verify
from aitc.registry import load

load("aitc.ops")


def again(graph: Graph) -> Graph:
    """Through text and back; the second text must be the first."""
    constants: dict[str, np.ndarray] = {}
    text = to_text(graph, constants)
    back = from_text(text, constants)
    assert to_text(back) == text
    verify(back, "parsing")
    return back


def test_round_trip_keeps_everything() -> None:
    graph = Graph("a graph: with/odd names")
    n = dm.symbol("N", 1, 32, multiple_of=4, hint=8)
    b = Builder(graph, (Loc("m.onnx", "main/If_3.then", 7, "/a:0", "Conv"), Loc("m.onnx", "main", 8, "", "Relu")))
    x = graph.add_input('x "quoted" é:0', TensorType(dt.F32, (n, 3, dm.floordiv(n, 3) + 1)))
    big = b.constant(np.random.default_rng(0).standard_normal((3, 40)).astype(np.float32), name="big")
    y = b.op("Transpose", x, perm=(0, 2, 1))
    y = b.op("MatMul", y, big)
    y.type = TensorType(y.type.dtype, y.shape, (2, 0, 1))
    h = b.op("Cast", y, to=dt.BF16)
    v, i = b.node("TopK", h, k=2, axis=2).outputs
    graph.outputs, graph.output_names = [v, i, x], ["values", "indices: 1", "the input"]
    back = again(graph)
    assert [v.type for v in back.outputs] == [v.type for v in graph.outputs]
    assert back.output_names == graph.output_names
    assert [n.locs for n in back.nodes] == [n.locs for n in graph.nodes]
    assert [n.attrs for n in back.nodes] == [n.attrs for n in graph.nodes]
    first = next(back.nodes)
    assert first.output.users and next(iter(first.output.users)).inputs[1].const.tobytes() == big.const.tobytes()


CONSTANTS = [
    np.array(0.1, np.float32),
    np.array([0.1, -0.0, np.inf, -np.inf], np.float64),
    np.array([np.nan], np.float16),
    np.array([1, -128], np.int8),
    np.array([2**63], np.uint64),
    np.array([], np.int64),
    np.array([[True], [False]]),
    np.array([1 + 2j], np.complex64),
    np.array(["a", 'b"'], object),
    np.full((5, 7), 0.3, np.float32),
    np.array([0.1, 3.0], dt.BF16.numpy),
    np.array([1, -8], dt.I4.numpy),
    np.arange(100, dtype=np.int32),
]


@pytest.mark.parametrize("array", CONSTANTS, ids=lambda a: f"{a.dtype}{list(a.shape)}")
def test_constants_keep_their_bits(array: np.ndarray) -> None:
    graph = Graph("main")
    kind = dt.STRING if array.dtype == object else dt.of(array)
    graph.outputs = [graph.constant(array, type=TensorType(kind, array.shape))]
    (back,) = again(graph).outputs
    assert back.const.dtype == array.dtype
    assert back.const.tolist() == array.tolist() if array.dtype == object else back.const.tobytes() == array.tobytes()


def test_bodies_read_outer_values() -> None:
    text = """graph "main" {
  input %c: bool[]
  input %x: f32[4]
  %e: f32[4] = Exp(%x)
  %if: f32[4] = If(%c) {dtypes = (#f32,), shapes = ((4,),)} do {
    graph "then" {
      %e: f32[4] = Neg(%^e)
      %if: f32[4] = If(%^c) {dtypes = (#f32,), shapes = ((4,),)} do {
        graph "inner" {
          %y: f32[4] = Add(%^e, %^^x)
          output %y
        }
        graph "other" {
          output %^^x
        }
      }
      output %if
    }
    graph "else" {
      output %^e
    }
  }
  output "y" = %if
}
"""
    graph = from_text(text)
    verify(graph, "parsing")
    assert to_text(graph) == text
    (holder,) = graph.holders
    assert [v.name for v in holder.bodies[0].captured] == ["e", "c", "x"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("graph main {}", "line 1, column 7: expected a string"),
        ('graph "g" {\n  %y = Relu(%x)\n}', "line 2, column 15: nothing before this defines %x"),
        ('graph "g" {\n  input %x: f32[N]\n}', "no dim is called 'N'"),
        ('graph "g" {\n  input %x: f99[1]\n}', "no element type is called 'f99'"),
        ('graph "g" {\n  input %x: f32[1]\n  %y = Nonsense(%x)\n}', "no op is called 'Nonsense'"),
        ('graph "g" {\n  input %x: f32[1]\n  %y = Relu(%x) {alpha = 1}\n}', "Relu: .*alpha"),
        ('graph "g" {\n  const %x: f32[2] = [1.0]\n}', "1 elements for shape"),
        ('graph "g" {\n  const %x: f32[99] = sha256 "00"\n}', "the data of constant 00 is not given"),
        ('graph "g" {\n  input %x: f32[2, 3]\n  %y = Reshape(%x) {shape = (5,)}\n}', "cannot reshape"),
    ],
)
def test_errors_name_the_place(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        from_text(text)


@pytest.mark.parametrize(
    "text", ["-(a) // 2", "a*a - 3*b + 7", "min(a, 4*b)", "2*((a + 1) // 4) - (b % 3)", "max(0, a - b)"]
)
def test_dims_print_and_parse(text: str) -> None:
    d = parse_dim(text)
    assert parse_dim(str(d)) == d
    values = {"a": 13, "b": 5}
    assert dm.evaluate(d, values) == eval(text, {"min": min, "max": max}, values) or text.startswith("-(")


N, M = dm.symbol("N", 1, 32), dm.symbol("M", 0, 9)
SAMPLES: dict[Any, list[Any]] = {
    bool: [False, True],
    int: [0, -3, 2**40],
    float: [0.0, -0.25, 1e-05, 1e30, float("inf"), float("-inf")],
    str: ["", 'a "word" (odd)\n'],
    bytes: [b"", b"\x00\xff"],
    dt.DType: [dt.F32, dt.BOOL, dt.U4, dt.BF16],
    dm.Dim: [4, N, dm.floordiv(N + 1, 2), dm.add(dm.mul(N, -1), M)],
    Any: [1, True, -0.5, 1.5 - 2j, dt.F16, "text", None, N],
    type(None): [None],
}


def samples(annotation: Any) -> list[Any]:
    """Values of an annotated type; a KeyError says that this test knows none."""
    if annotation in SAMPLES:
        return SAMPLES[annotation]
    if get_origin(annotation) is tuple:
        item, *rest = get_args(annotation)
        one = samples(item)
        return [(), *((x,) for x in one), tuple(one)] if rest == [...] else [tuple(samples(a)[0] for a in get_args(annotation))]
    if get_origin(annotation) in (Union, UnionType):
        return [x for a in get_args(annotation) for x in samples(a)]
    if is_dataclass(annotation):  # a record
        hints = get_type_hints(annotation)
        of_fields = [samples(hints[f.name]) for f in fields(annotation)]
        return [annotation(*(s[i % len(s)] for s in of_fields)) for i in range(3)]
    raise KeyError(annotation)


def test_every_attribute_of_every_op_has_a_text_form() -> None:
    """Whatever value of its type each attribute has, its text reads back as the same."""
    symbols = {s.name: s for d in (N, M) for s in dm.symbols(d)}
    tried = 0
    for op in OPS:
        hints = get_type_hints(op.attrs)
        for f in fields(op.attrs):
            for x in samples(hints[f.name]):
                text = format_value(x)
                scanner = Scanner(text)
                back = parse_value(scanner, symbols)
                assert (scanner.kind, type(back), back) == ("end", type(x), x), f"{op.name}.{f.name}: {text}"
                tried += 1
    assert tried > 500


def test_what_is_no_record_is_an_error() -> None:
    wrong = {"#Nothing(1)": "no record is called 'Nothing'", "#nothing": "no value is written as #nothing", "#Activation(1)": "#Activation:"}
    for text, message in wrong.items():
        with pytest.raises(ParseError, match=re.escape(message)):
            parse_value(Scanner(text), {})


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_recurrent_nodes_read_back(op: str) -> None:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    names = {"LSTM": '["HardSigmoid", "Elu", "ScaledTanh"]', "GRU": '["Affine", "Softsign"]', "RNN": '["LeakyRelu"]'}[op]
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[T, B, 3] x, float[1, {4 * gates}, 3] w, float[1, {4 * gates}, 4] r, int32[B] n) => (float[S, D, E, H] y) {{
            y = {op} <hidden_size = 4, direction = "reverse", activations = {names}, clip = 2.5> (x, w, r, , n)
        }}""")
    graph = import_model(model).graph
    back = again(graph)
    (before,), (after,) = ([n for n in g.nodes if n.op.name == op] for g in (graph, back))
    assert before.attrs == after.attrs and before.attrs.activations
