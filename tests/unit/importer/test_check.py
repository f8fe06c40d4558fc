"""Reading the file."""

from __future__ import annotations

import os
from pathlib import Path

import onnx.helper as oh
import pytest

from aitc.errors import AitcError, Exit
from aitc.importer.check import file_name
from aitc.importer.onnx import import_model


@pytest.mark.parametrize(("raw", "name"), [(b"net.onnx", "net.onnx"), (b"netz\xfc.onnx", "netz?.onnx"), ("Größe".encode(), "Größe")])
def test_names_of_files_are_text(tmp_path: Path, raw: bytes, name: str) -> None:
    path = tmp_path / os.fsdecode(raw)
    assert file_name(path) == name
    x, y = (oh.make_tensor_value_info(n, 1, [2]) for n in "xy")
    graph = oh.make_graph([oh.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    path.write_bytes(oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8).SerializeToString())
    node = next(iter(import_model(path).graph.nodes))
    assert node.locs[0].model == name
    assert name.encode() in str(node.locs[0]).encode()


@pytest.mark.parametrize("word", ["NODE_NAME", "IN_NAME", "ATTRIBUTE", "Identity", "WEIGHT", "DIM_NAME", "TOOL", "VALUE_TEXT"])
def test_words_that_are_no_text(word: str) -> None:
    value = oh.make_tensor_value_info("IN_NAME", 1, ["DIM_NAME"])
    nodes = [
        oh.make_node("Identity", ["IN_NAME"], ["a"], name="NODE_NAME", ATTRIBUTE="VALUE_TEXT"),
        oh.make_node("Add", ["a", "WEIGHT"], ["y"]),
    ]
    weight = oh.make_tensor("WEIGHT", 1, [1], [1.0])
    graph = oh.make_graph(nodes, "g", [value], [oh.make_tensor_value_info("y", 1, None)], [weight], doc_string="DOC")
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8, producer_name="TOOL")
    data = model.SerializeToString().replace(b"DOC", b"\xff\xfe\xfd")
    with pytest.raises(AitcError) as harmless:  # a comment may be anything; the attribute is unknown
        import_model(data)
    damaged = data.replace(word.encode(), b"\xff" + word[1:].encode())
    assert damaged != data
    if word == "VALUE_TEXT":  # attributes are bytes
        assert [d.code for d in harmless.value.diagnostics] == ["I04"]
        return
    with pytest.raises(AitcError) as e:
        import_model(damaged)
    assert [d.code for d in e.value.diagnostics] == ["I02"] and e.value.exit_code is Exit.MODEL
    assert "no UTF-8 text" in str(e.value)
