"""Attention as a core op: softmax(scale · Q Kᵀ + mask) V."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aitc.ir import dim as d
from aitc.ir.op import OPS, Kind, Op
from aitc.ir.types import TensorType
from aitc.ops.attribute import Finite
from aitc.ops.pointwise import widen


@dataclass(frozen=True, slots=True)
class AttentionAttrs:
    """``causal`` aligns at the bottom right: query i sees keys j <= i + T - S. ``softcap`` c > 0 replaces scores s by
    c tanh(s / c) before the mask. A query that sees no key gives NaN, with ``zero_rows`` 0."""

    scale: float
    causal: bool = False
    softcap: Finite = 0.0
    zero_rows: bool = False


def infer_attention(types: Sequence[TensorType | None], a: AttentionAttrs) -> tuple[TensorType, ...]:
    q, k, v = types[:3]
    assert q is not None and k is not None and v is not None
    if q.rank != 4 or k.rank != 4 or v.rank != 4:
        raise ValueError(f"attention needs (batch, heads, length, size), got {q}, {k} and {v}")
    heads, shared = q.shape[1], k.shape[1]
    if isinstance(heads, int) and isinstance(shared, int) and (shared == 0 or heads % shared):
        raise ValueError(f"{heads} heads of queries do not share {shared} heads of keys evenly")
    return (TensorType(q.dtype, (*q.shape[:3], v.shape[3])),)


def attention_array(q: np.ndarray, k: np.ndarray, v: np.ndarray, *rest: Any) -> np.ndarray:
    *masks, a = rest
    wide = np.float64 if q.dtype == np.float64 else np.float32
    qs, ks, vs = (widen(x).astype(wide) for x in (q, k, v))
    repeat = q.shape[1] // k.shape[1]
    ks, vs = np.repeat(ks, repeat, axis=1), np.repeat(vs, repeat, axis=1)
    with np.errstate(all="ignore"):
        scores = np.matmul(qs, np.swapaxes(ks, -1, -2)) * wide(a.scale)
        if a.softcap:
            scores = wide(a.softcap) * np.tanh(scores / wide(a.softcap))
        if masks and masks[0] is not None:
            mask = masks[0]
            scores = (
                np.where(mask, scores, -np.inf).astype(wide)
                if mask.dtype == np.bool_
                else scores + widen(mask).astype(wide)
            )
        if a.causal:
            s, t = scores.shape[-2:]
            scores = np.where(np.arange(t)[None, :] <= np.arange(s)[:, None] + (t - s), scores, -np.inf)
        top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
        e = np.exp(scores - np.where(np.isfinite(top), top, 0))
        total = e.sum(axis=-1, keepdims=True)
        if a.zero_rows:
            total = np.where(total == 0, 1, total)
        return np.matmul(e / total, vs).astype(q.dtype)


def _flops(types: Sequence[TensorType], a: AttentionAttrs) -> Any:
    q, k, v = types[:3]
    return d.mul(d.product((*q.shape[:3], k.shape[2], d.add(q.shape[3], v.shape[3]))), 2)


OPS.add(
    "Attention",
    Op("Attention", Kind.ATTENTION, infer_attention, attention_array, AttentionAttrs, arity=(3, 4), tolerance=4.0, flops=_flops,
       doc="softmax(scale q k^T + mask) v on (batch, heads, length, size); keys and values may have fewer heads; "
           "the mask is additive, or bool (True keeps)"),
)  # fmt: skip
