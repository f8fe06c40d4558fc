"""Sequences and optionals whose length or presence is known at compile time: they exist at import only, as tuples of
Values."""

from __future__ import annotations

from typing import Any

import numpy as np

from aitc.ir.dim import Dim
from aitc.ir.graph import Value
from aitc.ops import declare
from aitc.ops.declare import OptionalValue, Scope, SequenceValue, Unsupported, ints, normalize_axis, onnx_op, scalar
from aitc.ops.view import split_axis


def sequence(v: Any, what: str = "the input") -> SequenceValue:
    if isinstance(v, OptionalValue) and isinstance(v.item, SequenceValue):
        return v.item
    if not isinstance(v, SequenceValue):
        raise ValueError(f"{what} must be a sequence")
    return v


@onnx_op("SequenceConstruct")
def sequence_construct(b: Scope, *values: Value) -> SequenceValue:
    return SequenceValue(values)


@onnx_op("SequenceEmpty")
def sequence_empty(b: Scope, *, dtype: int = 1) -> SequenceValue:
    return SequenceValue(())


def _place(position: Value | None, length: int, what: str, last: int) -> int:
    if position is None:
        return length
    at = int(scalar(position, what))
    if not -length <= at <= last:
        raise ValueError(f"{what} {at} is outside of a sequence of {length}")
    return at + length if at < 0 else at


@onnx_op("SequenceAt")
def sequence_at(b: Scope, values: SequenceValue, position: Value) -> Any:
    items = sequence(values).items
    return items[_place(position, len(items), "position", len(items) - 1)]


@onnx_op("SequenceInsert")
def sequence_insert(b: Scope, values: SequenceValue, tensor: Value, position: Value | None = None) -> SequenceValue:
    items = sequence(values).items
    at = _place(position, len(items), "position", len(items))
    return SequenceValue((*items[:at], tensor, *items[at:]))


@onnx_op("SequenceErase")
def sequence_erase(b: Scope, values: SequenceValue, position: Value | None = None) -> SequenceValue:
    items = sequence(values).items
    if not items:
        raise ValueError("the sequence is empty")
    at = len(items) - 1 if position is None else _place(position, len(items), "position", len(items) - 1)
    return SequenceValue((*items[:at], *items[at + 1 :]))


@onnx_op("SequenceLength")
def sequence_length(b: Scope, values: SequenceValue) -> Value:
    return b.constant(len(sequence(values).items), np.int64)


@onnx_op("SplitToSequence")
def split_to_sequence(
    b: Scope, x: Value, split: Value | None = None, *, axis: int = 0, keepdims: int = 1
) -> SequenceValue:
    axis = normalize_axis(axis, x.type.rank)
    size = x.shape[axis]
    sizes: list[Dim]
    if split is None or not split.type.rank:
        if not isinstance(size, int):
            raise Unsupported(
                f"a sequence of {size} tensors: its length must be known at compile time",
                declare.binding(size),
            )
        chunk = 1 if split is None else int(scalar(split, "split"))
        if chunk <= 0:
            raise ValueError(f"split {chunk}")
        sizes = [min(chunk, size - start) for start in range(0, size, chunk)]
    else:
        sizes = list(ints(split, "split"))
    parts = split_axis(b, x, axis, sizes)
    if split is None and not keepdims:
        parts = tuple(declare.reshape(b, p, (s for i, s in enumerate(p.shape) if i != axis)) for p in parts)
    return SequenceValue(parts)


@onnx_op("ConcatFromSequence")
def concat_from_sequence(b: Scope, values: SequenceValue, *, axis: int, new_axis: int = 0) -> Value:
    items = sequence(values).items
    if not items:
        raise ValueError("the sequence is empty")
    if new_axis:
        axis = normalize_axis(axis, items[0].type.rank + 1)
        items = tuple(declare.unsqueeze(b, v, (axis,)) for v in items)
    else:
        axis = normalize_axis(axis, items[0].type.rank)
    return items[0] if len(items) == 1 else b.op("Concat", *items, axis=axis)


@onnx_op("SequenceMap")
def sequence_map(b: Scope, values: SequenceValue, *others: Any, body: Any) -> tuple[SequenceValue, ...]:
    items = sequence(values).items
    rows = [
        b.inline(body, [item, *(o.items[i] if isinstance(o, SequenceValue) else o for o in others)], f"body[{i}]")
        for i, item in enumerate(items)
    ]
    if not rows:
        return tuple(SequenceValue(()) for _ in body.output)
    return tuple(SequenceValue(tuple(column)) for column in zip(*rows))


@onnx_op("Optional")
def optional(b: Scope, value: Any = None, *, type: Any = None) -> OptionalValue:
    return OptionalValue(value)


@onnx_op("OptionalHasElement")
def optional_has_element(b: Scope, value: Any = None) -> Value:
    there = value is not None and not (isinstance(value, OptionalValue) and value.item is None)
    return b.constant(there, np.bool_)


@onnx_op("OptionalGetElement")
def optional_get_element(b: Scope, value: Any) -> Any:
    if not isinstance(value, OptionalValue):
        return value
    if value.item is None:
        raise ValueError("the optional is empty")
    return value.item
