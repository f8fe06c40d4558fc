from __future__ import annotations

from itertools import islice
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx.helper as oh
import onnx.numpy_helper as nh
import pytest

from aitc.verify.noise import spreads
from aitc.verify.reference import NoReference, Reference, node_outputs, random_values


def model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[str],
    weights: list[onnx.TensorProto] | None = None,
    elem: int = onnx.TensorProto.FLOAT,
    functions: list[onnx.FunctionProto] | None = None,
) -> onnx.ModelProto:
    graph = oh.make_graph(
        nodes, "g", inputs, [oh.make_tensor_value_info(o, elem, None) for o in outputs], weights or []
    )
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8, functions=functions or [])


def x(shape: list[int], elem: int = onnx.TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return oh.make_tensor_value_info("x", elem, shape)


def test_onnxruntime_is_the_first_oracle(tmp_path: Path) -> None:
    m = model([oh.make_node("Relu", ["x"], ["y"])], [x([4])], ["y"])
    onnx.save(m, tmp_path / "m.onnx")
    for source in (tmp_path / "m.onnx", m.SerializeToString()):
        reference = Reference(source)
        result = reference.run({"x": np.array([-1, 2, -3, 4], np.float32), "unknown": np.zeros(1)})
        assert result["y"].tolist() == [0, 2, 0, 4]
        assert reference.oracle.startswith("onnxruntime")


def test_the_second_oracle_where_the_first_has_no_kernel() -> None:
    m = model(
        [oh.make_node("Sinh", ["x"], ["y"])], [x([3], onnx.TensorProto.FLOAT16)], ["y"], elem=onnx.TensorProto.FLOAT16
    )
    reference = Reference(m.SerializeToString())
    result = reference.run({"x": np.array([0, 1, 2], np.float16)})
    assert np.allclose(result["y"], np.sinh([0, 1, 2]), rtol=1e-2)
    assert reference.oracle.split()[0] in ("onnx.reference", "onnxruntime")


def test_neither_oracle() -> None:
    node = oh.make_node("Nonsense", ["x"], ["y"], domain="no.such")
    graph = oh.make_graph([node], "g", [x([3])], [oh.make_tensor_value_info("y", 1, [3])])
    m = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17), oh.make_opsetid("no.such", 1)], ir_version=8)
    with pytest.raises(NoReference, match=r"onnxruntime: .*; onnx\.reference: "):
        Reference(m.SerializeToString()).run({"x": np.zeros(3, np.float32)})


def test_bfloat16_is_computed_in_float32_everywhere() -> None:
    bf16 = onnx.TensorProto.BFLOAT16
    w = nh.from_array(np.array([1.5, 2.5, 3.5], ml_dtypes.bfloat16), "w")
    body = oh.make_graph(
        [oh.make_node("Mul", ["x", "w"], ["then"])], "t", [], [oh.make_tensor_value_info("then", bf16, [3])]
    )
    other = oh.make_graph(
        [oh.make_node("Constant", [], ["else"], value=nh.from_array(np.zeros(3, ml_dtypes.bfloat16)))],
        "e",
        [],
        [oh.make_tensor_value_info("else", bf16, [3])],
    )
    nodes = [
        oh.make_node("Constant", [], ["yes"], value=nh.from_array(np.array(True))),
        oh.make_node("If", ["yes"], ["z"], then_branch=body, else_branch=other),
        oh.make_node("Cast", ["z"], ["f"], to=onnx.TensorProto.FLOAT),
        oh.make_node("Cast", ["f"], ["y"], to=bf16),
    ]
    reference = Reference(model(nodes, [x([3], bf16)], ["y"], [w], bf16).SerializeToString())
    result = reference.run({"x": np.array([1.0, 2.0, 257.0], ml_dtypes.bfloat16)})["y"]
    assert result.dtype == np.float32
    assert result.tolist() == [1.5, 5.0, 896.0]  # 257 is 256 in bfloat16; the product is not rounded
    assert reference.oracle.startswith("onnxruntime")


@pytest.mark.parametrize("elem", [onnx.TensorProto.FLOAT, onnx.TensorProto.BFLOAT16])
def test_local_functions(elem: int) -> None:
    function = oh.make_function(
        "mine", "Twice", ["a"], ["b"], [oh.make_node("Add", ["a", "a"], ["b"])], [oh.make_opsetid("", 17)]
    )
    m = model([oh.make_node("Twice", ["x"], ["y"], domain="mine")], [x([3], elem)], ["y"], elem=elem, functions=[function])
    m.opset_import.append(oh.make_opsetid("mine", 1))
    given = np.array([1, -2, 3], ml_dtypes.bfloat16 if elem == onnx.TensorProto.BFLOAT16 else np.float32)
    assert Reference(m.SerializeToString()).run({"x": given})["y"].astype(np.float32).tolist() == [2, -4, 6]


def test_what_depends_on_random_numbers() -> None:
    body = oh.make_graph([oh.make_node("Add", ["x", "r"], ["t"])], "t", [], [x([3])])
    other = oh.make_graph([oh.make_node("Neg", ["x"], ["e"])], "e", [], [x([3])])
    noisy = oh.make_function(
        "mine", "Noisy", ["a"], ["b"],
        [oh.make_node("RandomNormalLike", ["a"], ["n"]), oh.make_node("Add", ["a", "n"], ["b"])], [oh.make_opsetid("", 17)],
    )  # fmt: skip
    nodes = [
        oh.make_node("RandomUniform", [], ["r"], shape=[3]),
        oh.make_node("Relu", ["x"], ["plain"]),
        oh.make_node("Mul", ["r", "x"], ["after"]),
        oh.make_node("If", ["c"], ["inside"], then_branch=body, else_branch=other),
        oh.make_node("Dropout", ["x", "ratio"], ["kept"]),
        oh.make_node("Dropout", ["x", "ratio", "training"], ["dropped"]),
        oh.make_node("Noisy", ["plain"], ["called"], domain="mine"),
        oh.make_node("RandomUniform", ["x"], ["another"], domain="mine"),
    ]
    assert random_values(model(nodes, [x([3])], ["plain"], functions=[noisy])) == {"r", "after", "inside", "dropped", "called"}


def test_values_in_the_middle() -> None:
    nodes = [oh.make_node("Exp", ["x"], ["m"], name="first"), oh.make_node("Log", ["m"], ["y"], name="second")]
    raw = model(nodes, [x([2])], ["y"]).SerializeToString()
    assert node_outputs(raw) == [("m", "first", "Exp"), ("y", "second", "Log")]
    result = Reference(raw, ["m", "y"]).run({"x": np.array([0, 1], np.float32)})
    assert list(result) == ["y", "m"]
    assert np.allclose(result["m"], [1, np.e])


def test_spread_is_how_much_the_model_amplifies_rounding() -> None:
    w = nh.from_array(np.array([1000.3, -1000.3], np.float32), "w")
    nodes = [oh.make_node("MatMul", ["x", "w"], ["s"]), oh.make_node("Relu", ["x"], ["r"])]
    reference = Reference(model(nodes, [x([1, 2])], ["s", "r"], [w]).SerializeToString())
    feeds = {"x": np.array([[1.1, 1.1]], np.float32)}
    spread = list(islice(spreads(reference, feeds, 2.0**-24, reference.run(feeds)), 3))[-1][0]
    assert 1e-5 < spread["s"].max() < 1e-2  # the terms cancel: 2**-24 · 1000
    assert spread["r"].max() < 1e-6


def test_detectors_are_recognised() -> None:
    m = model([oh.make_node("NonZero", ["x"], ["y"])], [x([4])], ["y"], elem=onnx.TensorProto.INT64)
    assert Reference(m.SerializeToString()).detects
    assert not Reference(model([oh.make_node("Relu", ["x"], ["y"])], [x([4])], ["y"]).SerializeToString()).detects


def test_models_beyond_a_message_go_through_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aitc.verify.reference.MESSAGE_BYTES", 100)
    w = nh.from_array(np.arange(1000, dtype=np.float32), "w")
    raw = model(
        [oh.make_node("Mul", ["x", "w"], ["m"]), oh.make_node("Neg", ["m"], ["y"])], [x([1000])], ["y"], [w]
    ).SerializeToString()
    reference = Reference(raw, ["m"])
    result = reference.run({"x": np.full(1000, 2, np.float32)})
    assert reference.oracle.startswith("onnxruntime")
    assert result["m"][999] == 1998 and result["y"][999] == -1998
