"""A model in which every GPU kernel has a problem, and a plan with a launch for each configuration of each."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from aitc import pipeline
from aitc.ir.graph import Graph
from aitc.schedule.choose.select import Candidates
from aitc.schedule.group import chain
from aitc.schedule.plan.check import check_plan
from aitc.schedule.plan.plan import Plan
from aitc.schedule.schedule import schedule_with

F32, F16, BF16, I64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.INT64


class Model:
    """An ONNX graph under construction; every operator has inputs of its own, and its results are outputs."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.constants: list[onnx.TensorProto] = []

    def input(self, dtype: int, *shape: int | str) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def weight(self, dtype: int, *shape: int) -> str:
        values = np.random.default_rng(len(self.constants)).standard_normal(shape).astype(np.float32) / 8
        return self.constant(helper.make_tensor(f"w{len(self.constants)}", dtype, shape, values.ravel()))

    def constant(self, value: onnx.TensorProto | np.ndarray | np.generic) -> str:
        if not isinstance(value, onnx.TensorProto):
            value = numpy_helper.from_array(np.asarray(value), f"w{len(self.constants)}")
        self.constants.append(value)
        return value.name

    def op(self, name: str, *inputs: str, outputs: int = 1, keep: bool = True, **attributes: object) -> str:
        names = [f"y{len(self.nodes)}" if i == 0 else f"y{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(name, inputs, names, **attributes))
        if keep:
            self.outputs += [onnx.ValueInfoProto(name=n) for n in names]
        return names[0]

    def proto(self) -> bytes:
        graph = helper.make_graph(self.nodes, "every", self.inputs, self.outputs, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
        return onnx.shape_inference.infer_shapes(model).SerializeToString()


def _products(m: Model) -> None:
    for dtype in (F16, BF16, F32):
        x = m.op("MatMul", m.input(dtype, 300, 264), m.weight(dtype, 264, 200), keep=False)
        m.op("Relu", m.op("Add", x, m.weight(dtype, 200), keep=False))
        m.op("MatMul", m.input(dtype, 3, 70, 96), m.input(dtype, 3, 96, 136))
    m.op("MatMul", m.input(F16, 1, 1024), m.weight(F16, 1024, 512))
    m.op("MatMul", m.input(TensorProto.DOUBLE, 65, 64), m.input(TensorProto.DOUBLE, 64, 72))


def _convolutions(m: Model) -> None:
    same = {"pads": [1, 1, 1, 1]}
    for dtype in (F16, F32):
        m.op("Conv", m.input(dtype, 2, 64, 28, 28), m.weight(dtype, 96, 64, 3, 3), **same)
        m.op("Conv", m.input(dtype, 1, 3, 56, 56), m.weight(dtype, 32, 3, 7, 7), strides=[2, 2], pads=[3, 3, 3, 3])
        m.op("Conv", m.input(dtype, 1, 32, 20, 20), m.weight(dtype, 64, 8, 3, 3), group=4, **same)
        m.op("Conv", m.input(dtype, 1, 16, 6, 10, 10), m.weight(dtype, 32, 16, 3, 3, 3), pads=[1] * 6)
        m.op("Conv", m.input(dtype, 2, 48, 20, 20), m.weight(dtype, 48, 1, 3, 3), group=48, **same)
        m.op("Conv", m.input(dtype, 1, 32, 4, 10, 10), m.weight(dtype, 32, 1, 3, 3, 3), group=32, pads=[1] * 6)
    m.op("Conv", m.input(TensorProto.DOUBLE, 1, 8, 10, 10), m.weight(TensorProto.DOUBLE, 8, 8, 3, 3), **same)


def _attention(m: Model) -> None:
    for dtype, size in ((F16, 64), (BF16, 128), (F16, 256), (F32, 64)):
        q, k, v = (m.input(dtype, 2, 4, rows, size) for rows in (197, 200, 200))
        m.op("Attention", q, k, v)
        m.op("Attention", m.input(dtype, 1, 4, 64, size), m.input(dtype, 1, 2, 64, size), m.input(dtype, 1, 2, 64, size), is_causal=1)


def _rows(m: Model) -> None:
    for dtype in (F16, F32):
        for extent in (64, 768, 5000):
            m.op("Softmax", m.input(dtype, 40, extent))
            x = m.input(dtype, 40, extent)
            m.op("LayerNormalization", x, m.weight(dtype, extent), m.weight(dtype, extent))
            m.op("ReduceMean", m.input(dtype, 50, extent), m.constant(np.array([1])))
        m.op("ReduceMax", m.input(dtype, 500, 72), m.constant(np.array([0])))
        m.op("ReduceMean", m.input(dtype, 8, 200, 64), m.constant(np.array([1])))
        m.op("Transpose", m.input(dtype, 3, 70, 130), perm=[0, 2, 1])
        m.op("InstanceNormalization", m.input(dtype, 2, 8, 12, 12), m.weight(dtype, 8), m.weight(dtype, 8))
    m.op("ArgMax", m.input(F32, 50, 700), axis=1)


def _others(m: Model) -> None:
    x = m.input(F32, 4, 300)
    m.op("TopK", x, m.constant(np.array([5])), outputs=2)
    m.op("TopK", m.input(F32, 300), m.constant(np.array([300])), outputs=2)
    m.op("CumSum", m.input(F32, 6, 70), m.constant(np.array(1)))
    m.op("Gather", m.weight(F16, 100, 32), m.input(I64, 7))
    m.op("Resize", m.input(F16, 1, 8, 10, 10), "", m.constant(np.array([1, 1, 2, 2], np.float32)), mode="linear")
    m.op("MaxPool", m.input(F16, 1, 16, 21, 21), kernel_shape=[3, 3], strides=[2, 2])
    m.op("Where", m.input(TensorProto.BOOL, 33, 40), m.input(F32, 33, 40), m.input(F32, 33, 40))
    m.op("Cast", m.op("Greater", m.input(I64, 77), m.input(I64, 77), keep=False), to=F16)
    m.op("Einsum", m.input(F32, 3, 8, 9), m.input(F32, 3, 9, 7), equation="bij,bjk->ikb")
    m.op("LSTM", m.input(F32, 6, 2, 16), m.weight(F32, 1, 96, 16), m.weight(F32, 1, 96, 24), outputs=3, hidden_size=24)
    m.op("ScatterND", m.input(F32, 20, 8), m.input(I64, 5, 1), m.input(F32, 5, 8))


def _float8(m: Model) -> None:
    """The formats of gfx942, quantised as exporters write it; other targets multiply the dequantised elements."""
    for float8 in (TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2FNUZ):
        scale, zero = m.constant(np.float32(0.02)), m.constant(helper.make_tensor(f"zero{float8}", float8, [], [0]))
        x = m.op("QuantizeLinear", m.input(F32, 130, 128), scale, zero, keep=False)
        m.op("MatMul", m.op("DequantizeLinear", x, scale, zero, keep=False), m.op("DequantizeLinear", m.weight(float8, 128, 96), scale, zero, keep=False))


def _images(m: Model) -> None:
    """What is special about images and channels-last norms, between convolutions that keep the layout."""
    x = m.op("Conv", m.input(F16, 2, 3, 64, 64), m.weight(F16, 64, 3, 7, 7), strides=[2, 2], pads=[3, 3, 3, 3], keep=False)
    m.op("Conv", x, m.weight(F16, 16, 64, 1, 1))
    x = m.op("Conv", m.input(F16, 1, 64, 64, 64), m.weight(F16, 16, 64, 3, 3), pads=[1, 1, 1, 1], keep=False)
    m.op("Conv", x, m.weight(F16, 16, 16, 1, 1))
    for size in (16, 96):
        x = m.op("Conv", m.input(F16, 1, 64, size, size), m.weight(F16, 64, 64, 1, 1), keep=False)
        x = m.op("GroupNormalization", x, m.weight(F16, 64), m.weight(F16, 64), num_groups=16, keep=False)
        m.op("Conv", x, m.weight(F16, 64, 64, 1, 1))


def _chains(m: Model) -> None:
    """Two products one after another: what is between them stored or not, with a residual or without, of several widths."""
    products = (F16, 200, 128, 64, True, True), (BF16, 130, 192, 136, False, False), (F16, 300, 128, 256, False, True)
    for dtype, rows, columns, outer, residual, kept in products:
        x = m.op("MatMul", m.input(dtype, rows, 72), m.weight(dtype, 72, columns), keep=False)
        x = m.op("Add", x, m.input(dtype, rows, columns), keep=False) if residual else x
        x = m.op("Relu", x, keep=kept)
        m.op("Add", m.op("MatMul", x, m.weight(dtype, columns, outer), keep=False), m.weight(dtype, outer))


PARTS: dict[str, Callable[[Model], None]] = {
    "products": _products,
    "convolutions": _convolutions,
    "attention": _attention,
    "rows": _rows,
    "others": _others,
    "float8": _float8,
    "pictures": _images,
    "chains": _chains,
}
EVERYWHERE = tuple(part for part in PARTS if part != "chains")
"""Parts that other machines than Hopper have kernels for."""
ALONE = {"pictures": ("conv_stem_sm90", "conv_patch_sm90", "group_norm_sm90", "statistics")}
"""Kernels that a part is there for; the others in it are those of other parts."""


def candidates(model: Model, name: str, *targets: str) -> tuple[Graph, Plan, frozenset[str]]:
    """The model's graph, its plan with a launch for every configuration of each problem, and the entries of the first kernel of each kind: of each
    configuration, and type where instructions differ by it."""
    options = pipeline.Options(targets=targets, name=name, stop_after="layout")
    result = pipeline.compile(model.proto(), options)
    assert result.graph is not None and result.facts is not None
    with patch.multiple(chain, GAIN_SHARE=-1e3, GAIN_US=-1e3) if name == "chains" else nullcontext():  # though small ones save nothing
        plan, _ = schedule_with(result.graph, result.targets[0], result.facts, Candidates(None, most=99, places=1))
    kinds: dict[tuple[str, str, str], str] = {}
    for kernel in check_plan(plan).kernels:
        types = " ".join(sorted(set(re.findall(r"\b(?:half_t|bfloat16_t|float8_\w+|float|double)\b", " ".join(kernel.parameters)))))
        kinds.setdefault((kernel.kernel, kernel.config, types if kernel.kernel.endswith("_cdna") else ""), kernel.entry)
    return result.graph, plan, frozenset(kinds.values())


def candidates_of(part: str, *targets: str) -> tuple[Graph, Plan, frozenset[str]]:
    """``candidates`` of a part."""
    model = Model()
    PARTS[part](model)
    graph, plan, first = candidates(model, part, *targets)
    return graph, plan, frozenset(k.entry for k in plan.kernels if k.entry in first and k.kernel in ALONE.get(part, (k.kernel,)))


def plan_of(part: str, *targets: str) -> Plan:
    """The part's plan, with one kernel for each type and configuration that its problems can be run in."""
    _, plan, chosen = candidates_of(part, *targets)
    return replace(
        plan, kernels=tuple(k for k in plan.kernels if k.entry in chosen), launches=tuple(n for n in plan.launches if n.entry in chosen)
    )
