"""Cheaper spellings of the same pointwise value: powers, reciprocals, square roots, clipped at zero."""

from __future__ import annotations

from aitc.ir.builder import Builder
from aitc.ir.graph import Node, Value
from aitc.ir.match import made_by, number, pairs, same_shape, sole
from aitc.ir.rewrite import SIMPLIFY, Match, Outcome, Rule


def _power(node: Node) -> Outcome:
    n = number(node.inputs[1])
    if (
        n not in (2, 0.5, -1, -0.5, 3)
        or not same_shape(node.input.shape, node.output.shape)
        or not node.input.type.dtype.is_float
    ):
        return None
    return Match(found=n)


def _raise(b: Builder, node: Node, n: float) -> Value:
    x = node.input
    if n == 2:
        return b.op("Mul", x, x)
    if n == 3:
        return b.op("Mul", b.op("Mul", x, x), x)
    return b.op({0.5: "Sqrt", -1: "Reciprocal", -0.5: "Rsqrt"}[n], x)


SIMPLIFY.add(
    "known-power",
    Rule(
        "known-power",
        "x ** 2, 3, 0.5, -1 and -0.5 become products, Sqrt, Reciprocal and Rsqrt",
        ("Pow",),
        _power,
        _raise,
    ),
)


def _match_rsqrt(node: Node) -> Outcome:
    inner = made_by(node.input, "Sqrt")
    return Match((inner,), inner.input) if inner is not None else None


SIMPLIFY.add(
    "rsqrt",
    Rule("rsqrt", "1 / sqrt(x) becomes Rsqrt", ("Reciprocal",), _match_rsqrt, lambda b, node, x: b.op("Rsqrt", x)),
)


def _match_one_over(node: Node) -> Outcome:
    x = node.inputs[1]
    if (
        number(node.inputs[0]) == 1
        and x is not None
        and x.type.dtype.is_float
        and same_shape(x.shape, node.output.shape)
    ):
        return Match(found=x)
    return None


SIMPLIFY.add(
    "reciprocal",
    Rule("reciprocal", "1 / x becomes Reciprocal", ("Div",), _match_one_over, lambda b, node, x: b.op("Reciprocal", x)),
)


def _match_times_reciprocal(node: Node) -> Outcome:
    for x, r in pairs(node):
        inner = made_by(r, "Reciprocal")
        if inner is not None and sole(r) and number(x) is None:
            return Match((inner,), (x, inner.input))
    return None


SIMPLIFY.add(
    "times-reciprocal",
    Rule(
        "times-reciprocal",
        "x * Reciprocal(y), nobody else reading it, becomes x / y",
        ("Mul",),
        _match_times_reciprocal,
        lambda b, node, xy: b.op("Div", *xy),
    ),
)


def _match_relu(node: Node) -> Outcome:
    for x, zero in pairs(node):
        if number(zero) == 0 and x.const is None and x.type.dtype.is_float and same_shape(x.shape, node.output.shape):
            return Match(found=x)
    return None


SIMPLIFY.add("relu", Rule("relu", "max(x, 0) becomes Relu", ("Max",), _match_relu, lambda b, node, x: b.op("Relu", x)))


def _match_neg(node: Node) -> Outcome:
    for x, minus in pairs(node):
        if (
            number(minus) == -1
            and x.const is None
            and same_shape(x.shape, node.output.shape)
            and x.type.dtype.kind in ("float", "int")
        ):
            return Match(found=x)
    return None


SIMPLIFY.add("negate", Rule("negate", "x * -1 becomes Neg", ("Mul",), _match_neg, lambda b, node, x: b.op("Neg", x)))
