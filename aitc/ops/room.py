"""NonZero, Unique and NonMaxSuppression with room for as many results as there can be, and how many there are.

The scheduler puts these in place of the operators: the host reads the count back, and views take the part that counts.
What lies behind it is undefined, as is the memory for sorting that comes last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aitc.ir import dim as d
from aitc.ir.dim import Dim
from aitc.ir.dtype import I64
from aitc.ir.op import OPS, Kind, NoAttrs, Op
from aitc.ir.types import TensorType
from aitc.ops import search

Types = Sequence["TensorType | None"]
COUNT = TensorType(I64, (1,))


@dataclass(frozen=True, slots=True)
class UniqueRoomAttrs:
    axis: int | None = None
    sorted: bool = True


@dataclass(frozen=True, slots=True)
class BoxesRoomAttrs:
    centers: bool = False


def infer_nonzero(types: Types, a: NoAttrs) -> tuple[TensorType, ...]:
    (x,) = types
    assert x is not None
    return TensorType(I64, (x.elems, x.rank)), COUNT


def infer_unique(types: Types, a: UniqueRoomAttrs) -> tuple[TensorType, ...]:
    (x,) = types
    assert x is not None
    most = x.elems if a.axis is None else x.shape[a.axis]
    indices = TensorType(I64, (most,))
    y = TensorType(x.dtype, (most,) if a.axis is None else x.shape)
    return y, indices, indices, indices, COUNT, TensorType(I64, (d.mul(most, 3),))


def most_boxes(boxes: TensorType, scores: TensorType) -> Dim:
    return d.product((scores.shape[0], scores.shape[1], scores.shape[2]))


def infer_boxes(types: Types, a: BoxesRoomAttrs) -> tuple[TensorType, ...]:
    boxes, scores = types[0], types[1]
    assert boxes is not None and scores is not None
    return TensorType(I64, (most_boxes(boxes, scores), 3)), COUNT, TensorType(I64, (scores.shape[2],))


def _room(part: np.ndarray, most: int, axis: int = 0) -> np.ndarray:
    missing = [(0, most - part.shape[axis] if k == axis else 0) for k in range(part.ndim)]
    return np.pad(part, missing)


def _nonzero_array(x: np.ndarray, a: NoAttrs) -> tuple[np.ndarray, ...]:
    places = search.nonzero_array(x, search.CountAttrs(0)).T
    return _room(places, x.size), np.array([places.shape[0]], np.int64)


def _unique_array(x: np.ndarray, a: UniqueRoomAttrs) -> tuple[np.ndarray, ...]:
    y, first, inverse, counts = search.unique_array(x, search.UniqueAttrs(0, a.axis, a.sorted))
    most = x.size if a.axis is None else x.shape[a.axis]
    count = np.array([len(first)], np.int64)
    return _room(y, most, a.axis or 0), _room(first, most), inverse, _room(counts, most), count, np.zeros(3 * most, np.int64)


def _boxes_array(*operands: Any) -> tuple[np.ndarray, ...]:
    *arrays, a = operands
    boxes, scores, limit, overlap, threshold = arrays
    kept = search.nms_array(boxes, scores, limit, overlap, threshold, search.NonMaxSuppressionAttrs(0, a.centers))
    most = int(np.prod(scores.shape))
    return _room(kept, most), np.array([len(kept)], np.int64), np.zeros(scores.shape[2], np.int64)


def _op(name: str, infer: Any, reference: Any, attrs: type, arity: tuple[int, int], outputs: int, doc: str) -> None:
    OPS.add(name, Op(name, Kind.SEARCH, infer, reference, attrs, arity=arity, outputs=outputs, doc=doc))


_op("NonZeroRoom", infer_nonzero, _nonzero_array, NoAttrs, (1, 1), 2, "NonZero as [elements, rank], and the count.")
_op("UniqueRoom", infer_unique, _unique_array, UniqueRoomAttrs, (1, 1), 6, "Unique's four outputs, the count, and memory.")
_op("NonMaxSuppressionRoom", infer_boxes, _boxes_array, BoxesRoomAttrs, (5, 5), 3, "NonMaxSuppression, the count, and memory.")
