"""How large values are expected to get: near what the reference measures, and never forgetting a residual stream."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import onnx
import onnx.helper as oh
import onnx.numpy_helper as nh
import onnx.parser

from aitc.importer.onnx import import_model
from aitc.ir.graph import Graph
from aitc.passes import stages
from aitc.passes.base import Context, Ranges
from aitc.passes.estimate import PEAK, estimated_ranges
from aitc.verify.ranges import measured_ranges


def network(gain: float, layers: int = 6) -> bytes:
    """Products with random weights that multiply by ``gain``, a Relu behind each; every second one is a convolution of width 1."""
    rng = np.random.default_rng(0)
    nodes, weights, at = [], [], "x"
    for i in range(layers):
        shape = (32, 32, 1) if i % 2 else (32, 32)
        weights.append(nh.from_array((gain * rng.normal(0, 32**-0.5, shape)).astype(np.float32), f"w{i}"))
        reads = [at, f"w{i}"]
        if i % 2:
            nodes.append(oh.make_node("Conv", reads, [f"p{i}"]))
        else:
            nodes += [oh.make_node("MatMul", reads[::-1], [f"p{i}"])]
        at = f"r{i}"
        nodes.append(oh.make_node("Relu", [f"p{i}"], [at]))
    ports = [oh.make_tensor_value_info(n, 1, [4, 32, 50]) for n in ("x", at)]
    return oh.make_model(oh.make_graph(nodes, "g", ports[:1], ports[1:], weights), ir_version=8).SerializeToString()


def graph_of(data: bytes) -> Graph:
    graph = import_model(data).graph
    context = Context(precision="fp16")
    stages.simplify(graph, context)
    stages.fuse(graph, context)
    return graph


def test_estimates_are_near_what_is_measured() -> None:
    for gain in (0.5, 1.5, 20.0):
        data = network(gain)
        graph = graph_of(data)
        estimated, measured = estimated_ranges(graph), measured_ranges(data, graph, {}).largest
        products = [n for n in measured if n.startswith("p")]
        assert len(products) == 6
        for name in products:
            assert 0.5 < estimated[name] / measured[name] < 2 * PEAK, (gain, name)


def test_a_residual_stream_is_wide_with_all_that_reads_it() -> None:
    rng = np.random.default_rng(0)
    weights = [nh.from_array(rng.normal(0, 0.1, (16, 16)).astype(np.float32), f"w{i}") for i in range(3)]
    scale = nh.from_array(np.ones(16, np.float32), "g")
    nodes, at = [], "x"
    for i in range(3):
        nodes += [
            oh.make_node("LayerNormalization", [at, "g"], [f"n{i}"]),
            oh.make_node("MatMul", [f"n{i}", f"w{i}"], [f"p{i}"]),
            oh.make_node("Add", [at, f"p{i}"], [f"h{i}"]),
        ]
        at = f"h{i}"
    nodes.append(oh.make_node("LayerNormalization", [at, "g"], ["y"]))
    ports = [oh.make_tensor_value_info(n, 1, [3, 16]) for n in ("x", "y")]
    opset = [oh.make_opsetid("", 17)]
    data = oh.make_model(oh.make_graph(nodes, "g", ports[:1], ports[1:], [*weights, scale]), ir_version=8, opset_imports=opset)
    graph = graph_of(data.SerializeToString())
    found = estimated_ranges(graph)
    assert [n for n, size in found.items() if size == math.inf] == ["h0", "h1", "h2"]
    context = Context(precision="fp16", ranges=Ranges(found, "estimated"))
    stages.layout(graph, context)
    types = Counter((d.op, d.dtype) for d in context.decisions if d.op in ("Add", "LayerNormalization", "MatMul"))
    # the first normalization reads an input: those of the model are not measured either
    assert types == {("Add", "f32"): 3, ("LayerNormalization", "f32"): 3, ("LayerNormalization", "f16"): 1, ("MatMul", "f16"): 3}
    assert "a residual stream, not measured" in {d.reason for d in context.decisions}


def test_masks_do_not_count() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[4,6] x, bool[4,6] m) => (float[4,6] y)
        <float low = {-1e12}, float six = {6}, float zero = {0}> {
        s = Where(m, x, low) a = Softmax(s) c = Clip(x, zero, six) y = Mul(a, c) }"""
    graph = import_model(onnx.parser.parse_model(text).SerializeToString()).graph
    assert max(estimated_ranges(graph).values()) < 100


def test_a_view_that_the_import_made_is_as_large_as_what_it_views() -> None:
    text = """<ir_version: 8, opset_import: ["" : 9]> g (float[1,8,4,4] x) => (float[1,8,1,1] y)
        { a = GlobalAveragePool(x) y = Softmax<axis = 1>(a) }"""  # before opset 13 softmax goes over a matrix
    graph = graph_of(onnx.parser.parse_model(text).SerializeToString())
    assert [n.op.name for n in graph.nodes if n.op.name == "Reshape"], "no view was made"
    context = Context(precision="fp16", ranges=Ranges({"a": 1e10}, "as told", measured=True))
    stages.layout(graph, context)
    assert {(d.op, d.dtype) for d in context.decisions} >= {("Softmax", "f32")}
