"""Each of ONNX's node tests in another form whose answer is the same: with inputs that are constants, with sizes that are symbols."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from conformance.node_tests import as_arrays


@dataclass(frozen=True, slots=True)
class Variant:
    """As ONNX's own ``TestCase``."""

    name: str
    model: onnx.ModelProto
    data_sets: Any
    rtol: float
    atol: float


def constant(case: Any) -> Variant:
    """With every input that is a tensor known at compile time: those of the first data set."""
    variant = replace(_same(case), data_sets=case.data_sets[:1])
    for key, value in as_arrays(case.model, case.data_sets[0][0]).items():
        if isinstance(value, np.ndarray):
            variant.model.graph.initializer.append(onnx.numpy_helper.from_array(value, key))
    return variant


FILTERS = ("Conv", "LSTM", "GRU", "RNN", "MaxUnpool")  # in an operator's name: what follows its first input keeps its sizes


def symbolic(case: Any) -> Variant:
    """With every size above 1 a symbol. Shapes, axes and bounds keep theirs: how many there are is the rank of something."""
    variant = _same(case)
    graph = variant.model.graph
    filters = any(word in node.op_type for node in graph.node for word in FILTERS)
    for value in graph.input[:1] if filters else graph.input:
        tensor = value.type.tensor_type
        if len(tensor.shape.dim) == 1 and tensor.elem_type in (onnx.TensorProto.INT32, onnx.TensorProto.INT64):
            continue
        for dim in tensor.shape.dim:
            if dim.dim_value > 1:
                dim.dim_param = f"s{dim.dim_value}"
    return variant


def in_branch(case: Any) -> Variant:
    """Inside an If that runs it: every operator must be possible there, on values that are outside."""
    variant = _same(case)
    graph = variant.model.graph
    body, other = onnx.GraphProto(), onnx.GraphProto()
    body.CopyFrom(graph)
    del body.input[:]
    body.name, other.name = "then", "else"
    taken = onnx.helper.make_tensor_value_info("branch.taken", onnx.TensorProto.BOOL, [])
    for output in graph.output:
        copy = onnx.ValueInfoProto()
        copy.CopyFrom(output)
        copy.name = f"{output.name}.else"
        other.output.append(copy)
        kind = output.type.tensor_type
        zeros = np.zeros([d.dim_value for d in kind.shape.dim], onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
        other.node.append(onnx.helper.make_node("Constant", [], [copy.name], value=onnx.numpy_helper.from_array(zeros)))
    del graph.node[:], graph.initializer[:], graph.value_info[:]
    graph.input.append(taken)
    outer = [f"{o.name}.if" for o in graph.output]
    graph.node.append(onnx.helper.make_node("If", [taken.name], outer, then_branch=body, else_branch=other))
    for inner, output in zip(outer, graph.output):
        graph.node.append(onnx.helper.make_node("Identity", [inner], [output.name]))
    if not any(o.domain in ("", "ai.onnx") for o in variant.model.opset_import):
        variant.model.opset_import.append(onnx.helper.make_opsetid("", 21))
    sets = [([*inputs, np.array(True)], outputs) for inputs, outputs in case.data_sets]
    return replace(variant, data_sets=sets)


def _same(case: Any) -> Variant:
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    return Variant(case.name, model, case.data_sets, case.rtol, case.atol)


VARIANTS = {"constant": constant, "symbolic": symbolic, "in_branch": in_branch}
