"""Norms of large images: statistics in one launch, what applies them in another, with the same results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aitc.ir.builder import Builder
from aitc.ir.dtype import F16
from aitc.ir.graph import Graph
from aitc.ir.interpret import interpret
from aitc.ir.types import TensorType
from aitc.registry import load
from aitc.schedule.core.storage import Storages
from aitc.schedule.rewrite import split_norms
from aitc.schedule.schedule import PlanOptions, schedule
from aitc.targets.target import find_target

load("aitc.ops")
load("aitc.kernels")


def network(side: int, channels: int, groups: int, center: bool = True) -> Graph:
    """Silu(GroupNorm(x) * scale), channels-last."""
    graph = Graph("main")
    b = Builder(graph)
    x = b.op("Neg", graph.add_input("x", TensorType(F16, (2, channels, side, side + 1), (0, 2, 3, 1))))
    x.type = replace(x.type, order=(0, 2, 3, 1))
    apart = b.op("Reshape", x, shape=(2, groups, channels // groups, side, side + 1))
    apart.type = replace(apart.type, order=(0, 3, 4, 1, 2))
    y = b.op("LayerNormalization", apart, axes=(2, 3, 4), epsilon=1e-5, center=center)
    y.type = replace(y.type, order=(0, 3, 4, 1, 2))
    y = b.op("Reshape", y, shape=x.shape)
    scale = b.constant(np.random.default_rng(0).standard_normal((1, channels, 1, 1)).astype(np.float16))
    for op in ("Mul", "Silu"):
        y = b.op(op, y, scale) if op == "Mul" else b.op(op, y)
        y.type = replace(y.type, order=(0, 2, 3, 1))
    graph.outputs, graph.output_names = [b.op("Neg", y)], ["y"]
    return graph


@pytest.mark.parametrize("center", [True, False])
def test_the_parts_compute_what_the_whole_did(monkeypatch: pytest.MonkeyPatch, center: bool) -> None:
    monkeypatch.setattr(split_norms, "_gain_us", lambda *_: 1.0)
    graph = network(5, 24, 4, center)
    x = (np.random.default_rng(1).standard_normal((2, 24, 5, 6)) + 3).astype(np.float16)
    (before,) = interpret(graph, {"x": x}).values()
    assert split_norms.split_norms(graph, Storages(), find_target("h200")) == 1
    assert not any(n.op.name == "LayerNormalization" for n in graph.nodes)
    (after,) = interpret(graph, {"x": x}).values()
    np.testing.assert_allclose(after.astype(np.float32), before.astype(np.float32), atol=4e-3, rtol=4e-3)


@pytest.mark.parametrize(
    ("target", "side", "split"), [("h200", 512, True), ("h200", 32, False), ("mi250", 256, True), ("a100", 512, True), ("cpu", 512, False)]
)
def test_where_it_is_faster(target: str, side: int, split: bool) -> None:
    plan = schedule(network(side, 128, 32), find_target(target), PlanOptions("m", "m.onnx"))
    kernels = [k.kernel for k in plan.kernels]
    assert ("statistics" in kernels) is split
    assert len(plan.launches) == (3 if split else 1)  # the first negates


def test_what_applies_them_reads_and_writes_once() -> None:
    plan = schedule(network(512, 128, 32), find_target("h200"), PlanOptions("m", "m.onnx"))
    applied = next(launch for launch in plan.launches if "ScaleShift" in launch.note)
    assert "Silu" in applied.note
    assert applied.bytes == 2 * 2 * 128 * 512 * 513 * 2 + 2 * 2 * 128 * 4
