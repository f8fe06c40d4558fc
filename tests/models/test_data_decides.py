"""Sizes, branches and trips that only the data decides: the models in one cpu library, beside onnxruntime."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import onnx.numpy_helper as nh
import onnxruntime
import pytest
from conformance.many import build_many

from aitc import abi
from aitc.errors import AitcError, Exit
from aitc.importer.onnx import import_model
from aitc.passes.base import Context
from aitc.passes.stages import fuse, layout, simplify
from aitc.runtime import Model
from aitc.schedule.plan.check import check_plan
from aitc.schedule.plan.plan import Plan
from aitc.schedule.schedule import PlanOptions, schedule
from aitc.targets.target import find_target

F, INT, B = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL
info, node = oh.make_tensor_value_info, oh.make_node
Feeds = dict[str, np.ndarray]


def model(nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any], **constants: Any) -> onnx.ModelProto:
    initializers = [nh.from_array(np.asarray(v), k) for k, v in constants.items()]
    graph = oh.make_graph(nodes, "g", inputs, outputs, initializers)
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8)


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def branches() -> tuple[onnx.ModelProto, list[Feeds]]:
    """Branches that capture x and give results of different sizes."""
    then = oh.make_graph([node("Add", ["x", "x"], ["t"])], "then", [], [info("t", F, None)])
    other = oh.make_graph([node("Concat", ["x", "x"], ["e"], axis=0)], "else", [], [info("e", F, None)])
    nodes = [
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        node("Greater", ["s", "zero"], ["c"]),
        node("If", ["c"], ["y"], then_branch=then, else_branch=other),
        node("Relu", ["y"], ["z"]),
    ]
    m = model(nodes, [info("x", F, ["n", 3])], [info("z", F, None)], zero=np.float32(0))
    return m, [{"x": numbers(n, 3) + move} for n in (1, 4) for move in (-3, 3)]


def loop() -> tuple[onnx.ModelProto, list[Feeds]]:
    """A branch inside a loop, which ends by its condition or after no, few or too many trips; w is captured by both."""
    then = oh.make_graph([node("Mul", ["v", "w"], ["t"])], "then", [], [info("t", F, None)])
    other = oh.make_graph([node("Add", ["v", "w"], ["e"])], "else", [], [info("e", F, None)])
    inner = [
        node("Mod", ["i", "two"], ["r"]),
        node("Equal", ["r", "zero"], ["even"]),
        node("If", ["even"], ["v_out"], then_branch=then, else_branch=other),
        node("ReduceMax", ["v_out"], ["most"], keepdims=0),
        node("Less", ["most", "limit"], ["go"]),
        node("Identity", ["v_out"], ["part"]),
    ]
    body = oh.make_graph(
        inner, "body", [info("i", INT, []), info("c", B, []), info("v", F, ["n", 3])],
        [info("go", B, []), info("v_out", F, None), info("part", F, None)],
    )  # fmt: skip
    nodes = [
        node("Sub", ["x", "w"], ["y"]),
        node("Loop", ["trips", "", "y"], ["last", "all"], body=body),
        node("Neg", ["all"], ["negative"]),
    ]
    constants = {"two": np.int64(2), "zero": np.int64(0), "limit": np.float32(1000), "w": np.float32([1.5, 2, 1.1])}
    inputs, outputs = [info("x", F, ["n", 3]), info("trips", INT, [])], [info("last", F, None), info("negative", F, None)]
    return model(nodes, inputs, outputs, **constants), [{"x": numbers(2, 3), "trips": np.array(t)} for t in (0, 1, 5, -3, 10**9)]


def scan() -> tuple[onnx.ModelProto, list[Feeds]]:
    """Of a length that is known at run time, backward, along axis 1."""
    inner = [node("Add", ["s", "x_t"], ["s_out"]), node("Mul", ["s_out", "s_out"], ["y_t"])]
    body = oh.make_graph(
        inner, "body", [info("s", F, [3]), info("x_t", F, [3])], [info("s_out", F, [3]), info("y_t", F, [3])]
    )
    attributes = {f"scan_{side}_{what}": [1] for side in ("input", "output") for what in ("axes", "directions")}
    nodes = [node("Scan", ["s0", "x"], ["last", "y"], body=body, num_scan_inputs=1, **attributes)]
    m = model(nodes, [info("s0", F, [3]), info("x", F, [3, "t"])], [info("last", F, None), info("y", F, None)])
    return m, [{"s0": np.ones(3, np.float32), "x": numbers(3, t)} for t in (1, 4, 9)]


def many_trips() -> tuple[onnx.ModelProto, list[Feeds]]:
    body = oh.make_graph(
        [node("Add", ["a", "one"], ["a_out"]), node("Identity", ["c"], ["c_out"])], "body",
        [info("i", INT, []), info("c", B, []), info("a", F, [])], [info("c_out", B, []), info("a_out", F, [])],
    )  # fmt: skip
    nodes = [node("Loop", ["trips", "", "x"], ["y"], body=body)]
    m = model(nodes, [info("x", F, []), info("trips", INT, [])], [info("y", F, None)], one=np.float32(1))
    return m, [{"x": np.zeros((), np.float32), "trips": np.array(t)} for t in (0, 70000)]


def nonzero() -> tuple[onnx.ModelProto, list[Feeds]]:
    """Places of non-zero elements, gathered and multiplied; none, some and all of them."""
    nodes = [
        node("NonZero", ["x"], ["places"]),
        node("Transpose", ["places"], ["rows"], perm=[1, 0]),
        node("GatherND", ["x", "rows"], ["values"]),
        node("Cast", ["rows"], ["floats"], to=F),
        node("MatMul", ["floats", "w"], ["product"]),
    ]
    m = model(nodes, [info("x", F, ["a", "b"])], [info("values", F, None), info("product", F, None)], w=numbers(2, 5))
    return m, [{"x": (np.abs(numbers(a, b)) > p).astype(np.float32) * 3} for a, b, p in ((4, 5, 0.7), (3, 2, 9), (1, 1, -1))]


def top_k() -> tuple[onnx.ModelProto, list[Feeds]]:
    nodes = [node("TopK", ["x", "k"], ["values", "places"])]
    m = model(nodes, [info("x", F, [3, 6]), info("k", INT, [1])], [info("values", F, None), info("places", INT, None)])
    return m, [{"x": numbers(3, 6), "k": np.array([k])} for k in (0, 1, 6)]


CASES = (branches, loop, scan, many_trips, nonzero, top_k)


def plan_of(m: onnx.ModelProto, name: str) -> Plan:
    target = find_target("cpu")
    graph = import_model(m.SerializeToString()).graph
    for stage in (simplify, fuse, layout):
        stage(graph, Context(target, "model", ()))
    return check_plan(schedule(graph, target, PlanOptions(name, "model.onnx")))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    plans = [plan_of(case()[0], f"t{n}") for n, case in enumerate(CASES)]
    return build_many(plans, tmp_path_factory.mktemp("many"))


def load(library: Path, case: Any) -> Model:
    n = CASES.index(case)
    ctypes.CDLL(str(library)).choose_model(n)
    weights = library.with_name(f"t{n}.weights")
    return Model(library, weights=weights if weights.exists() else None)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_as_onnxruntime(library: Path, case: Any) -> None:
    m, feeds = case()
    reference = onnxruntime.InferenceSession(m.SerializeToString())
    with load(library, case) as compiled:
        for feed in feeds:
            got = compiled(*[feed[p.name] for p in compiled.inputs])
            for g, want in zip(got, reference.run(None, feed), strict=True):
                if want.size:  # the sizes of nothing stacked are not the same everywhere
                    assert g.shape == want.shape
                    np.testing.assert_allclose(g, want, rtol=1e-6)
                assert g.size == want.size


def test_sizes_are_unknown_before_the_run(library: Path) -> None:
    with load(library, top_k) as compiled:
        assert compiled.output_shapes((3, 6), (1,)) == [(3, -1), (3, -1)]


def test_a_size_that_cannot_be(library: Path) -> None:
    with load(library, top_k) as compiled:
        with pytest.raises(AitcError) as error:
            compiled(numbers(3, 6), np.array([-1]))
        assert error.value.exit_code == Exit.USAGE
        assert "TopK" in str(error.value) and "-1" in str(error.value)
        with pytest.raises(AitcError, match=r"TopK.*7 of 6"):
            compiled(numbers(3, 6), np.array([7]))
        assert compiled(numbers(3, 6), np.array([2]))[0].shape == (3, 2)  # the instance is as good as before


def test_memory_of_the_caller(library: Path) -> None:
    """What the caller gives has to hold what comes; `run` alone cannot say how much that is."""
    with load(library, top_k) as compiled:
        table, handle = compiled._table, compiled._handle
        x, k, places = numbers(3, 6), np.array([2]), np.zeros((3, 6), np.int64)
        values = np.zeros((3, 6), np.float32)
        sizes = (ctypes.c_int64 * 4)()

        def tensors(*arrays: np.ndarray) -> Any:
            found = (abi.Tensor * len(arrays))()
            for slot, a in zip(found, arrays, strict=True):
                slot.data, slot.rank, slot.memory = a.ctypes.data, a.ndim, abi.MEMORY_HOST
                slot.dtype = {"float32": F, "int64": INT}[a.dtype.name]
                slot.shape = (ctypes.c_int64 * max(1, a.ndim))(*a.shape)
            return found

        assert table.run_sized(handle, tensors(x, k), 2, tensors(values, places), 2, sizes, None) == abi.OK
        assert list(sizes) == [3, 2, 3, 2]
        np.testing.assert_array_equal(values.reshape(-1)[:6].reshape(3, 2), -np.sort(-x, axis=1)[:, :2])
        assert table.run_sized(handle, tensors(x, k), 2, tensors(values[:1], places), 2, sizes, None) == abi.OK  # 6 fit
        assert table.run_sized(handle, tensors(x, k), 2, tensors(values[:1, :5], places), 2, sizes, None) == abi.BAD_ARGUMENT
        assert b"24 bytes" in table.last_error() and b"20" in table.last_error()
        assert table.run(handle, tensors(x, k), 2, tensors(values, places), 2, None) == abi.BAD_ARGUMENT
        assert b"run_sized" in table.last_error()
