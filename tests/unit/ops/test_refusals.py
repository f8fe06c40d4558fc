"""What a refusal says: every ``Unsupported`` in aitc/ops names the attribute, input or type at fault and what it is, and a way out."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import aitc.ops
from aitc.errors import AitcError
from aitc.importer.onnx import import_model

SOURCES = sorted(Path(aitc.ops.__file__).parent.glob("*.py"))
LEAST = 30  # refusals in all of them


def refusals(path: Path) -> Iterator[tuple[int, ast.Call]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Unsupported":
            yield node.lineno, node


def test_every_refusal_names_a_value_and_a_way_out() -> None:
    found, wrong = 0, []
    for path in SOURCES:
        for line, call in refusals(path):
            found += 1
            message, *help = [*call.args, *(k.value for k in call.keywords)]
            text = " ".join(str(n.value) for n in ast.walk(message) if isinstance(n, ast.Constant))
            names = any(isinstance(n, (ast.FormattedValue, ast.Call)) for n in ast.walk(message)) or " = " in text
            empty = not help or (isinstance(help[0], ast.Constant) and not help[0].value)
            if not names and "subgraphs" not in text:
                wrong.append(f"{path.name}:{line} names no value: {text}")
            if empty:
                wrong.append(f"{path.name}:{line} has no way out: {text}")
    assert found >= LEAST
    assert not wrong, "\n".join(wrong)


def _contrib(op: str, shapes: dict[str, tuple[int, ...]], **attrs: object) -> onnx.ModelProto:
    node = helper.make_node(op, list(shapes), ["y"], domain="com.microsoft", **attrs)
    inputs = [helper.make_tensor_value_info(n, 7 if n == "positions" else 1, s) for n, s in shapes.items()]
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name="y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)])


ROTARY = {"x": (1, 4, 8), "positions": (1, 4), "cosine": (9, 2), "sine": (9, 2)}
SAID = {
    "one attribute of two": (_contrib("RotaryEmbedding", ROTARY, num_heads=2, scale=0.5), "RotaryEmbedding: scale = 0.5"),
    "the other": (_contrib("RotaryEmbedding", ROTARY, num_heads=2, is_packed_batching=1), "RotaryEmbedding: is_packed_batching = 1"),
    "both": (_contrib("RotaryEmbedding", ROTARY, num_heads=2, is_packed_batching=1, scale=0.5), "is_packed_batching = 1, scale = 0.5"),
    "of Attention": (_contrib("Attention", {"x": (1, 4, 8), "w": (8, 24)}, num_heads=2, do_rotary=1), "Attention: do_rotary = 1"),
    "an activation": (_contrib("FusedGemm", {"x": (2, 3), "w": (3, 4)}, activation="Mish"), "FusedGemm: activation = 'Mish'"),
    "a size": (_contrib("Inverse", {"x": (2, 40, 40)}), "Inverse: the inverse of 40 x 40 matrices"),
    "a router": (
        _contrib("MoE", {"x": (3, 4), "r": (3, 2), "a": (2, 5, 4), "b": (2, 5), "c": (2, 4, 5)}, use_sparse_mixer=1), "MoE: use_sparse_mixer = 1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SAID)
def test_what_is_at_fault_and_nothing_else_is_named(name: str) -> None:
    model, said = SAID[name]
    with pytest.raises(AitcError) as caught:
        import_model(model)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.message.endswith(said.split(": ")[-1]) or said in diagnostic.message
    assert diagnostic.help


def test_an_input_is_named_with_its_type() -> None:
    shapes = {"q": (1, 4, 8), "k": (1, 4, 8), "v": (1, 4, 8)}
    names = [*shapes, "", "", "lengths", "total", "", "", "", "", "sink"]
    node = helper.make_node("GroupQueryAttention", names, ["y", "", ""], domain="com.microsoft", num_heads=2, kv_num_heads=2)
    inputs = [helper.make_tensor_value_info(n, 1, s) for n, s in {**shapes, "sink": (2,)}.items()]
    inputs.append(helper.make_tensor_value_info("lengths", 6, (1,)))
    total = onnx.numpy_helper.from_array(np.array(4, np.int32), "total")
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name="y")], [total])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)])
    with pytest.raises(AitcError, match=r"head_sink \(f32\[2\]\)"):
        import_model(model)
