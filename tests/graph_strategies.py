"""What property tests draw: Dims with values for their symbols, and small graphs of many kinds of nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from aitc.ir import dim as dm
from aitc.ir import dtype as dt
from aitc.ir.builder import Builder
from aitc.ir.dim import Dim
from aitc.ir.graph import Graph, Value
from aitc.ir.types import TensorType
from aitc.registry import load

load("aitc.ops")

SYMBOLS = (dm.symbol("a", 1, 64), dm.symbol("b", 2, 16, multiple_of=2), dm.symbol("c", 0))

Expression = tuple[Dim, Callable[[dict[str, int]], int]]  # a Dim, and what it has to be


@st.composite
def values_of_symbols(draw: Any) -> dict[str, int]:
    return {"a": draw(st.integers(1, 64)), "b": 2 * draw(st.integers(1, 8)), "c": draw(st.integers(0, 1000))}


def _leaf() -> st.SearchStrategy[Expression]:
    def of_symbol(d: Dim) -> Expression:
        name = str(d)
        return d, lambda v: v[name]

    def of_int(n: int) -> Expression:
        return n, lambda v: n

    return st.sampled_from(SYMBOLS).map(of_symbol) | st.integers(-40, 40).map(of_int)


def _binary(children: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    def combine(op: str, x: Expression, y: Expression) -> Expression:
        (d, f), (e, g) = x, y
        if op == "add":
            return dm.add(d, e), lambda v: f(v) + g(v)
        if op == "sub":
            return dm.add(d, dm.mul(e, -1)), lambda v: f(v) - g(v)
        if op == "mul":
            return dm.mul(d, e), lambda v: f(v) * g(v)
        if op == "min":
            return dm.min_(d, e), lambda v: min(f(v), g(v))
        return dm.max_(d, e), lambda v: max(f(v), g(v))

    def divide(op: str, x: Expression, n: int) -> Expression:
        d, f = x
        return (dm.floordiv(d, n), lambda v: f(v) // n) if op == "div" else (dm.mod(d, n), lambda v: f(v) % n)

    def by_symbol(op: str, x: Expression) -> Expression:
        d, f = x
        b = SYMBOLS[1]
        return (dm.floordiv(d, b), lambda v: f(v) // v["b"]) if op == "div" else (dm.mod(d, b), lambda v: f(v) % v["b"])

    return st.one_of(
        st.builds(combine, st.sampled_from(("add", "sub", "mul", "min", "max")), children, children),
        st.builds(divide, st.sampled_from(("div", "mod")), children, st.integers(1, 12)),
        st.builds(by_symbol, st.sampled_from(("div", "mod")), children),
    )


expressions = st.recursive(_leaf(), _binary, max_leaves=7)


# --- graphs ----------------------------------------------------------------------------------------------------------------

_UNARY = ("Neg", "Relu", "Sigmoid", "Tanh", "Abs", "Erf", "Exp")
_BINARY = ("Add", "Sub", "Mul", "Min", "Max")
_CONSTANTS = (0.0, 1.0, -1.0, 0.5, 2.0, 3.0, 6.0, 0.70710677, 1.4142135)


@st.composite
def graphs(draw: Any) -> Graph:
    """A graph of up to 14 nodes on an input [N, 4, 6] with pointwise operations, views, reductions, norms and products with constants."""
    graph = Graph("main")
    b = Builder(graph)
    n = draw(st.sampled_from((1, 2, dm.symbol("N", 1, 8))))
    values: list[Value] = [graph.add_input("x", TensorType(dt.F32, (n, 4, 6)))]
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    for _ in range(draw(st.integers(2, 14))):
        x = values[-1] if draw(st.integers(0, 4)) else draw(st.sampled_from(values[-4:]))
        values.append(_node(draw, b, x, values, rng))
    graph.outputs = [values[-1], *draw(st.lists(st.sampled_from(values), max_size=2, unique=True))]
    graph.outputs = list(dict.fromkeys(graph.outputs))
    return graph


def _scalar(b: Builder, c: float, x: Value) -> Value:
    return b.like(c, x)


def _layer_norm(draw: Any, b: Builder, x: Value) -> Value:
    axes = (x.type.rank - 1,)
    d = x
    if draw(st.booleans()):
        d = b.op("Sub", x, b.op("Reduce", x, function="mean", axes=axes))
    square = b.op("Pow", d, _scalar(b, 2, x)) if draw(st.booleans()) else b.op("Mul", d, d)
    root = b.op("Sqrt", b.op("Add", b.op("Reduce", square, function="mean", axes=axes), _scalar(b, 1e-3, x)))
    return b.op("Div", d, root) if draw(st.booleans()) else b.op("Mul", b.op("Reciprocal", root), d)


def _gelu(draw: Any, b: Builder, x: Value) -> Value:
    e = b.op("Add", b.op("Erf", b.op("Mul", x, _scalar(b, 0.70710677, x))), _scalar(b, 1, x))
    if draw(st.booleans()):
        return b.op("Mul", b.op("Mul", x, _scalar(b, 0.5, x)), e)
    return b.op("Mul", b.op("Mul", x, e), _scalar(b, draw(st.sampled_from((0.5, 2.0))), x))


def _hard_swish(draw: Any, b: Builder, x: Value) -> Value:
    three, six = _scalar(b, 3, x), _scalar(b, 6, x)
    clip = b.op("Min", b.op("Max", b.op("Add", x, three), _scalar(b, 0, x)), six)
    y = b.op("Mul", x, clip) if draw(st.booleans()) else clip
    return b.op("Div", y, six)


def _silu(draw: Any, b: Builder, x: Value) -> Value:
    if draw(st.booleans()):
        return b.op("Mul", x, b.op("Sigmoid", x))
    return b.op("Div", x, b.op("Add", b.op("Exp", b.op("Neg", x)), _scalar(b, 1, x)))


def _softmax(draw: Any, b: Builder, x: Value) -> Value:
    axes = (draw(st.integers(0, x.type.rank - 1)),)
    d = b.op("Sub", x, b.op("Reduce", x, function="max", axes=axes))
    e = b.op("Exp", d)
    total = b.op("Reduce", e, function="sum", axes=axes)
    return b.op("Div", e, total) if draw(st.booleans()) else b.op("Sub", d, b.op("Log", total))


def _attention(draw: Any, b: Builder, x: Value) -> Value:
    """Of x with itself, with a random choice of scales, mask and orientation."""
    rank = x.type.rank
    if rank < 3:
        return b.op("Neg", x)
    swap = (*range(rank - 2), rank - 1, rank - 2)
    q = b.op("Mul", x, _scalar(b, 0.5, x)) if draw(st.booleans()) else x
    k = b.op("Transpose", b.op("Mul", x, _scalar(b, 0.5, x)) if draw(st.booleans()) else x, perm=swap)
    s = b.op("MatMul", q, k)
    mask = b.op("Reduce", s, function="mean", axes=(rank - 1,))
    if draw(st.booleans()):
        s = b.op("Add", s, mask)
    if draw(st.booleans()):
        s = b.op("Div", s, _scalar(b, 2, x))
    if draw(st.booleans()):
        fill = draw(st.sampled_from((-3.4028235e38, -1e9, -np.inf)))
        s = b.op("Where", b.op("Less", s, b.op("Mul", mask, _scalar(b, 2, x))), s, _scalar(b, fill, x))
    p = b.op("Softmax", s, axis=rank - 1)
    if draw(st.booleans()):
        p = b.op("Where", b.op("IsNaN", p), _scalar(b, 0, x), p)
    if draw(st.booleans()):
        return b.op("MatMul", p, x)
    return b.op("MatMul", b.op("Transpose", x, perm=swap), b.op("Transpose", p, perm=swap))


def _merged_and_split(draw: Any, b: Builder, x: Value) -> Value:
    """A linear layer on merged leading axes."""
    if x.type.rank < 3 or not isinstance(x.shape[-1], int):
        return b.op("Neg", x)
    flat = b.op("Reshape", x, shape=(dm.product(x.shape[:-1]), x.shape[-1]))
    y = b.op("MatMul", flat, b.constant(np.eye(x.shape[-1], 4, dtype=np.float32)))
    if draw(st.booleans()):
        y = b.op("Add", y, b.constant(np.arange(4, dtype=np.float32)))
    return b.op("Reshape", y, shape=(*x.shape[:-1], 4)) if draw(st.booleans()) else y


_IDIOMS: dict[str, Callable[[Any, Builder, Value], Value]] = {
    "layer_norm": _layer_norm, "gelu": _gelu, "hard_swish": _hard_swish, "silu": _silu, "softmax_spelled": _softmax,
    "attention": _attention, "merged": _merged_and_split,
}  # fmt: skip
_KINDS = (
    "unary", "binary", "scalar", "row", "transpose", "transpose", "transpose", "reshape", "slice", "expand", "reduce", "norm", "softmax",
    "matmul", "concat", "cast", "where", *_IDIOMS,
)  # fmt: skip


def _node(draw: Any, b: Builder, x: Value, values: list[Value], rng: np.random.Generator) -> Value:
    kind = draw(st.sampled_from(_KINDS))
    if kind in _IDIOMS:
        return _IDIOMS[kind](draw, b, x)
    rank = x.type.rank
    if kind == "unary":
        return b.op(draw(st.sampled_from(_UNARY)), x)
    if kind == "binary":
        same = [v for v in values if v.shape == x.shape and v.type.dtype is x.type.dtype]
        return b.op(draw(st.sampled_from(_BINARY)), x, draw(st.sampled_from(same)))
    if kind == "scalar":
        c = b.like(draw(st.sampled_from(_CONSTANTS)), x)
        name = draw(st.sampled_from((*_BINARY, "Div")))
        return b.op(name, x, c) if (name == "Div" and float(c.const)) or draw(st.booleans()) else b.op("Mul", c, x)
    if kind == "row" and isinstance(x.shape[-1], int):
        return b.op(
            draw(st.sampled_from(("Add", "Mul"))), x, b.constant(rng.standard_normal(x.shape[-1]).astype(np.float32))
        )
    if kind == "transpose":
        return b.op("Transpose", x, perm=tuple(draw(st.permutations(range(rank)))))
    if kind == "reshape" and rank > 1:
        at = draw(st.integers(0, rank - 2))
        return b.op("Reshape", x, shape=(*x.shape[:at], dm.mul(x.shape[at], x.shape[at + 1]), *x.shape[at + 2 :]))
    if kind == "slice":
        axis = draw(st.integers(0, rank - 1))
        size = x.shape[axis]
        if isinstance(size, int) and size > 1:
            starts, sizes = [0] * rank, list(x.shape)
            starts[axis] = draw(st.integers(0, size - 1))
            sizes[axis] = size - starts[axis]
            return b.op("Slice", x, starts=tuple(starts), sizes=tuple(sizes), steps=(1,) * rank)
    if kind == "expand" and rank < 4:
        return b.op("Expand", x, shape=(draw(st.sampled_from((1, 3))), *x.shape))
    if kind == "reduce" and rank > 1:
        axes = (draw(st.integers(0, rank - 1)),)
        return b.op(
            "Reduce", x, function=draw(st.sampled_from(("sum", "mean", "max"))), axes=axes, keepdims=draw(st.booleans())
        )
    if kind == "norm":
        return b.op("LayerNormalization", x, axes=(rank - 1,), epsilon=1e-3, center=draw(st.booleans()))
    if kind == "softmax":
        return b.op("Softmax", x, axis=draw(st.integers(0, rank - 1)))
    if kind == "matmul" and rank > 1 and isinstance(x.shape[-1], int) and x.shape[-1] <= 64:
        return b.op("MatMul", x, b.constant((rng.standard_normal((x.shape[-1], 4)) / 4).astype(np.float32)))
    if kind == "concat":
        same = [v for v in values if v.shape == x.shape]
        return b.op("Concat", x, draw(st.sampled_from(same)), axis=draw(st.integers(0, rank - 1)))
    if kind == "cast":
        return b.op("Cast", b.op("Cast", x, to=dt.F64), to=dt.F32)
    if kind == "where":
        return b.op("Where", b.op("Less", x, b.like(0.25, x)), x, b.like(draw(st.sampled_from(_CONSTANTS)), x))
    return b.op("Neg", x)
