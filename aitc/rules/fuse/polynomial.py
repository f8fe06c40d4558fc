"""Reads pointwise expressions as products and as polynomials of one value: the many spellings of an activation become one."""

from __future__ import annotations

from aitc.ir.graph import Node, Value
from aitc.ir.match import number

DEPTH = 8
Polynomial = dict[int, float]  # degree -> coefficient


def polynomial(v: Value, x: Value, depth: int = DEPTH) -> Polynomial | None:
    """``v`` as a polynomial of ``x``, through Add, Sub, Mul, Div, Neg and Pow with constants; None if it is none."""
    if v is x:
        return {1: 1.0}
    n = number(v)
    if n is not None:
        return {0: float(n)}
    node = v.producer
    if node is None or depth == 0 or node.op.name not in ("Add", "Sub", "Mul", "Div", "Neg", "Pow"):
        return None
    parts = [polynomial(i, x, depth - 1) for i in node.inputs if i is not None]
    if any(p is None for p in parts):
        return None
    a = parts[0]
    assert a is not None
    if node.op.name == "Neg":
        return {k: -c for k, c in a.items()}
    b = parts[1]
    assert b is not None
    if node.op.name in ("Add", "Sub"):
        sign = 1 if node.op.name == "Add" else -1
        return {k: a.get(k, 0.0) + sign * b.get(k, 0.0) for k in {*a, *b}}
    if node.op.name == "Mul":
        return times(a, b)
    if set(b) != {0} or not b[0]:
        return None
    if node.op.name == "Div":
        return {k: c / b[0] for k, c in a.items()}
    power = b[0]
    if power not in (1, 2, 3):
        return None
    result = {0: 1.0}
    for _ in range(int(power)):
        result = times(result, a)
    return result


def times(a: Polynomial, b: Polynomial) -> Polynomial:
    result: Polynomial = {}
    for i, c in a.items():
        for j, d in b.items():
            result[i + j] = result.get(i + j, 0.0) + c * d
    return result


def is_polynomial(v: Value, x: Value, wanted: Polynomial, within: float = 2e-3) -> bool:
    """Whether ``v`` is that polynomial of ``x``, each coefficient to a relative ``within``; other degrees must be absent."""
    p = polynomial(v, x)
    if p is None:
        return False
    return all(
        abs(p.get(k, 0.0) - wanted.get(k, 0.0)) <= within * max(abs(wanted.get(k, 0.0)), 1e-3) for k in {*p, *wanted}
    )


def factors(v: Value, nodes: list[Node], depth: int = DEPTH) -> tuple[list[Value], float]:
    """``v`` as a product: its factors that are no numbers, and the product of those that are. The nodes passed are added to ``nodes``."""
    n = number(v)
    if n is not None:
        return [], float(n)
    node = v.producer
    if node is None or depth == 0 or node.op.name not in ("Mul", "Div", "Neg"):
        return [v], 1.0
    if node.op.name == "Div":
        d = number(node.inputs[1])
        if not d:
            return [v], 1.0
        nodes.append(node)
        left, c = factors(node.input, nodes, depth - 1)
        return left, c / float(d)
    nodes.append(node)
    if node.op.name == "Neg":
        left, c = factors(node.input, nodes, depth - 1)
        return left, -c
    a, b = node.inputs
    assert a is not None and b is not None
    left, c = factors(a, nodes, depth - 1)
    right, d = factors(b, nodes, depth - 1)
    return left + right, c * d
