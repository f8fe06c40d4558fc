"""Reshapes around transposes and layers: axes merged before and split again after need not be merged at all."""

from __future__ import annotations

from aitc.ir import dim as dm
from aitc.ir.builder import Builder
from aitc.ir.graph import Node, Value
from aitc.ir.match import like, made_by, same_shape, sole
from aitc.ir.op import OPS, Kind
from aitc.ir.rewrite import SIMPLIFY, Match, Outcome, Rule
from aitc.ir.types import Shape
from aitc.registry import load

load("aitc.ops")


def merged_groups(fine: Shape, coarse: Shape) -> list[list[int]] | None:
    """Which neighbouring axes of ``fine`` each axis of ``coarse`` merges, or None if ``coarse`` is no merge of ``fine``.

    Axes of size 1 go to the group before them; a coarse axis of size 1 may have an empty group.
    """
    groups: list[list[int]] = []
    at = 0
    for d in coarse:
        group: list[int] = []
        size: dm.Dim = 1
        while size != d and at < len(fine):
            size = dm.mul(size, fine[at])
            group.append(at)
            at += 1
        if size != d:
            return None
        while at < len(fine) and fine[at] == 1 and len(groups) + 1 == len(coarse):
            group.append(at)
            at += 1
        groups.append(group)
    return groups if at == len(fine) else None


def _match_transposed_merge(node: Node) -> Outcome:
    """Transpose(Reshape(x)) where the Reshape merges axes, and the merge is undone or x is a Transpose too."""
    merge = made_by(node.input, "Reshape")
    if merge is None:
        return None
    groups = merged_groups(merge.input.shape, merge.output.shape)
    if groups is None or len(merge.input.shape) <= len(merge.output.shape):
        return None
    users = list(node.output.users)
    undone = bool(users) and all(u.op.name == "Reshape" and u.output.type.rank > node.output.type.rank for u in users)
    if not undone and made_by(merge.input, "Transpose") is None:
        return None
    perm = tuple(axis for p in node.attrs.perm for axis in groups[p])
    return Match((merge,), (merge.input, perm))


def _transpose_first(b: Builder, node: Node, found: tuple[Value, tuple[int, ...]]) -> Value:
    x, perm = found
    return b.op("Reshape", b.op("Transpose", x, perm=perm), shape=node.output.shape)


SIMPLIFY.add(
    "transposed-merge",
    Rule(
        "transposed-merge",
        "a Transpose of merged axes is done before they are merged, if that lets views meet",
        ("Transpose",),
        _match_transposed_merge,
        _transpose_first,
    ),
)


# --- leading axes ----------------------------------------------------------------------------------------------------------


def _leading_merge(v: Value | None) -> Node | None:
    """A Reshape that merges or splits leading axes and keeps the last one."""
    node = made_by(v, "Reshape")
    if (
        node is None
        or v is None
        or v.type.rank < 1
        or node.input.type.rank < 2
        or not node.input.shape
        or node.input.shape[-1] != v.shape[-1]
    ):
        return None
    return node if node.input.type.rank > v.type.rank else None


def _match_flat_matmul(node: Node) -> Outcome:
    flat = _leading_merge(node.inputs[0])
    w = node.inputs[1]
    if flat is None or w is None or w.type.rank != 2 or node.output.type.rank != 2:
        return None
    return Match((flat,), flat.input)


def _matmul_unflattened(b: Builder, node: Node, x: Value) -> Value:
    return b.op("Reshape", like(b, node, x, node.inputs[1]), shape=node.output.shape)


SIMPLIFY.add(
    "flat-matmul",
    Rule(
        "flat-matmul",
        "MatMul of x with its leading axes merged and a matrix is done on x, and the result merged",
        ("MatMul",),
        _match_flat_matmul,
        _matmul_unflattened,
    ),
)

_POINTWISE = tuple(op.name for op in OPS if op.kind is Kind.POINTWISE and op.name != "Copy")


def _match_flat_pointwise(node: Node) -> Outcome:
    """One operand, or all that are not rows of the last axis, are the same merge."""
    if node.output.type.rank < 1 or not any(made_by(v, "Reshape") for v in node.inputs):
        return None
    flats: list[Node] = []
    for v in node.inputs:
        assert v is not None
        flat = _leading_merge(v) if same_shape(v.shape, node.output.shape) else None
        if flat is not None and sole(v):
            flats.append(flat)
        elif any(d != 1 for d in v.shape[:-1]):
            return None
    if not flats or any(not same_shape(f.input.shape, flats[0].input.shape) for f in flats):
        return None
    return Match(tuple(flats), flats)


def _pointwise_unflattened(b: Builder, node: Node, flats: list[Node]) -> Value:
    rank = flats[0].input.type.rank
    inputs: list[Value | None] = []
    for v in node.inputs:
        flat = next((f for f in flats if f.output is v), None)
        if flat is not None or v is None:
            inputs.append(flat.input if flat is not None else v)
        elif v.type.rank > 1:  # [1, 1, C] or [1, C]: all that it broadcasts over are leading axes
            inputs.append(b.op("Reshape", v, shape=v.shape[-1:]))
        else:
            inputs.append(v)
    y = like(b, node, *inputs)
    assert y.type.rank == rank
    return b.op("Reshape", y, shape=node.output.shape)


SIMPLIFY.add(
    "flat-pointwise",
    Rule(
        "flat-pointwise",
        "pointwise operations on x with its leading axes merged are done on x, and the result merged",
        _POINTWISE,
        _match_flat_pointwise,
        _pointwise_unflattened,
    ),
)


def _match_flat_norm(node: Node) -> Outcome:
    flat = _leading_merge(node.input)
    last = node.input.type.rank - 1
    axes = node.attrs.axes if node.op.name == "LayerNormalization" else (node.attrs.axis,)
    return Match((flat,), flat.input) if flat is not None and sole(flat.output) and axes == (last,) else None


def _norm_unflattened(b: Builder, node: Node, x: Value) -> Value:
    last = x.type.rank - 1
    if node.op.name == "LayerNormalization":
        y = b.op("LayerNormalization", x, axes=(last,), epsilon=node.attrs.epsilon, center=node.attrs.center)
    else:
        y = b.op("Softmax", x, axis=last, log=node.attrs.log)
    return b.op("Reshape", y, shape=node.output.shape)


SIMPLIFY.add(
    "flat-norm",
    Rule(
        "flat-norm",
        "a norm or softmax over the last axis of x with its leading axes merged is done on x, and the result merged",
        ("LayerNormalization", "Softmax"),
        _match_flat_norm,
        _norm_unflattened,
    ),
)


# --- and the other way: a split rises to meet a reshape ------------------------------------------------------------------


def _rows_only(v: Value) -> bool:
    """Whether an operand of a two-dimensional node varies along the last axis at most."""
    return all(d == 1 for d in v.shape[:-1])


def _above(node: Node | None) -> tuple[Node, Value] | None:
    """A node that a split can rise above, and the operand that is split: pointwise with a row, or MatMul with a matrix."""
    if node is None or node.output.type.rank != 2 or not sole(node.output):
        return None
    if node.op.name == "MatMul":
        w = node.inputs[1]
        return (node, node.input) if w is not None and w.type.rank == 2 and node.input.type.rank == 2 else None
    if node.op.kind is not Kind.POINTWISE or node.op.name == "Copy":
        return None
    full = [v for v in node.inputs if v is not None and not _rows_only(v)]
    return (node, full[0]) if len(full) == 1 and same_shape(full[0].shape, node.output.shape) else None


def _match_split(node: Node) -> Outcome:
    x = node.input
    if x.type.rank != 2 or node.output.type.rank <= 2 or x.shape[-1] != node.output.shape[-1]:
        return None
    first = _above(x.producer)
    at = first
    for _ in range(8):
        if at is None:
            return None
        if made_by(at[1], "Reshape") is not None:
            assert first is not None
            return Match((first[0],), first)
        at = _above(at[1].producer)
    return None


def _rise(b: Builder, node: Node, found: tuple[Node, Value]) -> Value:
    below, x = found
    lead = node.output.shape[:-1]
    split = b.op("Reshape", x, shape=(*lead, x.shape[-1]))
    if below.op.name == "MatMul":
        return like(b, below, split, below.inputs[1])
    inputs = [
        split if v is x else v if v is None or v.type.rank < 2 else b.op("Reshape", v, shape=v.shape[-1:])
        for v in below.inputs
    ]
    return like(b, below, *inputs)


SIMPLIFY.add(
    "rising-split",
    Rule(
        "rising-split",
        "rows split into leading axes behind layers that were given a Reshape are split before these layers",
        ("Reshape",),
        _match_split,
        _rise,
    ),
)
