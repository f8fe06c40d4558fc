"""ONNX attributes as Python values: int, float, str, numpy array, tuples of them, GraphProto, TypeProto."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx

from aitc.importer.weights import sparse_to_array, to_array

A = onnx.AttributeProto


def decode(attribute: onnx.AttributeProto, folder: Path | None) -> Any:
    """The attribute's value. Raises BadTensor for a tensor that cannot be read, ValueError for a type that is
    unknown."""
    kind = attribute.type
    if kind == A.INT:
        return attribute.i
    if kind == A.INTS:
        return tuple(attribute.ints)
    if kind == A.FLOAT:
        return attribute.f
    if kind == A.FLOATS:
        return tuple(attribute.floats)
    if kind == A.STRING:
        return attribute.s.decode("utf-8", "replace")
    if kind == A.STRINGS:
        return tuple(s.decode("utf-8", "replace") for s in attribute.strings)
    if kind == A.TENSOR:
        return to_array(attribute.t, folder)
    if kind == A.TENSORS:
        return tuple(to_array(t, folder) for t in attribute.tensors)
    if kind == A.SPARSE_TENSOR:
        return sparse_to_array(attribute.sparse_tensor, folder)
    if kind == A.GRAPH:
        return attribute.g
    if kind == A.GRAPHS:
        return tuple(attribute.graphs)
    if kind == A.TYPE_PROTO:
        return attribute.tp
    return _untyped(attribute, folder)


def _untyped(attribute: onnx.AttributeProto, folder: Path | None) -> Any:
    """Files of before IR version 2 do not say the type."""
    for field in ("f", "i", "s", "t", "g"):
        if attribute.HasField(field):
            value = getattr(attribute, field)
            return value.decode() if field == "s" else to_array(value, folder) if field == "t" else value
    for field in ("floats", "ints", "strings"):
        if len(getattr(attribute, field)):
            return tuple(v.decode() if isinstance(v, bytes) else v for v in getattr(attribute, field))
    raise ValueError(f"attribute {attribute.name!r} has no value")
