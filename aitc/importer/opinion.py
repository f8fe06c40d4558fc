"""What onnx itself says against a node: it tells a model that is wrong from an importer function that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx

from aitc.importer.functions import type_proto
from aitc.importer.order import subgraphs
from aitc.ir.graph import Value
from aitc.ops.declare import SequenceValue

SMALL = 64  # elements of constants that shape inference is told


def rejected(node: onnx.NodeProto, inputs: Sequence[Any], opsets: Mapping[str, int], ir_version: int) -> str:
    """The first line of why onnx's checker or its shape inference refuses ``node`` on ``inputs``; empty if they do not.

    Nodes with bodies, which read names from around them, and optionals get no opinion.
    """
    if any(True for _ in subgraphs(node)) or not all(v is None or isinstance(v, (Value, SequenceValue)) for v in inputs):
        return ""
    graph = onnx.GraphProto(name="node")
    graph.node.add().CopyFrom(node)
    for name, value in dict(zip(node.input, inputs)).items():
        if not name or value is None:
            continue
        if isinstance(value, SequenceValue):
            tensor = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None)
            graph.input.add(name=name, type=onnx.helper.make_sequence_type_proto(tensor))
        elif value.const is not None and value.const.size <= SMALL:
            graph.initializer.append(onnx.numpy_helper.from_array(value.const, name))
        else:
            graph.input.add(name=name, type=type_proto(value))
    for name in filter(None, node.output):
        graph.output.add(name=name)
    imports = [onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=min(ir_version, onnx.IR_VERSION))
    try:
        onnx.checker.check_node(node, _context(opsets, ir_version))
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as refusal:
        lines = [text.strip() for text in str(refusal).splitlines() if text.strip()]
        return lines[0] if lines else "onnx refuses it"
    return ""


def _context(opsets: Mapping[str, int], ir_version: int) -> Any:
    context = onnx.checker.C.CheckerContext()
    context.ir_version = min(ir_version, onnx.IR_VERSION)
    context.opset_imports = dict(opsets)
    return context
