"""The same model for fewer samples: exporters write a static batch into shapes all over the file.

What is written down is changed (inputs, targets of Reshape and Expand, constants that hold indices or repeat one sample), then both models are
imported and compared node by node: each value that depends on the batch has to hold it on one axis, in the same place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper

from aitc.errors import AitcError
from aitc.importer import check
from aitc.importer.external import BadTensor, mark
from aitc.importer.onnx import import_model
from aitc.importer.weights import to_array
from aitc.importer.wire import LARGE_BYTES
from aitc.ir.dim import product
from aitc.ir.graph import Graph, Node, Value
from aitc.ir.op import Kind

_SHAPES = {"Reshape": 1, "Expand": 1, "ConstantOfShape": 0}  # which input says the shape of the result
_REPEATED = 1 << 22  # elements of a constant that may hold one sample many times


def with_batch(
    model: str | Path | bytes, shapes: Mapping[str, tuple[int, ...]], size: int
) -> tuple[onnx.ModelProto, dict[str, tuple[int, ...]]] | None:
    """``model`` for ``size`` samples, external data not loaded, and its inputs' shapes. ``shapes``: those of all inputs.

    None where the first input has no more than ``size`` samples, or where the result is not certainly the same computation.
    """
    batch = next((s[0] for s in shapes.values() if s), 0)
    if batch <= size:
        return None
    smaller = {n: (size, *s[1:]) if s and s[0] == batch else s for n, s in shapes.items()}
    proto, _, folder = check.read(model)
    try:
        before = import_model(_bare(proto), {}, shapes, folder).graph
        _rewrite(proto, smaller, batch, size, folder)
        after = import_model(_bare(proto), {}, smaller, folder).graph
    except (AitcError, BadTensor):
        return None
    return (proto, smaller) if _same(before, after, batch, size) else None


def _bare(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A copy without the large weights that lie outside of it: they are only compared by their shapes."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for tensor in copy.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL and np.prod(tensor.dims) >= LARGE_BYTES:
            mark(tensor)
    return copy


def _rewrite(proto: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]], batch: int, size: int, folder: Path | None) -> None:
    graph = proto.graph
    del graph.value_info[:]
    for port in graph.input:
        for dim, n in zip(port.type.tensor_type.shape.dim, shapes.get(port.name, ())):
            if dim.HasField("dim_value"):
                dim.dim_value = n
    for port in graph.output:
        port.type.tensor_type.ClearField("shape")
    constants = {t.name: t for t in graph.initializer}
    constants |= {n.output[0]: a.t for n in graph.node if n.op_type == "Constant" for a in n.attribute if a.name == "value"}
    depends = set(shapes)
    for node in graph.node:
        if depends & set(node.input):
            depends |= set(node.output)
        at = _SHAPES.get(node.op_type)
        if at is None or at >= len(node.input) or node.input[at] not in constants:
            continue
        if node.op_type == "Reshape" and node.input[0] not in depends:
            continue
        target = onnx.numpy_helper.to_array(constants[node.input[at]])
        scaled = _scaled(target.reshape(-1).tolist(), batch, size)
        if scaled is not None:
            name = f"{node.input[at]}/{node.output[0]}/{size}"
            graph.initializer.append(onnx.numpy_helper.from_array(np.array(scaled, np.int64), name))
            node.input[at] = name
    for tensor in graph.initializer:
        if len(tensor.dims) > 1 and tensor.dims[0] == batch and np.prod(tensor.dims) <= _REPEATED:
            array = to_array(tensor, folder)
            if array.dtype in (np.int64, np.int32) or (array == array[:1]).all():  # indices, or one sample many times
                tensor.CopyFrom(onnx.numpy_helper.from_array(array[:size], tensor.name))


def _scaled(target: Sequence[int], batch: int, size: int) -> list[int] | None:
    """A shape with its first multiple of the batch scaled; None where a size before it is copied or follows from the rest."""
    for i, n in enumerate(target):
        if n <= 0:
            return None
        if n % batch == 0:
            return [*target[:i], n // batch * size, *target[i + 1 :]]
    return None


def _same(before: Graph, after: Graph, batch: int, size: int) -> bool:
    """Whether both graphs compute the same of each sample."""
    nodes, others = list(before.nodes), list(after.nodes)
    if len(nodes) != len(others):
        return False
    axes: dict[Value, int] = {}  # which axis holds the batch
    if not all(_place(v, w, batch, size, axes) for v, w in zip(before.inputs, after.inputs)):
        return False
    for node, other in zip(nodes, others):
        if node.op is not other.op or node.bodies or len(node.inputs) != len(other.inputs):
            return False
        for v, w in zip((*node.inputs, *node.outputs), (*other.inputs, *other.outputs)):
            if (v is None) != (w is None) or (v is not None and w is not None and not _place(v, w, batch, size, axes)):
                return False
        if any(v in axes for v in node.inputs) and not _keeps(node, axes):
            return False
    return all(v in axes for v in before.outputs)


def _place(a: Value, b: Value, batch: int, size: int, axes: dict[Value, int]) -> bool:
    """Notes the axis on which ``a`` and ``b`` differ by the batch; False if they differ in another way."""
    if len(a.shape) != len(b.shape) or a.type.dtype is not b.type.dtype:
        return False
    different = [i for i, (x, y) in enumerate(zip(a.shape, b.shape)) if x != y]
    if not different:
        return True
    x, y = a.shape[different[0]], b.shape[different[0]]
    if len(different) > 1 or not (isinstance(x, int) and isinstance(y, int) and x % batch == 0 and x // batch * size == y):
        return False
    axes[a] = different[0]
    return True


def _keeps(node: Node, axes: Mapping[Value, int]) -> bool:
    """Whether a node that reads the batch hands it on in order, without mixing samples."""
    if not all(v in axes for v in node.outputs if v.type.dtype.is_float):
        return False
    if node.op.name == "Reshape":
        a, b = axes[node.input], axes[node.output]
        return product(node.input.shape[:a]) == product(node.output.shape[:b])
    if node.op.kind in (Kind.REDUCE, Kind.NORMALIZE, Kind.SEARCH) or node.op.name == "CumSum":
        held = axes.get(node.input)
        named = {f.name: getattr(node.attrs, f.name) for f in fields(node.attrs) if f.name in ("axis", "axes")}
        mixed = {x for n in named.values() for x in (n if isinstance(n, tuple) else (n,))}
        return held not in mixed
    return True
