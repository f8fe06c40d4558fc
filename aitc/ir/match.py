"""What rules ask about values: constants, producers, sole readers, and what is behind casts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from aitc.ir import content as contents
from aitc.ir.builder import Builder
from aitc.ir.dim import Dim, Sum
from aitc.ir.graph import Node, Value


def number(v: Value | None) -> float | int | bool | None:
    """The one number that every element of a constant has, or None. Large constants with several elements are not searched."""
    if v is None:
        return None
    array = v.const
    if array is None:
        if v.producer is not None and v.producer.op.name in ("Expand", "Reshape"):
            return number(v.producer.input)
        if v.producer is not None and v.producer.op.name == "Fill":
            return v.producer.attrs.value
        if v.content is None or not contents.is_numeric(v.content):
            return None
        array = contents.as_numpy(v.content, v.type.dtype)
    if array.size == 0 or array.dtype == object or (array.size > 4096):
        return None
    first = array.reshape(-1)[0]
    if array.size > 1 and not np.all(array == first):
        return None
    return first.item() if hasattr(first, "item") and first.dtype.kind in "iufb" else float(first)


def is_number(v: Value | None, *wanted: float, within: float = 2e-3) -> bool:
    """Whether ``v`` is a constant of one number close (relatively) to one of ``wanted``: exporters write them in any precision."""
    x = number(v)
    return x is not None and any(abs(x - w) <= within * abs(w) for w in wanted)


def constant(v: Value | None) -> bool:
    return v is not None and v.const is not None


def made_by(v: Value | None, *ops: str) -> Node | None:
    """The node that computes ``v`` if it is one of ``ops``."""
    if v is None or v.producer is None or v.producer.op.name not in ops:
        return None
    return v.producer


def sole(v: Value) -> bool:
    """Whether exactly one input of one node reads ``v`` (graph outputs are the caller's business: see ``Graph.outputs``)."""
    return len(v.users) == 1 and next(iter(v.users.values())) == 1


def only_user(v: Value) -> Node | None:
    """The node that alone reads ``v``, or None."""
    return next(iter(v.users)) if len(v.users) == 1 else None


def pairs(node: Node) -> Iterator[tuple[Value, Value]]:
    """The two operands of a commutative node, in both orders."""
    a, b = node.inputs[0], node.inputs[1]
    assert a is not None and b is not None
    yield a, b
    if a is not b:
        yield b, a


def operand_and_number(node: Node | None) -> tuple[Value, float] | None:
    """``x`` and ``c`` of a node ``x op c`` or ``c op x`` with a constant number."""
    if node is None or len(node.inputs) != 2:
        return None
    for x, c in pairs(node):
        n = number(c)
        if n is not None and x.const is None:
            return x, float(n)
    return None


def uncast(v: Value, passed: list[Node] | None = None) -> Value:
    """``v`` before any float-to-float Casts; the Casts are added to ``passed``."""
    while (node := made_by(v, "Cast")) is not None and node.input.type.dtype.is_float and v.type.dtype.is_float:
        if passed is not None:
            passed.append(node)
        v = node.input
    return v


def through(v: Value, *ops: str, passed: list[Node] | None = None) -> Value:
    """``v`` before any nodes of ``ops`` (its first input is followed)."""
    while (node := made_by(v, *ops)) is not None:
        if passed is not None:
            passed.append(node)
        v = node.input
    return v


def same_shape(a: tuple[Dim, ...], b: tuple[Dim, ...]) -> bool:
    """Whether two shapes are certainly equal."""
    return tuple(a) == tuple(b)


def broadcasts_along(v: Value, rank: int, axis: int) -> bool:
    """Whether ``v`` varies at most along ``axis`` of a tensor of ``rank``."""
    if v.type.rank > rank:
        return False
    offset = rank - v.type.rank
    return all(d == 1 or i + offset == axis for i, d in enumerate(v.shape))


def uses_symbols(attrs: Any) -> bool:
    """Whether an attribute holds a Dim that is not an integer."""
    for name in getattr(attrs, "__dataclass_fields__", ()):
        x = getattr(attrs, name)
        if isinstance(x, Sum) or (isinstance(x, tuple) and any(isinstance(e, Sum) for e in x)):
            return True
    return False


def like(b: Builder, node: Node, *inputs: Value | None) -> Value:
    """A node with the op and attributes of ``node`` on other inputs."""
    attrs = {f: getattr(node.attrs, f) for f in getattr(node.attrs, "__dataclass_fields__", ())}
    return b.op(node.op.name, *inputs, **attrs)
