"""Attention over batches without padding: the tokens of all sequences stand one behind the other."""

from __future__ import annotations

from aitc.ir import dim as d
from aitc.ir.dim import Dim
from aitc.ir.dtype import I32, I64
from aitc.ir.graph import Value
from aitc.ops import declare
from aitc.ops.attend import MS, attend, combine, join_heads, padding_mask, split_heads
from aitc.ops.attribute import Counts, Finite, Positive
from aitc.ops.contract import matmul
from aitc.ops.declare import Scope, cast, onnx_op


def restored(b: Scope, x: Value, places: Value, count: Dim) -> Value:
    """Rows [T, W] put at ``places`` [T] among ``count`` rows, the others 0."""
    empty = b.op("Fill", value=0.0, shape=(count, x.shape[1]), dtype=x.type.dtype)
    return b.op("ScatterND", empty, declare.unsqueeze(b, places, (1,)), x, reduction="none")


def _attended(
    b: Scope, parts: tuple[Value, Value, Value], heads: int, token_offset: Value, ends: Value, bias: Value | None,
    scale: float,
) -> Value:  # fmt: skip
    """Attention of rows [T, W] within each sequence. ``token_offset`` [B, S] says where the rows stand with padding (those of
    the T tokens come first), ``ends`` [B + 1] how many rows the sequences before have."""
    batch, length = token_offset.shape
    tokens, room = parts[0].shape[0], d.mul(batch, length)
    flat = declare.reshape(b, cast(b, token_offset, I64), (room,))
    places = declare.slice_axis(b, flat, 0, 0, tokens)
    q, k, v = (
        split_heads(b, declare.reshape(b, restored(b, p, places, room), (batch, length, p.shape[1])), heads) for p in parts
    )
    after, before = (declare.slice_axis(b, ends, 0, start, batch) for start in (1, 0))
    allowed = padding_mask(b, b.op("Sub", after, before), batch, length, length)
    y = join_heads(b, attend(b, q, k, v, combine(b, bias, allowed, q), scale))
    return b.op("Gather", declare.reshape(b, y, (room, y.shape[2])), places, axis=0)


def _thirds(b: Scope, joined: Value, sizes: tuple[Dim, Dim, Dim]) -> tuple[Value, Value, Value]:
    first, second, third = sizes
    return (
        declare.slice_axis(b, joined, joined.type.rank - 1, 0, first),
        declare.slice_axis(b, joined, joined.type.rank - 1, first, second),
        declare.slice_axis(b, joined, joined.type.rank - 1, d.add(first, second), third),
    )


@onnx_op("PackedMultiHeadAttention", domain=MS)
def packed_multi_head_attention(
    b: Scope, query: Value, key: Value | None, value: Value | None, bias: Value | None, token_offset: Value,
    cumulative_sequence_length: Value, attention_bias: Value | None = None, *, num_heads: Positive,
    mask_filter_value: Finite = -10000.0, scale: Finite = 0.0,
) -> Value:  # fmt: skip
    if query.type.rank == 4:  # [T, H, 3, D]
        tokens, heads, _, size = query.shape
        width = d.mul(heads, size)
        query, key, value = (
            declare.reshape(b, declare.slice_axis(b, query, 2, i, 1), (tokens, width)) for i in range(3)
        )
    if key is None or value is None:
        raise ValueError(f"key and value are needed beside a query of {query.type}")
    parts = (query, key, value)
    if bias is not None:
        shifts = _thirds(b, bias, (query.shape[1], key.shape[1], value.shape[1]))
        query, key, value = (b.op("Add", p, s) for p, s in zip(parts, shifts))
        parts = (query, key, value)
    return _attended(b, parts, num_heads, token_offset, cumulative_sequence_length, attention_bias, scale)


@onnx_op("PackedAttention", domain=MS)
def packed_attention(
    b: Scope, x: Value, weights: Value, bias: Value, token_offset: Value, cumulative_sequence_length: Value,
    attention_bias: Value | None = None, *, num_heads: Positive, qkv_hidden_sizes: Counts | None = None,
    scale: Finite = 0.0,
) -> Value:  # fmt: skip
    third = d.floordiv(weights.shape[1], 3)
    sizes: tuple[Dim, ...] = qkv_hidden_sizes or (third, third, third)
    if len(sizes) != 3:
        raise ValueError(f"attribute qkv_hidden_sizes is {list(sizes)}, and must have three entries")
    joined = b.op("Add", matmul(b, x, weights), bias)
    parts = _thirds(b, joined, (sizes[0], sizes[1], sizes[2]))
    return _attended(b, parts, num_heads, token_offset, cumulative_sequence_length, attention_bias, scale)


@onnx_op("RestorePadding", domain=MS)
def restore_padding(b: Scope, x: Value, token_offset: Value) -> Value:
    batch, length = token_offset.shape
    room = d.mul(batch, length)
    flat = declare.reshape(b, cast(b, token_offset, I64), (room,))
    places = declare.slice_axis(b, flat, 0, 0, x.shape[0])
    return declare.reshape(b, restored(b, x, places, room), (batch, length, x.shape[1]))


@onnx_op("RemovePadding", domain=MS)
def remove_padding(b: Scope, x: Value, counts: Value) -> tuple[Value, ...]:
    """The rows of x [B, S, W] that are tokens, where they stood (those first, then the padding), how many rows the sequences
    before have, and how many the longest has."""
    batch, length, width = x.shape
    room = d.mul(batch, length)
    lengths = cast(b, counts, I64)
    places = b.op("Range", start=0, step=1, size=length)
    valid = declare.reshape(b, b.op("Less", places, declare.reshape(b, lengths, (batch, 1))), (room,))
    keep = cast(b, valid, I64)
    ends = b.op("CumSum", lengths, axis=0, exclusive=False, reverse=False, function="sum")
    total = b.op("Reduce", lengths, function="sum", axes=(0,), keepdims=True)
    (tokens,) = b.dims(total, "the number of tokens")
    one = b.constant(1, I64.numpy)
    rank = b.op("Sub", b.op("CumSum", keep, axis=0, exclusive=False, reverse=False, function="sum"), one)
    place = b.op("Range", start=0, step=1, size=room)
    behind = b.op("Sub", b.op("Add", place, b.op("Sub", total, rank)), one)
    target = b.op("Where", valid, rank, behind)
    order = b.op(
        "ScatterElements", b.op("Fill", value=0, shape=(room,), dtype=I64), target, place, axis=0, reduction="none"
    )
    rows = b.op("Gather", declare.reshape(b, x, (room, width)), declare.slice_axis(b, order, 0, 0, tokens), axis=0)
    zero = b.constant([0], I64.numpy)
    longest = b.op("Reduce", lengths, function="max", axes=(0,), keepdims=True)
    return (
        rows,
        cast(b, declare.reshape(b, order, (batch, length)), I32),
        cast(b, b.op("Concat", zero, ends, axis=0), I32),
        cast(b, longest, I32),
    )
