"""ONNX tensors as numpy arrays. External data is memory-mapped; a path that leaves the model's folder is refused."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import onnx

from aitc.importer.external import BadTensor, Place, is_absent, open_data, place_of
from aitc.ir import dtype as dt

MOST_DENSE_BYTES = 1 << 34  # that a sparse tensor may take


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
        try:
            return np.array([s.decode("utf-8", "replace") for s in tensor.string_data], dtype=object).reshape(list(tensor.dims))
        except ValueError as problem:
            raise BadTensor(f"tensor {tensor.name!r} ({dtype}{list(tensor.dims)}) cannot be read: {problem}") from problem
    try:
        array = onnx.numpy_helper.to_array(tensor)
    except (ValueError, TypeError, OverflowError, RuntimeError) as problem:
        raise BadTensor(f"tensor {tensor.name!r} ({dtype}{list(tensor.dims)}) cannot be read: {problem}") from problem
    if array.dtype != dtype.numpy:
        array = array.view(dtype.numpy) if array.dtype.itemsize == dtype.numpy.itemsize else array.astype(dtype.numpy)
    return array


def external(tensor: onnx.TensorProto, dtype: dt.DType, folder: Path | None) -> np.ndarray:
    """A read-only map of the part of a file that the tensor names; a copy of a part of the model's own file. Raises BadTensor."""
    shape = list(tensor.dims)
    try:
        if is_absent(tensor):
            return np.broadcast_to(np.zeros((), dtype.numpy), shape)
        return _external(tensor, dtype, place_of(tensor), folder)
    except ValueError as problem:  # a shape beyond what numpy can say
        raise BadTensor(f"tensor {tensor.name!r} ({dtype}{shape}) cannot be read: {problem}") from problem


def _external(tensor: onnx.TensorProto, dtype: dt.DType, place: Place, folder: Path | None) -> np.ndarray:
    shape, offset = list(tensor.dims), place.offset
    if dtype is dt.STRING:
        raise BadTensor(f"tensor {tensor.name!r} holds strings, which cannot be external data", "I08")
    packed = dtype.kind in ("int", "uint", "float") and dtype.bits < 8
    needed = (math.prod(shape) * dtype.bits + 7) // 8 if packed else math.prod(shape) * dtype.numpy.itemsize
    if place.length is not None and place.length != needed:
        what, code = ("it has", "I12") if place.inside else ("its external data says", "I08")
        raise BadTensor(f"tensor {tensor.name!r} ({dtype}{shape}) needs {needed} bytes, {what} {place.length}", code)
    with open_data(tensor.name, place, folder) as file:
        size = os.fstat(file.fileno()).st_size
        if offset + needed > size:
            raise BadTensor(
                f"tensor {tensor.name!r} needs bytes {offset} to {offset + needed} of {place.location!r}, which has {size}",
                "I08",
                "the file is truncated",
            )
        if needed == 0:
            return np.zeros(shape, dtype.numpy)
        if place.inside and not packed:
            return np.fromfile(file, np.uint8, needed, offset=offset).view(dtype.numpy).reshape(shape)
        raw = np.memmap(file, dtype=np.uint8, mode="r", offset=offset, shape=(needed,))
    if packed:
        copy = onnx.TensorProto()
        copy.CopyFrom(tensor)
        copy.ClearField("external_data")
        copy.data_location = onnx.TensorProto.DEFAULT
        copy.raw_data = raw.tobytes()
        return onnx.numpy_helper.to_array(copy)
    whole = np.asarray(raw) if offset % dtype.numpy.alignment == 0 else np.frombuffer(raw.tobytes(), np.uint8)
    return whole.view(dtype.numpy).reshape(shape)


def sparse_to_array(sparse: onnx.SparseTensorProto, folder: Path | None) -> np.ndarray:
    """A sparse tensor, made dense. Raises BadTensor."""
    values, indices = to_array(sparse.values, folder), to_array(sparse.indices, folder).astype(np.int64)
    shape, name = list(sparse.dims), sparse.values.name
    if values.dtype == object or values.ndim != 1 or indices.ndim not in (1, 2):
        raise BadTensor(f"sparse tensor {name!r}: its values are no list of numbers, or its indices no list of places")
    if any(d < 0 for d in shape) or math.prod(shape) * values.dtype.itemsize > MOST_DENSE_BYTES:
        raise BadTensor(f"sparse tensor {name!r} has the shape {shape}, which is negative or larger than {MOST_DENSE_BYTES} bytes")
    limits = np.array(shape if indices.ndim == 2 else [math.prod(shape)], np.int64)
    try:
        places = indices.reshape(len(values), len(limits))
        if ((places < 0) | (places >= limits)).any():
            raise IndexError(f"an index is outside of the shape {shape}")
        result = np.zeros(shape, values.dtype)
        if indices.ndim == 1:
            result.reshape(-1)[indices] = values
        else:
            result[tuple(indices.T)] = values
    except (IndexError, ValueError) as problem:
        raise BadTensor(f"sparse tensor {name!r}: {problem}") from problem
    return result


def read_tensor(path: Path) -> np.ndarray:
    """The array in a serialized TensorProto, as ONNX's test data has them. Raises OSError, and ValueError where it is none."""
    data = path.read_bytes()
    try:
        return np.asarray(onnx.numpy_helper.to_array(onnx.TensorProto.FromString(data)))
    except Exception as error:
        raise ValueError(str(error).strip() or type(error).__name__) from error
