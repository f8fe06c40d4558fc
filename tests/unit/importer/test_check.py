"""Reading the file."""

from __future__ import annotations

import os
from pathlib import Path

import onnx.helper as oh
import pytest

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
