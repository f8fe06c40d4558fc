"""Shape arithmetic that only the data decides: done by small integer tensors when the model runs, and read back with
one ReadDims.

Each function gives the Dims that its caller needs; they are fresh symbols, defined by the ReadDims node.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aitc.ir.dim import Dim
from aitc.ir.dtype import I64
from aitc.ir.graph import Value
from aitc.ops import declare
from aitc.ops.declare import Scope, Unsupported, cast, normalize_axis, numbers


def vector(b: Scope, dims: Sequence[Dim]) -> Value:
    """An int64 vector of Dims."""
    return b.op("Dims", content=tuple(dims), shape=(len(dims),))


def integers(b: Scope, v: Value) -> Value:
    """``v`` as an int64 vector."""
    return declare.reshape(b, cast(b, v, I64), (v.type.elems,))


def length(v: Value, what: str) -> int:
    """How many elements ``v`` has: the rank of a result depends on it. Raises Unsupported if that is a symbol."""
    n = v.type.elems
    if not isinstance(n, int):
        raise Unsupported(f"{what} come from the data and are {n} of them, so the rank of the result is not known", declare.binding(n))
    return n


def number(b: Scope, n: int) -> Value:
    return b.constant(n, np.int64)


def read(b: Scope, *vectors: Value, lo: int = 0) -> list[tuple[Dim, ...]]:
    """The elements of int64 vectors, as Dims of at least ``lo``: one ReadDims for all."""
    joined = vectors[0] if len(vectors) == 1 else b.op("Concat", *vectors, axis=0)
    symbols = iter(b.dims(joined, "sizes", lo))
    return [tuple(next(symbols) for _ in range(int(v.type.elems))) for v in vectors]  # type: ignore[arg-type]


def positive(b: Scope, axes: Value, rank: int) -> Value:
    """Axes counted from the front, as an int64 vector."""
    axes = integers(b, axes)
    return b.op("Where", b.op("Less", axes, number(b, 0)), b.op("Add", axes, number(b, rank)), axes)


def is_axis(b: Scope, axes: Value, rank: int) -> Value:
    """For each of ``rank`` axes whether it is listed: a bool vector."""
    listed = declare.reshape(b, positive(b, axes, rank), (axes.type.elems, 1))
    return b.op("Reduce", b.op("Equal", listed, b.constant(np.arange(rank))), function="any", axes=(0,), keepdims=False)


def compact(b: Scope, values: Value, keep: Value, count: int) -> Value:
    """The ``count`` elements of a vector that a bool vector keeps, in order."""
    n = values.shape[0]
    order = b.op("CumSum", cast(b, keep, I64), axis=0, exclusive=False, reverse=False, function="sum")
    wanted = b.constant(np.arange(1, count + 1).reshape(count, 1))
    chosen = b.op("And", b.op("Equal", declare.reshape(b, order, (1, n)), wanted), declare.reshape(b, keep, (1, n)))
    return b.op(
        "Reduce",
        b.op("Where", chosen, declare.reshape(b, values, (1, n)), number(b, 0)),
        function="sum",
        axes=(1,),
        keepdims=False,
    )


def divide_up(b: Scope, x: Value, y: Value) -> Value:
    """ceil(x / y) for y > 0 and x > -y."""
    return b.op("Div", b.op("Sub", b.op("Add", x, y), number(b, 1)), y)


# --- what importers call ----------------------------------------------------------------------------------------------


def reduce(b: Scope, x: Value, function: str, axes: Value, keepdims: bool) -> Value:
    """A reduction over axes that the data names. Each axis of size s is seen as two, (kept, reduced): (1, s) if
    it is listed, else (s, 1)."""
    rank = x.type.rank
    count = 0 if keepdims else length(axes, "axes")
    listed = is_axis(b, axes, rank)
    sizes = vector(b, x.shape)
    kept, reduced = b.op("Where", listed, number(b, 1), sizes), b.op("Where", listed, sizes, number(b, 1))
    if keepdims:
        outer, inner = read(b, kept, reduced)
        final: tuple[Dim, ...] = outer
    else:
        outer, inner, final = read(b, kept, reduced, compact(b, sizes, b.op("Not", listed), rank - count))
    pairs = declare.reshape(b, x, (s for pair in zip(outer, inner) for s in pair))
    y = b.op("Reduce", pairs, function=function, axes=tuple(range(1, 2 * rank, 2)), keepdims=False)
    return declare.reshape(b, y, final)


def squeeze(b: Scope, x: Value, axes: Value) -> Value:
    count = length(axes, "axes")
    keep = b.op("Not", is_axis(b, axes, x.type.rank))
    (sizes,) = read(b, compact(b, vector(b, x.shape), keep, x.type.rank - count))
    return declare.reshape(b, x, sizes)


def unsqueeze(b: Scope, x: Value, axes: Value) -> Value:
    count = length(axes, "axes")
    rank = x.type.rank + count
    fresh = is_axis(b, axes, rank)
    order = b.op("CumSum", cast(b, b.op("Not", fresh), I64), axis=0, exclusive=True, reverse=False, function="sum")
    if not x.type.rank:
        return declare.reshape(b, x, (1,) * rank)
    place = b.op("Min", order, number(b, x.type.rank - 1))
    (sizes,) = read(b, b.op("Where", fresh, number(b, 1), b.op("Gather", vector(b, x.shape), place, axis=0)))
    return declare.reshape(b, x, sizes)


def around(b: Scope, x: Value, axis: Value) -> tuple[Dim, Dim, Dim]:
    """The sizes before, of and after an axis that the data names."""
    rank = x.type.rank
    where = positive(b, axis, rank)
    places, sizes, one = b.constant(np.arange(rank)), vector(b, x.shape), number(b, 1)

    def product(comparison: str) -> Value:
        chosen = b.op("Where", b.op(comparison, places, where), sizes, one)
        return b.op("Reduce", chosen, function="prod", axes=(0,), keepdims=True)

    (before,), (own,), (after,) = read(b, product("Less"), product("Equal"), product("Greater"))
    return before, own, after


def reshape(b: Scope, x: Value, shape: Value, allowzero: bool) -> Value:
    """Reshape to sizes that the data gives, 0 and -1 among them."""
    shape = integers(b, shape)
    rank = length(shape, "sizes")
    if not allowzero:
        own = vector(b, [x.shape[i] if i < x.type.rank else 1 for i in range(rank)])
        shape = b.op("Where", b.op("Equal", shape, number(b, 0)), own, shape)
    open_ = b.op("Equal", shape, number(b, -1))
    known = b.op("Reduce", b.op("Where", open_, number(b, 1), shape), function="prod", axes=(0,), keepdims=False)
    rest = b.op("Div", declare.reshape(b, vector(b, (x.type.elems,)), ()), b.op("Max", known, number(b, 1)))
    (sizes,) = read(b, b.op("Where", open_, rest, shape))
    return declare.reshape(b, x, sizes)


def expand(b: Scope, x: Value, shape: Value) -> Value:
    """Expand to sizes that the data gives; a 1 among them keeps the size of ``x``."""
    shape = integers(b, shape)
    rank = length(shape, "sizes")
    own = (*[1] * (rank - x.type.rank), *x.shape[max(0, x.type.rank - rank) :])
    (sizes,) = read(b, b.op("Where", b.op("Equal", shape, number(b, 1)), vector(b, own), shape))
    return declare.expand(b, x, (*x.shape[: max(0, x.type.rank - rank)], *sizes))


def spread(b: Scope, v: Value, axes: Value, others: Value) -> Value:
    """A vector with an entry for each axis: those of ``v`` where ``axes`` says, elsewhere those of ``others``."""
    rank = others.shape[0]
    assert isinstance(rank, int)
    return b.op("ScatterElements", others, positive(b, axes, rank), integers(b, v), axis=0, reduction="none")


def slice_(b: Scope, x: Value, starts: Value, ends: Value, axes: Value | None, steps: Value | None) -> Value:
    """start:end:step where the data decides any of them, or the axes."""
    rank = x.type.rank
    sizes, zero, one = vector(b, x.shape), number(b, 0), number(b, 1)
    axes = b.constant(np.arange(length(starts, "starts"))) if axes is None else axes
    ones = b.constant(np.ones(rank, np.int64))
    start = spread(b, starts, axes, b.constant(np.zeros(rank, np.int64)))
    end = spread(b, ends, axes, sizes)
    step = ones
    if steps is not None:  # beyond any size there is one element, and none of the arithmetic overflows
        far = 1 << 31
        step = b.op("Max", b.op("Min", spread(b, steps, axes, ones), number(b, far)), number(b, -far))
    forward = b.op("Greater", step, zero)
    top = b.op("Where", forward, sizes, b.op("Sub", sizes, one))
    bottom = b.op("Where", forward, zero, number(b, -1))
    start = b.op("Where", b.op("Less", start, zero), b.op("Add", start, sizes), start)
    start = b.op("Max", b.op("Min", start, top), zero)
    end = b.op("Where", b.op("Less", end, zero), b.op("Add", end, sizes), end)
    end = b.op("Max", b.op("Min", end, top), bottom)
    span = b.op("Where", forward, b.op("Sub", end, start), b.op("Sub", start, end))
    pace = b.op("Max", b.op("Abs", step), one)
    # start is the first place even where there is none, so an empty axis would count one going backwards
    many = b.op("Min", divide_up(b, b.op("Max", span, zero), pace), sizes)
    known_axes, known_steps = numbers(axes), numbers(steps)
    if known_axes is not None and (steps is None or known_steps is not None):
        first, out = read(b, start, many)
        strides = [1] * rank
        for i, axis in enumerate(known_axes.ravel().tolist()):
            strides[normalize_axis(axis, rank)] = 1 if known_steps is None else int(known_steps.ravel()[i])
        touched = {normalize_axis(a, rank) for a in known_axes.ravel().tolist()}
        starts_, sizes_ = (
            tuple(v[i] if i in touched else w for i, w in enumerate(o))
            for v, o in ((first, (0,) * rank), (out, x.shape))
        )
        return b.op("Slice", x, starts=starts_, sizes=sizes_, steps=tuple(strides))
    first, out = read(b, start, many)
    (stride,) = read(b, step, lo=-(1 << 62))
    for axis in range(rank):
        index = b.op("Range", start=first[axis], step=stride[axis], size=out[axis])
        x = b.op("Gather", x, index, axis=axis)
    return x


def range_(b: Scope, start: Value, limit: Value, delta: Value) -> Value:
    """A range of integers whose step the data decides."""
    dtype = start.type.dtype
    first, last, step = (integers(b, v) for v in (start, limit, delta))
    span = b.op("Where", b.op("Greater", step, number(b, 0)), b.op("Sub", last, first), b.op("Sub", first, last))
    count = divide_up(b, b.op("Max", span, number(b, 0)), b.op("Abs", step))
    (size,) = read(b, count)[0]
    (begin,), (stride,) = read(b, first, step, lo=-(1 << 62))
    return b.op("Range", start=begin, step=stride, size=size, dtype=dtype)
