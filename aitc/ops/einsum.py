"""Einsum as transposes, products, reductions and matrix products of its operands, two at a time."""

from __future__ import annotations

import re
from collections.abc import Sequence

from aitc.ir import dim as d
from aitc.ir.dim import Dim
from aitc.ir.graph import Value
from aitc.ops import declare
from aitc.ops.attribute import Equation
from aitc.ops.declare import Scope, onnx_op, transpose


def parse(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Each operand's labels and the result's, one character an axis; the axes of an ellipsis get capital letters
    that the equation does not use.

    Raises ValueError for an equation that does not fit the operands.
    """
    equation = equation.replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    for term in (*terms, right):
        if not re.fullmatch(r"[A-Za-z]*(\.\.\.)?[A-Za-z]*", term):
            raise ValueError(f"term {term!r} of equation {equation!r} is not made of letters and one ellipsis")
    if len(terms) != len(ranks):
        raise ValueError(f"equation {equation!r} has {len(terms)} operands, the node {len(ranks)}")
    spare = [chr(c) for c in range(0x391, 0x3C9) if chr(c) not in equation]  # Greek, so that no label clashes
    widths = []
    for term, rank in zip(terms, ranks):
        named = len(term.replace("...", ""))
        if rank < named or ("..." not in term and rank != named):
            raise ValueError(f"term {term!r} of equation {equation!r} does not fit rank {rank}")
        widths.append(rank - named if "..." in term else 0)
    widest = max(widths, default=0)
    dots = spare[:widest]
    labels = [t.replace("...", "".join(dots[widest - w :])) for t, w in zip(terms, widths)]
    if arrow:
        result = right.replace("...", "".join(dots))
    else:
        once = [c for c in sorted(set("".join(terms)) - {"."}) if "".join(terms).count(c) == 1]
        result = "".join(dots) + "".join(once)
    if any(c not in "".join(labels) for c in result) or len(set(result)) != len(result):
        raise ValueError(f"the result of equation {equation!r} names axes that no operand has, or one twice")
    return labels, result


def diagonal(b: Scope, x: Value, labels: str) -> tuple[Value, str]:
    """``x`` with axes of equal labels replaced by their diagonal."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            i = labels.index(label)
            j = labels.index(label, i + 1)
            rest = [k for k in range(len(labels)) if k not in (i, j)]
            n = x.shape[i]
            x = transpose(b, x, (*rest, i, j))
            kept = [x.shape[k] for k in range(len(rest))]
            x = declare.reshape(b, x, (*kept, d.mul(n, n)))
            size_step = d.add(n, 1)
            if isinstance(size_step, int):
                x = declare.slice_axis(b, x, len(rest), 0, n, size_step)
            else:  # a step must be a number: cut rows of n + 1 instead
                x = declare.slice_axis(b, x, len(rest), 0, d.add(d.mul(d.add(n, -1), size_step), 1))
                x = b.op("Pad", x, b.like(0, x), pads=(*([0] * len(rest)), 0, *([0] * len(rest)), n), mode="constant")
                x = declare.slice_axis(b, declare.reshape(b, x, (*kept, n, size_step)), len(rest) + 1, 0, 1)
                x = declare.reshape(b, x, (*kept, n))
            labels = "".join(labels[k] for k in rest) + label
    return x, labels


def summed(b: Scope, x: Value, labels: str, keep: set[str]) -> tuple[Value, str]:
    """``x`` summed over the axes whose labels nobody needs."""
    axes = tuple(i for i, c in enumerate(labels) if c not in keep)
    if not axes:
        return x, labels
    return b.op("Reduce", x, function="sum", axes=axes, keepdims=False), "".join(c for c in labels if c in keep)


def contract(b: Scope, x: Value, xl: str, y: Value, yl: str, keep: set[str]) -> tuple[Value, str]:
    """The product of two operands, summed over the labels that both have and nobody else needs."""
    x, xl = summed(b, x, xl, keep | set(yl))
    y, yl = summed(b, y, yl, keep | set(xl))
    size: dict[str, Dim] = {}
    for labels, v in ((xl, x), (yl, y)):
        for c, s in zip(labels, v.shape):
            if size.get(c, 1) == 1:
                size[c] = s
    inner = [c for c in xl if c in yl and c not in keep]
    if not inner or any(x.shape[xl.index(c)] != y.shape[yl.index(c)] for c in inner):
        labels = xl + "".join(c for c in yl if c not in xl)
        z = b.op("Mul", _aligned(b, x, xl, labels), _aligned(b, y, yl, labels))
        return summed(b, z, labels, keep)
    batch = [c for c in xl if c in yl and c in keep]
    rows = [c for c in xl if c not in yl]
    columns = [c for c in yl if c not in xl]
    x = transpose(b, x, tuple(xl.index(c) for c in (*batch, *rows, *inner)))
    y = transpose(b, y, tuple(yl.index(c) for c in (*batch, *inner, *columns)))
    n = len(batch)
    k = d.product(size[c] for c in inner)
    x = declare.reshape(b, x, (*x.shape[:n], d.product(size[c] for c in rows), k))
    y = declare.reshape(b, y, (*y.shape[:n], k, d.product(size[c] for c in columns)))
    z = b.op("MatMul", x, y)
    return declare.reshape(b, z, (*z.shape[:n], *(size[c] for c in rows), *(size[c] for c in columns))), "".join(
        (*batch, *rows, *columns)
    )


def _aligned(b: Scope, x: Value, labels: str, wanted: str) -> Value:
    """``x`` with its axes in the order of ``wanted`` and axes of 1 for the labels it lacks."""
    order = [labels.index(c) for c in wanted if c in labels]
    x = transpose(b, x, tuple(order))
    sizes = iter(x.shape)
    return declare.reshape(b, x, (next(sizes) if c in labels else 1 for c in wanted))


@onnx_op("Einsum")
def einsum(b: Scope, *operands: Value, equation: Equation) -> Value:
    terms, result = parse(equation, [v.type.rank for v in operands])
    x, xl = diagonal(b, operands[0], terms[0])
    for i in range(1, len(operands)):
        y, yl = diagonal(b, operands[i], terms[i])
        x, xl = contract(b, x, xl, y, yl, set(result) | set("".join(terms[i + 1 :])))
    x, xl = summed(b, x, xl, set(result))
    return transpose(b, x, tuple(xl.index(c) for c in result))
