"""What verification says where there is nothing to compare."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.helper as oh

from aitc.ir.dtype import F32
from aitc.schedule.plan.plan import Port
from aitc.verify.run import Subject, verify


def subject(size: int) -> Subject:
    x, y = (Port(n, F32, (size,), n) for n in "xy")
    return Subject(Path("nowhere"), "m", "cpu", (x,), (y,), (), 2.0**-24, 1)


def model(node: onnx.NodeProto, size: int) -> bytes:
    x, y = (oh.make_tensor_value_info(n, 1, [size]) for n in "xy")
    graph = oh.make_graph([node], "g", [x], [y])
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8).SerializeToString()


def test_inputs_that_do_not_fit_into_memory() -> None:
    answer = verify(subject(2**50), model(oh.make_node("Relu", ["x"], ["y"]), 2**50))
    assert answer.status == "not run" and "memory" in answer.reason


def test_numbers_drawn_at_random() -> None:
    answer = verify(subject(3), model(oh.make_node("RandomNormalLike", ["x"], ["y"]), 3))
    assert answer.status == "not run" and "random" in answer.reason
