"""Transposes sink towards the outputs, through pointwise ops, concatenations, reductions and norms, until they meet and vanish.

A Transpose costs nothing as a view, but a chain of layers that each transpose there and back hides that nothing has to move at all.
"""

from __future__ import annotations

from dataclasses import replace

from aitc.ir.builder import Builder
from aitc.ir.graph import Node, Value
from aitc.ir.match import like, made_by
from aitc.ir.op import OPS, Kind
from aitc.ir.rewrite import SIMPLIFY, Match, Outcome, Rule
from aitc.registry import load

load("aitc.ops")
_POINTWISE = tuple(op.name for op in OPS if op.kind is Kind.POINTWISE and op.name != "Copy")


def _transposed(node: Node) -> tuple[tuple[int, ...], tuple[Node, ...]] | None:
    """The permutation that all transposed inputs share and their Transposes; None where an input stands in the way."""
    perm: tuple[int, ...] | None = None
    found: list[Node] = []
    for v in node.inputs:
        t = made_by(v, "Transpose")
        if t is None:
            if v is None or not _movable(v, node.output.type.rank):
                return None
            continue
        if (perm is not None and t.attrs.perm != perm) or v is None or v.type.rank != node.output.type.rank:
            return None
        perm = t.attrs.perm
        found.append(t)
    return None if perm is None else (perm, tuple(found))


def _movable(v: Value, rank: int) -> bool:
    """Scalars need no transposing; constants are transposed at compile time; vectors become views."""
    return v.const is not None or all(d == 1 for d in v.shape) or sum(d != 1 for d in v.shape) == 1


def _inverse(perm: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(perm.index(i) for i in range(len(perm)))


def _back(b: Builder, v: Value, perm: tuple[int, ...]) -> Value:
    """``v`` as the untransposed node reads it: the Transpose's input, or a small operand with its axes moved."""
    t = made_by(v, "Transpose")
    if t is not None and t.attrs.perm == perm:
        return t.input
    if all(d == 1 for d in v.shape) and v.type.rank <= 1:
        return v
    rank = len(perm)
    full = (1,) * (rank - v.type.rank) + tuple(v.shape)
    back = _inverse(perm)
    if v.const is not None:
        return b.constant(v.const.reshape(full).transpose(back), name=v.name)
    return b.op("Reshape", v, shape=tuple(full[i] for i in back))  # at most one axis is not 1: nothing moves in memory


def _match_pointwise(node: Node) -> Outcome:
    found = _transposed(node)
    return Match(found[1], found[0]) if found is not None else None


def _sink_pointwise(b: Builder, node: Node, perm: tuple[int, ...]) -> Value:
    y = like(b, node, *(None if v is None else _back(b, v, perm) for v in node.inputs))
    return b.op("Transpose", y, perm=perm)


SIMPLIFY.add(
    "sink-transpose",
    Rule(
        "sink-transpose",
        "op(Transpose(x), c) becomes Transpose(op(x, c')) for pointwise ops",
        _POINTWISE,
        _match_pointwise,
        _sink_pointwise,
    ),
)


def _match_axes(node: Node) -> Outcome:
    t = made_by(node.inputs[0], "Transpose")
    return None if t is None else Match((t,), t)


def _sink_axes(b: Builder, node: Node, t: Node) -> Value:
    perm = t.attrs.perm
    a = node.attrs
    if node.op.name == "Reduce":
        axes = tuple(sorted(perm[i] for i in a.axes))
        y = b.op("Reduce", t.input, function=a.function, axes=axes, keepdims=a.keepdims)
        if a.keepdims:
            return b.op("Transpose", y, perm=perm)
        left = [p for p in range(len(perm)) if p not in axes]  # axes of y, by where they come from
        wanted = [p for p in perm if p not in axes]
        return b.op("Transpose", y, perm=tuple(left.index(p) for p in wanted))
    if node.op.name == "LayerNormalization":
        axes = tuple(sorted(perm[i] for i in a.axes))
        return b.op(
            "Transpose", b.op("LayerNormalization", t.input, axes=axes, epsilon=a.epsilon, center=a.center), perm=perm
        )
    y = b.op("Softmax", t.input, axis=perm[a.axis], log=a.log)
    return b.op("Transpose", y, perm=perm)


SIMPLIFY.add(
    "sink-transpose-reduce",
    Rule(
        "sink-transpose-reduce",
        "a reduction, softmax or layer norm of a Transpose is done on other axes",
        ("Reduce", "Softmax", "LayerNormalization"),
        _match_axes,
        _sink_axes,
    ),
)


def _match_concat(node: Node) -> Outcome:
    found = [made_by(v, "Transpose") for v in node.inputs]
    ts = tuple(t for t in found if t is not None)
    if len(ts) < len(found) or len({t.attrs.perm for t in ts}) != 1:
        return None
    return Match(ts, ts)


def _sink_concat(b: Builder, node: Node, ts: tuple[Node, ...]) -> Value:
    perm = ts[0].attrs.perm
    return b.op("Transpose", b.op("Concat", *(t.input for t in ts), axis=perm[node.attrs.axis]), perm=perm)


SIMPLIFY.add(
    "sink-transpose-concat",
    Rule(
        "sink-transpose-concat",
        "a Concat of equal Transposes is transposed afterwards",
        ("Concat",),
        _match_concat,
        _sink_concat,
    ),
)


def _match_slice(node: Node) -> Outcome:
    t = made_by(node.input, "Transpose")
    return (
        Match((t,), t) if t is not None and len(t.output.users) == 1 else None
    )  # several parts would need a Transpose each


def _sink_slice(b: Builder, node: Node, t: Node) -> Value:
    perm, back = t.attrs.perm, _inverse(t.attrs.perm)
    a = node.attrs
    moved = replace(
        a,
        starts=tuple(a.starts[i] for i in back),
        sizes=tuple(a.sizes[i] for i in back),
        steps=tuple(a.steps[i] for i in back),
    )
    return b.op(
        "Transpose", b.op("Slice", t.input, starts=moved.starts, sizes=moved.sizes, steps=moved.steps), perm=perm
    )


SIMPLIFY.add(
    "sink-transpose-slice",
    Rule(
        "sink-transpose-slice", "a Slice of a Transpose is transposed afterwards", ("Slice",), _match_slice, _sink_slice
    ),
)
