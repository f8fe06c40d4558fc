"""Det: determinants of small matrices."""

from __future__ import annotations

from itertools import combinations

from aitc.ir.graph import Value
from aitc.ops import declare
from aitc.ops.declare import Scope, Unsupported, onnx_op


@onnx_op("Det")
def det(b: Scope, x: Value) -> Value:
    """The determinant of the last two axes, by expansion along rows: n 2^(n - 1) products."""
    n = x.shape[-1]
    if x.type.rank < 2 or not isinstance(n, int) or x.shape[-2] != n:
        raise ValueError(f"square matrices of known size needed, got {x.type}")
    if n > 8:
        raise Unsupported(f"the determinant of {n} x {n} matrices; at most 8 x 8")

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
