"""Inputs that become constants."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper, parser

from aitc.errors import AitcError, Exit
from aitc.importer.onnx import Imported, import_model
from aitc.importer.values import Bound, fitting
from aitc.ir.interpret import interpret

RATES = """(float[n] x, int64 sr, bool more) => (float[m] y) <int64 fast = {16000}> {
    p = Equal(sr, fast)
    y = If(p) <then_branch = t () => (float[n] a) { a = Neg(x) }, else_branch = e () => (float[k] b) {
        b = If(more) <then_branch = t2 () => (float[n] c) { c = Abs(x) }, else_branch = e2 () => (float[k] d) { d = Concat<axis = 0>(x, x) }> }> }"""


def read(text: str, **values: object):
    return import_model(parser.parse_model('<ir_version: 9, opset_import: ["": 21]> g ' + text), values=values)


def computed(found: Imported) -> list[str]:
    """The ops that outputs need."""
    found.graph.sweep()
    return [n.op.name for n in found.graph.nodes]


def info(elem: int, shape: list[int | str] | None):
    return helper.make_tensor_value_info("v", elem, shape)


def test_a_value_decides_branches_and_leaves_the_inputs() -> None:
    found = read(RATES, sr=8000, more=True)
    assert [v.name for v in found.graph.inputs] == ["x"] and computed(found) == ["Abs"]
    assert [(b.name, b.index, b.array.dtype, b.array.shape) for b in found.bound] == [("sr", 1, np.int64, ()), ("more", 2, np.bool_, ())]
    assert computed(read(RATES, sr=16000)) == ["Neg"]
    assert computed(read(RATES, sr=8000)) == ["If"]


def test_sizes_and_what_shares_a_dim() -> None:
    text = "(float[2,3] x, int64[k] s, float[k] w) => (float[d,e] y, float[k] z) { y = Reshape(x, s) z = Neg(w) }"
    graph = read(text, s=(3, 2)).graph
    assert graph.outputs[0].shape == (3, 2) and [v.shape for v in graph.inputs] == [(2, 3), (2,)]
    y, _ = interpret(graph, {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "w": np.zeros(2, np.float32)}).values()
    assert y.shape == (3, 2)


@pytest.mark.parametrize(
    "elem,shape,value,want",
    [
        (T.INT64, [], 16000, np.int64(16000)),
        (T.INT64, [1], 3, np.array([3], np.int64)),
        (T.INT32, ["k"], (1, 3), np.array([1, 3], np.int32)),
        (T.INT64, ["a", "b"], (1, 3), np.array([[1, 3]])),
        (T.FLOAT, [2, 2], (1, 2, 3, 4.5), np.array([[1, 2], [3, 4.5]], np.float32)),
        (T.FLOAT, ["k"], (), np.zeros(0, np.float32)),
        (T.FLOAT16, [], 0.1, np.float16(0.1)),
        (T.BFLOAT16, [], 1, np.array(1, ml_dtypes.bfloat16)),
        (T.BOOL, [], True, np.bool_(True)),
        (T.BOOL, [2], (0, 1), np.array([False, True])),
        (T.UINT8, [], 255, np.uint8(255)),
        (T.FLOAT, None, 2, np.float32(2)),
        (T.FLOAT, None, (2,), np.array([2], np.float32)),
        (T.FLOAT, [], float("inf"), np.float32("inf")),
    ],
)
def test_fitting(elem: int, shape: list[int | str] | None, value: object, want: np.ndarray) -> None:
    array = fitting(info(elem, shape), value)
    np.testing.assert_array_equal(array, want)
    assert (array.dtype, array.shape) == (want.dtype, want.shape)
    again = Bound.of_json(json.loads(json.dumps(Bound("v", 0, array).json())))
    np.testing.assert_array_equal(again.array, array)
    assert again.array.dtype == array.dtype


@pytest.mark.parametrize(
    "elem,shape,value,said",
    [
        (T.INT64, [], 0.5, "0.5 is no integer"),
        (T.INT64, [], True, "true is no number"),
        (T.UINT8, [], 256, "holds 0 to 255"),
        (T.INT8, [], -129, "holds -128 to 127"),
        (T.FLOAT16, [], 70000.0, "more than f16 holds"),
        (T.FLOAT, [], 10**60, "more than f32 holds"),
        (T.BOOL, [], 2, "neither true nor false"),
        (T.INT64, [2], (1, 2, 3), "takes i64[2], and 3 elements are given"),
        (T.INT64, [2, "k"], (1, 2, 3), "takes i64[2, k], and 3 elements are given"),
        (T.INT64, [], (1, 2), "2 elements are given"),
        (T.STRING, [], 1, "string"),
    ],
)
def test_what_does_not_fit(elem: int, shape: list[int | str], value: object, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("[", r"\[")):
        fitting(info(elem, shape), value)


def test_errors_name_the_input_and_come_together() -> None:
    with pytest.raises(AitcError) as caught:
        read(RATES, rate=1, mroe=True, sr=1.5)
    assert caught.value.exit_code is Exit.USAGE
    text = str(caught.value)
    assert "--value rate: the model has no such input" in text and "did you mean more?" in text and "1.5 is no integer" in text
