"""Models that are valid and odd: they compile, and agree with the reference."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnx.helper as oh
import onnx.numpy_helper as nh
import pytest

from aitc.runtime import load
from tests.cli.support import Aitc, small_model

FLOAT = onnx.TensorProto.FLOAT


Shapes = dict[str, list[int | str]]
Weights = dict[str, np.ndarray]


def graph_model(
    nodes: list[onnx.NodeProto], inputs: Shapes, outputs: list[str], weights: Weights | None = None, elem: int = FLOAT
) -> onnx.ModelProto:
    takes = [oh.make_tensor_value_info(n, elem, s) for n, s in inputs.items()]
    gives = [oh.make_tensor_value_info(o, elem, None) for o in outputs]
    graph = oh.make_graph(nodes, "odd", takes, gives, [nh.from_array(a, n) for n, a in (weights or {}).items()])
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8)


def nan_weights() -> onnx.ModelProto:
    w = np.ones((4, 3), np.float32)
    w[1, 2], w[0, 0] = np.nan, np.inf
    return graph_model(
        [oh.make_node("Mul", ["x", "w"], ["m"]), oh.make_node("Add", ["m", "x"], ["y"])], {"x": [4, 3]}, ["y"], {"w": w}
    )


def zero_size() -> onnx.ModelProto:
    nodes = [oh.make_node("MatMul", ["x", "w"], ["p"]), oh.make_node("Relu", ["p"], ["y"])]
    return graph_model(nodes, {"x": [0, 4]}, ["y"], {"w": np.ones((4, 3), np.float32)})


def empty_sum() -> onnx.ModelProto:
    """A product over no elements is zero."""
    return graph_model(
        [oh.make_node("MatMul", ["x", "w"], ["y"])], {"x": [2, 0]}, ["y"], {"w": np.ones((0, 3), np.float32)}
    )


def an_input_is_an_output() -> onnx.ModelProto:
    return graph_model(
        [oh.make_node("Identity", ["x"], ["y"]), oh.make_node("Relu", ["x"], ["z"])], {"x": [2, 3]}, ["y", "z"]
    )


def constant_output() -> onnx.ModelProto:
    constant = oh.make_node("Constant", [], ["y"], value=nh.from_array(np.arange(6, dtype=np.float32).reshape(2, 3)))
    return graph_model([constant, oh.make_node("Neg", ["x"], ["z"])], {"x": [2]}, ["y", "z"])


def same_output_twice() -> onnx.ModelProto:
    nodes = [
        oh.make_node("Abs", ["x"], ["a"]),
        oh.make_node("Identity", ["a"], ["b"]),
        oh.make_node("Identity", ["a"], ["c"]),
    ]
    return graph_model(nodes, {"x": [5]}, ["a", "b", "c"])


def scalars() -> onnx.ModelProto:
    return graph_model([oh.make_node("Add", ["x", "y"], ["z"])], {"x": [], "y": []}, ["z"])


def names_from_hell() -> onnx.ModelProto:
    a, b, c = 'in/put:0 "quoted" */', "{json: [1]}\\", "out/put:0;ä"
    return graph_model(
        [oh.make_node("Relu", [a], [b], name="//*?"), oh.make_node("Neg", [b], [c], name='"')], {a: [3]}, [c]
    )


def outputs_with_names_alike() -> onnx.ModelProto:
    """The executable writes each output to a file of its own, whatever its name is."""
    names = ["y/0", "y:0", "y_0", "é" * 500, "é" * 500 + "b"]
    nodes = [oh.make_node("Mul", ["x", f"w{i}"], [n]) for i, n in enumerate(names)]
    return graph_model(nodes, {"x": [2]}, names, {f"w{i}": np.float32([i]) for i in range(len(names))})


def unnamed_nodes() -> onnx.ModelProto:
    model = small_model()
    for node in model.graph.node:
        node.name = ""
    return model


def initializer_is_also_an_input() -> onnx.ModelProto:
    model = small_model()
    model.graph.input.append(oh.make_tensor_value_info("w", FLOAT, [4, 3]))
    return model


def half() -> onnx.ModelProto:
    nodes = [oh.make_node("MatMul", ["x", "w"], ["p"]), oh.make_node("Softmax", ["p"], ["y"])]
    w = np.random.default_rng(0).standard_normal((16, 33)).astype(np.float16)
    return graph_model(nodes, {"x": ["n", 16]}, ["y"], {"w": w}, onnx.TensorProto.FLOAT16)


def sizes_that_are_expressions() -> onnx.ModelProto:
    """As language models have it: the mask is as long as what was said before and what is said now."""
    shapes: Shapes = {"past": ["n", "past"], "now": ["n", "now"], "mask": ["n", "past + now"], "half": ["floor(now / 2)"]}
    nodes = [
        oh.make_node("Concat", ["past", "now"], ["all"], axis=1),
        oh.make_node("Mul", ["all", "mask"], ["y"]),
        oh.make_node("Neg", ["half"], ["z"]),
    ]
    return graph_model(nodes, shapes, ["y", "z"])


def random_numbers() -> onnx.ModelProto:
    """One output is drawn at random: ONNX does not say which numbers come. The other is compared."""
    nodes = [oh.make_node("RandomNormalLike", ["x"], ["n"]), oh.make_node("Add", ["x", "n"], ["y"])]
    return graph_model([*nodes, oh.make_node("Neg", ["x"], ["z"])], {"x": [4, 3]}, ["y", "z"])


def no_nodes_but_a_view() -> onnx.ModelProto:
    return graph_model([oh.make_node("Transpose", ["x"], ["y"], perm=[1, 0])], {"x": [3, 5]}, ["y"])


MODELS = [
    nan_weights,
    zero_size,
    empty_sum,
    an_input_is_an_output,
    constant_output,
    same_output_twice,
    scalars,
    names_from_hell,
    outputs_with_names_alike,
    unnamed_nodes,
    initializer_is_also_an_input,
    half,
    sizes_that_are_expressions,
    random_numbers,
    no_nodes_but_a_view,
]


HERE = {zero_size, an_input_is_an_output, names_from_hell, outputs_with_names_alike, sizes_that_are_expressions, random_numbers}


@pytest.mark.parametrize("make", [pytest.param(f, id=f.__name__, marks=() if f in HERE else pytest.mark.full) for f in MODELS])
def test_compiles_and_agrees(aitc: Aitc, tmp_path: Path, make: object) -> None:
    onnx.save(make(), tmp_path / "odd model-1.onnx")  # type: ignore[operator]
    done = aitc("compile", "odd model-1.onnx", "-t", "cpu", "--require-verify")
    assert done.code == 0, done.err
    report = json.loads((tmp_path / "out" / "odd_model_1.json").read_text())
    assert report["verification"]["status"] == "passed"
    ran = subprocess.run([tmp_path / "out" / "odd_model_1", "--json"], capture_output=True, text=True, check=True)
    told = json.loads(ran.stdout)
    with load(tmp_path / "out") as model:
        results = model(*model.random_inputs())
    assert [list(r.shape) for r in results] == [o["shape"] for o in told["outputs"]]


def test_a_model_without_outputs_of_nodes_that_matter(aitc: Aitc, tmp_path: Path) -> None:
    """Dead branches cost nothing."""
    model = small_model()
    model.graph.node.append(oh.make_node("MatMul", ["x", "w"], ["dead"], name="dead"))
    onnx.save(model, tmp_path / "m.onnx")
    counts = json.loads(aitc("show", "m.onnx", "--stage", "simplify", "-t", "cpu", "--json").out)
    assert counts["ops"]["MatMul"] == 1
