"""What a model input is for, read off the graph: random inputs have to respect it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from aitc.ir import dim as dm
from aitc.ir.dim import Dim
from aitc.ir.graph import Graph, Node, Value
from aitc.ir.op import Kind

IMAGE_CHANNELS = (1, 3, 4)
USES = ("ids:LIMIT", "length:LIMIT", "count", "mask", "image", "boxes", "positive")  # LIMIT: a number or an expression over dims
_COMPARE = frozenset({"Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"})
_FOLLOW = frozenset({Kind.VIEW, Kind.SOURCE})
_THROUGH = frozenset({"Cast", "Clip", "Max", "Min", "Where", "Concat"})


def input_uses(graph: Graph) -> dict[str, str]:
    """One of ``USES`` or "" by input name.

    Integers that index an axis of N elements (Gather, Scatter, OneHot; N may be an expression over the inputs' dims) are ids below N;
    those that are compared with positions along an axis, or end the sequences of a recurrent node, are lengths of 1 to N; those that
    become sizes, trips or bounds at run time are counts. Bools, and integers compared with a constant 0 or 1, negated or turned into
    a float, are masks. Floats of rank 4 with 1, 3 or 4 channels, and bytes with so many, are images; the boxes of RoiAlign are boxes;
    what a Log or Sqrt reads is positive.
    """
    known = frozenset(s for v in graph.inputs for d in v.shape for s in dm.symbols(d))
    return {v.name: _use(v, known) for v in graph.inputs}


@dataclass(slots=True)
class _Roles:
    """How a value is used, by all its ways through the graph."""

    ids: list[Dim] = field(default_factory=list)  # sizes of what it indexes
    lengths: list[Dim] = field(default_factory=list)
    count: bool = False
    masked: bool = False
    boxes: bool = False
    positive: bool = False


def _use(v: Value, known: frozenset[dm.Symbol]) -> str:
    dtype = v.type.dtype
    if dtype.name == "bool":
        return "mask"
    if not dtype.is_integer and not dtype.is_float:
        return ""
    roles = _roles(v, known)
    if dtype.is_integer:
        for use, limits in (("ids", roles.ids), ("length", roles.lengths)):
            if limits:
                return f"{use}:{dm.min_(*limits)}"
        if roles.count:
            return "count"
        if dtype.bits == 8:
            return "mask" if "mask" in v.name.lower() else "image" if _is_image(v) else ""
        return "mask" if roles.masked or "mask" in v.name.lower() else ""
    if roles.boxes:
        return "boxes"
    if _is_image(v):
        return "image"
    return "positive" if roles.positive else ""


def _is_image(v: Value) -> bool:
    return v.type.rank == 4 and bool({d for d in (v.shape[1], v.shape[3]) if isinstance(d, int)} & set(IMAGE_CHANNELS))


def _roles(v: Value, known: frozenset[dm.Symbol]) -> _Roles:
    roles = _Roles()
    seen: set[tuple[int, int]] = set()
    stack: list[tuple[Value, int]] = [(v, 0)]  # a value, and the most that was added to the input on the way
    while stack:
        value, added = stack.pop()
        for node in value.users:
            if (id(node), id(value)) in seen:
                continue
            seen.add((id(node), id(value)))
            stack += _visit(node, value, added, roles, known)
    return roles


def _visit(node: Node, value: Value, added: int, roles: _Roles, known: frozenset[dm.Symbol]) -> Sequence[tuple[Value, int]]:
    """Notes what ``node`` uses ``value`` for; the values through which it is used further."""
    name = node.op.name
    place = next(i for i, x in enumerate(node.inputs) if x is value)
    if node.locs and node.locs[0].op_type == "RoiAlign" and value.type.rank == 2:
        roles.boxes = True
        return ()
    if place == 1 and name in _INDEXED:
        table = node.inputs[0]
        assert table is not None
        sizes = _indexed(node, table, value)
        limits = [dm.add(size, -added) for size in sizes if dm.symbols(size) <= known]
        roles.ids += [n for n in limits if not isinstance(n, int) or n > 0]
        return ()
    if name == "ReadDims" or (name == "Loop" and place == 0):
        roles.count = True
    elif node.op.kind is Kind.RECURRENT and place == 2:
        roles.lengths.append(node.inputs[0].shape[1])  # type: ignore[union-attr]
    elif name in _COMPARE:
        _compare(node, place, roles, known)
    elif name in ("Not", "And", "Or", "Xor"):
        roles.masked = True
    elif name in ("Log", "Sqrt"):
        roles.positive = True
    elif name == "Cast" and value.type.dtype.is_integer and node.output.type.dtype.kind not in ("int", "uint"):
        roles.masked = roles.masked or value.type.rank > 1 or node.output.type.dtype.name == "bool"
    elif name == "Add" and value.type.dtype.is_integer:
        other = node.inputs[1 - place]
        largest = int(other.const.max()) if other is not None and other.const is not None and other.const.size else 0
        return [(node.output, added + max(0, largest))]
    elif node.op.kind in _FOLLOW or name in _THROUGH:
        return [(o, added) for o in node.outputs]
    return ()


_INDEXED = frozenset({"Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND"})


def _indexed(node: Node, table: Value, indices: Value) -> Sequence[Dim]:
    """The sizes of the axes that the elements of ``indices`` name."""
    if node.op.name in ("GatherND", "ScatterND"):
        first, depth = getattr(node.attrs, "batch_dims", 0), indices.shape[-1]
        return table.shape[first : first + depth] if isinstance(depth, int) else ()
    return (table.shape[getattr(node.attrs, "axis", 0)],)


def _compare(node: Node, place: int, roles: _Roles, known: frozenset[dm.Symbol]) -> None:
    """With a constant 0 or 1: a mask. With positions (a Range): as many as there are."""
    other = node.inputs[1 - place]
    if other is None:
        return
    if other.const is not None:
        small = other.const.size and other.const.min() >= 0 and other.const.max() <= 1
        idiom = node.op.name == "Less" and {u.op.name for u in node.output.users} == {"Where"}  # of negative indices
        roles.masked = roles.masked or bool(small and not idiom)
        return
    extent = _positions(other)
    if extent is not None and dm.symbols(extent) <= known:
        (roles.ids if node.op.name == "Equal" else roles.lengths).append(extent)


def _positions(v: Value) -> Dim | None:
    """How many there are, if ``v`` is 0, 1, 2 ... along an axis."""
    while v.producer is not None and (v.producer.op.kind is Kind.VIEW or v.producer.op.name == "Cast"):
        v = v.producer.input
    if v.const is not None and v.const.ndim and v.const.size > 1:
        flat = v.const.reshape(-1)
        return int(flat.size) if (flat == range(flat.size)).all() else None
    if v.producer is not None and v.producer.op.name == "Range" and v.producer.attrs.start == 0 and v.producer.attrs.step == 1:
        size: Dim = v.producer.attrs.size
        return size
    return None
