"""Constant factors move into weights: batch norm behind a convolution or a MatMul, scales before and behind, chains of constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from aitc.ir.builder import Builder
from aitc.ir.graph import Node, Value
from aitc.ir.match import broadcasts_along, like, made_by, sole
from aitc.ir.rewrite import SIMPLIFY, Match, Outcome, Rule

SMALL_BYTES = 1 << 16
_LINEAR = ("Conv", "ConvTranspose", "MatMul")


@dataclass(frozen=True, slots=True)
class _Scaled:
    linear: Node
    factor: Value
    divide: bool
    term: Value | None  # of an Add between


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64)


def _own(w: Value | None) -> bool:
    """Whether weights are constant and may be changed: large ones that others read as well would be stored twice."""
    return w is not None and w.const is not None and (len(w.users) == 1 or w.const.nbytes <= SMALL_BYTES)


def _constant(b: Builder, array: np.ndarray, like_: Value, name: str) -> Value:
    return b.constant(array.astype(like_.type.dtype.numpy), name=name)


def _channel_axis(node: Node) -> int:
    """The axis of the node's output along which its weights give each entry."""
    return node.output.type.rank - 1 if node.op.name == "MatMul" else 1


def _linear(v: Value) -> Node | None:
    """A Conv or MatMul of constant weights on its right that nobody but one node reads."""
    node = made_by(v, *_LINEAR)
    if node is None or not _own(node.inputs[1]) or not sole(v) or getattr(node.attrs, "out", None) is not None:
        return None
    return node


def _match_scaled(node: Node) -> Outcome:
    if not node.output.type.dtype.is_float:
        return None
    for x, c in ((node.inputs[0], node.inputs[1]), (node.inputs[1], node.inputs[0])):
        if (
            x is None
            or c is None
            or c.const is None
            or (node.op.name == "Div" and c is not node.inputs[1])
            or x.type.rank != node.output.type.rank
        ):
            continue
        linear, term = _linear(x), None
        nodes: tuple[Node, ...] = ()
        add = made_by(x, "Add")
        if linear is None and add is not None and sole(x):
            for y, t in ((add.inputs[0], add.inputs[1]), (add.inputs[1], add.inputs[0])):
                if y is not None and t is not None and t.const is not None and _linear(y) is not None:
                    linear, term, nodes = _linear(y), t, (add,)
        if linear is None:
            continue
        if not broadcasts_along(c, node.output.type.rank, _channel_axis(linear)):
            return None
        return Match((linear, *nodes), _Scaled(linear, c, node.op.name == "Div", term))
    return None


def _scale(b: Builder, node: Node, m: _Scaled) -> Value:
    w = m.linear.inputs[1]
    assert w is not None and w.const is not None and m.factor.const is not None
    factor = _wide(m.factor.const)
    if m.divide:
        factor = 1 / factor
    scaled = _scaled_weights(m.linear, _wide(w.const), factor.reshape(-1))
    y = like(b, m.linear, m.linear.inputs[0], _constant(b, scaled, w, w.name))
    if m.term is None:
        return y
    assert m.term.const is not None
    return b.op("Add", y, _constant(b, _wide(m.term.const) * factor, m.term, m.term.name))


def _scaled_weights(linear: Node, w: Any, factor: Any) -> Any:
    """``w`` with each output channel times its factor (one for all, or one each)."""
    if linear.op.name == "MatMul":
        return w * factor
    if linear.op.name == "Conv":
        return w * factor.reshape(-1, *(1,) * (w.ndim - 1))
    groups = linear.attrs.group  # [C, K / groups, ...]: channel k of group g is at [C / groups * g ..., k]
    if factor.size == 1 or groups == 1:
        return w * factor.reshape(1, -1, *(1,) * (w.ndim - 2))
    per = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    return (per * factor.reshape(groups, 1, -1, *(1,) * (w.ndim - 2))).reshape(w.shape)


SIMPLIFY.add(
    "scale-into-weights",
    Rule(
        "scale-into-weights",
        "a constant factor per output channel behind a Conv, ConvTranspose or MatMul (and an Add) goes into the weights",
        ("Mul", "Div"),
        _match_scaled,
        _scale,
    ),
)


def _match_scaled_input(node: Node) -> Outcome:
    w = node.inputs[1]
    mul = made_by(node.inputs[0], "Mul")
    if not _own(w) or mul is None or not sole(mul.output):
        return None
    for x, c in ((mul.inputs[0], mul.inputs[1]), (mul.inputs[1], mul.inputs[0])):
        if (
            c is not None
            and c.const is not None
            and c.const.size == 1
            and x is not None
            and x.shape == mul.output.shape
        ):
            return Match((mul,), (x, c))
    return None


def _scale_input(b: Builder, node: Node, found: tuple[Value, Value]) -> Value:
    x, c = found
    w = node.inputs[1]
    assert w is not None and w.const is not None and c.const is not None
    return like(b, node, x, _constant(b, _wide(w.const) * _wide(c.const).reshape(-1), w, w.name))


SIMPLIFY.add(
    "scale-before-weights",
    Rule(
        "scale-before-weights",
        "a constant number times the input of a Conv, ConvTranspose or MatMul goes into the weights",
        _LINEAR,
        _match_scaled_input,
        _scale_input,
    ),
)


def _match_chain(node: Node) -> Outcome:
    """(x + a) + b, and x times or over a, times or over b, with constants a, b that broadcast to one of them."""
    if not node.output.type.dtype.is_float:
        return None
    family = ("Add",) if node.op.name == "Add" else ("Mul", "Div")
    for at, y in enumerate(node.inputs):
        inner = made_by(y, *family)
        outer = node.inputs[1 - at]
        if (
            inner is None
            or y is None
            or outer is None
            or outer.const is None
            or not sole(y)
            or (node.op.name == "Div" and at == 1)
        ):
            continue
        for i, x in enumerate(inner.inputs):
            c = inner.inputs[1 - i]
            if x is None or c is None or c.const is None or x.const is not None or (inner.op.name == "Div" and i == 1):
                continue
            if (
                x.type.rank == node.output.type.rank
                and max(c.const.size, outer.const.size) == np.broadcast(c.const, outer.const).size
            ):
                return Match((inner,), (x, c, outer, inner.op.name))
    return None


def _chain(b: Builder, node: Node, found: tuple[Value, Value, Value, str]) -> Value:
    x, c, outer, inner = found
    assert c.const is not None and outer.const is not None
    if node.op.name == "Add":
        return b.op("Add", x, _constant(b, _wide(c.const) + _wide(outer.const), outer, outer.name))
    factor = (1 / _wide(c.const) if inner == "Div" else _wide(c.const)) * (
        1 / _wide(outer.const) if node.op.name == "Div" else _wide(outer.const)
    )
    if np.all(np.abs(factor - 1) < 1e-7):
        factor = np.ones_like(factor)
    return b.op("Mul", x, _constant(b, factor, outer, outer.name))


SIMPLIFY.add(
    "constant-chain",
    Rule(
        "constant-chain",
        "(x + a) + b, (x * a) * b and their like with / become one operation",
        ("Add", "Mul", "Div"),
        _match_chain,
        _chain,
    ),
)


def _match_sub(node: Node) -> Outcome:
    c = node.inputs[1]
    if c is None or c.const is None or not c.type.dtype.is_float or c.const.size > 1 << 16:
        return None
    return Match(found=c)


SIMPLIFY.add(
    "subtract-constant",
    Rule(
        "subtract-constant",
        "x - c becomes x + (-c), so that terms meet",
        ("Sub",),
        _match_sub,
        lambda b, node, c: b.op("Add", node.inputs[0], _constant(b, -c.const, c, c.name)),
    ),
)
