"""Small files that stand for more than a machine holds."""

from __future__ import annotations

import itertools
import time

import onnx
import onnx.helper as h
import pytest

from aitc.errors import AitcError, Exit
from aitc.importer.onnx import import_model

F32 = onnx.TensorProto.FLOAT


def calling(depth: int, times: int) -> onnx.ModelProto:
    """Functions f0, f1 ..., each of which calls the next ``times`` times in a row."""
    opsets = [h.make_opsetid("", 18), h.make_opsetid("d", 1)]
    functions = []
    for i in range(depth):
        chain = ["a", *(f"t{n}" for n in range(times - 1)), "b"]
        pairs = list(itertools.pairwise(chain)) if i < depth - 1 else [("a", "b")]
        op, domain = (f"f{i + 1}", "d") if i < depth - 1 else ("Relu", "")
        functions.append(h.make_function("d", f"f{i}", ["a"], ["b"], [h.make_node(op, [x], [y], domain=domain) for x, y in pairs], opsets))
    x, y = (h.make_tensor_value_info(n, F32, [4]) for n in "xy")
    return h.make_model(h.make_graph([h.make_node("f0", ["x"], ["y"], domain="d")], "g", [x], [y]), opset_imports=opsets,
                        functions=functions, ir_version=9)  # fmt: skip


def refused(model: onnx.ModelProto) -> AitcError:
    begun = time.monotonic()
    with pytest.raises(AitcError) as problem:
        import_model(model)
    assert time.monotonic() - begun < 20
    return problem.value


def test_functions_that_double() -> None:
    error = refused(calling(30, 2))
    assert error.diagnostics[0].code == "I14" and error.exit_code is Exit.UNSUPPORTED and "AITC_MAX_NODES" in str(error)


def test_deep_functions() -> None:
    assert "64 deep" in str(refused(calling(400, 1)))
    assert len(import_model(calling(60, 1)).graph) == 1
    assert len(import_model(calling(8, 3)).graph) == 3**7


def test_functions_that_call_themselves() -> None:
    model = calling(3, 1)
    model.functions[2].node[0].op_type, model.functions[2].node[0].domain = "f1", "d"
    error = refused(model)
    assert error.exit_code is Exit.MODEL and "calls itself" in str(error)


def test_the_limit_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AITC_MAX_NODES", "100")
    assert "more than 100 nodes" in str(refused(calling(8, 2)))
    import_model(calling(5, 2))


def test_loops_in_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is short enough to be unrolled; all of them together are not."""
    monkeypatch.setenv("AITC_MAX_NODES", "10000")
    body = "z = Neg(a)"
    for level in range(3):
        head = f"b{level} (int64 i{level}, bool c{level}, float[4] a) => (bool e{level}, float[4] z)"
        body = f"z = Loop(m, c, a) <body = {head} {{ e{level} = Identity(c{level}) {body} }}>"
    text = f'<ir_version: 9, opset_import: ["" : 18]>\ng (float[4] a) => (float[4] z) <int64 m = {{200}}, bool c = {{1}}> {{ {body} }}'
    assert "I14" in {d.code for d in refused(onnx.parser.parse_model(text)).diagnostics}


def test_many_axes() -> None:
    x, y = (h.make_tensor_value_info(n, F32, [1] * 5000) for n in "xy")
    model = h.make_model(h.make_graph([h.make_node("Relu", ["x"], ["y"])], "g", [x], [y]), opset_imports=[h.make_opsetid("", 18)], ir_version=9)
    assert refused(model).exit_code is Exit.MODEL
