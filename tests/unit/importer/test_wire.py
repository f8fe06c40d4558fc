"""Large weights stay in the file, and what is read is the same model."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx.helper as oh
import onnx.numpy_helper as nh
import pytest

from aitc.errors import AitcError
from aitc.importer import wire
from aitc.importer.onnx import import_model
from aitc.importer.wire import read_structure
from aitc.verify.ranges import measured_ranges
from aitc.verify.reference import largest_magnitudes, load_structure

SHAPE = (200, 300)


def weights() -> list[onnx.TensorProto]:
    rng = np.random.default_rng(0)
    normal = rng.standard_normal(SHAPE).astype(np.float32)
    return [
        nh.from_array(normal, "f"),
        nh.from_array(normal.astype(np.float16), "h"),
        nh.from_array(normal.astype(ml_dtypes.bfloat16), "b"),
        nh.from_array(rng.integers(-9, 9, SHAPE), "i"),
        nh.from_array((normal > 0), "m"),
        nh.from_array(rng.integers(-8, 8, (800, 300)).astype(ml_dtypes.int4), "q"),
        oh.make_tensor("d", onnx.TensorProto.FLOAT, SHAPE, normal.reshape(-1).tolist()),  # in float_data
        nh.from_array(np.float32(3), "s"),
    ]


def model(path: Path, names: str = "fhbimqds") -> Path:
    """Every weight is an output by way of a Cast; the last operator is a product."""
    given = [t for t in weights() if t.name in names]
    types = {t.name: t for t in given}
    nodes = [oh.make_node("Cast", [n], [f"c_{n}"], to=1, name=n) for n in types]
    nodes.append(oh.make_node("MatMul", ["x", "f"], ["y"], doc_string="ä" * 300))
    outputs = [oh.make_tensor_value_info(f"c_{n}", 1, list(t.dims)) for n, t in types.items()]
    outputs.append(oh.make_tensor_value_info("y", 1, [2, 300]))
    graph = oh.make_graph(nodes, "g", [oh.make_tensor_value_info("x", 1, [2, 200])], outputs, given)
    whole = oh.make_model(graph, ir_version=10, opset_imports=[oh.make_opsetid("", 21)], producer_name="here")
    whole.metadata_props.add(key="k", value="v")
    onnx.save(whole, path)
    return path


def test_what_is_read_is_the_same_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = model(tmp_path / "m.onnx")
    structure = read_structure(path)
    assert structure is not None and structure.ByteSize() < path.stat().st_size // 2
    onnx.load_external_data_for_model(structure, str(tmp_path))
    for tensor in structure.graph.initializer:
        tensor.ClearField("data_location")
    assert structure == onnx.load(path)
    found = import_model(path).graph
    monkeypatch.setattr(wire, "LARGE_BYTES", 1 << 40)
    whole = import_model(path).graph
    constants = {v.name: v for v in (*whole.values(), *whole.outputs) if v.const is not None}
    assert set(constants) == set("fhbimqds")
    for v in dict.fromkeys((*found.values(), *found.outputs)):
        if v.const is not None:
            assert v.type == constants[v.name].type
            assert np.array_equal(v.const, constants.pop(v.name).const)
    assert not constants


def test_what_was_read_does_not_change_with_the_file(tmp_path: Path) -> None:
    path = model(tmp_path / "m.onnx")
    graph = import_model(path).graph
    path.write_bytes(b"\xff" * path.stat().st_size)
    values = {v.name: v.const for v in graph.values() if v.const is not None}
    assert np.array_equal(values["f"], nh.to_array(weights()[0]))


def test_the_reference_reads_weights_in_the_file(tmp_path: Path) -> None:
    path = model(tmp_path / "m.onnx", "fhi")
    x = np.ones((2, 200), np.float32)
    found = largest_magnitudes(load_structure(path), tmp_path, ["y", "c_f"], {"x": x})
    f = nh.to_array(weights()[0])
    assert found["y"] == pytest.approx(float(np.abs(x @ f).max()), rel=1e-5)
    assert found["c_f"] == float(np.abs(f).max())


def test_damaged_files_are_read_as_before(tmp_path: Path) -> None:
    data = model(tmp_path / "m.onnx").read_bytes()
    broken = tmp_path / "broken.onnx"
    for cut in (70_000, len(data) - 1, len(data) - 100):
        broken.write_bytes(data[:cut])
        with pytest.raises(AitcError) as error:
            import_model(broken)
        assert {d.code for d in error.value.diagnostics} == {"I02"}
    broken.write_bytes(b"\x00\x01" * 50_000)
    with pytest.raises(AitcError):
        import_model(broken)


def test_a_tensor_of_the_wrong_size_is_named(tmp_path: Path) -> None:
    whole = onnx.load(model(tmp_path / "m.onnx"))
    whole.graph.initializer[0].raw_data = whole.graph.initializer[0].raw_data[:-4]
    onnx.save(whole, tmp_path / "m.onnx")
    with pytest.raises(AitcError) as error:
        import_model(tmp_path / "m.onnx")
    (found,) = error.value.diagnostics
    assert found.code == "I12" and "'f'" in found.message and "it has 239996" in found.message


def test_a_link_is_a_model_too(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    path = model(tmp_path / "other" / "m.onnx", "fhi")
    link = tmp_path / "one" / "link.onnx"
    link.symlink_to(path)
    graph = import_model(link).graph
    assert len(graph) == len(import_model(path).graph)
    found = measured_ranges(link, graph, {})
    assert found.measured and found == measured_ranges(path, graph, {})


@pytest.mark.parametrize("checksum", ["inside the model's file", "shape alone", f"aitc {'0' * 32}: shape alone", ""])
@pytest.mark.parametrize("location", ["../secret", "missing"])
def test_no_field_of_a_file_carries_a_mark(tmp_path: Path, checksum: str, location: str) -> None:
    (tmp_path / "secret").write_bytes(bytes(240000))
    (tmp_path / "models").mkdir()
    whole = onnx.load(model(tmp_path / "m.onnx", "fd"))  # "d" is large, so that the structure alone is read
    tensor = whole.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("checksum", checksum)):
        tensor.external_data.add(key=key, value=value)
    (tmp_path / "models" / "m.onnx").write_bytes(whole.SerializeToString())
    with pytest.raises(AitcError, match="'f'") as error:
        import_model(tmp_path / "models" / "m.onnx")
    assert {d.code for d in error.value.diagnostics} == {"I08"}


def test_a_weight_with_external_data_and_bytes_keeps_both(tmp_path: Path) -> None:
    """Large bytes beside a location: no mark of ours is added to what the file says."""
    (tmp_path / "models").mkdir()
    whole = onnx.load(model(tmp_path / "m.onnx", "f"))
    whole.graph.initializer[0].external_data.add(key="location", value="../m.onnx")
    path = tmp_path / "models" / "m.onnx"
    path.write_bytes(whole.SerializeToString())
    values = {v.name: v.const for v in import_model(path).graph.values() if v.const is not None}
    assert np.array_equal(values["f"], nh.to_array(weights()[0]))  # data_location says that the bytes hold
    whole.graph.initializer[0].data_location = onnx.TensorProto.EXTERNAL
    path.write_bytes(whole.SerializeToString())
    with pytest.raises(AitcError, match="outside of the model's folder"):
        import_model(path)
