"""NonZero, Unique and NonMaxSuppression with room for as many results as there can be, and how many there are.

The scheduler puts these in place of the operators: the host reads the count back, and views take the part that counts.
What lies behind it is undefined, as is the memory for sorting that comes last. NonZero and NonMaxSuppression find their
results in segments (parts of the elements, classes of boxes) that are independent of each other; PackRows joins them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aitc.ir import dim as d
from aitc.ir.dtype import I64
from aitc.ir.op import OPS, Kind, NoAttrs, Op
from aitc.ir.types import TensorType
from aitc.ops import search

Types = Sequence["TensorType | None"]
COUNT = TensorType(I64, (1,))


SEGMENT = 1024  # elements that NonZero goes through in order


@dataclass(frozen=True, slots=True)
class SegmentAttrs:
    """``segment``: elements of a segment; 0 is all of them."""

    segment: int = 0


@dataclass(frozen=True, slots=True)
class UniqueRoomAttrs:
    axis: int | None = None
    sorted: bool = True


@dataclass(frozen=True, slots=True)
class BoxesRoomAttrs:
    centers: bool = False


def infer_nonzero(types: Types, a: SegmentAttrs) -> tuple[TensorType, ...]:
    (x,) = types
    assert x is not None
    segments, size = (d.ceildiv(x.elems, a.segment), a.segment) if a.segment else (1, x.elems)
    return TensorType(I64, (segments, size, x.rank)), TensorType(I64, (segments,))


def infer_pack(types: Types, a: NoAttrs) -> tuple[TensorType, ...]:
    room, counts, ends = types
    assert room is not None and counts is not None and counts == ends
    segments, size, width = room.shape
    return TensorType(room.dtype, (d.mul(segments, size), width)), COUNT


def infer_unique(types: Types, a: UniqueRoomAttrs) -> tuple[TensorType, ...]:
    (x,) = types
    assert x is not None
    most = x.elems if a.axis is None else x.shape[a.axis]
    indices = TensorType(I64, (most,))
    y = TensorType(x.dtype, (most,) if a.axis is None else x.shape)
    return y, indices, indices, indices, COUNT, TensorType(I64, (d.mul(most, 3),))


def infer_boxes(types: Types, a: BoxesRoomAttrs) -> tuple[TensorType, ...]:
    boxes, scores = types[0], types[1]
    assert boxes is not None and scores is not None
    lines, size = d.mul(scores.shape[0], scores.shape[1]), scores.shape[2]
    return TensorType(I64, (lines, size, 3)), TensorType(I64, (lines,)), TensorType(I64, (d.mul(lines, size),))


def _room(part: np.ndarray, most: int, axis: int = 0) -> np.ndarray:
    missing = [(0, most - part.shape[axis] if k == axis else 0) for k in range(part.ndim)]
    return np.pad(part, missing)


def _segments(parts: Sequence[np.ndarray], size: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of each segment with room for ``size``, and how many there are."""
    rooms = [_room(p, size) for p in parts]
    room = np.stack(rooms) if rooms else np.zeros((0, size, width), np.int64)
    return room, np.array([len(p) for p in parts], np.int64)


def _nonzero_array(x: np.ndarray, a: SegmentAttrs) -> tuple[np.ndarray, ...]:
    places = search.nonzero_array(x, search.CountAttrs(0)).T
    if not a.segment:
        return _segments([places], x.size, x.ndim)
    of = np.flatnonzero(x) // a.segment
    return _segments([places[of == s] for s in range(-(-x.size // a.segment))], a.segment, x.ndim)


def _pack_array(room: np.ndarray, counts: np.ndarray, ends: np.ndarray, a: NoAttrs) -> tuple[np.ndarray, ...]:
    rows = np.concatenate([r[:n] for r, n in zip(room, counts, strict=True)] or [room.reshape(-1, room.shape[2])])
    return _room(rows, room.shape[0] * room.shape[1]), np.array([len(rows)], np.int64)


def _unique_array(x: np.ndarray, a: UniqueRoomAttrs) -> tuple[np.ndarray, ...]:
    y, first, inverse, counts = search.unique_array(x, search.UniqueAttrs(0, a.axis, a.sorted))
    most = x.size if a.axis is None else x.shape[a.axis]
    count = np.array([len(first)], np.int64)
    return _room(y, most, a.axis or 0), _room(first, most), inverse, _room(counts, most), count, np.zeros(3 * most, np.int64)


def _boxes_array(*operands: Any) -> tuple[np.ndarray, ...]:
    *arrays, a = operands
    boxes, scores, limit, overlap, threshold = arrays
    kept = search.nms_array(boxes, scores, limit, overlap, threshold, search.NonMaxSuppressionAttrs(0, a.centers))
    classes = [kept[(kept[:, 0] == n) & (kept[:, 1] == c)] for n in range(scores.shape[0]) for c in range(scores.shape[1])]
    return *_segments(classes, scores.shape[2], 3), np.zeros(scores.size, np.int64)


def _op(name: str, infer: Any, reference: Any, attrs: type, arity: tuple[int, int], outputs: int, doc: str) -> None:
    OPS.add(name, Op(name, Kind.SEARCH, infer, reference, attrs, arity=arity, outputs=outputs, doc=doc))


_op("NonZeroRoom", infer_nonzero, _nonzero_array, SegmentAttrs, (1, 1), 2,
    "NonZero as [segments, elements, rank], and the count of each segment.")
_op("UniqueRoom", infer_unique, _unique_array, UniqueRoomAttrs, (1, 1), 6, "Unique's four outputs, the count, and memory.")
_op("NonMaxSuppressionRoom", infer_boxes, _boxes_array, BoxesRoomAttrs, (5, 5), 3,
    "NonMaxSuppression as [batches * classes, boxes, 3], the count of each class, and memory.")
_op("PackRows", infer_pack, _pack_array, NoAttrs, (3, 3), 2,
    "The first rows of each segment one behind the other, and how many: of [segments, rows, width], counts and their running sums.")
