"""Gelu, SiLU, hard-swish, hard-sigmoid, sigmoid, softplus and mish, in the spellings of the exporters."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from aitc.ir.builder import Builder
from aitc.ir.graph import Node, Value
from aitc.ir.match import made_by, number, pairs, same_shape
from aitc.ir.rewrite import FUSE, Match, Outcome, Reason, Rule
from aitc.rules.fuse.polynomial import factors, is_polynomial

_TANH = {1: math.sqrt(2 / math.pi), 3: math.sqrt(2 / math.pi) * 0.044715}


def _plus_one(v: Value, *ops: str) -> tuple[Node, Node] | None:
    """The Add and the ``ops`` node of f(u) + 1."""
    add = made_by(v, "Add")
    if add is not None:
        for f, one in pairs(add):
            node = made_by(f, *ops)
            if node is not None and number(one) == 1:
                return add, node
    return None


def _product_with(
    node: Node, special: Callable[[Value], Any | None]
) -> tuple[Any, list[Value], float, list[Node]] | None:
    """A product in which one factor is special: that, the other factors, the constant, and the nodes of the product."""
    nodes: list[Node] = []
    others, c = factors(node.output, nodes)
    for i, f in enumerate(others):
        found = special(f)
        if found is not None:
            return found, others[:i] + others[i + 1 :], c, [n for n in nodes if n is not node]
    return None


def _times(b: Builder, y: Value, c: float, others: list[Value]) -> Value:
    for other in others:
        y = b.op("Mul", y, other)
    return y if c == 1 else b.op("Mul", y, b.like(c, y))


def _match_gelu(node: Node) -> Outcome:
    found = _product_with(node, lambda f: _plus_one(f, "Erf", "Tanh"))
    if found is None:
        return None
    (add, curve), others, c, nodes = found
    wanted = {1: math.sqrt(0.5)} if curve.op.name == "Erf" else _TANH
    for i, x in enumerate(others):
        if is_polynomial(curve.input, x, wanted):
            rest = others[:i] + others[i + 1 :]
            return Match((*nodes, add, curve), (x, "none" if curve.op.name == "Erf" else "tanh", 2 * c, rest))
    return Reason(f"the argument of {curve.op.name} is no gelu of a factor", curve) if others else None


def _gelu(b: Builder, node: Node, found: tuple[Value, str, float, list[Value]]) -> Value:
    x, approximate, c, rest = found
    c = 1.0 if abs(c - 1) < 1e-6 else c
    return _times(b, b.op("Gelu", x, approximate=approximate), c, rest)


FUSE.add(
    "gelu",
    Rule(
        "gelu",
        "x / 2 * (1 + erf(x / sqrt 2)), and the tanh approximation, become Gelu",
        ("Mul", "Div"),
        _match_gelu,
        _gelu,
    ),
)


def _match_sigmoid(node: Node) -> Outcome:
    """1 / (1 + exp(-x)), or y in place of the 1."""
    denominator = node.inputs[-1]
    found = _plus_one(denominator, "Exp") if denominator is not None else None
    negative = made_by(found[1].input, "Neg") if found is not None else None
    if found is None or negative is None:
        return None
    return Match((*found, negative), negative.input)


def _sigmoid(b: Builder, node: Node, x: Value) -> Value:
    y = b.op("Sigmoid", x)
    if node.op.name == "Reciprocal" or number(node.inputs[0]) == 1:
        return y
    return b.op("Mul", node.inputs[0], y)


FUSE.add(
    "sigmoid",
    Rule(
        "sigmoid", "1 / (1 + exp(-x)), or y over it, becomes Sigmoid", ("Reciprocal", "Div"), _match_sigmoid, _sigmoid
    ),
)


def _match_silu(node: Node) -> Outcome:
    for x, s in pairs(node):
        sigmoid = made_by(s, "Sigmoid")
        if sigmoid is not None and sigmoid.input is x:
            return Match((sigmoid,), x)
    return None


FUSE.add("silu", Rule("silu", "x * sigmoid(x) becomes Silu", ("Mul",), _match_silu, lambda b, node, x: b.op("Silu", x)))


def _clipped(v: Value) -> tuple[Value, float, tuple[Node, ...]] | None:
    """``y``, ``top`` and the nodes of min(max(y, 0), top)."""
    upper = made_by(v, "Min")
    if upper is not None:
        for inner, top in pairs(upper):
            relu, n = made_by(inner, "Relu", "Max"), number(top)
            if n is None or relu is None or n <= 0:
                continue
            if relu.op.name == "Relu":
                return relu.input, float(n), (upper, relu)
            for y, zero in pairs(relu):
                if number(zero) == 0:
                    return y, float(n), (upper, relu)
    lower = made_by(v, "Relu", "Max")
    inner_min = made_by(lower.input, "Min") if lower is not None else None
    if lower is None or inner_min is None or (lower.op.name == "Max" and number(lower.inputs[1]) != 0):
        return None
    for y, top in pairs(inner_min):
        n = number(top)
        if n is not None and n > 0:
            return y, float(n), (lower, inner_min)
    return None


def _affine(v: Value) -> tuple[Value, float, float, tuple[Node, ...]]:
    """``x``, ``a``, ``b`` of a * x + b."""
    add = made_by(v, "Add")
    if add is not None:
        for x, c in pairs(add):
            n = number(c)
            if n is not None:
                mul = made_by(x, "Mul", "Div")
                a = number(mul.inputs[1]) if mul is not None else None
                if mul is not None and a:
                    return mul.input, float(a) if mul.op.name == "Mul" else 1 / float(a), float(n), (add, mul)
                return x, 1.0, float(n), (add,)
    return v, 1.0, 0.0, ()


def _match_hard_sigmoid(node: Node) -> Outcome:
    """min(max(a x + b, 0), top) / top, the whole in the range 0 to 1."""
    if node.op.name in ("Mul", "Div"):
        n = number(node.inputs[1])
        if not n:
            return None
        v, factor = node.input, (1 / float(n) if node.op.name == "Div" else float(n))
    else:
        v, factor = node.output, 1.0
    clip = _clipped(v)
    if clip is None or not node.output.type.dtype.is_float:
        return None
    y, top, nodes = clip
    x, a, c, more = _affine(y)
    if abs(top * factor - 1) > 1e-5 or not more or abs(c / top - 0.5) > 1e-3:
        return None  # a clip like Relu6, or of something else than a slope around one half
    return Match((*nodes, *more), (x, a * factor, c * factor))


FUSE.add(
    "hard-sigmoid",
    Rule("hard-sigmoid", "clip(x + 3, 0, 6) / 6 and its like become HardSigmoid", ("Mul", "Div", "Min", "Relu", "Max"), _match_hard_sigmoid,
         lambda b, node, f: b.op("HardSigmoid", f[0], alpha=f[1], beta=f[2])),
)  # fmt: skip


def _match_hard_swish(node: Node) -> Outcome:
    def special(f: Value) -> tuple[Value, float, tuple[Node, ...]] | None:
        hard = made_by(f, "HardSigmoid")
        if hard is not None and abs(hard.attrs.alpha - 1 / 6) < 1e-4 and abs(hard.attrs.beta - 0.5) < 1e-4:
            return hard.input, 1.0, (hard,)
        clip = _clipped(f)
        if clip is None:
            return None
        x, a, c, more = _affine(clip[0])
        return (x, 6.0, (*clip[2], *more)) if a == 1 and c == 3 and clip[1] == 6 else None

    found = _product_with(node, special)
    if found is None:
        return None
    (x, weight, hard_nodes), others, c, nodes = found
    for i, other in enumerate(others):
        if other is x:
            return Match((*nodes, *hard_nodes), (x, c * weight, others[:i] + others[i + 1 :]))
    return None


def _hard_swish(b: Builder, node: Node, found: tuple[Value, float, list[Value]]) -> Value:
    x, c, rest = found
    return _times(b, b.op("HardSwish", x), 1.0 if abs(c - 1) < 1e-6 else c, rest)


FUSE.add(
    "hard-swish",
    Rule("hard-swish", "x * clip(x + 3, 0, 6) / 6 becomes HardSwish", ("Mul", "Div"), _match_hard_swish, _hard_swish),
)


def _match_softplus(node: Node) -> Outcome:
    found = _plus_one(node.input, "Exp")
    return Match(found, found[1].input) if found is not None else None


FUSE.add(
    "softplus",
    Rule(
        "softplus",
        "log(1 + exp(x)) becomes Softplus",
        ("Log",),
        _match_softplus,
        lambda b, node, x: b.op("Softplus", x),
    ),
)


def _match_mish(node: Node) -> Outcome:
    for x, t in pairs(node):
        tanh = made_by(t, "Tanh")
        softplus = made_by(tanh.input, "Softplus") if tanh is not None else None
        if tanh is not None and softplus is not None and softplus.input is x:
            return Match((tanh, softplus), x)
    return None


FUSE.add(
    "mish",
    Rule("mish", "x * tanh(softplus(x)) becomes Mish", ("Mul",), _match_mish, lambda b, node, x: b.op("Mish", x)),
)


def _match_leaky(node: Node) -> Outcome:
    """max(x, a x) with 0 < a < 1"""
    for x, scaled in pairs(node):
        mul = made_by(scaled, "Mul")
        if mul is None or not same_shape(x.shape, node.output.shape):
            continue
        for y, c in pairs(mul):
            n = number(c)
            if y is x and n is not None and 0 < n < 1 and x.type.dtype.is_float:
                return Match((mul,), (x, float(n)))
    return None


FUSE.add(
    "leaky-relu",
    Rule(
        "leaky-relu",
        "max(x, a * x) becomes LeakyRelu",
        ("Max",),
        _match_leaky,
        lambda b, node, f: b.op("LeakyRelu", f[0], alpha=f[1]),
    ),
)
