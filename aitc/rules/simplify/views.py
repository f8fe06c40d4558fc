"""Views that do nothing, and views of views."""

from __future__ import annotations

from aitc.ir import dim as dm
from aitc.ir.builder import Builder
from aitc.ir.graph import Node, Value
from aitc.ir.match import like, made_by, same_shape
from aitc.ir.rewrite import SIMPLIFY, Match, Outcome, Rule


def _match_identity(node: Node) -> Outcome:
    x, y = node.input, node.output
    if not same_shape(x.shape, y.shape) or x.type.order != y.type.order:
        return None
    if node.op.name == "Transpose":
        moved = [p for p in node.attrs.perm if x.shape[p] != 1]
        return Match() if moved == sorted(moved) else None
    if node.op.name == "Slice":
        a = node.attrs
        return Match() if all((n == 1 or p == 1) and s == 0 for s, n, p in zip(a.starts, a.sizes, a.steps)) else None
    return Match()


SIMPLIFY.add(
    "identity-view",
    Rule(
        "identity-view",
        "a Reshape, Transpose, Slice or Expand that changes nothing becomes its input",
        ("Reshape", "Transpose", "Slice", "Expand"),
        _match_identity,
        lambda b, node, _: node.input,
    ),
)


def _match_same_op(node: Node) -> Outcome:
    inner = made_by(node.input, node.op.name)
    return Match((inner,), inner) if inner is not None else None


def _compose(b: Builder, node: Node, inner: Node) -> Value:
    x = inner.input
    if node.op.name == "Transpose":
        return b.op("Transpose", x, perm=tuple(inner.attrs.perm[p] for p in node.attrs.perm))
    if node.op.name == "Slice":
        i, o = inner.attrs, node.attrs
        starts = tuple(dm.add(s, dm.mul(t, p)) for s, p, t in zip(i.starts, i.steps, o.starts))
        return b.op("Slice", x, starts=starts, sizes=o.sizes, steps=tuple(p * q for p, q in zip(i.steps, o.steps)))
    return b.op(node.op.name, x, shape=node.attrs.shape)


SIMPLIFY.add(
    "view-of-view",
    Rule(
        "view-of-view",
        "two Reshapes, Transposes, Slices or Expands in a row become one",
        ("Reshape", "Transpose", "Slice", "Expand"),
        _match_same_op,
        _compose,
    ),
)


def _match_unit_transpose(node: Node) -> Outcome:
    moved = [p for p in node.attrs.perm if node.input.shape[p] != 1]
    return Match() if moved == sorted(moved) and not same_shape(node.input.shape, node.output.shape) else None


SIMPLIFY.add(
    "unit-transpose",
    Rule(
        "unit-transpose",
        "a Transpose that moves only axes of size 1 becomes a Reshape",
        ("Transpose",),
        _match_unit_transpose,
        lambda b, node, _: b.op("Reshape", node.input, shape=node.output.shape),
    ),
)


def _match_expanded_operand(node: Node) -> Outcome:
    """Operands that an Expand blew up although the node broadcasts them anyway."""
    full = node.output.shape
    plain = list(node.inputs)
    expands = []
    for i, v in enumerate(node.inputs):
        expand = made_by(v, "Expand", "Fill")
        others = plain[:i] + plain[i + 1 :]
        if expand is not None and any(o is not None and same_shape(o.shape, full) for o in others):
            plain[i] = expand.input if expand.op.name == "Expand" else None
            expands.append(expand)
    return Match(tuple(expands), tuple(plain)) if expands else None


def _unexpanded(b: Builder, node: Node, inputs: tuple[Value | None, ...]) -> Value:
    """``node`` on ``inputs``; None stands for the number of the Fill that was there."""
    scalars = [
        old.producer.attrs.value if new is None and old is not None and old.producer is not None else None
        for old, new in zip(node.inputs, inputs)
    ]
    plain = [
        b.like(n, old) if new is None and old is not None else new for old, new, n in zip(node.inputs, inputs, scalars)
    ]
    return like(b, node, *plain)


BROADCASTING = (
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Pow",
    "Min",
    "Max",
    "And",
    "Or",
    "Xor",
    "Equal",
    "Less",
    "LessOrEqual",
    "Greater",
    "GreaterOrEqual",
    "Where",
    "Mod",
    "PRelu",
)

SIMPLIFY.add(
    "expanded-operand",
    Rule(
        "expanded-operand",
        "an operand is not expanded to a shape that broadcasting gives anyway",
        BROADCASTING,
        _match_expanded_operand,
        _unexpanded,
    ),
)


def _match_expand_to_reshape(node: Node) -> Outcome:
    x = node.input
    return (
        Match()
        if x.type.rank < node.output.type.rank
        and tuple(node.output.shape) == (1,) * (node.output.type.rank - x.type.rank) + tuple(x.shape)
        else None
    )


SIMPLIFY.add(
    "expand-adds-axes",
    Rule(
        "expand-adds-axes",
        "an Expand that only puts axes of size 1 in front becomes a Reshape",
        ("Expand",),
        _match_expand_to_reshape,
        lambda b, node, _: b.op("Reshape", node.input, shape=node.output.shape),
    ),
)


def _match_reduce_nothing(node: Node) -> Outcome:
    a, x = node.attrs, node.input
    return (
        Match()
        if a.function in ("sum", "mean", "max", "min", "prod") and all(x.shape[i] == 1 for i in a.axes)
        else None
    )


SIMPLIFY.add(
    "reduce-nothing",
    Rule(
        "reduce-nothing",
        "a sum, mean, max, min or product over axes of size 1 becomes a Reshape",
        ("Reduce",),
        _match_reduce_nothing,
        lambda b, node, _: b.op("Reshape", node.input, shape=node.output.shape),
    ),
)
