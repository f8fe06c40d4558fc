"""Copies to and from places that other tensors name: Gather, Scatter and their kin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from aitc.ir import dim as d
from aitc.ir.dtype import I64
from aitc.ir.graph import Value
from aitc.ir.types import TensorType
from aitc.ops import declare
from aitc.ops.attribute import Reduction
from aitc.ops.declare import Scope, cast, normalize_axis, numbers, onnx_op
from aitc.ops.indices import check_bounds
from aitc.ops.move import AxisAttrs, move_op
from aitc.ops.pointwise import Types


@dataclass(frozen=True, slots=True)
class GatherNDAttrs:
    batch_dims: int = 0


@dataclass(frozen=True, slots=True)
class ScatterElementsAttrs:
    axis: int
    reduction: str = "none"  # add, mul, max, min


@dataclass(frozen=True, slots=True)
class ScatterNDAttrs:
    reduction: str = "none"


def infer_gather(types: Types, a: AxisAttrs) -> tuple[TensorType, ...]:
    x, indices = types
    assert x is not None and indices is not None
    if not indices.dtype.is_integer:
        raise ValueError(f"indices must be integers, got {indices}")
    return (TensorType(x.dtype, (*x.shape[: a.axis], *indices.shape, *x.shape[a.axis + 1 :])),)


def _within(x: TensorType, indices: TensorType, axis: int) -> None:
    """Raises ValueError for indices that are longer than ``x`` along another axis than the one they are for."""
    for i, (have, want) in enumerate(zip(x.shape, indices.shape)):
        if i != axis and isinstance(have, int) and isinstance(want, int) and want > have:
            raise ValueError(f"indices {indices} reach beyond {x} along axis {i}")


def infer_gather_elements(types: Types, a: AxisAttrs) -> tuple[TensorType, ...]:
    x, indices = types
    assert x is not None and indices is not None
    if indices.rank != x.rank:
        raise ValueError(f"indices {indices} must have the rank of {x}")
    _within(x, indices, a.axis)
    return (TensorType(x.dtype, indices.shape),)


def gather_elements_array(x: np.ndarray, indices: np.ndarray, a: AxisAttrs) -> np.ndarray:
    where = list(np.ogrid[tuple(slice(0, s) for s in indices.shape)])
    where[a.axis] = indices
    return x[tuple(where)]


def infer_gather_nd(types: Types, a: GatherNDAttrs) -> tuple[TensorType, ...]:
    x, indices = types
    assert x is not None and indices is not None
    if not indices.rank or not 0 <= a.batch_dims < min(x.rank, indices.rank):
        raise ValueError(f"batch_dims {a.batch_dims} of {x} and {indices}")
    depth = indices.shape[-1]
    if not isinstance(depth, int):
        raise ValueError(f"the last axis of the indices {indices} must be known at compile time")
    if depth + a.batch_dims > x.rank:
        raise ValueError(f"indices {indices} reach deeper than {x}")
    return (TensorType(x.dtype, (*indices.shape[:-1], *x.shape[a.batch_dims + depth :])),)


def gather_nd_array(x: np.ndarray, indices: np.ndarray, a: GatherNDAttrs) -> np.ndarray:
    batch = x.shape[: a.batch_dims]
    rows = int(np.prod(batch, dtype=np.int64))
    flat, places = x.reshape(rows, *x.shape[a.batch_dims :]), indices.reshape(rows, *indices.shape[a.batch_dims :])
    depth = indices.shape[-1]
    shape = (*indices.shape[:-1], *x.shape[a.batch_dims + depth :])
    if not rows:
        return np.empty(shape, x.dtype)
    return np.stack([f[tuple(np.moveaxis(p, -1, 0))] for f, p in zip(flat, places)]).reshape(shape)


def infer_scatter(types: Types, a: Any) -> tuple[TensorType, ...]:
    x, indices, updates = types
    assert x is not None and indices is not None and updates is not None
    if x.dtype is not updates.dtype:
        raise ValueError(f"updates {updates} must have the element type of {x}")
    if isinstance(a, ScatterElementsAttrs):
        if not x.rank == indices.rank == updates.rank or any(d.bounds(n - m)[0] > 0 for n, m in zip(indices.shape, updates.shape)):
            raise ValueError(f"updates {updates} for indices {indices} of {x}")
        _within(x, indices, a.axis)
    elif isinstance(depth := indices.shape[-1], int):
        wanted = (*indices.shape[:-1], *x.shape[depth:])
        if depth > x.rank or len(wanted) != updates.rank or any(isinstance(n, int) and isinstance(m, int) and n != m for n, m in zip(wanted, updates.shape)):
            raise ValueError(f"updates {updates} for indices {indices} of {x}")
    if a.reduction not in ("none", "add", "mul", "max", "min"):
        raise ValueError(f"reduction {a.reduction!r}")
    return (TensorType(x.dtype, x.shape),)


def _scatter(y: np.ndarray, where: tuple[Any, ...], updates: np.ndarray, reduction: str) -> None:
    if reduction == "none":
        y[where] = updates
        return
    function = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[reduction]
    if y.dtype.kind in "iuf":
        function.at(y, where, updates)
        return
    wide = y.astype(np.float32)
    function.at(wide, where, updates.astype(np.float32))
    y[...] = wide.astype(y.dtype)


def scatter_elements_array(
    x: np.ndarray, indices: np.ndarray, updates: np.ndarray, a: ScatterElementsAttrs
) -> np.ndarray:
    y = x.copy()
    where = list(np.ogrid[tuple(slice(0, s) for s in indices.shape)])
    where[a.axis] = np.where(indices < 0, indices + x.shape[a.axis], indices)
    _scatter(y, tuple(where), updates, a.reduction)
    return y


def scatter_nd_array(x: np.ndarray, indices: np.ndarray, updates: np.ndarray, a: ScatterNDAttrs) -> np.ndarray:
    y = x.copy()
    depth = indices.shape[-1]
    if depth == 0:
        where: tuple[Any, ...] = ()
        for u in updates.reshape(-1, *x.shape):
            _scatter(y, (...,), u, a.reduction)
        return y
    where = tuple(np.moveaxis(indices, -1, 0))
    _scatter(y, where, updates, a.reduction)
    return y


move_op(
    "Gather",
    infer_gather,
    lambda x, i, a: np.take(x, i, axis=a.axis),
    AxisAttrs,
    (2, 2),
    "Negative indices count from the end.",
)


move_op(
    "GatherElements",
    infer_gather_elements,
    gather_elements_array,
    AxisAttrs,
    (2, 2),
    "Along the axis, for each element of the indices the element it names.",
)


move_op(
    "GatherND",
    infer_gather_nd,
    gather_nd_array,
    GatherNDAttrs,
    (2, 2),
    "Slices at the coordinates that the last axis of the indices holds.",
)


move_op(
    "ScatterElements",
    infer_scatter,
    scatter_elements_array,
    ScatterElementsAttrs,
    (3, 3),
    "A copy of input 0 with updates put, or combined, where the indices say along an axis.",
)


move_op(
    "ScatterND",
    infer_scatter,
    scatter_nd_array,
    ScatterNDAttrs,
    (3, 3),
    "A copy of input 0 with slices put, or combined, at coordinates.",
)


@onnx_op("Gather")
def gather(b: Scope, x: Value, indices: Value, *, axis: int = 0) -> Value:
    axis = normalize_axis(axis, x.type.rank)
    where = numbers(indices)
    if where is not None and where.size == 1:  # one element: a view
        index = int(where.reshape(()))
        size = x.shape[axis]
        if isinstance(size, int) and not -size <= index < size:
            raise ValueError(f"index {index} is outside of axis {axis} of {x.type}")
        start = d.add(size, index) if index < 0 else index
        part = declare.slice_axis(b, x, axis, start, 1)
        return declare.reshape(b, part, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))
    return b.op("Gather", x, indices, axis=axis)


@onnx_op("GatherElements")
def gather_elements(b: Scope, x: Value, indices: Value, *, axis: int = 0) -> Value:
    return b.op("GatherElements", x, indices, axis=normalize_axis(axis, x.type.rank))


@onnx_op("GatherND", domain="com.microsoft")
@onnx_op("GatherND")
def gather_nd(b: Scope, x: Value, indices: Value, *, batch_dims: int = 0) -> Value:
    return b.op("GatherND", x, indices, batch_dims=batch_dims)


@onnx_op("ScatterElements", "Scatter")
def scatter_elements(
    b: Scope, x: Value, indices: Value, updates: Value, *, axis: int = 0, reduction: Reduction = "none"
) -> Value:
    if not x.type.rank == indices.type.rank == updates.type.rank:
        raise ValueError(f"data {x.type}, indices {indices.type} and updates {updates.type} have different ranks")
    return b.op("ScatterElements", x, indices, updates, axis=normalize_axis(axis, x.type.rank), reduction=reduction)


@onnx_op("ScatterND")
def scatter_nd(b: Scope, x: Value, indices: Value, updates: Value, *, reduction: Reduction = "none") -> Value:
    if not isinstance(indices.shape[-1], int):  # how deep they reach also follows from what is left for the updates
        depth = x.type.rank + indices.type.rank - 1 - updates.type.rank
        indices = declare.reshape(b, indices, (*indices.shape[:-1], depth))
    return b.op("ScatterND", x, indices, updates, reduction=reduction)


@onnx_op("TensorScatter")
def tensor_scatter(
    b: Scope, cache: Value, update: Value, write: Value | None = None, *, axis: int = -2, mode: Literal["linear", "circular"] = "linear"
) -> Value:
    """Writes ``update`` into the cache along ``axis``, for each batch from its own place on; in mode circular it
    wraps around."""
    axis = normalize_axis(axis, cache.type.rank)
    rank, length = cache.type.rank, update.shape[axis]
    places = declare.reshape(b, b.op("Range", start=0, step=1, size=length), (length, *([1] * (rank - 1 - axis))))
    known = None if write is None else numbers(write)
    if known is not None:
        size = d.add(d.add(cache.shape[axis], d.mul(length, -1)), 1) if mode == "linear" else cache.shape[axis]
        check_bounds(known, size, f"axis {axis} of {cache.type} where {length} elements are written", least=0)
    if write is not None:
        places = b.op("Add", places, declare.reshape(b, cast(b, write, I64), (write.shape[0], *([1] * (rank - 1)))))
    if mode == "circular":
        places = b.op("Mod", places, b.op("Dims", content=(cache.shape[axis],), shape=()))
    return b.op("ScatterElements", cache, declare.expand(b, places, update.shape), update, axis=axis, reduction="none")
