"""A convolution of an enlarged image: four of the image itself, with the same results, written in place."""

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
from aitc.schedule.rewrite import upsample
from aitc.schedule.schedule import PlanOptions, schedule
from aitc.targets.target import find_target

load("aitc.ops")
H200 = find_target("h200")


def network(
    side: int = 4, channels: int = 8, filters: int = 16, pads: tuple[int, ...] = (1, 1, 1, 1), mode: str = "nearest", twice: bool = False
) -> Graph:
    """Relu(Conv(Resize(x)) + bias), channels-last; `twice`: the enlarged image has another reader."""
    graph = Graph("main")
    b = Builder(graph)
    rng = np.random.default_rng(0)
    last = (0, 2, 3, 1)
    x = b.op("Neg", graph.add_input("x", TensorType(F16, (2, channels, side, side + 1), last)))
    x.type = replace(x.type, order=last)
    sizes = (2, channels, 2 * side, 2 * side + 2)
    big = b.op(
        "Resize", x, mode=mode, sizes=sizes, scales=(1.0, 1.0, 2.0, 2.0), coordinates="asymmetric", nearest="floor"
    )
    w = b.constant((rng.standard_normal((filters, channels, 3, 3)) / 8).astype(np.float16))
    y = b.op("Conv", big, w, strides=(1, 1), pads=pads, dilations=(1, 1), group=1, out=None)
    y = b.op("Relu", b.op("Add", y, b.constant(rng.standard_normal((1, filters, 1, 1)).astype(np.float16))))
    graph.outputs = [b.op("Abs", y)]
    for node in graph.nodes:
        node.output.type = replace(node.output.type, order=last)
    graph.outputs = [b.op("Neg", graph.outputs[0])]
    graph.output_names = ["y"]
    if twice:
        graph.outputs.append(b.op("Neg", big))
        graph.output_names.append("big")
    return graph


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upsample, "_gain_us", lambda *_: 1.0)


@pytest.mark.usefixtures("always")
def test_the_parts_compute_what_the_whole_did() -> None:
    graph, x = network(), np.random.default_rng(1).standard_normal((2, 8, 4, 5)).astype(np.float16)
    (before,) = interpret(graph, {"x": x}).values()
    assert upsample.split_upsampled(graph, H200) == 1
    assert [n.op.name for n in graph.nodes].count("Conv") == 4 and "Resize" not in [n.op.name for n in graph.nodes]
    (after,) = interpret(graph, {"x": x}).values()
    np.testing.assert_allclose(after.astype(np.float32), before.astype(np.float32), atol=2e-2)


@pytest.mark.usefixtures("always")
def test_the_parts_are_written_in_place_with_their_tails() -> None:
    plan = schedule(network(), H200, PlanOptions("m", "m.onnx"))
    parts = [n for n in plan.launches if "Conv" in n.note]
    assert sum(n.note.count("Conv + Add + Relu + Abs") for n in parts) == 4
    written = {a.buffer for n in parts for a in n.args if getattr(a, "const", True) is False}
    assert len(written) == 1, "all into the memory of the result"
    assert not any("Resize" in n.note or "Concat" in n.note for n in plan.launches)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(
    "graph", [network(pads=(0, 0, 0, 0)), network(mode="linear"), network(twice=True), network(channels=4)],
    ids=["other border", "other mode", "read twice", "few channels"],
)  # fmt: skip
def test_others_stay(graph: Graph) -> None:
    assert upsample.split_upsampled(graph, H200) == 0


def test_small_ones_and_processors_stay() -> None:
    assert upsample.split_upsampled(network(), H200) == 0
    assert upsample.split_upsampled(network(64, 256, 256), find_target("cpu")) == 0
    assert upsample.split_upsampled(network(64, 256, 256), H200) == 1


def test_taps_on_one_pixel_add_up() -> None:
    filters = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)
    (even, _), (odd, _) = upsample.TAPS
    np.testing.assert_array_equal(upsample.merged(filters, even, even)[0, 0], [[0, 1 + 2], [3 + 6, 4 + 5 + 7 + 8]])
    np.testing.assert_array_equal(upsample.merged(filters, odd, odd)[0, 0], [[0 + 1 + 3 + 4, 2 + 5], [6 + 7, 8]])
