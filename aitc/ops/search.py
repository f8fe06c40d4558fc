"""Operators whose result depends on an order or a choice: TopK, NonZero, Unique, NonMaxSuppression, Compress."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aitc.ir import dim as d
from aitc.ir.dim import Dim
from aitc.ir.dtype import BOOL, F32, I64
from aitc.ir.graph import Value
from aitc.ir.op import OPS, Kind, Op
from aitc.ir.types import TensorType
from aitc.ops import declare
from aitc.ops.declare import Scope, cast, normalize_axis, onnx_op
from aitc.ops.pointwise import widen

Types = Sequence["TensorType | None"]


@dataclass(frozen=True, slots=True)
class TopKAttrs:
    """The k largest or smallest along an axis and where they are; of equal ones the first. Always in order."""

    k: Dim
    axis: int
    largest: bool = True


@dataclass(frozen=True, slots=True)
class CountAttrs:
    """``count`` is the symbol for how many results the data gives."""

    count: Dim


@dataclass(frozen=True, slots=True)
class UniqueAttrs:
    count: Dim
    axis: int | None = None  # None: of the flattened tensor
    sorted: bool = True  # else in order of first occurrence


@dataclass(frozen=True, slots=True)
class NonMaxSuppressionAttrs:
    count: Dim
    centers: bool = False  # boxes are (x centre, y centre, width, height) instead of two corners (y, x, y, x)


def infer_topk(types: Types, a: TopKAttrs) -> tuple[TensorType, ...]:
    (x,) = types
    assert x is not None
    size = x.shape[a.axis]
    if isinstance(a.k, int) and isinstance(size, int) and not 0 <= a.k <= size:
        raise ValueError(f"k = {a.k} of axis {a.axis} of {x}")
    shape = tuple(a.k if i == a.axis else s for i, s in enumerate(x.shape))
    return TensorType(x.dtype, shape), TensorType(I64, shape)


def topk_array(x: np.ndarray, a: TopKAttrs) -> tuple[np.ndarray, np.ndarray]:
    w = widen(x)
    n = x.shape[a.axis]
    if a.largest:  # stable: of equal ones the first
        order = n - 1 - np.flip(np.argsort(np.flip(w, a.axis), axis=a.axis, kind="stable"), a.axis)
    else:
        order = np.argsort(w, axis=a.axis, kind="stable")
    order = np.take(order, np.arange(int(a.k)), axis=a.axis).astype(np.int64)  # type: ignore[arg-type]
    return np.take_along_axis(x, order, axis=a.axis), order


def infer_nonzero(types: Types, a: CountAttrs) -> tuple[TensorType, ...]:
    (x,) = types
    assert x is not None
    return (TensorType(I64, (x.rank, a.count)),)


def nonzero_array(x: np.ndarray, a: CountAttrs) -> np.ndarray:
    w = widen(x)
    if not x.ndim:
        return np.zeros((0, int(w != 0)), np.int64)
    return np.array(np.nonzero(w), dtype=np.int64).reshape(x.ndim, -1)


def infer_unique(types: Types, a: UniqueAttrs) -> tuple[TensorType, ...]:
    (x,) = types
    assert x is not None
    indices = TensorType(I64, (a.count,))
    if a.axis is None:
        return TensorType(x.dtype, (a.count,)), indices, TensorType(I64, (x.elems,)), indices
    shape = tuple(a.count if i == a.axis else s for i, s in enumerate(x.shape))
    return TensorType(x.dtype, shape), indices, TensorType(I64, (x.shape[a.axis],)), indices


def unique_array(x: np.ndarray, a: UniqueAttrs) -> tuple[np.ndarray, ...]:
    y, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True, axis=a.axis)
    inverse = inverse.reshape(-1)
    if not a.sorted:
        order = np.argsort(first, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        y = np.take(y, order, axis=0 if a.axis is None else a.axis)
        first, counts, inverse = first[order], counts[order], rank[inverse]
    return y, first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)


def infer_nms(types: Types, a: NonMaxSuppressionAttrs) -> tuple[TensorType, ...]:
    boxes, scores = types[0], types[1]
    assert boxes is not None and scores is not None
    if boxes.rank != 3 or scores.rank != 3:
        raise ValueError(f"boxes [N, B, 4] and scores [N, C, B] needed, got {boxes} and {scores}")
    return (TensorType(I64, (a.count, 3)),)


def _corners(boxes: np.ndarray, centers: bool) -> np.ndarray:
    """(top, left, bottom, right) of each box."""
    if centers:
        x, y, w, h = np.moveaxis(boxes, -1, 0)
        return np.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2], axis=-1)
    y1, x1, y2, x2 = np.moveaxis(boxes, -1, 0)
    return np.stack([np.minimum(y1, y2), np.minimum(x1, x2), np.maximum(y1, y2), np.maximum(x1, x2)], axis=-1)


def nms_array(
    boxes: np.ndarray, scores: np.ndarray, limit: np.ndarray, overlap: np.ndarray, threshold: np.ndarray | None, a: Any
) -> np.ndarray:
    """Greedy: boxes by falling score, each kept unless it overlaps one that was kept by more than ``overlap`` of
    their union."""
    most, iou_limit = int(limit.reshape(())), float(overlap.reshape(()))
    boxes, scores = _corners(widen(boxes), a.centers), widen(scores)
    kept: list[tuple[int, int, int]] = []
    for n in range(scores.shape[0]):
        area = (boxes[n, :, 2] - boxes[n, :, 0]) * (boxes[n, :, 3] - boxes[n, :, 1])
        for c in range(scores.shape[1]):
            s = scores[n, c]
            candidates = [
                i
                for i in np.argsort(-s, kind="stable").tolist()
                if threshold is None or s[i] > float(threshold.reshape(()))
            ]
            chosen: list[int] = []
            for i in candidates:
                if len(chosen) >= most:
                    break
                other = boxes[n, chosen]
                height = np.minimum(other[:, 2], boxes[n, i, 2]) - np.maximum(other[:, 0], boxes[n, i, 0])
                width = np.minimum(other[:, 3], boxes[n, i, 3]) - np.maximum(other[:, 1], boxes[n, i, 1])
                both = np.maximum(height, 0) * np.maximum(width, 0)
                union = area[chosen] + area[i] - both
                if not np.any((both > 0) & (both > iou_limit * union)):  # a size below zero makes a union below zero
                    chosen.append(i)
            kept += [(n, c, i) for i in chosen]
    return np.array(kept, dtype=np.int64).reshape(-1, 3)


def _op(
    name: str, infer: Any, reference: Any, attrs: type, arity: tuple[int, int], outputs: int = 1, doc: str = ""
) -> None:
    OPS.add(name, Op(name, Kind.SEARCH, infer, reference, attrs, arity=arity, outputs=outputs, doc=doc))


_op("TopK", infer_topk, topk_array, TopKAttrs, (1, 1), 2)
_op(
    "NonZero",
    infer_nonzero,
    nonzero_array,
    CountAttrs,
    (1, 1),
    doc="The coordinates of non-zero elements, [rank, count], in row-major order.",
)
_op(
    "Unique",
    infer_unique,
    unique_array,
    UniqueAttrs,
    (1, 1),
    4,
    "Values, where each occurs first, which one each element is, how often each occurs.",
)
_op("NonMaxSuppression", infer_nms, nms_array, NonMaxSuppressionAttrs, (5, 5),
    doc="Of boxes, scores, most per class, overlap limit and score threshold or nothing: [count, 3] batch, class, box.")  # fmt: skip


# --- ONNX -------------------------------------------------------------------------------------------------------------


def top_k(b: Scope, x: Value, k: Dim, axis: int, largest: bool) -> tuple[Value, ...]:
    return b.node("TopK", x, k=k, axis=normalize_axis(axis, x.type.rank), largest=largest).outputs


@onnx_op("TopK", since=10)
def top_k_(b: Scope, x: Value, k: Value, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> tuple[Value, ...]:
    (count,) = b.dims(declare.reshape(b, k, (1,)), "k")
    return top_k(b, x, count, axis, bool(largest))


@onnx_op("TopK", since=1)
def top_k_attribute(b: Scope, x: Value, *, k: int, axis: int = -1) -> tuple[Value, ...]:
    return top_k(b, x, k, axis, True)


@onnx_op("NonZero")
def non_zero(b: Scope, x: Value) -> Value:
    return b.op("NonZero", x, count=b.fresh("nonzero", 0, d.upper(x.type.elems)))


@onnx_op("Compress")
def compress(b: Scope, x: Value, condition: Value, *, axis: int | None = None) -> Value:
    if axis is None:
        x, axis = declare.reshape(b, x, (x.type.elems,)), 0
    axis = normalize_axis(axis, x.type.rank)
    places = non_zero(b, condition)
    return b.op("Gather", x, declare.reshape(b, places, (places.shape[1],)), axis=axis)


@onnx_op("Unique")
def unique(b: Scope, x: Value, *, axis: int | None = None, sorted: int = 1) -> tuple[Value, ...]:
    axis = None if axis is None else normalize_axis(axis, x.type.rank)
    most = x.type.elems if axis is None else x.shape[axis]
    return b.node("Unique", x, count=b.fresh("unique", 0, d.upper(most)), axis=axis, sorted=bool(sorted)).outputs


@onnx_op("NonMaxSuppression")
def non_max_suppression(
    b: Scope, boxes: Value, scores: Value, max_output_boxes_per_class: Value | None = None,
    iou_threshold: Value | None = None, score_threshold: Value | None = None, *, center_point_box: int = 0,
) -> Value:  # fmt: skip
    limit = (
        b.constant(0, np.int64)
        if max_output_boxes_per_class is None
        else declare.reshape(b, cast(b, max_output_boxes_per_class, I64), ())
    )
    overlap = (
        b.constant(0, np.float32) if iou_threshold is None else declare.reshape(b, cast(b, iou_threshold, F32), ())
    )
    threshold = None if score_threshold is None else declare.reshape(b, cast(b, score_threshold, F32), ())
    if boxes.type.rank != 3 or scores.type.rank != 3:
        raise ValueError(f"boxes {boxes.type} and scores {scores.type} have three axes")
    most = d.product((scores.shape[0], scores.shape[1], scores.shape[2]))
    count = b.fresh("boxes", 0, d.upper(most))
    return b.op(
        "NonMaxSuppression", boxes, scores, limit, overlap, threshold, count=count, centers=bool(center_point_box)
    )


def where_true(b: Scope, condition: Value) -> Value:
    """The indices at which a bool vector is true, [count]."""
    assert condition.type.dtype is BOOL
    places = non_zero(b, condition)
    return declare.reshape(b, places, (places.shape[1],))
