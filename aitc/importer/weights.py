"""ONNX tensors as numpy arrays. External data is memory-mapped; a path that leaves the model's folder is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from aitc.importer.wire import ABSENT, INSIDE
from aitc.ir import dtype as dt


class BadTensor(Exception):
    """A tensor that cannot be read; ``code`` is that of the diagnostic."""

    def __init__(self, message: str, code: str = "I12", help: str = ""):
        super().__init__(message)
        self.code = code
        self.help = help


def to_array(tensor: onnx.TensorProto, folder: Path | None) -> np.ndarray:
    """The tensor's elements. ``folder`` is where external data may lie (None: nowhere). Raises BadTensor."""
    dtype = dt.BY_ONNX.get(tensor.data_type)
    if dtype is None:
        raise BadTensor(f"tensor {tensor.name!r} has element type {tensor.data_type}, which is unknown")
    if any(d < 0 for d in tensor.dims):
        raise BadTensor(f"tensor {tensor.name!r} has a negative dim: {list(tensor.dims)}")
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return external(tensor, dtype, folder)
    if dtype is dt.STRING:
        return np.array([s.decode("utf-8", "replace") for s in tensor.string_data], dtype=object).reshape(
            list(tensor.dims)
        )
    try:
        array = onnx.numpy_helper.to_array(tensor)
    except (ValueError, TypeError, OverflowError, RuntimeError) as problem:
        raise BadTensor(f"tensor {tensor.name!r} ({dtype}{list(tensor.dims)}) cannot be read: {problem}") from problem
    if array.dtype != dtype.numpy:
        array = array.view(dtype.numpy) if array.dtype.itemsize == dtype.numpy.itemsize else array.astype(dtype.numpy)
    return array


def external_files(model: onnx.ModelProto) -> list[str]:
    """The files of the model's external data, as it names them, sorted."""
    found: set[str] = set()
    graphs = [model.graph]
    while graphs:
        graph = graphs.pop()
        tensors = list(graph.initializer)
        for sparse in graph.sparse_initializer:
            tensors += [sparse.values, sparse.indices]
        for node in graph.node:
            for a in node.attribute:
                tensors += [a.t, *a.tensors]
                graphs += [a.g, *a.graphs] if a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) else []
        found |= {e.value for t in tensors for e in t.external_data if e.key == "location"}
    return sorted(found)


def external(tensor: onnx.TensorProto, dtype: dt.DType, folder: Path | None) -> np.ndarray:
    """A read-only map of the part of a file that the tensor names; a copy of a part of the model's own file."""
    entries = {e.key: e.value for e in tensor.external_data}
    if entries.get("checksum") == ABSENT:
        return np.broadcast_to(np.zeros((), dtype.numpy), list(tensor.dims))
    location = entries.get("location", "")
    if folder is None:
        raise BadTensor(
            f"tensor {tensor.name!r} lies in {location!r}, but the model was not read from a file",
            "I08",
            "compile the .onnx file itself",
        )
    path = (folder / location).resolve()
    inside = entries.get("checksum") == INSIDE and Path(location).name == location  # of a model that is a link, too
    if not location or not (inside or path.is_relative_to(folder.resolve())):
        raise BadTensor(
            f"tensor {tensor.name!r} lies in {location!r}, outside of the model's folder",
            "I08",
            "put the file beside the model",
        )
    if not path.is_file():
        raise BadTensor(
            f"tensor {tensor.name!r} lies in {location!r}, which does not exist in {folder}",
            "I08",
            "copy it beside the model",
        )
    try:
        offset = int(entries.get("offset", "0") or 0)
        stated = int(entries["length"]) if entries.get("length") else None
    except ValueError as problem:
        raise BadTensor(f"tensor {tensor.name!r} has a bad offset or length in its external data", "I08") from problem
    count = 1
    for d in tensor.dims:
        count *= d
    packed = dtype.kind in ("int", "uint", "float") and dtype.bits < 8
    needed = (count * dtype.bits + 7) // 8 if packed else count * dtype.numpy.itemsize
    if stated is not None and stated != needed:
        what = "it has" if inside else "its external data says"
        raise BadTensor(
            f"tensor {tensor.name!r} ({dtype}{list(tensor.dims)}) needs {needed} bytes, {what} {stated}", "I12" if inside else "I08"
        )
    size = path.stat().st_size
    if offset < 0 or offset + needed > size:
        raise BadTensor(
            f"tensor {tensor.name!r} needs bytes {offset} to {offset + needed} of {location!r}, which has {size}",
            "I08",
            "the file is truncated",
        )
    if needed == 0:
        return np.zeros(list(tensor.dims), dtype.numpy)
    if inside and not packed:
        return np.fromfile(path, np.uint8, needed, offset=offset).view(dtype.numpy).reshape(list(tensor.dims))
    raw = np.memmap(path, dtype=np.uint8, mode="r", offset=offset, shape=(needed,))
    if packed:
        copy = onnx.TensorProto()
        copy.CopyFrom(tensor)
        copy.ClearField("external_data")
        copy.data_location = onnx.TensorProto.DEFAULT
        copy.raw_data = raw.tobytes()
        return onnx.numpy_helper.to_array(copy)
    return np.asarray(raw).view(dtype.numpy).reshape(list(tensor.dims)) if offset % dtype.numpy.alignment == 0 else np.frombuffer(
        raw.tobytes(), dtype.numpy).reshape(list(tensor.dims))  # fmt: skip


def sparse_to_array(sparse: onnx.SparseTensorProto, folder: Path | None) -> np.ndarray:
    """A sparse tensor, made dense. Raises BadTensor."""
    values, indices = to_array(sparse.values, folder), to_array(sparse.indices, folder).astype(np.int64)
    shape = list(sparse.dims)
    result = np.zeros(shape, values.dtype)
    try:
        if indices.ndim == 1:
            result.reshape(-1)[indices] = values
        else:
            result[tuple(indices.T)] = values
    except (IndexError, ValueError) as problem:
        raise BadTensor(f"sparse tensor {sparse.values.name!r}: {problem}") from problem
    return result
