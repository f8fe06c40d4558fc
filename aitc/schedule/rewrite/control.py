"""Before scheduling: what only the data decides gets the form that the host can run.

- Ops that return as many results as the data gives (NonZero, Unique, NonMaxSuppression) become ops with room for all, a count, a ReadDims of
  it, and views of the part that counts. So every size that is known late is defined by a ReadDims, or by a branch or loop.
- Scan becomes Loop; a loop's body reads its iteration as a dim, never from memory, and its slices as views of what is scanned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from aitc.ir import dim as dm
from aitc.ir.builder import Builder
from aitc.ir.dim import Dim, Sum, Symbol
from aitc.ir.dtype import I64
from aitc.ir.graph import Graph, Node, Value
from aitc.ops.room import SEGMENT
from aitc.schedule.core.mentioned import symbols_in


@dataclass(frozen=True, slots=True)
class LoopForm:
    """How a lowered Loop runs. Its body's inputs are the carried values; outputs are ``again`` (if ``asks``), carried values, parts to stack."""

    counter: Symbol
    trips: Value | Dim | None
    go: Value | None
    asks: bool
    carried: int


@dataclass(slots=True)
class Control:
    """What lowering found out, for the scheduler."""

    loops: dict[Node, LoopForm] = field(default_factory=dict)


def lower_control(graph: Graph, control: Control | None = None) -> Control:
    """Lowers ``graph`` and all bodies in it, in place."""
    control = control or Control()
    behind: dict[Node, list[Node]] = {}  # a ReadDims must stand in front of what needs its dims
    for node in graph.nodes:
        b = Builder(graph, node.locs, place=False)
        if node.op.name in SIZED:
            for old, new in zip(node.outputs, SIZED[node.op.name](b, node), strict=True):
                graph.replace_uses(old, new)
        elif node.op.name == "ReadDims":
            graph.replace_uses(node.output, node.input)
        elif node.op.name == "Scan":
            _scan(b, graph, node, control)
        elif node.op.name == "Loop":
            _loop(node, control)
        if b.made:
            behind[node] = b.made
    if behind:
        graph.place_behind(behind)
        graph.sweep()
    for node in graph.nodes:
        for body in node.bodies:
            lower_control(body, control)
            body.sweep()  # an iteration that nobody asks for
            body.captured = outer_values(body)
    return control


# --- counts


def _counted(b: Builder, node: Node, full: Node, counts: Value) -> None:
    """Defines the symbol of ``node`` by what ``counts`` holds when the model runs."""
    b.op("ReadDims", counts, dims=(node.attrs.count,))


def _first(b: Builder, v: Value, axis: int, count: Dim) -> Value:
    sizes = tuple(count if a == axis else d for a, d in enumerate(v.shape))
    return b.op("Slice", v, starts=(0,) * v.type.rank, sizes=sizes, steps=(1,) * v.type.rank)


def _packed(b: Builder, node: Node, full: Node) -> Value:
    """The rows that were found in all segments."""
    room, counts = full.outputs[:2]
    segments, size, width = room.shape
    if segments == 1:
        rows = b.op("Reshape", room, shape=(size, width))
    else:
        ends = b.op("CumSum", counts, axis=0, exclusive=False, reverse=False, function="sum")
        rows, counts = b.node("PackRows", room, counts, ends).outputs
    _counted(b, node, full, counts)
    return _first(b, rows, 0, node.attrs.count)


def _nonzero(b: Builder, node: Node) -> list[Value]:
    most = dm.upper(node.input.type.elems)
    few = most is not None and most <= 2 * SEGMENT
    full = b.node("NonZeroRoom", node.input, segment=0 if few else SEGMENT)
    return [b.op("Transpose", _packed(b, node, full), perm=(1, 0))]


def _unique(b: Builder, node: Node) -> list[Value]:
    a = node.attrs
    full = b.node("UniqueRoom", node.input, axis=a.axis, sorted=a.sorted)
    _counted(b, node, full, full.outputs[4])
    y, first, inverse, counts = full.outputs[:4]
    return [_first(b, y, a.axis or 0, a.count), _first(b, first, 0, a.count), inverse, _first(b, counts, 0, a.count)]


def _nms(b: Builder, node: Node) -> list[Value]:
    full = b.node("NonMaxSuppressionRoom", *node.inputs, centers=node.attrs.centers)
    return [_packed(b, node, full)]


SIZED: dict[str, Callable[[Builder, Node], list[Value]]] = {
    "NonZero": _nonzero,
    "Unique": _unique,
    "NonMaxSuppression": _nms,
}


# --- loops


def _counter(control: Control, trips: Dim | None) -> Symbol:
    top = None if trips is None else dm.upper(trips)
    return Symbol(f"trip_of_loop_{len(control.loops)}", 0, None if top is None else max(top - 1, 0))


def _replace_input(body: Graph, old: Value, new: Value, made: list[Node]) -> None:
    """Readers of the input ``old`` of a body read ``new``, made by ``made``, from now on."""
    body.replace_uses(old, new)
    body.reorder(made)


def _known(v: Value | None) -> object:
    """The only element of a scalar if it is known at compile time, as a number or Dim."""
    if v is None:
        return None
    if v.const is not None:
        return v.const.reshape(-1)[0].item()
    if v.content is not None and v.content.size == 1:
        e = v.content.reshape(-1)[0]
        return e if isinstance(e, (int, Sum)) else None
    return None


def _loop(node: Node, control: Control) -> None:
    """Iteration and condition leave the body's inputs: one is a dim, the other true whenever the body runs."""
    if node in control.loops:
        return
    body = node.bodies[0]
    trip, go = node.inputs[:2]
    known = _known(trip)
    counter = _counter(control, known if isinstance(known, (int, Sum)) else None)
    iteration, condition = body.inputs[:2]
    b = Builder(body, node.locs, place=False)
    number = b.op("Dims", content=(Sum((((counter,), 1),)),), shape=iteration.shape, dtype=I64)
    always = body.outputs[0] is condition or bool(_known(body.outputs[0]))
    _replace_input(body, iteration, number, b.made)
    true = b.constant(np.full(condition.shape, True))
    _replace_input(body, condition, true, [])
    del body.inputs[:2]
    if always:
        del body.outputs[0]
        del body.output_names[:1]
    starts = go is None or bool(_known(go))
    control.loops[node] = LoopForm(
        counter,
        known if isinstance(known, (int, Sum)) else trip,
        None if starts else go,
        not always,
        node.attrs.carried,
    )


def _scan(b: Builder, graph: Graph, node: Node, control: Control) -> None:
    """A Loop over the length, whose body reads slices of what is scanned; other directions and axes are views behind it."""
    a, body = node.attrs, node.bodies[0]
    states = len(node.inputs) - a.num_scan_inputs
    scanned = node.inputs[states:]
    assert scanned[0] is not None
    length = scanned[0].shape[a.scan_input_axes[0]]
    counter = _counter(control, length)
    trip: Dim = Sum((((counter,), 1),))
    inner = Builder(body, node.locs, place=False)
    for v, slot, axis, back in zip(
        scanned, body.inputs[states:], a.scan_input_axes, a.scan_input_directions, strict=True
    ):
        assert v is not None
        starts = tuple((length - 1 - trip if back else trip) if k == axis else 0 for k in range(v.type.rank))
        part = inner.op(
            "Slice",
            v,
            starts=starts,
            sizes=tuple(1 if k == axis else d for k, d in enumerate(v.shape)),
            steps=(1,) * v.type.rank,
        )
        body.replace_uses(slot, inner.op("Reshape", part, shape=slot.shape))
    body.reorder(inner.made)
    del body.inputs[states:]
    stacks = [(length, *o.shape) for o in body.outputs[states:]]
    shapes = (*(o.shape for o in node.outputs[:states]), *stacks)
    loop = b.node(
        "Loop", None, None, *node.inputs[:states], bodies=(body,), dtypes=a.dtypes, shapes=shapes, carried=states
    )
    control.loops[loop] = LoopForm(counter, length, None, False, states)
    results = list(loop.outputs[:states])
    for v, axis, back in zip(loop.outputs[states:], a.scan_output_axes, a.scan_output_directions, strict=True):
        if back:
            starts = (length - 1, *(0 for _ in v.shape[1:]))
            v = b.op("Slice", v, starts=starts, sizes=v.shape, steps=(-1, *(1 for _ in v.shape[1:])))
        if axis:
            order = list(range(1, v.type.rank))
            order.insert(axis, 0)
            v = b.op("Transpose", v, perm=tuple(order))
        results.append(v)
    for old, new in zip(node.outputs, results, strict=True):
        graph.replace_uses(old, new)
    graph.set_inputs(node, ())
    node.bodies = ()


# --- who defines what


def outer_values(body: Graph) -> list[Value]:
    """Values of the graphs around ``body`` that it, or a body in it, reads or returns."""
    own = {id(v) for v in body.inputs} | {id(o) for node in body.nodes for o in node.outputs}
    found: dict[int, Value] = {}
    for node in body.nodes:
        for v in (*node.inputs, *(v for inner in node.bodies for v in inner.captured)):
            if v is not None and v.const is None and id(v) not in own:
                found[id(v)] = v
    found.update({id(v): v for v in body.outputs if v.const is None and id(v) not in own})
    return list(found.values())


def definitions(graph: Graph, known: set[str]) -> dict[str, Node]:
    """Which node of ``graph`` defines each symbol that is not ``known`` before."""
    defined: dict[str, Node] = {}
    for node in graph.nodes:
        if node.op.name == "ReadDims":
            defined.update({s.name: node for s in symbols_in(node.attrs.dims)})
        elif node.bodies:
            for s in (s for o in node.outputs for s in symbols_in(o.shape)):
                if s.name not in known:
                    defined.setdefault(s.name, node)
    return defined
