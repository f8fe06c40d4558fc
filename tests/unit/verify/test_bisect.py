"""A mistake is put in at one place, and the search names that place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx.helper as oh
import onnx.numpy_helper as nh
import pytest

from aitc import registry
from aitc.importer.onnx import import_model
from aitc.ir.graph import Graph
from aitc.ir.interpret import interpret
from aitc.ir.op import OPS
from aitc.passes.base import Context
from aitc.passes.stages import layout
from aitc.pipeline import Options, Result, compile
from aitc.schedule.plan.plan import Plan, PointerArg
from aitc.schedule.schedule import PlanOptions, schedule
from aitc.targets.target import find_target
from aitc.verify.bisect import Steps, first_difference
from aitc.verify.compare import tolerance
from aitc.verify.inputs import Arrays

registry.load("aitc.ops")


def model(path: Path) -> Path:
    """tanh(x · w) · 3, then a softmax over it, and a Relu of the product as a second output."""
    rng = np.random.default_rng(0)
    w = nh.from_array(rng.standard_normal((8, 8)).astype(np.float32), "w")
    three = nh.from_array(np.full(8, 3, np.float32), "three")
    nodes = [
        oh.make_node("MatMul", ["x", "w"], ["p"], name="product"),
        oh.make_node("Tanh", ["p"], ["t"], name="curve"),
        oh.make_node("Mul", ["t", "three"], ["m"], name="triple"),
        oh.make_node("Softmax", ["m"], ["s"], name="soft", axis=-1),
        oh.make_node("Relu", ["m"], ["r"], name="clamp"),
    ]
    outputs = [oh.make_tensor_value_info(n, 1, [4, 8]) for n in ("s", "r")]
    graph = oh.make_graph(nodes, "g", [oh.make_tensor_value_info("x", 1, [4, 8])], outputs, [w, three])
    onnx.save(oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture()
def op_changes() -> Iterator[None]:
    before = dict(OPS._entries)
    yield
    OPS._entries.update(before)


def run(tmp_path: Path) -> Result:
    return compile(model(tmp_path / "model.onnx"), Options(targets=("cpu",), output=tmp_path / "out", bisect=True))


def test_a_wrong_kernel(tmp_path: Path, op_changes: None) -> None:
    """The device's tanh is off by a thousandth, numpy's is right: the launch that holds the node is named."""
    OPS._entries["Tanh"] = replace(
        OPS["Tanh"], expr="(tanh_({0}) * 1.001f)" if "tanh_" in str(OPS["Tanh"].expr) else "({0} * 0.5f)"
    )
    result = run(tmp_path)
    assert result.failed and result.verification is not None
    assert result.verification.first_difference.startswith("kernel ")
    assert '"curve"' in result.verification.first_difference


def test_a_wrong_output_stays_out_of_the_output_folder(tmp_path: Path, op_changes: None) -> None:
    assert not run(tmp_path).failed
    good = (tmp_path / "out" / "libmodel.so").read_bytes()
    OPS._entries["Relu"] = replace(OPS["Relu"], expr="({0} + 1)")
    result = run(tmp_path)
    assert result.failed
    assert (tmp_path / "out" / "libmodel.so").read_bytes() == good
    assert result.output == tmp_path / "out.failed"
    assert (tmp_path / "out.failed" / "libmodel.so").is_file() and (tmp_path / "out.failed" / "model.json").is_file()


def test_a_wrong_importer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tanh is imported as Sigmoid."""
    from aitc.ops.declare import IMPORTERS

    sigmoid = IMPORTERS["", "Sigmoid"]
    monkeypatch.setitem(IMPORTERS, ("", "Tanh"), [replace(i, op_type="Tanh") for i in sigmoid])
    result = run(tmp_path)
    assert result.failed and result.verification is not None
    assert result.verification.first_difference.startswith('stage import: Tanh "curve" is the first')


def test_a_wrong_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fuse stage replaces 3 by 4."""
    import aitc.pipeline

    right = aitc.pipeline.fuse

    def wrong(graph: Graph, context: object) -> None:
        right(graph, context)  # type: ignore[arg-type]
        for v in graph.values():
            if v.const is not None and v.const.size and (v.const == 3).all():
                v.const = v.const + 1

    monkeypatch.setattr(aitc.pipeline, "fuse", wrong)
    stages = tuple((name, wrong if stage is right else stage) for name, stage in aitc.pipeline._IN_PLACE)
    monkeypatch.setattr(aitc.pipeline, "_IN_PLACE", stages)
    result = run(tmp_path)
    assert result.failed and result.verification is not None
    assert result.verification.first_difference.startswith("stage fuse: ")
    assert '"triple"' in result.verification.first_difference


def test_what_the_copy_engine_stores_is_looked_at(tmp_path: Path) -> None:
    """On Hopper results go to memory through tensor maps; a wrong one in the middle is its launch's fault, not the planner's."""
    for package in ("aitc.passes", "aitc.kernels"):
        registry.load(package)
    path = tmp_path / "m.onnx"
    w = nh.from_array(np.random.default_rng(0).standard_normal((64, 64)).astype(np.float16) / 8, "w")
    nodes = [oh.make_node("MatMul", ["x", "w"], ["p"]), oh.make_node("Softmax", ["p"], ["s"]), oh.make_node("MatMul", ["s", "w"], ["y"])]
    ports = [oh.make_tensor_value_info(n, onnx.TensorProto.FLOAT16, [64, 64]) for n in "xy"]
    graph = oh.make_graph(nodes, "g", ports[:1], ports[1:], [w])
    onnx.save(oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8), path)

    imported = import_model(path).graph
    hopper = find_target("h200")
    layout(imported, Context(target=hopper))
    feeds = {"x": np.random.default_rng(1).standard_normal((64, 64)).astype(np.float16)}

    def broken(plan: Plan, arrays: Arrays) -> dict[str, np.ndarray]:
        """As a device would answer whose first product is wrong."""
        assert not any(isinstance(a, PointerArg) and not a.const for a in plan.launches[0].args)
        values = interpret(imported, arrays, keep=True)
        held = {b.name: b.holds[-1] for b in plan.buffers if b.holds}
        got = {p.name: values[held.get(p.buffer, p.name)] for p in plan.outputs}
        return {n: v + 1 if held.get(n) == "p" else v for n, v in got.items()}

    steps = Steps(lambda: imported, (), lambda g: schedule(g, hopper, PlanOptions("m", "m.onnx")), broken)
    said = first_difference(steps, path, feeds, tolerance(1e-3, 8))
    assert said.startswith("kernel gemm_sm90_matmul_1 in launch 000_gemm_sm90_matmul_1: MatMul"), said
