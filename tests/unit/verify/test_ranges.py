"""What fp16 cannot hold is measured once, and remembered by the model's content."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.helper as oh
import onnx.numpy_helper as nh
import pytest

from aitc.importer.onnx import import_model
from aitc.passes import stages
from aitc.passes.base import Context
from aitc.verify import ranges


def model(path: Path, gain: float) -> Path:
    """(x · w) gain, then a Relu of it."""
    w = nh.from_array(np.eye(4, dtype=np.float32), "w")
    g = nh.from_array(np.full(4, gain, np.float32), "g")
    nodes = [
        oh.make_node("MatMul", ["x", "w"], ["m"], name="product"),
        oh.make_node("Mul", ["m", "g"], ["p"], name="gain"),
        oh.make_node("Relu", ["p"], ["y"], name="clamp"),
    ]
    ports = [oh.make_tensor_value_info(n, 1, [3, 4]) for n in ("x", "y")]
    onnx.save(oh.make_model(oh.make_graph(nodes, "g", ports[:1], ports[1:], [w, g]), ir_version=8), path)
    return path


def test_ranges_are_kept_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AITC_CACHE_DIR", str(tmp_path / "cache"))
    path = model(tmp_path / "m.onnx", 1e6)
    graph = import_model(str(path), {}, {}).graph
    first = ranges.measured_ranges(str(path), graph, {})
    assert 1e5 < first["p"] < 1e7
    with monkeypatch.context() as patch:
        patch.setattr(ranges, "_measure", lambda *_: pytest.fail("measured again"))
        assert ranges.measured_ranges(str(path), graph, {}) == first
    model(path, 1.0)
    assert ranges.measured_ranges(str(path), graph, {})["p"] < 10


@pytest.mark.parametrize(("gain", "dtype"), [(1e6, "f32"), (1.0, "f16")])
def test_what_overflows_stays_wide(tmp_path: Path, gain: float, dtype: str) -> None:
    path = model(tmp_path / "m.onnx", gain)
    graph = import_model(str(path), {}, {}).graph
    context = Context(precision="fp16", ranges=ranges.measured_ranges(str(path), graph, {}))
    for stage in (stages.simplify, stages.fuse, stages.layout):
        stage(graph, context)
    relu = next(n for n in graph.nodes if n.op.name == "Relu")
    assert relu.output.type.dtype.name == dtype
