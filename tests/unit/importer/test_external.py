"""External data: where it may lie, in all places of a model that hold tensors, and what its numbers may be."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, external_data_helper, helper, numpy_helper

from aitc.errors import Exit
from aitc.importer.onnx import import_model
from aitc.ir.interpret import interpret
from tests.unit.importer.test_problems import codes, graph_of, problems


def external(
    folder: Path, location: str, data: np.ndarray, stored: bytes | None = None, offset: int | None = None
) -> Path:
    m = graph_of(helper.make_node("Add", ["x", "w"], ["y"]))
    tensor = numpy_helper.from_array(data, "w")
    external_data_helper.set_external_data(tensor, location, offset, data.nbytes)
    tensor.ClearField("raw_data")
    m.graph.initializer.append(tensor)
    path = folder / "m.onnx"
    path.write_bytes(m.SerializeToString())
    if stored is not None:
        (folder / location).parent.mkdir(exist_ok=True, parents=True)
        (folder / location).write_bytes(stored)
    return path


def test_external_data_is_mapped(tmp_path: Path) -> None:
    w = np.array([3, 4], np.float32)
    for offset, stored in ((None, w.tobytes()), (64, b"\0" * 64 + w.tobytes()), (3, b"\0" * 3 + w.tobytes())):
        graph = import_model(external(tmp_path, "weights/w.bin", w, stored, offset)).graph
        np.testing.assert_array_equal(interpret(graph, {"x": np.ones(2, np.float32)})["y"], [4, 5])


@pytest.mark.parametrize(
    ("location", "stored", "message"), [
    ("w.bin", None, "does not exist"), ("w.bin", b"\0\0\0\0", "which has 4"), ("../w.bin", b"\0" *
    8, "outside of the model's folder"), ("/etc/hostname", None, "outside of the model's folder"), ],
)  # fmt: skip
def test_external_data_that_is_not_there_or_not_allowed(
    tmp_path: Path, location: str, stored: bytes | None, message: str
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    error = problems(external(folder, location, np.zeros(2, np.float32), stored))
    assert codes(error) == ["I08"] and message in str(error)


def test_external_data_behind_a_link_out_of_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(b"\0" * 8)
    (folder / "w.bin").symlink_to(tmp_path / "secret")
    assert codes(problems(external(folder, "w.bin", np.zeros(2, np.float32)))) == ["I08"]


def long_chain(folder: Path) -> None:
    (folder / "a").symlink_to("b")
    (folder / "b").symlink_to("a")


def linked_folder(folder: Path) -> None:
    (folder.parent / "elsewhere").mkdir()
    (folder.parent / "elsewhere" / "w.bin").write_bytes(bytes(8))
    (folder / "sub").symlink_to("../elsewhere")


PLACES: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "NUL": ("w\0.bin", lambda f: None, "cannot be read"),
    "empty": ("", lambda f: None, "without a location"),
    "the folder": (".", lambda f: None, "no regular file"),
    "a folder": ("sub", lambda f: (f / "sub").mkdir(), "no regular file"),
    "a pipe": ("w.bin", lambda f: os.mkfifo(f / "w.bin"), "no regular file"),
    "a device": ("w.bin", lambda f: (f / "w.bin").symlink_to("/dev/zero"), "outside of the model's folder"),
    "above": ("../w.bin", lambda f: (f.parent / "w.bin").write_bytes(bytes(8)), "outside of the model's folder"),
    "above by way of a folder": ("sub/../../w.bin", lambda f: (f / "sub").mkdir(), "outside of the model's folder"),
    "absolute": ("/etc/hostname", lambda f: None, "outside of the model's folder"),
    "of the machine": ("/proc/self/environ", lambda f: None, "outside of the model's folder"),
    "a folder of the same beginning": ("../model2/w.bin", lambda f: (f.parent / "model2").mkdir(), "outside"),
    "a linked folder": ("sub/w.bin", linked_folder, "outside of the model's folder"),
    "a loop of links": ("a", long_chain, "w"),
    "too long": ("w" * 300, lambda f: None, "cannot be read"),
    "very long": ("sub/" * 3000, lambda f: None, "w"),
    "below a file": ("m.onnx/w", lambda f: None, "cannot be read"),
    "of Windows": ("sub\\w.bin", lambda f: None, "backslash"),
    "a user's": ("~/w.bin", lambda f: None, "does not exist"),
    "a variable": ("$HOME/w.bin", lambda f: None, "does not exist"),
    "an address": ("file:///etc/hostname", lambda f: None, "does not exist"),
}


@pytest.mark.parametrize("case", PLACES)
@pytest.mark.parametrize("where", ["initializer", "constant", "body", "sparse", "function", "unread"])
def test_places_of_external_data(tmp_path: Path, case: str, where: str) -> None:
    location, prepare, message = PLACES[case]
    folder = tmp_path / "model"
    folder.mkdir()
    prepare(folder)
    path = holding(external_tensor(location), where, folder / "m.onnx")
    if where == "unread" and message in ("does not exist", "backslash"):
        return  # nobody misses it
    error = problems(path)
    assert codes(error)[0] == "I08" and message in str(error) and "'w'" in str(error) and error.exit_code is Exit.MODEL


def external_tensor(location: str, **entries: str) -> onnx.TensorProto:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def holding(tensor: onnx.TensorProto, where: str, path: Path) -> Path:
    """A model that has ``tensor`` at ``where``."""
    add = helper.make_node("Add", ["x", "w"], ["y"])
    constant = helper.make_node("Constant", [], ["w"], value=tensor)
    m = graph_of(add)
    if where in ("initializer", "unread"):
        m.graph.initializer.append(tensor)
        if where == "unread":
            add.input[1] = "x"
            m.graph.node[0].CopyFrom(add)
    elif where == "constant":
        m = graph_of(constant, add)
    elif where == "body":
        body = helper.make_graph([constant, helper.make_node("Add", ["x", "w"], ["z"])], "b", [], [
            helper.make_tensor_value_info("z", 1, [2])])  # fmt: skip
        truth = helper.make_node("Constant", [], ["c"], value=helper.make_tensor("c", TensorProto.BOOL, [], [True]))
        m = graph_of(truth, helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body))
    elif where == "sparse":
        sparse = onnx.SparseTensorProto(dims=[2], values=tensor)
        sparse.indices.CopyFrom(numpy_helper.from_array(np.arange(2), "i"))
        m.graph.sparse_initializer.append(sparse)
    else:
        opsets = [helper.make_opsetid("", 17)]
        m = graph_of(helper.make_node("f", ["x"], ["y"], domain="local"))
        m.functions.append(helper.make_function("local", "f", ["x"], ["y"], [constant, add], opsets))
        m.opset_import.append(helper.make_opsetid("local", 1))
    path.write_bytes(m.SerializeToString())
    return path


@pytest.mark.parametrize("where", ["initializer", "constant", "body", "sparse", "function", "unread"])
def test_external_data_is_found_everywhere(tmp_path: Path, where: str) -> None:
    (tmp_path / "w.bin").write_bytes(np.array([3, 4], np.float32).tobytes())
    graph = import_model(holding(external_tensor("w.bin"), where, tmp_path / "m.onnx")).graph
    want = [2, 2] if where == "unread" else [4, 5]
    np.testing.assert_array_equal(interpret(graph, {"x": np.ones(2, np.float32)})["y"], want)


@pytest.mark.parametrize(
    "entries",
    [
        {"offset": "-1"}, {"offset": "4"}, {"offset": "1e3"}, {"offset": " 1"}, {"offset": "+1"}, {"offset": "1_0"},
        {"offset": "\u0661"}, {"offset": "0x0"}, {"offset": "9223372036854775807"}, {"offset": "9223372036854775808"},
        {"offset": "18446744073709551615"}, {"offset": "9" * 5000}, {"length": "-8"}, {"length": "0"}, {"length": "9"},
        {"length": "18446744073709551624"}, {"length": "9" * 5000},
    ],
)  # fmt: skip
def test_numbers_of_external_data(tmp_path: Path, entries: dict[str, str]) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(8))
    error = problems(holding(external_tensor("w.bin", **entries), "initializer", tmp_path / "m.onnx"))
    assert codes(error) == ["I08"] and "'w'" in str(error)


def test_shapes_and_types_of_external_data(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(64))
    for dims, type in (
        ([2**62, 2**62], TensorProto.FLOAT),
        ([2**31, 2**31], TensorProto.INT4),
        ([0, 2**62, 2**62], TensorProto.FLOAT),
        ([2], TensorProto.STRING),
        ([-2], TensorProto.FLOAT),
        ([2], 77),
    ):
        tensor = external_tensor("w.bin")
        tensor.ClearField("dims")
        tensor.dims.extend(dims)
        tensor.data_type = type
        assert "'w'" in str(problems(holding(tensor, "initializer", tmp_path / "m.onnx")))
    twice = external_tensor("w.bin")
    twice.external_data.add(key="location", value="../w.bin")
    assert "twice" in str(problems(holding(twice, "initializer", tmp_path / "m.onnx")))


def test_sparse_tensors_that_fit_nothing(tmp_path: Path) -> None:
    def sparse(dims: list[int], indices: object, values: object = (1.0, 2.0)) -> onnx.ModelProto:
        m = graph_of(helper.make_node("Add", ["x", "w"], ["y"]))
        tensor = onnx.SparseTensorProto(dims=dims, values=numpy_helper.from_array(np.array(values, np.float32), "w"))
        tensor.indices.CopyFrom(numpy_helper.from_array(np.array(indices, np.int64), "i"))
        m.graph.sparse_initializer.append(tensor)
        return m

    for dims, indices in (
        ([2], [0, 2]), ([2], [-1, 0]), ([-2], [0, 1]), ([1 << 40], [0, 1]), ([1 << 62, 1 << 62], [0, 1]),
        ([2], [0]), ([2], [[0, 1]]), ([2], [[[0], [1]]]), ([2, 2], [[0, 0], [0, -1]]), ([2, 2], [[0, 0], [0, 2]]),
    ):  # fmt: skip
        assert codes(problems(sparse(dims, indices).SerializeToString())) == ["I12"], (dims, indices)


def test_external_data_of_a_model_without_a_folder(tmp_path: Path) -> None:
    path = external(tmp_path, "w.bin", np.zeros(2, np.float32), b"\0" * 8)
    assert codes(problems(path.read_bytes())) == ["I08"]
