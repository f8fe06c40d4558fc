"""Text of a model that would mean something to a compiler, CMake or a terminal: it stays text wherever a name can stand."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnx.helper as h
import pytest
from conformance.many import plan_of
from onnx import numpy_helper

from aitc.emit.project import emit
from aitc.importer.onnx import import_model
from aitc.ir.cpp import comment
from aitc.ir.text import from_text, to_text

NAMES = (
    "layer\n1", "x\n#error A_NAME\n//", "a\\", "//\\\n#error A_NAME", "*/ #error /*", "?" + "?/\n#error A_NAME", "\x00nul", "\u2028#error A_NAME",
    "\u202eRTL\u2066", "@VAR@ ${X} $<1:2>", "\"quote'`$(id)", "n" * 3000, "\r#error A_NAME", "\x7f\x85\x0b\x0c", " ", "../../x", "{{ x }}{% if %}",
)  # fmt: skip


def hostile(s: str) -> onnx.ModelProto:
    """``s`` in the names of nodes, values, dims, functions, domains and metadata."""
    f32 = onnx.TensorProto.FLOAT
    nodes = [
        h.make_node("MatMul", ["x" + s, "w" + s], ["m" + s], name="mm" + s, doc_string=s),
        h.make_node("Relu", ["m" + s], ["r" + s], name=s),
        h.make_node("Softmax", ["r" + s], ["s" + s], name="sm" + s, axis=-1),
        h.make_node("F" + s, ["s" + s], ["y" + s], name="f" + s, domain="d" + s),
        h.make_node("Concat", ["y" + s, "r" + s], ["z" + s], name="c" + s, axis=0),
    ]
    outputs = [h.make_tensor_value_info(n + s, f32, ["N" + s, 4] if n == "y" else None) for n in "yzm"]
    weight = numpy_helper.from_array(np.ones((4, 4), np.float32), "w" + s)
    graph = h.make_graph(nodes, "g" + s, [h.make_tensor_value_info("x" + s, f32, ["N" + s, 4])], outputs, [weight], doc_string=s)
    inner = h.make_node("Sigmoid", ["a" + s], ["b" + s], name="sg" + s)
    function = h.make_function("d" + s, "F" + s, ["a" + s], ["b" + s], [inner], [h.make_opsetid("", 18)])
    opsets = [h.make_opsetid("", 18), h.make_opsetid("d" + s, 1)]
    model = h.make_model(graph, opset_imports=opsets, functions=[function], ir_version=9, producer_name=s, domain=s)
    h.set_model_props(model, {"k" + s: s})
    return model


@pytest.mark.parametrize("target", ["cpu", "h200", "mi250"])
def test_names_stay_text(target: str, tmp_path: Path) -> None:
    for number, name in enumerate(NAMES):
        files = emit(plan_of(hostile(name), "lib", f"file{name}.onnx", target=target))
        for path, text in files.items():
            if path.startswith("include/"):
                continue
            for line in text.split("\n"):
                assert line.isprintable(), (path, line)
                assert not re.match(r"\s*#\s*error", line) and "\u202e" not in line, (path, line)
                assert not (line.lstrip().startswith("//") and line.rstrip().endswith("\\")), (path, line)
        if target == "cpu" and number in (1, 4, 5):
            for path, text in files.items():
                (tmp_path / str(number) / path).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / str(number) / path).write_text(text)
            command = ["g++", "-std=c++17", "-trigraphs", "-fsyntax-only", "-DAITC_ISA=_x", "-I", "include", "-I", "."]
            sources = ["model.cpp", *sorted(p for p in files if p.startswith("kernels/"))]
            subprocess.run([*command, *sources], check=True, cwd=tmp_path / str(number))


@pytest.mark.parametrize("name", NAMES)
def test_text_of_the_graph_parses_back(name: str) -> None:
    graph = import_model(hostile(name)).graph
    text = to_text(graph)
    assert to_text(from_text(text)) == text
    assert all(line.isprintable() for line in text.split("\n"))


@pytest.mark.parametrize("name", NAMES)
def test_comments(name: str) -> None:
    safe = comment(name)
    assert safe.isprintable() and len(safe) <= 240 and not safe.endswith("\\")
    assert "*/" not in safe and "/*" not in safe and "?" + "?/" not in safe
