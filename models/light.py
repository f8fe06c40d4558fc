"""Weights for the `light_*` networks of the onnx package.

Their files make every weight by ConstantOfShape, so that all 1000 outputs are equal and a compiler that mixes up
channels passes. `with_weights` keeps the topology and draws the weights.
"""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from models.inputs import Array


def with_weights(model: onnx.ModelProto, seed: int = 0, limit: int = 8_000_000) -> onnx.ModelProto:
    """A copy of `model` whose ConstantOfShape nodes of known shape are initializers with drawn values.

    Each is drawn by what reads it: filters and matrices by their fan-in, norm gains around 1, variances positive.
    Matrices of more than `limit` elements (the first of AlexNet and VGG) stay constant, as means over their inputs.
    """
    out = onnx.ModelProto()
    out.CopyFrom(model)
    graph = out.graph
    shapes = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    readers = {value: (node, slot) for node in graph.node for slot, value in enumerate(node.input)}
    residual = any(node.op_type == "Sum" for node in graph.node)
    source = np.random.default_rng(seed)
    kept = []
    for node in graph.node:
        shape = shapes.get(node.input[0]) if node.op_type == "ConstantOfShape" else None
        if shape is None:
            kept.append(node)
            continue
        if int(np.prod(shape)) > limit:
            mean = helper.make_tensor("value", TensorProto.FLOAT, [1], [1 / float(np.prod(shape[1:]))])
            kept.append(helper.make_node("ConstantOfShape", node.input, node.output, name=node.name, value=mean))
            continue
        reader, slot = _through_views(node.output[0], readers)
        values = _draw(reader, slot, tuple(int(n) for n in shape), source, residual)
        graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), node.output[0]))
    del graph.node[:]
    graph.node.extend(kept)
    return out


def _through_views(value: str, readers: dict[str, tuple[onnx.NodeProto, int]]) -> tuple[onnx.NodeProto, int]:
    """The node and input slot that finally read `value`, behind Unsqueeze and Reshape."""
    node, slot = readers[value]
    while node.op_type in ("Unsqueeze", "Reshape"):
        node, slot = readers[node.output[0]]
    return node, slot


def _draw(
    reader: onnx.NodeProto, slot: int, shape: tuple[int, ...], source: np.random.Generator, residual: bool
) -> Array:
    if reader.op_type == "BatchNormalization":
        gain, bias, mean = 1, 2, 3
        if slot in (bias, mean):
            return source.normal(0, 0.1, shape)
        if slot == gain:
            return source.uniform(0.7, 1.3, shape)
        # Large variances keep the branches small beside the trunk; else each of the blocks would double it.
        return source.uniform(2, 6, shape) if residual else source.uniform(0.5, 1.5, shape)
    if reader.op_type == "Mul":  # the gain of a norm, written out
        return source.uniform(0.7, 1.3, shape)
    if len(shape) > 1:  # filters (K, C, R, S) and matrices (K, C), as all light networks have them
        return source.normal(0, math.sqrt(1.6 / np.prod(shape[1:])), shape)
    return source.normal(0, 0.1, shape)
