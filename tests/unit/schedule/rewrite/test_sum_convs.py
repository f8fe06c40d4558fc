"""A shortcut's convolution beside the last of its block: one product, with the same results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aitc.ir.builder import Builder
from aitc.ir.dtype import F16
from aitc.ir.graph import Graph, Value
from aitc.ir.interpret import interpret
from aitc.ir.types import TensorType
from aitc.registry import load
from aitc.schedule.core.storage import Storages
from aitc.schedule.rewrite import sum_convs
from aitc.schedule.schedule import PlanOptions, schedule
from aitc.targets.target import find_target

load("aitc.ops")
load("aitc.kernels")
H200 = find_target("h200")
LAST = (0, 2, 3, 1)


def network(batch: int = 2, side: int = 6, channels: int = 8, filters: int = 16, twice: bool = False, bias: bool = True) -> Graph:
    """Relu(Conv3x3(Neg(x)) + Conv1x1/2(Neg(z)) + biases), channels-last; `twice`: the shortcut's result has another reader."""
    graph = Graph("main")
    b = Builder(graph)
    rng = np.random.default_rng(0)

    def conv(x: Value, taps: int, stride: int) -> Value:
        w = b.constant((rng.standard_normal((filters, channels, taps, taps)) / taps / 4).astype(np.float16))
        y = b.op("Conv", x, w, strides=(stride,) * 2, pads=(taps // 2,) * 4, dilations=(1, 1), group=1, out=None)
        return b.op("Add", y, b.constant(rng.standard_normal((1, filters, 1, 1)).astype(np.float16))) if bias else y

    near = b.op("Neg", graph.add_input("x", TensorType(F16, (batch, channels, side, side), LAST)))
    far = b.op("Neg", graph.add_input("z", TensorType(F16, (batch, channels, 2 * side, 2 * side), LAST)))
    shortcut = conv(far, 1, 2)
    y = b.op("Relu", b.op("Add", conv(near, 3, 1), shortcut))
    for node in graph.nodes:
        node.output.type = replace(node.output.type, order=LAST)
    graph.outputs, graph.output_names = [b.op("Neg", y)], ["y"]
    if twice:
        graph.outputs.append(b.op("Neg", shortcut))
        graph.output_names.append("shortcut")
    return graph


@pytest.mark.parametrize("bias", [True, False])
def test_the_sum_computes_what_both_did(monkeypatch: pytest.MonkeyPatch, bias: bool) -> None:
    monkeypatch.setattr(sum_convs, "_gain_us", lambda *_: 1.0)
    graph, rng = network(bias=bias), np.random.default_rng(1)
    feeds = {v.name: rng.standard_normal([int(d) for d in v.shape]).astype(np.float16) for v in graph.inputs}  # type: ignore[arg-type]
    (before,) = interpret(graph, feeds).values()
    assert sum_convs.sum_convs(graph, Storages(), H200) == 1
    assert sum(n.op.name == "Conv" for n in graph.nodes) == 1
    (after,) = interpret(graph, feeds).values()
    np.testing.assert_allclose(after.astype(np.float32), before.astype(np.float32), atol=1e-2, rtol=4e-3)


def test_one_launch_does_it_where_both_fill_the_device() -> None:
    plan = schedule(network(256, 56, 64, 256), H200, PlanOptions("m", "m.onnx"))
    kernels = [k.kernel for k in plan.kernels if k.kernel.startswith("conv")]
    assert kernels == ["conv_sm90"]


@pytest.mark.parametrize("target", ["a100", "mi250", "cpu"])
def test_other_kernels_do_not_add_up(target: str) -> None:
    plan = schedule(network(64, 28, 64, 256), find_target(target), PlanOptions("m", "m.onnx"))
    assert sum("Conv" in launch.note for launch in plan.launches) == 2


def test_what_others_read_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sum_convs, "_gain_us", lambda *_: 1.0)
    assert sum_convs.sum_convs(network(twice=True), Storages(), H200) == 0
