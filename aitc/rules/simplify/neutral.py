"""Operations that change nothing: x + 0, x * 1, x ** 1, casts to the same type, min and max with an extreme, --x."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from aitc.ir.builder import Builder
from aitc.ir.dtype import DType
from aitc.ir.graph import Node, Value
from aitc.ir.match import made_by, number, same_shape
from aitc.ir.rewrite import SIMPLIFY, Match, Outcome, Rule


def _keep(b: Builder, node: Node, x: Value) -> Value:
    """``x`` in the node's shape: the operand that vanishes may have broadcast it."""
    return x if same_shape(x.shape, node.output.shape) else b.op("Expand", x, shape=node.output.shape)


def _extremes(dtype: DType) -> tuple[float, float]:
    """The least and the greatest number of an element type."""
    if dtype.is_float:
        return -math.inf, math.inf
    info = np.iinfo(dtype.numpy) if dtype.bits >= 8 else None
    return (float(info.min), float(info.max)) if info else (math.nan, math.nan)


# op -> (does the left operand's number n vanish, does the right one's), given the element type
_NEUTRAL: dict[str, tuple[Callable[[Any, DType], bool] | None, Callable[[Any, DType], bool] | None]] = {
    "Add": (lambda n, t: n == 0, lambda n, t: n == 0),
    "Sub": (None, lambda n, t: n == 0),
    "Mul": (lambda n, t: n == 1, lambda n, t: n == 1),
    "Div": (None, lambda n, t: n == 1),
    "Pow": (None, lambda n, t: n == 1),
    "Min": (lambda n, t: n == _extremes(t)[1], lambda n, t: n == _extremes(t)[1]),
    "Max": (lambda n, t: n == _extremes(t)[0], lambda n, t: n == _extremes(t)[0]),
    "And": (lambda n, t: bool(n), lambda n, t: bool(n)),
    "Or": (lambda n, t: not n, lambda n, t: not n),
    "Xor": (lambda n, t: not n, lambda n, t: not n),
}


def _match_neutral(node: Node) -> Outcome:
    left, right = _NEUTRAL[node.op.name]
    for test, c, x in ((right, node.inputs[1], node.inputs[0]), (left, node.inputs[0], node.inputs[1])):
        n = number(c) if test is not None else None
        if n is not None and x is not None and test is not None and test(n, x.type.dtype):
            return Match(found=x)
    return None


SIMPLIFY.add(
    "neutral-operand",
    Rule(
        "neutral-operand",
        "x + 0, x - 0, x * 1, x / 1, x ** 1, min and max with an extreme, x and true, x or false become x",
        tuple(_NEUTRAL),
        _match_neutral,
        _keep,
    ),
)


def _match_same_cast(node: Node) -> Outcome:
    return (
        Match() if node.input.type.dtype is node.attrs.to and node.input.type.order == node.output.type.order else None
    )


SIMPLIFY.add(
    "same-cast",
    Rule(
        "same-cast",
        "a Cast to the type that x has becomes x",
        ("Cast",),
        _match_same_cast,
        lambda b, node, _: node.input,
    ),
)


def _match_cast_of_cast(node: Node) -> Outcome:
    inner = made_by(node.input, "Cast")
    if inner is None or inner.output.type.order != inner.input.type.order:
        return None
    return Match((inner,), inner.input) if _holds(inner.input.type.dtype, inner.attrs.to) else None


def _holds(small: DType, large: DType) -> bool:
    """Whether ``large`` represents every value of ``small``."""
    if small is large or small.kind == "bool":
        return True
    if small.is_float and large.is_float:
        return large.bits > small.bits and large.bits >= 32
    if small.is_integer and large.is_integer:
        return large.bits > small.bits and (small.kind == large.kind or small.kind == "uint")
    return small.is_integer and large.is_float and small.bits < {16: 8, 32: 24, 64: 53}.get(large.bits, 0)


SIMPLIFY.add(
    "cast-of-cast",
    Rule("cast-of-cast", "two Casts become one where the type between holds every value", ("Cast",), _match_cast_of_cast,
         lambda b, node, x: b.op("Cast", x, to=node.attrs.to, saturate=node.attrs.saturate, rounding=node.attrs.rounding)),
)  # fmt: skip


def _match_involution(node: Node) -> Outcome:
    inner = made_by(node.input, node.op.name)
    return Match((inner,), inner.input) if inner is not None else None


SIMPLIFY.add(
    "involution",
    Rule(
        "involution",
        "--x, not not x and ~~x become x",
        ("Neg", "Not", "BitwiseNot"),
        _match_involution,
        lambda b, node, x: x,
    ),
)


def _match_idempotent(node: Node) -> Outcome:
    return Match(found=node.input) if made_by(node.input, node.op.name) is not None else None


SIMPLIFY.add(
    "idempotent",
    Rule(
        "idempotent",
        "relu(relu(x)), |(|x|)|, floor, ceil, round and sign twice become once",
        ("Relu", "Abs", "Floor", "Ceil", "Round", "Sign"),
        _match_idempotent,
        lambda b, node, x: x,
    ),
)


def _match_where(node: Node) -> Outcome:
    condition, x, y = node.inputs
    taken = number(condition)
    if taken is not None:
        return Match(found=x if taken else y)
    return Match(found=x) if x is y else None


SIMPLIFY.add(
    "where-known",
    Rule(
        "where-known",
        "Where with a known condition, or with equal branches, becomes the branch",
        ("Where",),
        _match_where,
        _keep,
    ),
)


def _match_where_not(node: Node) -> Outcome:
    inner = made_by(node.inputs[0], "Not")
    return Match((inner,), inner.input) if inner is not None else None


SIMPLIFY.add(
    "where-not",
    Rule(
        "where-not",
        "Where(not c, x, y) becomes Where(c, y, x)",
        ("Where",),
        _match_where_not,
        lambda b, node, c: b.op("Where", c, node.inputs[2], node.inputs[1]),
    ),
)


def _match_concat(node: Node) -> Outcome:
    axis = node.attrs.axis
    kept = tuple(v for v in node.inputs if v is not None and v.shape[axis] != 0)
    return Match(found=kept) if (len(kept) < len(node.inputs) and kept) or len(node.inputs) == 1 else None


SIMPLIFY.add(
    "concat-empty",
    Rule("concat-empty", "Concat drops parts of size zero; of one part it becomes that part", ("Concat",), _match_concat,
         lambda b, node, kept: kept[0] if len(kept) == 1 else b.op("Concat", *kept, axis=node.attrs.axis)),
)  # fmt: skip
