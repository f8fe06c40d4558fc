"""What can be drawn: each function adds the nodes of one kind to a Writer, reading the value ``x`` and perhaps others.

A function raises Rejected where ``x`` does not suit it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from random_models.writer import Drawn, Rejected, Size, Writer

Draw = Callable[[st.SearchStrategy[Any]], Any]
Kind = Callable[[Draw, Writer, Drawn], None]
KINDS: dict[str, Kind] = {}

UNARY = ("Neg", "Relu", "Sigmoid", "Tanh", "Abs", "Erf", "Softplus", "HardSwish", "LeakyRelu", "Elu", "Softsign", "Sign", "Gelu", "Cos")
BINARY = ("Add", "Sub", "Mul", "Min", "Max")
COMPARE = ("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual")
REDUCE = ("Sum", "Mean", "Max", "Min", "L1", "L2", "SumSquare", "LogSumExp", "Prod")


def kind(function: Kind) -> Kind:
    KINDS[function.__name__.lstrip("_")] = function
    return function


def need(condition: object) -> None:
    if not condition:
        raise Rejected("does not suit")


def pick(draw: Draw, *options: Any) -> Any:
    return draw(st.sampled_from(options))


def axis_of(draw: Draw, x: Drawn) -> int:
    need(x.rank)
    return int(draw(st.integers(0, x.rank - 1)))


def signed(draw: Draw, axis: int, rank: int) -> int:
    """The axis counted from either end."""
    return axis - rank if draw(st.booleans()) else axis


def same(draw: Draw, w: Writer, x: Drawn) -> Drawn:
    return draw(st.sampled_from([v for v in w.values if v.sizes == x.sizes and v.array.dtype == x.array.dtype]))


def product(sizes: tuple[Size, ...]) -> Size:
    if all(isinstance(s, int) for s in sizes):
        return int(np.prod(sizes, dtype=np.int64))
    return "*".join(f"({s})" for s in sizes if s != 1) if sum(s != 1 for s in sizes) > 1 else next(s for s in sizes if s != 1)


def replaced(sizes: tuple[Size, ...], axis: int, *new: Size) -> tuple[Size, ...]:
    return (*sizes[:axis], *new, *sizes[axis + 1 :])


def as_float(w: Writer, x: Drawn) -> Drawn:
    return x if x.is_float else w.node("Cast", [x], [x.sizes], to=1)[0]


# --- pointwise --------------------------------------------------------------------------------------------------------------


@kind
def _unary(draw: Draw, w: Writer, x: Drawn) -> None:
    need(x.is_float)
    w.node(pick(draw, *UNARY), [x], [x.sizes])


@kind
def _rounding(draw: Draw, w: Writer, x: Drawn) -> None:
    need(x.is_float and x.exact)
    w.node(pick(draw, "Floor", "Ceil", "Round"), [x], [x.sizes])


@kind
def _binary(draw: Draw, w: Writer, x: Drawn) -> None:
    need(x.array.dtype != bool)
    w.node(pick(draw, *BINARY), [x, same(draw, w, x)], [x.sizes])


@kind
def _with_constant(draw: Draw, w: Writer, x: Drawn) -> None:
    """A constant that broadcasts in one of the usual ways."""
    need(x.array.dtype != bool)
    form = pick(draw, "scalar", "one", "last", "axis", "full", "lead")
    shape: list[int] = []
    if form == "one":
        shape = [1]
    elif form == "last":
        need(x.rank and x.fixed(-1))
        shape = [x.array.shape[-1]]
    elif form == "axis":
        axis = axis_of(draw, x)
        need(x.fixed(axis))
        shape = [x.array.shape[axis], *[1] * (x.rank - axis - 1)]
    elif form == "full":
        need(all(isinstance(s, int) for s in x.sizes))
        shape = list(x.array.shape)
    elif form == "lead":
        need(x.rank < 5)
        shape = [1] * (x.rank + 1)
    c = w.constant(w.numbers(shape, x.array.dtype), x.array.dtype)
    sizes = (1, *x.sizes) if form == "lead" else x.sizes
    op = pick(draw, *BINARY)
    w.node(op, [x, c] if draw(st.booleans()) else [c, x], [sizes])


@kind
def _divide(draw: Draw, w: Writer, x: Drawn) -> None:
    need(x.is_float)
    below = w.node("Abs", [same(draw, w, x)], [x.sizes])[0]
    below = w.node("Add", [below, w.constant(1)], [x.sizes])[0]
    w.node("Div", [x, below], [x.sizes])


@kind
def _broadcast(draw: Draw, w: Writer, x: Drawn) -> None:
    """With its own mean, or another of its reductions."""
    need(x.is_float)
    axis = axis_of(draw, x)
    op = pick(draw, "ReduceMean", "ReduceMax", "ReduceSum")
    r = w.node(op, [x, w.constant([axis], np.int64)], [replaced(x.sizes, axis, 1)], keepdims=1)[0]
    w.node(pick(draw, *BINARY), [x, r], [x.sizes])


@kind
def _outer(draw: Draw, w: Writer, x: Drawn) -> None:
    """x [.., n, 1] with x [.., 1, n]."""
    need(x.array.dtype != bool and 1 <= x.rank <= 3)
    a = w.node("Unsqueeze", [x, w.constant([-1], np.int64)], [(*x.sizes, 1)])[0]
    b = w.node("Unsqueeze", [x, w.constant([-2], np.int64)], [(*x.sizes[:-1], 1, x.sizes[-1])])[0]
    w.node(pick(draw, *BINARY), [a, b], [(*x.sizes, x.sizes[-1])])


@kind
def _where(draw: Draw, w: Writer, x: Drawn) -> None:
    need(x.exact and x.array.dtype != bool)
    y = same(draw, w, x)
    need(y.exact)
    c = w.node(pick(draw, *COMPARE), [x, y if draw(st.booleans()) else w.constant(0, x.array.dtype)], [x.sizes])[0]
    if draw(st.booleans()):
        d = w.node("Less", [y, w.constant(1, x.array.dtype)], [x.sizes])[0]
        c = w.node(pick(draw, "And", "Or", "Xor"), [c, d], [x.sizes])[0]
    if draw(st.booleans()):
        c = w.node("Not", [c], [x.sizes])[0]
    w.node("Where", [c, x, y if draw(st.booleans()) else w.constant(0.5 if x.is_float else 2, x.array.dtype)], [x.sizes])


@kind
def _cast(draw: Draw, w: Writer, x: Drawn) -> None:
    """To another type and perhaps back; to integers and bool only where no rounding decides."""
    to = pick(draw, *((11, 10, 7, 6, 3, 9) if x.exact else (11, 10)))  # double half int64 int32 int8 bool
    y = w.node("Cast", [x], [x.sizes], to=to, exact=to != 10)[0]
    if draw(st.booleans()) or to in (11, 10, 3):
        w.node("Cast", [y], [x.sizes], to=1)


@kind
def _quantize(draw: Draw, w: Writer, x: Drawn) -> None:
    need(x.is_float and x.exact)
    scale, zero = w.constant(pick(draw, 0.25, 0.5, 1.0)), w.constant(pick(draw, 0, 3), pick(draw, np.int8, np.uint8))
    q = w.node("QuantizeLinear", [x, scale, zero], [x.sizes])[0]
    w.node("DequantizeLinear", [q, scale, zero], [x.sizes])


# --- views and moves --------------------------------------------------------------------------------------------------------


@kind
def _transpose(draw: Draw, w: Writer, x: Drawn) -> None:
    need(x.rank)
    perm = draw(st.permutations(range(x.rank)))
    w.node("Transpose", [x], [[x.sizes[p] for p in perm]], perm=list(perm))


@kind
def _merge(draw: Draw, w: Writer, x: Drawn) -> None:
    need(x.rank > 1)
    at = draw(st.integers(0, x.rank - 2))
    sizes = (*x.sizes[:at], product(x.sizes[at : at + 2]), *x.sizes[at + 2 :])
    need(sum(isinstance(s, str) for s in x.sizes[at + 2 :]) == 0 or at == 0 or all(isinstance(s, int) for s in x.sizes[at : at + 2]))
    shape = [0] * at + [-1] + [s if isinstance(s, int) else -1 for s in x.sizes[at + 2 :]]
    need(shape.count(-1) == 1)
    w.node("Reshape", [x, w.constant(shape, np.int64)], [sizes])


@kind
def _divide_axis(draw: Draw, w: Writer, x: Drawn) -> None:
    """A fixed axis becomes two."""
    axis = axis_of(draw, x)
    need(x.fixed(axis) and x.rank < 6)
    n = x.array.shape[axis]
    first = draw(st.sampled_from([f for f in range(1, n + 1) if n % f == 0] or [1]))
    need(n)
    if any(isinstance(s, str) for s in x.sizes[axis + 1 :]):
        z = w.node("Shape", [x], [(x.rank,)])[0]
        head = w.node("Slice", [z, *(w.constant([i], np.int64) for i in (0, axis))], [(axis,)])[0]
        tail = w.node("Slice", [z, *(w.constant([i], np.int64) for i in (axis + 1, x.rank))], [(x.rank - axis - 1,)])[0]
        own = w.constant([first, n // first], np.int64)
        shape = w.node("Concat", [head, own, tail], [(x.rank + 1,)], axis=0)[0]
    else:
        shape = w.constant([0] * axis + [first, pick(draw, n // first, -1), *x.array.shape[axis + 1 :]], np.int64)
    w.node("Reshape", [x, shape], [replaced(x.sizes, axis, first, n // first)])


@kind
def _flatten(draw: Draw, w: Writer, x: Drawn) -> None:
    axis = draw(st.integers(0, x.rank))
    halves = [product(s) if s else 1 for s in (x.sizes[:axis], x.sizes[axis:])]
    w.node("Flatten", [x], [halves], axis=axis)


@kind
def _unsqueeze(draw: Draw, w: Writer, x: Drawn) -> None:
    need(x.rank < 5)
    axis = draw(st.integers(0, x.rank))
    a = w.constant([signed(draw, axis, x.rank + 1)], np.int64)
    y = w.node("Unsqueeze", [x, a], [(*x.sizes[:axis], 1, *x.sizes[axis:])])[0]
    if draw(st.booleans()):
        w.node("Expand", [y, w.constant([3 if i == axis else 1 for i in range(y.rank)], np.int64)], [replaced(y.sizes, axis, 3)])


@kind
def _slice(draw: Draw, w: Writer, x: Drawn) -> None:
    axis = axis_of(draw, x)
    n = x.array.shape[axis]
    step = pick(draw, 1, 1, 2, -1, -2, 3)
    if x.fixed(axis):
        bounds = draw(st.tuples(st.integers(-n - 2, n + 2), st.integers(-n - 2, n + 2)))
    else:
        bounds = pick(draw, (0, 2**63 - 1), (1, 2**63 - 1), (0, -1), (-1, -(2**63)), (0, 3), (-3, 2**63 - 1))
    need(step > 0 or bounds[0] >= -n)  # where onnx.reference slices as numpy does, and the specification clamps
    count = len(range(*slice(*_python(bounds, n, step)).indices(n)))
    need(count)
    size: Size = count if x.fixed(axis) else f"[{bounds}/{step} of {x.sizes[axis]}]"
    rest = [w.constant([v], np.int64) for v in (*bounds, signed(draw, axis, x.rank), step)]
    w.node("Slice", [x, *rest], [replaced(x.sizes, axis, size)])


def _python(bounds: tuple[int, int], n: int, step: int) -> tuple[int, int | None, int]:
    """As a Python slice: an end below -n means beyond the start when going backwards."""
    return bounds[0], None if step < 0 and bounds[1] < -n else bounds[1], step


@kind
def _split(draw: Draw, w: Writer, x: Drawn) -> None:
    axis = axis_of(draw, x)
    n = x.array.shape[axis]
    need(x.fixed(axis) and n > 1)
    first = draw(st.integers(1, n - 1))
    parts = [first, n - first]
    w.node("Split", [x, w.constant(parts, np.int64)], [replaced(x.sizes, axis, p) for p in parts], axis=signed(draw, axis, x.rank))


@kind
def _concat(draw: Draw, w: Writer, x: Drawn) -> None:
    axis = axis_of(draw, x)
    fits = [
        v for v in w.values
        if v.array.dtype == x.array.dtype and v.rank == x.rank and replaced(v.sizes, axis, 0) == replaced(x.sizes, axis, 0)
    ]  # fmt: skip
    parts = draw(st.lists(st.sampled_from(fits), min_size=1, max_size=3))
    if draw(st.booleans()) and all(isinstance(s, int) for s in replaced(x.sizes, axis, 0)):
        parts = [*parts, w.constant(w.numbers([*x.array.shape[:axis], 2, *x.array.shape[axis + 1 :]], x.array.dtype), x.array.dtype)]
    own = [v.sizes[axis] for v in [x, *parts]]
    size = sum(own) if all(isinstance(s, int) for s in own) else "+".join(f"({s})" for s in own)
    w.node("Concat", [x, *parts], [replaced(x.sizes, axis, size)], axis=signed(draw, axis, x.rank))


@kind
def _tile(draw: Draw, w: Writer, x: Drawn) -> None:
    axis = axis_of(draw, x)
    size = x.sizes[axis] * 2 if isinstance(x.sizes[axis], int) else f"2*({x.sizes[axis]})"
    repeats = [2 if i == axis else 1 for i in range(x.rank)]
    w.node("Tile", [x, w.constant(repeats, np.int64)], [replaced(x.sizes, axis, size)])


@kind
def _pad(draw: Draw, w: Writer, x: Drawn) -> None:
    need(x.array.dtype != bool)
    axis = axis_of(draw, x)
    mode = pick(draw, "constant", "constant", "edge", "reflect", "wrap")
    before, after = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    need(x.array.shape[axis] > 2 or mode in ("constant", "edge"))
    size = x.sizes[axis] + before + after if isinstance(x.sizes[axis], int) else f"({x.sizes[axis]})+{before + after}"
    pads = [before if i == axis else 0 for i in range(x.rank)] + [after if i == axis else 0 for i in range(x.rank)]
    filler = [w.constant(1, x.array.dtype)] if mode == "constant" and draw(st.booleans()) else []
    w.node("Pad", [x, w.constant(pads, np.int64), *filler], [replaced(x.sizes, axis, size)], mode=mode)


@kind
def _gather(draw: Draw, w: Writer, x: Drawn) -> None:
    axis = axis_of(draw, x)
    n = x.array.shape[axis] if x.fixed(axis) else 1
    shape = pick(draw, (), (1,), (3,), (2, 2))
    need(n and x.rank + len(shape) <= 6)
    i = w.constant(w.rng.integers(-n, n, shape), pick(draw, np.int64, np.int32))
    w.node("Gather", [x, i], [replaced(x.sizes, axis, *shape)], axis=signed(draw, axis, x.rank))


@kind
def _gather_by_value(draw: Draw, w: Writer, x: Drawn) -> None:
    """Rows of x by a vector that is computed, inside of the axis."""
    need(x.rank)
    sources = [v for v in w.values if v.exact and v.rank == 1 and v.array.dtype != bool and v.array.size]
    need(sources)
    v = draw(st.sampled_from(sources))
    n = w.node("Gather", [w.node("Shape", [x], [(x.rank,)])[0], w.constant([0], np.int64)], [(1,)])[0]
    i = w.node("Mod", [w.node("Cast", [v], [v.sizes], to=7)[0], n], [v.sizes])[0]
    w.node("Gather", [x, i], [(v.sizes[0], *x.sizes[1:])])


@kind
def _scatter(draw: Draw, w: Writer, x: Drawn) -> None:
    need(x.rank and x.is_float and all(isinstance(s, int) for s in x.sizes) and min(x.array.shape) > 0)
    axis = axis_of(draw, x)
    n = x.array.shape[axis]
    reduction = pick(draw, "none", "add", "max", "min")
    shape = [1 if i == axis else s for i, s in enumerate(x.array.shape)]
    updates, i = w.weights(*shape), w.constant(w.rng.integers(-n, n, shape), np.int64)
    w.node("ScatterElements", [x, i, updates], [x.sizes], axis=axis, reduction=reduction)


@kind
def _triangle(draw: Draw, w: Writer, x: Drawn) -> None:
    need(x.rank >= 2)
    w.node("Trilu", [x, w.constant(draw(st.integers(-1, 2)), np.int64)], [x.sizes], upper=draw(st.integers(0, 1)))


@kind
def _by_shape(draw: Draw, w: Writer, x: Drawn) -> None:
    """What exporters make of sizes: a mask, a range or a fill of x's shape."""
    z = w.node("Shape", [x], [(x.rank,)])[0]
    form = pick(draw, "fill", "range", "expand")
    need(x.is_float and x.rank)
    if form == "fill":
        f = w.node("ConstantOfShape", [z], [x.sizes])[0]
        w.node("Add", [x, f], [x.sizes])
    elif form == "expand":
        e = w.node("Expand", [w.constant(0.5), z], [x.sizes])[0]
        w.node("Mul", [x, e], [x.sizes])
    else:
        n = w.node("Gather", [z, w.constant(x.rank - 1, np.int64)], [()])[0]
        r = w.node("Range", [w.constant(0, np.int64), n, w.constant(1, np.int64)], [x.sizes[-1:]])[0]
        w.node("Add", [x, w.node("Cast", [r], [r.sizes], to=1)[0]], [x.sizes])


@kind
def _late(draw: Draw, w: Writer, x: Drawn) -> None:
    """Sizes that only the data decides."""
    need(x.exact and x.rank and x.array.dtype != bool)
    if pick(draw, "nonzero", "compress") == "nonzero":
        places = w.node("NonZero", [x], [(x.rank, f"nonzero of {x.name}")])[0]
        w.node("Cast", [places], [places.sizes], to=1)
        return
    need(x.rank == 1)
    c = w.node("Greater", [x, w.constant(0, x.array.dtype)], [x.sizes])[0]
    kept = w.node("Compress", [x, c], [(f"positive of {x.name}",)], axis=0)[0]
    w.node("Neg", [kept], [kept.sizes])
