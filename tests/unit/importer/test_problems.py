"""Models that cannot be imported: every problem is found, named and explained, all at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from aitc.errors import AitcError, Exit
from aitc.importer.onnx import import_model
from aitc.ops.declare import IMPORTERS

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'


def problems(source: object) -> AitcError:
    with pytest.raises(AitcError) as raised:
        import_model(source)  # type: ignore[arg-type]
    return raised.value


def of_text(text: str) -> AitcError:
    return problems(parser.parse_model(HEAD + text))


def codes(error: AitcError) -> list[str]:
    return [p.code for p in error.diagnostics]


# --- the file ---------------------------------------------------------------------------------------------------------


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    error = problems(tmp_path / "none.onnx")
    assert codes(error) == ["I01"] and error.exit_code is Exit.IO


def test_files_that_are_not_onnx(tmp_path: Path) -> None:
    whole = parser.parse_model(HEAD + "g (float[2] x) => (float[2] y) { y = Relu(x) }").SerializeToString()
    for i, data in enumerate(
        (b"", b"hello, world", whole[: len(whole) // 2], b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n")
    ):
        path = tmp_path / f"{i}.onnx"
        path.write_bytes(data)
        error = problems(path)
        assert codes(error) == ["I02"] and error.exit_code is Exit.MODEL, data


def test_an_opset_of_the_future() -> None:
    m = parser.parse_model(HEAD.replace("17", "999") + "g (float[2] x) => (float[2] y) { y = Relu(x) }")
    assert codes(problems(m)) == ["I07"]


def test_domains_imported_twice_or_not_at_all() -> None:
    m = parser.parse_model(HEAD + "g (float[2] x) => (float[2] y) { y = com.microsoft.Gelu(x) }")
    assert codes(problems(m)) == ["I11"]
    m.opset_import.append(helper.make_opsetid("", 18))
    assert "I11" in codes(problems(m))


# --- structure --------------------------------------------------------------------------------------------------------


def graph_of(*nodes: onnx.NodeProto, output: str = "y") -> onnx.ModelProto:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [value("x", TensorProto.FLOAT, [2])], [value(output, TensorProto.FLOAT, [2])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([("Relu", ["nothing"], ["y"])], "nothing makes it"),
        ([("Add", ["x", "b"], ["a"]), ("Relu", ["a"], ["b"]), ("Relu", ["b"], ["y"])], "#1 (Relu) -> #0 (Add)"),
        ([("Add", ["x", "y"], ["y"])], "#0 (Add) -> #0 (Add)"),
        ([("Relu", ["x"], ["y"]), ("Neg", ["x"], ["y"])], "made twice"),
        ([("Relu", ["x"], ["z"])], "made by no node"),
    ],
)
def test_edges_that_do_not_hold(nodes: list[tuple[str, list[str], list[str]]], message: str) -> None:
    error = problems(graph_of(*(helper.make_node(*n) for n in nodes)))
    assert "I03" in codes(error) and message in str(error) and error.exit_code is Exit.MODEL


def test_edges_in_bodies_are_checked_too() -> None:
    text = """g (float[2] x, bool c) => (float[2] y) {
        y = If(c)<then_branch = t () => (float[2] a) { a = Relu(missing) }, else_branch = e () => (float[2] b) { b = Neg(x) }>
    }"""
    error = of_text(text)
    assert codes(error) == ["I03"] and "main/If_0.then_branch" in str(error)


# --- operators --------------------------------------------------------------------------------------------------------


def test_unknown_operators_are_listed_all_at_once() -> None:
    m = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17, "acme" : 1]>\n'
        "g (float[2] x) => (float[2] y) { a = acme.Frobnicate(x)\n b = acme.Frobnicate(a)\n c = Relux(b)\n d = acme.Conv(c)\n y = Relu(d) }"
    )
    error = problems(m)
    assert codes(error) == ["I06"] * 3 and error.exit_code is Exit.UNSUPPORTED
    assert "Frobnicate of domain acme" in str(error) and "2 nodes" in str(error)
    assert "ONNX has no operator of this name" in str(error)
    assert "there is one in ai.onnx" in str(error)  # Conv of acme is not that of ai.onnx


@pytest.mark.parametrize(
    ("node", "code", "message"),
    [
        ("y = Relu<alpha = 1.0>(x)", "I04", "unknown attribute alpha"),
        ("y = Relu(x, x)", "I04", "2 inputs, at most 1"),
        ("y = Add(x)", "I04", "missing"),
        ('y = Concat<axis = "one">(x, x)', "I04", "axis|must be int"),
        ("y = Concat(x, x)", "I04", "attribute axis missing"),
        ("y = If<then_branch = 1.0, else_branch = 2.0>(x)", "I04", "must be a GraphProto"),
        ("y = Concat<axis = 5>(x, x)", "I04", "outside of"),
        ("y = Transpose<perm = [0, 0]>(x)", "I04", "permutation"),
        ("y = MatMul(x, x)", "I04", "inner dims differ"),
        ("t = Transpose(x)\n y = Add(x, t)", "I04", "do not broadcast"),
        ("c = Cast<to = 10>(x)\n y = Add(x, c)", "I04", "different element types"),
        ("c = Cast<to = 99>(x)\n y = Relu(c)", "I04", "not an element type"),
        ("c = Cast<to = 8>(x)\n y = Relu(x)", "I05", "strings"),
    ],
)
def test_wrong_nodes(node: str, code: str, message: str) -> None:
    with pytest.raises(AitcError, match=message) as raised:
        import_model(parser.parse_model(HEAD + f"g (float[2, 3] x) => (float[M, N] y) {{ {node} }}"))
    assert code in codes(raised.value)
    rendered = raised.value.diagnostics[0].render()
    assert "node #" in rendered and "f32[2, 3]" in rendered


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("g (float[2] x) => (float[N] y) { y = Trilu(x) }", "Input rank must be >= 2"),
        ("g (float[2, 3] x, float z) => (float[N, M] y) { y = Concat <axis = 0> (x, z) }", "same rank"),
        ("g (float[2] x) => (float[2] y) { s = SequenceConstruct(x, x) y = Add(s, x) }", "unsupported type: seq"),
        ("g (float[2, 3] x) => (float[2, 3] y) { y = ReverseSequence(x, x) }", "lengths f32[2, 3] of sequences"),
        ("g (float[4] x, float[4] s) => (float[4] y) { y = InstanceNormalization(x, s, s) }", "a batch axis and channels"),
        ("g (float[4] x, int64[2, 2] i, float[2, 2] u) => (float[4] y) { y = ScatterElements(x, i, u) }", "different ranks"),
        ("g (float[2, 4] b, float[1, 1, 2] s) => (int64[N, 3] y) { y = NonMaxSuppression(b, s) }", "three axes"),
        ("g (float[5, 2, 8] x, float[1, 48, 8] w, float[1, 48, 12] r, float[48] b) => (float[5, 1, 2, 12] y) "
         "{ y = LSTM <hidden_size = 12> (x, w, r, b) }", "B is f32[48], expected [1, 96]"),
        ("g (float[5, 2, 8] x, float[1, 48, 8] w, float[1, 48, 12] r, float[1, 4, 8] p) => (float[5, 1, 2, 12] y) "
         "{ y = LSTM <hidden_size = 12> (x, w, r, , , , , p) }", "P is f32[1, 4, 8], expected [1, 36]"),
    ],
)  # fmt: skip
def test_what_onnx_refuses_is_no_defect(text: str, message: str) -> None:
    """Where an importer function trips over a node that is wrong, onnx's own words say what is wrong with it."""
    error = of_text(text)
    assert codes(error) == ["I04"] and error.exit_code is Exit.MODEL and message in str(error)


def test_what_onnx_does_not_refuse_is_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(b: object, x: object) -> None:
        raise IndexError("tuple index out of range")

    (importer,) = [i for i in IMPORTERS["", "Relu"] if i.since == 1]
    monkeypatch.setitem(IMPORTERS, ("", "Relu"), [replace(importer, function=broken)])
    error = of_text("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    assert codes(error) == ["I13"] and error.exit_code is Exit.INTERNAL


def test_problems_are_collected_and_those_that_follow_are_left_out() -> None:
    error = of_text(
        "g (float[2, 3] x) => (float[N] y) { a = Relu<k = 1>(x)\n b = MatMul(x, x)\n c = Add(a, b)\n y = Exp(c) }"
    )
    assert codes(error) == ["I04", "I04"]


def test_a_function_that_calls_itself() -> None:
    text = 'g (float[2] x) => (float[2] y) { y = my.f(x) }\n<domain: "my", opset_import: ["" : 17, "my" : 1]>\nf (x) => (y) { y = my.f(x) }'
    m = parser.parse_model('<ir_version: 8, opset_import: ["" : 17, "my" : 1]>\n' + text)
    assert "calls itself" in str(problems(m))


def test_inputs_that_are_not_tensors() -> None:
    value = helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, [2])
    node = helper.make_node("SequenceLength", ["x"], ["y"])
    graph = helper.make_graph([node], "g", [value], [helper.make_tensor_value_info("y", TensorProto.INT64, [])])
    assert codes(problems(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))) == ["I09"]
    assert codes(of_text("g (string[2] x) => (string[2] y) { y = Identity(x) }")) == ["I09"]
    assert codes(of_text("g (complex64[2] x) => (complex64[2] y) { y = Identity(x) }")) == ["I09"]


def test_outputs_that_cannot_be_given() -> None:
    m = graph_of(helper.make_node("Relu", ["x"], ["y"]))
    m.graph.output.add(name="")
    assert codes(problems(m)) == ["I03"]
    constant = numpy_helper.from_array(np.ones(2, np.complex64))
    assert codes(problems(graph_of(helper.make_node("Constant", [], ["y"], value=constant)))) == ["I09"]


def test_an_output_of_another_type_than_declared() -> None:
    error = of_text("g (float[2] x) => (int64[2] y) { y = Relu(x) }")
    assert codes(error) == ["I03"] and error.exit_code is Exit.MODEL
    assert "output 'y' is declared as i64, and the graph computes f32" in str(error)


@pytest.mark.parametrize(
    "text",
    [
        "g (float[8589934592, 8589934592] x) => (float[N, M] y) { y = Relu(x) }",
        "g (float[1] x) => (float[N, M] z) { s = Constant <value_ints = [4294967296, 4294967296]> () y = Expand(x, s) z = Relu(y) }",
    ],
)
def test_tensors_beyond_any_memory(text: str) -> None:
    error = of_text(text)
    assert codes(error) == ["I04"] and "more than can be addressed" in str(error)


def test_a_function_that_nobody_calls_may_hold_anything() -> None:
    body = '<domain: "my", opset_import: ["" : 17]>\n%s (x) => (y) { y = %s(x) }\n'
    head = '<ir_version: 8, opset_import: ["" : 17, "my" : 1]>\n'
    text = head + "g (float[2] x) => (float[2] y) { y = my.f(x) }\n" + body % ("f", "Relu") + body % ("h", "Nonsense")
    assert [n.op.name for n in import_model(parser.parse_model(text)).graph.nodes] == ["Relu"]
    text = text.replace("y = Relu(x)", "y = my.h(x)").replace('["" : 17]>\nf', '["" : 17, "my" : 1]>\nf')
    assert codes(problems(parser.parse_model(text))) == ["I06"]


def test_a_dim_that_has_to_be_known_says_how_to_bind_it() -> None:
    error = of_text("g (float[N, 1, 3] x) => (float[M] y) { y = Squeeze(x) }")
    assert codes(error) == ["I05"] and "--dim N=" in str(error)


def test_damaged_constants() -> None:
    m = graph_of(helper.make_node("Add", ["x", "w"], ["y"]))
    m.graph.initializer.append(onnx.TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], raw_data=b"\0\0\0\0"))
    assert codes(problems(m)) == ["I12"]
