"""The attention operators of ONNX and com.microsoft, made of the core op Attention with the masks that they
describe."""

from __future__ import annotations

import math

import numpy as np

from aitc.ir import dim as d
from aitc.ir.dim import Dim
from aitc.ir.dtype import BOOL, I64
from aitc.ir.graph import Value
from aitc.ops import declare
from aitc.ops.attribute import Count, Finite, Positive, Window
from aitc.ops.contract import matmul
from aitc.ops.declare import Scope, Unsupported, UseBody, cast, onnx_op, refuse, transpose
from aitc.ops.sample import size_of

MS = "com.microsoft"


def split_heads(b: Scope, x: Value, heads: int) -> Value:
    """[B, S, H D] as [B, H, S, D]."""
    batch, length, width = x.shape
    return transpose(b, declare.reshape(b, x, (batch, length, heads, d.floordiv(width, heads))), (0, 2, 1, 3))


def join_heads(b: Scope, x: Value) -> Value:
    """[B, H, S, D] as [B, S, H D]."""
    batch, heads, length, size = x.shape
    return declare.reshape(b, transpose(b, x, (0, 2, 1, 3)), (batch, length, d.mul(heads, size)))


def places(b: Scope, count: Dim, rank: int, axis: int) -> Value:
    """0, 1, 2 ... along ``axis`` of ``rank``."""
    return declare.reshape(
        b, b.op("Range", start=0, step=1, size=count), tuple(count if i == axis else 1 for i in range(rank))
    )


def both(b: Scope, x: Value | None, y: Value | None) -> Value | None:
    """The conjunction of masks, of which either may be absent."""
    return x if y is None else y if x is None else b.op("And", x, y)


def combine(b: Scope, mask: Value | None, allowed: Value | None, like: Value) -> Value | None:
    """One mask of an additive or bool ``mask`` and of what is ``allowed`` besides."""
    if mask is None or allowed is None:
        return allowed if mask is None else mask
    if mask.type.dtype is BOOL:
        return b.op("And", mask, allowed)
    return b.op("Where", allowed, mask, b.like(-math.inf, like))


def attend(
    b: Scope,
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None,
    scale: float | None,
    causal: bool = False,
    softcap: Finite = 0.0,
) -> Value:
    """Attention on [B, H, S, D]; rows that see no key are 0. ``causal`` is the core op's: the last query sees
    all keys."""
    size = q.shape[-1]
    if not scale and isinstance(size, int):
        scale = 1 / math.sqrt(size)
    elif not scale:
        q, scale = b.op("Mul", q, b.op("Rsqrt", size_of(b, size, q.type.dtype))), 1.0
    if mask is not None and mask.type.rank < 4:
        mask = declare.reshape(b, mask, (*([1] * (4 - mask.type.rank)), *mask.shape))
    if mask is not None and mask.type.dtype is not BOOL:
        mask = cast(b, mask, q.type.dtype)
    return b.op(
        "Attention",
        q,
        k,
        v,
        *([] if mask is None else [mask]),
        scale=float(scale),
        causal=causal,
        softcap=float(softcap),
        zero_rows=mask is not None,
    )


@onnx_op("Attention")
def attention(
    b: Scope, q: Value, k: Value, v: Value, attn_mask: Value | None = None, past_key: Value | None = None,
    past_value: Value | None = None, nonpad_kv_seqlen: Value | None = None, *, is_causal: int = 0,
    kv_num_heads: Positive | None = None, q_num_heads: Positive | None = None, qk_matmul_output_mode: int = 0,
    scale: Finite | None = None, softcap: Finite = 0.0, softmax_precision: int | None = None, left_window_size: Window = -1,
    right_window_size: Window = -1,
) -> tuple[Value | None, ...]:  # fmt: skip
    if b.wants(3):
        raise UseBody
    flat = q.type.rank == 3
    if flat:
        if not q_num_heads or not kv_num_heads:
            raise ValueError("q_num_heads and kv_num_heads are needed where the inputs have rank 3")
        q, k, v = split_heads(b, q, q_num_heads), split_heads(b, k, kv_num_heads), split_heads(b, v, kv_num_heads)
    past: Dim = 0
    fresh = k.shape[2]
    if past_key is not None and past_value is not None:
        past = past_key.shape[2]
        k, v = b.op("Concat", past_key, k, axis=2), b.op("Concat", past_value, v, axis=2)
    queries, keys = q.shape[2], k.shape[2]
    allowed: Value | None = None
    causal = bool(is_causal)
    offset: Value | None = None  # of the first query among the keys, [B, 1, 1, 1], where it is not ``past``
    if nonpad_kv_seqlen is not None:
        valid = declare.reshape(b, cast(b, nonpad_kv_seqlen, I64), (nonpad_kv_seqlen.shape[0], 1, 1, 1))
        allowed = b.op("Less", places(b, keys, 4, 3), valid)
        offset = b.op("Sub", valid, b.op("Dims", content=(queries,), shape=()))
    if (causal and (offset is not None or fresh != queries)) or left_window_size >= 0 or right_window_size >= 0:
        at = b.op(
            "Add", places(b, queries, 4, 2), b.op("Dims", content=(past,), shape=()) if offset is None else offset
        )
        behind = b.op("Sub", at, places(b, keys, 4, 3))  # how far the key lies before the query
        if causal and (offset is not None or fresh != queries):
            allowed, causal = both(b, allowed, b.op("GreaterOrEqual", behind, b.constant(0, np.int64))), False
        if left_window_size >= 0:
            allowed = both(b, allowed, b.op("LessOrEqual", behind, b.constant(left_window_size, np.int64)))
        if right_window_size >= 0:
            allowed = both(b, allowed, b.op("GreaterOrEqual", behind, b.constant(-right_window_size, np.int64)))
    if attn_mask is not None:
        attn_mask = _filled(b, attn_mask, keys, nonpad_kv_seqlen is not None)
    y = attend(b, q, k, v, combine(b, attn_mask, allowed, q), scale, causal, softcap)
    return (join_heads(b, y) if flat else y), k if b.wants(1) else None, v if b.wants(2) else None


def _filled(b: Scope, mask: Value, keys: Dim, padded: bool) -> Value:
    """A mask shorter than the keys, filled up with "no". Sizes of different names are taken for equal, unless
    the keys are ``padded``."""
    have = mask.shape[-1]
    if have == keys or have == 1 or not (padded or (isinstance(have, int) and isinstance(keys, int))):
        return mask
    filler = b.constant(False, np.bool_) if mask.type.dtype is BOOL else b.like(-math.inf, mask)
    rank = mask.type.rank
    return b.op("Pad", mask, filler, pads=(*([0] * (2 * rank - 1)), d.add(keys, d.mul(have, -1))), mode="constant")


# --- com.microsoft ----------------------------------------------------------------------------------------------------


def padding_mask(b: Scope, mask: Value | None, batch: Dim, queries: Dim, keys: Dim) -> Value | None:
    """onnxruntime's integer masks: [B] lengths, [B, T] or [B, S, T] of 0 and 1, as bool (True keeps)."""
    if mask is None:
        return None
    if mask.type.rank == 1:
        if mask.shape[0] != batch:
            raise Unsupported(f"a mask of shape {mask.type}", "give lengths [B], or 0 and 1 of shape [B, T] or [B, S, T]")
        lengths = declare.reshape(b, cast(b, mask, I64), (batch, 1, 1, 1))
        return b.op("Less", places(b, keys, 4, 3), lengths)
    keep = cast(b, mask, BOOL)
    if mask.type.rank == 2:
        return declare.reshape(b, keep, (mask.shape[0], 1, 1, mask.shape[1]))
    if mask.type.rank == 3:
        return declare.unsqueeze(b, keep, (1,))
    return keep


def _causal_mask(b: Scope, queries: Dim, keys: Dim) -> Value:
    last = b.op("Add", places(b, queries, 4, 2), b.op("Dims", content=(d.add(keys, d.mul(queries, -1)),), shape=()))
    return b.op("LessOrEqual", places(b, keys, 4, 3), last)


@onnx_op("MultiHeadAttention", domain=MS)
def multi_head_attention(
    b: Scope, query: Value, key: Value | None = None, value: Value | None = None, bias: Value | None = None,
    key_padding_mask: Value | None = None, attention_bias: Value | None = None, past_key: Value | None = None,
    past_value: Value | None = None, *, num_heads: Positive, mask_filter_value: Finite = -10000.0, scale: Finite = 0.0,
    unidirectional: int = 0,
) -> tuple[Value | None, ...]:  # fmt: skip
    if query.type.rank == 5:  # packed (B, S, H, 3, D)
        parts = [declare.slice_axis(b, query, 3, i, 1) for i in range(3)]
        batch, length, heads, _, size = query.shape
        query, key, value = (declare.reshape(b, p, (batch, length, d.mul(heads, size))) for p in parts)
    if key is None:
        raise Unsupported(f"no key beside a query of {query.type}", "pack query, key and value as [B, S, H, 3, D], or give all three")
    if value is None and key.type.rank == 5:  # packed (B, T, H, 2, D)
        batch, length, heads, _, size = key.shape
        key, value = (
            declare.reshape(b, declare.slice_axis(b, key, 3, i, 1), (batch, length, d.mul(heads, size)))
            for i in range(2)
        )
    assert value is not None
    if bias is not None:
        sizes = (query.shape[-1], key.shape[-1] if key.type.rank == 3 else query.shape[-1])
        rest = d.add(bias.shape[0], d.mul(d.add(*sizes), -1))
        query = b.op("Add", query, declare.slice_axis(b, bias, 0, 0, sizes[0]))
        if key.type.rank == 3:
            key = b.op("Add", key, declare.slice_axis(b, bias, 0, sizes[0], sizes[1]))
            value = b.op("Add", value, declare.slice_axis(b, bias, 0, d.add(*sizes), rest))
    q = split_heads(b, query, num_heads)
    k = split_heads(b, key, num_heads) if key.type.rank == 3 else key
    v = split_heads(b, value, num_heads) if value.type.rank == 3 else value
    if past_key is not None and past_value is not None:
        k, v = b.op("Concat", past_key, k, axis=2), b.op("Concat", past_value, v, axis=2)
    allowed = padding_mask(b, key_padding_mask, q.shape[0], q.shape[2], k.shape[2])
    y = attend(b, q, k, v, combine(b, attention_bias, allowed, q), scale, bool(unidirectional))
    return join_heads(b, y), k, v


@onnx_op("Attention", domain=MS)
def attention_ms(
    b: Scope, x: Value, weights: Value, bias: Value | None = None, mask_index: Value | None = None,
    past: Value | None = None, attention_bias: Value | None = None, past_sequence_length: Value | None = None, *,
    num_heads: Positive, do_rotary: int = 0, mask_filter_value: Finite = -10000.0, past_present_share_buffer: int = 0,
    qkv_hidden_sizes: tuple[int, ...] | None = None, rotary_embedding_dim: int = 0, scale: Finite = 0.0,
    unidirectional: int = 0,
) -> tuple[Value | None, ...]:  # fmt: skip
    refuse(
        "export with RotaryEmbedding and with a past that grows", do_rotary=do_rotary, past_present_share_buffer=past_present_share_buffer
    )
    third = d.floordiv(weights.shape[1], 3)
    sizes: tuple[Dim, ...] = tuple(qkv_hidden_sizes) if qkv_hidden_sizes else (third, third, third)
    joined = matmul(b, x, weights)
    if bias is not None:
        joined = b.op("Add", joined, bias)
    parts, start = [], 0  # type: tuple[list[Value], Dim]
    for size in sizes:
        parts.append(split_heads(b, declare.slice_axis(b, joined, 2, start, size), num_heads))
        start = d.add(start, size)
    q, k, v = parts
    if past is not None:
        older = [declare.reshape(b, declare.slice_axis(b, past, 0, i, 1), past.shape[1:]) for i in range(2)]
        k, v = b.op("Concat", older[0], k, axis=2), b.op("Concat", older[1], v, axis=2)
    allowed = padding_mask(b, mask_index, q.shape[0], q.shape[2], k.shape[2])
    y = attend(b, q, k, v, combine(b, attention_bias, allowed, q), scale, bool(unidirectional))
    present = None
    if b.wants(1):
        present = b.op("Concat", declare.unsqueeze(b, k, (0,)), declare.unsqueeze(b, v, (0,)), axis=0)
    return join_heads(b, y), present


def rotate(b: Scope, x: Value, cosine: Value, sine: Value, interleaved: bool) -> Value:
    """Rotary embedding of x [B, H, S, D]; cosine and sine broadcast to [B, H, S, R / 2], R <= D: what is beyond
    R stays."""
    half = cosine.shape[-1]
    width, full = d.mul(half, 2), x.shape[-1]
    head = declare.slice_axis(b, x, 3, 0, width)
    if interleaved:
        pairs = declare.reshape(b, head, (*x.shape[:3], half, 2))
        first, second = (
            declare.reshape(b, declare.slice_axis(b, pairs, 4, i, 1), (*x.shape[:3], half)) for i in range(2)
        )
    else:
        first, second = declare.slice_axis(b, head, 3, 0, half), declare.slice_axis(b, head, 3, half, half)
    real = b.op("Sub", b.op("Mul", first, cosine), b.op("Mul", second, sine))
    imaginary = b.op("Add", b.op("Mul", first, sine), b.op("Mul", second, cosine))
    if interleaved:
        y = b.op("Concat", declare.unsqueeze(b, real, (4,)), declare.unsqueeze(b, imaginary, (4,)), axis=4)
        y = declare.reshape(b, y, (*x.shape[:3], width))
    else:
        y = b.op("Concat", real, imaginary, axis=3)
    if width == full:
        return y
    return b.op("Concat", y, declare.slice_axis(b, x, 3, width, d.add(full, d.mul(width, -1))), axis=3)


def angles_at(b: Scope, cache: Value, positions: Value) -> Value:
    """Rows of a cache [max, R / 2] at positions [B or 1, S]: [B or 1, 1, S, R / 2]."""
    return declare.unsqueeze(b, b.op("Gather", cache, positions, axis=0), (1,))


@onnx_op("RotaryEmbedding", domain=MS)
def rotary_embedding_ms(
    b: Scope, x: Value, position_ids: Value, cos_cache: Value, sin_cache: Value, *, interleaved: int = 0,
    is_packed_batching: int = 0, num_heads: Count = 0, rotary_embedding_dim: int = 0, scale: Finite = 1.0,
) -> Value:  # fmt: skip
    refuse("export without them: batches with padding, scale = 1", is_packed_batching=is_packed_batching, scale=scale if scale != 1 else None)
    flat = x.type.rank == 3
    if flat:
        half = cos_cache.shape[1]
        if num_heads:
            heads: Dim = num_heads
        elif rotary_embedding_dim:
            raise ValueError("num_heads is needed with rotary_embedding_dim")
        else:
            heads = d.floordiv(x.shape[2], d.mul(half, 2))
        batch, length, width = x.shape
        y = transpose(b, declare.reshape(b, x, (batch, length, heads, d.floordiv(width, heads))), (0, 2, 1, 3))
    else:
        y = x
    if position_ids.type.elems == 1:  # one offset for all
        positions = b.op("Add", places(b, y.shape[2], 2, 1), declare.reshape(b, cast(b, position_ids, I64), (1, 1)))
    else:
        positions = position_ids
    y = rotate(b, y, angles_at(b, cos_cache, positions), angles_at(b, sin_cache, positions), bool(interleaved))
    return join_heads(b, y) if flat else y


@onnx_op("GroupQueryAttention", domain=MS)
def group_query_attention(
    b: Scope, query: Value, key: Value | None = None, value: Value | None = None, past_key: Value | None = None,
    past_value: Value | None = None, seqlens_k: Value | None = None, total_sequence_length: Value | None = None,
    cos_cache: Value | None = None, sin_cache: Value | None = None, position_ids: Value | None = None,
    attention_bias: Value | None = None, head_sink: Value | None = None, *, num_heads: Positive, kv_num_heads: Positive,
    do_rotary: int = 0, local_window_size: Window = -1, rotary_interleaved: int = 0, scale: Finite = 0.0,
    smooth_softmax: int = 0, softcap: Finite = 0.0, qk_output: int = 0,
) -> tuple[Value | None, ...]:  # fmt: skip
    """New keys are written behind each batch's own past; the cache is as long as the past buffer, or as the
    total length if that is longer."""
    refuse(
        "export without them, or with Attention of ONNX", smooth_softmax=max(smooth_softmax, 0), head_sink=head_sink, qk_output=qk_output
    )
    if seqlens_k is None or total_sequence_length is None:
        raise ValueError("seqlens_k and total_sequence_length are needed")
    if key is None or value is None:
        size = d.floordiv(query.shape[2], num_heads + 2 * kv_num_heads)
        widths = [d.mul(size, n) for n in (num_heads, kv_num_heads, kv_num_heads)]
        key = declare.slice_axis(b, query, 2, widths[0], widths[1])
        value = declare.slice_axis(b, query, 2, d.add(widths[0], widths[1]), widths[2])
        query = declare.slice_axis(b, query, 2, 0, widths[0])
    q, k, v = split_heads(b, query, num_heads), split_heads(b, key, kv_num_heads), split_heads(b, value, kv_num_heads)
    batch, length = q.shape[0], q.shape[2]
    count = b.op("Dims", content=(length,), shape=())
    total = b.op("Add", cast(b, declare.reshape(b, seqlens_k, (batch, 1)), I64), b.constant(1, np.int64))
    before = b.op("Sub", total, count)  # how many keys each batch has already, [B, 1]
    before = b.op("Max", before, b.constant(0, np.int64))
    positions = b.op("Add", before, places(b, length, 2, 1))  # [B, S]
    if do_rotary:
        if cos_cache is None or sin_cache is None:
            raise ValueError("do_rotary without cos_cache and sin_cache")
        turn = positions if position_ids is None else position_ids
        cosine, sine = angles_at(b, cos_cache, turn), angles_at(b, sin_cache, turn)
        q, k = (
            rotate(b, q, cosine, sine, bool(rotary_interleaved)),
            rotate(b, k, cosine, sine, bool(rotary_interleaved)),
        )
    if past_key is not None and past_value is not None:
        (wanted,) = b.dims(declare.reshape(b, total_sequence_length, (1,)), "total_sequence_length", lo=1)
        room = d.max_(past_key.shape[2], wanted)
        k, v = (_written(b, old, new, positions, room) for old, new in ((past_key, k), (past_value, v)))
    at = declare.reshape(b, positions, (batch, 1, length, 1))
    behind = b.op("Sub", at, places(b, k.shape[2], 4, 3))
    allowed = b.op("GreaterOrEqual", behind, b.constant(0, np.int64))
    if local_window_size > 0:
        allowed = b.op("And", allowed, b.op("Less", behind, b.constant(local_window_size, np.int64)))
    y = attend(b, q, k, v, combine(b, attention_bias, allowed, q), scale, False, softcap)
    return join_heads(b, y), k, v


def _written(b: Scope, old: Value, new: Value, positions: Value, room: Dim) -> Value:
    """The cache [B, H, room, D] with ``new`` [B, H, S, D] at each batch's positions [B, S]."""
    more = d.add(room, d.mul(old.shape[2], -1))
    cache = old if more == 0 else b.op("Pad", old, b.like(0, old), pads=(0, 0, 0, 0, 0, 0, more, 0), mode="constant")
    where = declare.reshape(b, positions, (new.shape[0], 1, new.shape[2], 1))
    return b.op("ScatterElements", cache, declare.expand(b, where, new.shape), new, axis=2, reduction="none")
