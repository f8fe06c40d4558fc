"""Determinants and inverses of small matrices."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from aitc.ir.graph import Value
from aitc.ops import declare
from aitc.ops.declare import Scope, Unsupported, cast, onnx_op
from aitc.ops.normalize import stash

MOST_INVERTED = 32  # rows; each is a few launches


def _square(x: Value) -> int:
    """The rows of the matrices. Raises ValueError if they are not square and of known size."""
    n = x.shape[-1] if x.type.rank > 1 else None
    if not isinstance(n, int) or x.shape[-2] != n:
        raise ValueError(f"square matrices of known size needed, got {x.type}")
    return n


@onnx_op("Det")
def det(b: Scope, x: Value) -> Value:
    """The determinant of the last two axes, by expansion along rows: n 2^(n - 1) products."""
    n = _square(x)
    if n > 8:
        raise Unsupported(f"the determinant of {n} x {n} matrices; at most 8 x 8", "factor it before the export")

    def entry(i: int, j: int) -> Value:
        part = declare.slice_axis(b, declare.slice_axis(b, x, x.type.rank - 2, i, 1), x.type.rank - 1, j, 1)
        return declare.reshape(b, part, x.shape[:-2])

    minors: dict[tuple[int, ...], Value | None] = {(): None}  # of the last rows, by their columns
    for i in reversed(range(n)):
        grown: dict[tuple[int, ...], Value | None] = {}
        for columns in combinations(range(n), n - i):
            total: Value | None = None
            for k, j in enumerate(columns):
                rest = minors[columns[:k] + columns[k + 1 :]]
                term = entry(i, j) if rest is None else b.op("Mul", entry(i, j), rest)
                total = term if total is None else b.op("Sub" if k % 2 else "Add", total, term)
            grown[columns] = total
        minors = grown
    result = minors[tuple(range(n))]
    return b.like(1, x) if result is None else result


@onnx_op("Inverse", domain="com.microsoft")
def inverse(b: Scope, x: Value) -> Value:
    """Gauss-Jordan elimination of [X, 1] with the largest pivot of each column, in float32 where x is narrower."""
    n, rank = _square(x), x.type.rank
    if n > MOST_INVERTED:
        raise Unsupported(f"the inverse of {n} x {n} matrices; at most {MOST_INVERTED} x {MOST_INVERTED}", "invert them before the export")
    work = cast(b, x, stash(x.type.dtype, 1))
    unit = b.constant(np.eye(n).astype(work.type.dtype.numpy))
    work = b.op("Concat", work, declare.expand(b, unit, x.shape), axis=rank - 1)
    rows = b.constant(np.arange(n).reshape(n, 1))
    for i in range(n):
        column = b.op("Abs", declare.slice_axis(b, work, rank - 1, i, 1))
        column = b.op("Where", b.constant(np.arange(n).reshape(n, 1) >= i), column, b.like(-1, column))
        best = b.op("ArgReduce", column, function="max", axis=rank - 2, keepdims=True)
        is_best = b.op("Equal", rows, best)
        chosen = b.op("Where", is_best, work, b.like(0, work))
        pivot = b.op("Reduce", chosen, function="sum", axes=(rank - 2,), keepdims=True)
        pivot = b.op("Div", pivot, declare.slice_axis(b, pivot, rank - 1, i, 1))
        work = b.op("Where", is_best, declare.slice_axis(b, work, rank - 2, i, 1), work)
        rest = b.op("Sub", work, b.op("Mul", declare.slice_axis(b, work, rank - 1, i, 1), pivot))
        work = b.op("Where", b.constant(np.arange(n).reshape(n, 1) == i), pivot, rest)
    return cast(b, declare.slice_axis(b, work, rank - 1, n, n), x.type.dtype)
