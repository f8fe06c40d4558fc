"""Control flow: If, Loop and Scan. What is known at compile time is resolved or unrolled at import; the rest becomes
nodes with bodies.

A body's ``inputs`` and ``outputs`` are ONNX's: none for If's branches; iteration, condition and carried values for
Loop; states and slices for Scan. Outer values that it reads are in ``captured``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aitc.ir import content as contents
from aitc.ir import dim as d
from aitc.ir.dim import Dim
from aitc.ir.dtype import BOOL, I64
from aitc.ir.graph import Graph, Value
from aitc.ir.op import OPS, Kind, Op
from aitc.ir.types import Shape, TensorType
from aitc.ops import declare
from aitc.ops.declare import (
    RANKS_HELP,
    OptionalValue,
    Scope,
    SequenceValue,
    Unjoined,
    Unsupported,
    normalize_axis,
    numbers,
    onnx_op,
)

UNROLL_LIMIT = 2048  # nodes: above that a loop stays a loop


@dataclass(frozen=True, slots=True)
class IfAttrs:
    """The element types and shapes of the outputs. A branch that ``fails`` ends the run with an error."""

    dtypes: tuple[Any, ...]
    shapes: tuple[Shape, ...]  # of the outputs
    fails: tuple[str, ...] = ()  # for each branch why it cannot run, or nothing; none: both can


@dataclass(frozen=True, slots=True)
class LoopAttrs:
    """Inputs: trip count or absent, condition or absent, carried values. Outputs: carried values, then stacked
    scan outputs."""

    dtypes: tuple[Any, ...]
    shapes: tuple[Shape, ...]
    carried: int = 0


@dataclass(frozen=True, slots=True)
class ScanAttrs:
    """Inputs: states, then scanned tensors. Axes and directions (1: backward) have an entry each."""

    dtypes: tuple[Any, ...]
    shapes: tuple[Shape, ...]
    num_scan_inputs: int = 1
    scan_input_axes: tuple[int, ...] = field(default=())
    scan_input_directions: tuple[int, ...] = field(default=())
    scan_output_axes: tuple[int, ...] = field(default=())
    scan_output_directions: tuple[int, ...] = field(default=())


def infer_declared(types: Sequence[TensorType | None], a: Any) -> tuple[TensorType, ...]:
    """The types that the importer found by importing the bodies."""
    return tuple(TensorType(t, s) for t, s in zip(a.dtypes, a.shapes))


def _bodies_only(*_: Any) -> Any:
    raise NotImplementedError("control flow is interpreted by aitc.ir.interpret, which runs the bodies")


for _name, _attrs, _doc in (
    ("If", IfAttrs, "Runs its first body if the condition holds, else its second."),
    (
        "Loop",
        LoopAttrs,
        "Runs its body until the trip count or the condition ends it; carries values and stacks outputs.",
    ),
    ("Scan", ScanAttrs, "Runs its body on each slice of the scanned inputs; carries states and stacks outputs."),
):
    OPS.add(
        _name, Op(_name, Kind.CONTROL, infer_declared, _bodies_only, _attrs, arity=(0, 1 << 30), outputs=-1, doc=_doc)
    )


def known_bool(v: Value | None) -> bool | None:
    array = numbers(v)
    return None if array is None or array.size != 1 else bool(array.reshape(()))


def _unify(b: Scope, stem: str, first: Shape, second: Shape) -> Shape:
    """The shape of what is one or the other; sizes that differ become a symbol."""
    if len(first) != len(second):
        raise Unsupported(_ranks(first, second), RANKS_HELP)
    return tuple(x if x == y else b.fresh(stem, 0) for x, y in zip(first, second))


def _ranks(first: Shape, second: Shape) -> str:
    return f"results of different ranks: [{', '.join(map(str, first))}] and [{', '.join(map(str, second))}]"


# --- If ---------------------------------------------------------------------------------------------------------------


@onnx_op("If")
def if_(b: Scope, condition: Value, *, then_branch: Any, else_branch: Any) -> tuple[Any, ...]:
    taken = known_bool(condition)
    if taken is not None:
        return tuple(b.inline(then_branch if taken else else_branch, label="then" if taken else "else"))
    made = b.branches(then_branch, else_branch, labels=("then", "else"))
    fails = tuple(m if isinstance(m, str) else "" for m in made)
    bodies = tuple(_failing(b, made[1 - i], label) if isinstance(m, str) else m for i, (m, label) in enumerate(zip(made, ("then", "else"))))
    yes, no = bodies[0].outputs, bodies[1].outputs
    apart = [i for i, (v, w) in enumerate(zip(yes, no)) if v.type.rank != w.type.rank]
    if apart:
        for body in bodies:
            body.discard()
        raise Unjoined(_ranks(yes[apart[0]].shape, no[apart[0]].shape), apart)
    outputs = []
    for v, w in zip(yes, no):
        if v.type.dtype is not w.type.dtype:
            raise ValueError(f"the branches give {v.type} and {w.type}")
        outputs.append(TensorType(v.type.dtype, _unify(b, "branch", v.shape, w.shape)))
    node = b.node(
        "If",
        declare.reshape(b, condition, ()),
        bodies=bodies,
        dtypes=tuple(t.dtype for t in outputs),
        shapes=tuple(t.shape for t in outputs),
        fails=fails if any(fails) else (),
    )
    return node.outputs


def _failing(b: Scope, other: Graph, label: str) -> Graph:
    """The body of a branch that cannot run: results of no elements, of the types of the ``other`` branch."""
    graph = Graph(f"{b.graph.name}.{label}")
    graph._names = b.graph._names
    for v, name in zip(other.outputs, other.output_names):
        graph.outputs.append(b.constant(np.zeros([s if s == 1 else 0 for s in v.shape], v.type.dtype.numpy)))
        graph.output_names.append(name)
    return graph


# --- Loop -------------------------------------------------------------------------------------------------------------


@onnx_op("Loop")
def loop(b: Scope, trip: Value | None, condition: Value | None = None, *carried: Any, body: Any) -> tuple[Any, ...]:
    start = known_bool(condition) if condition is not None else True
    limits = contents.elements(trip) if trip is not None else None
    limit = limits[0] if limits else None
    n_scans = len(body.output) - 1 - len(carried)
    if start is False or (isinstance(limit, int) and limit <= 0):
        return _never(b, body, carried, n_scans)
    if start is True and isinstance(limit, int) and limit * max(1, len(body.node)) <= UNROLL_LIMIT:
        done = _unrolled(b, body, limit, carried)
        if done is not None:
            return done
    if any(isinstance(c, (SequenceValue, OptionalValue)) for c in carried):
        raise Unsupported(f"a loop of {limit if limit is not None else 'an unknown number of'} trips that carries a sequence", "make the trip count a constant")
    return _loop_node(b, trip, condition, carried, body, limit, n_scans)


def _never(b: Scope, body: Any, carried: Sequence[Any], n_scans: int) -> tuple[Any, ...]:
    """No iteration: the carried values come out as they went in, scan outputs are empty."""
    inner = b.body(body, _body_types(carried), "body") if n_scans else None
    empty = []
    for o in inner.outputs[1 + len(carried) :] if inner is not None else ():
        shape = tuple(s if isinstance(s, int) else 0 for s in o.shape)
        empty.append(b.constant(np.zeros((0, *shape), o.type.dtype.numpy)))
    if inner is not None:
        inner.discard()
    return (*carried, *empty)


def _body_types(carried: Sequence[Value]) -> list[TensorType]:
    return [TensorType(I64, ()), TensorType(BOOL, ()), *(c.type.with_shape(c.shape) for c in carried)]


def _unrolled(b: Scope, body: Any, count: int, carried: Sequence[Any]) -> tuple[Any, ...] | None:
    """The iterations one after the other, if it is known at each whether the next one runs; else None, and
    nothing that was made is used."""
    values = list(carried)
    scans: list[list[Value]] = []
    for i in range(count):
        results = b.inline(body, [b.constant(i, np.int64), b.constant(True, np.bool_), *values], f"body[{i}]")
        values = list(results[1 : 1 + len(values)])
        if not scans:
            scans = [[] for _ in results[1 + len(values) :]]
        for s, r in zip(scans, results[1 + len(values) :]):
            s.append(r)
        go = known_bool(results[0])
        if go is None:
            if i + 1 < count:
                return None
        elif not go:
            break
    stacked = []
    for parts in scans:
        rows = [declare.unsqueeze(b, p, (0,)) for p in parts]
        stacked.append(rows[0] if len(rows) == 1 else b.op("Concat", *rows, axis=0))
    return (*values, *stacked)


def _loop_node(
    b: Scope,
    trip: Value | None,
    condition: Value | None,
    carried: Sequence[Value],
    body: Any,
    limit: Dim | None,
    n_scans: int,
) -> tuple[Value, ...]:
    types = _body_types(carried)
    graph = b.body(body, types, "body")
    for _ in range(4):  # sizes that change from one iteration to the next become symbols; that may make others change
        changed = False
        for i, o in enumerate(graph.outputs[1 : 1 + len(carried)]):
            before = types[2 + i]
            if o.type.dtype is not before.dtype:
                raise ValueError(f"carried value {i} is {before} before and {o.type} after an iteration")
            after = _unify(b, "carried", before.shape, o.shape)
            if after != before.shape and not _same_symbols(before.shape, o.shape, after):
                types[2 + i], changed = TensorType(before.dtype, after), True
        if not changed:
            break
        graph.discard()
        graph = b.body(body, types, "body")
    always = known_bool(graph.outputs[0]) is True or graph.outputs[0] is graph.inputs[1]
    count: Dim
    if limit is not None and always and (condition is None or known_bool(condition) is True):
        count = d.max_(limit, 0)
    else:
        count = b.fresh("trips", 0, d.upper(limit) if limit is not None else None)
    outputs = []
    for i, o in enumerate(graph.outputs[1 : 1 + len(carried)]):
        shape = tuple(
            s if s == w and s == c else b.fresh("carried", 0)
            for s, w, c in zip(o.shape, types[2 + i].shape, carried[i].shape)
        )
        outputs.append(TensorType(o.type.dtype, shape))
    for o in graph.outputs[1 + len(carried) :]:
        outputs.append(TensorType(o.type.dtype, (count, *_outside(b, o.shape, graph))))
    node = b.node(
        "Loop", None if trip is None else declare.reshape(b, trip, ()), None if condition is None else
        declare.reshape(b, condition, ()), *carried, bodies=(graph,), dtypes=tuple(t.dtype for t in outputs),
        shapes=tuple(t.shape for t in outputs), carried=len(carried),
    )  # fmt: skip
    return node.outputs


def _same_symbols(before: Shape, after: Shape, unified: Shape) -> bool:
    """Whether all sizes that differ are symbols of the body already: nothing is left to generalise."""
    for u, x in zip(unified, before):
        symbol = d.as_symbol(x)
        if u != x and (symbol is None or not symbol.name.startswith("carried")):
            return False
    return True


def _outside(b: Scope, shape: Shape, graph: Graph) -> Shape:
    """A body's shape as seen from outside: symbols of its carried sizes mean something else in every iteration."""
    inner = {s.name for v in graph.inputs for dim in v.shape for s in d.symbols(dim) if s.name.startswith("carried")}
    return tuple(b.fresh("scan", 0) if any(s.name in inner for s in d.symbols(dim)) else dim for dim in shape)


# --- Scan -------------------------------------------------------------------------------------------------------------


@onnx_op("Scan", since=9)
def scan(
    b: Scope, *inputs: Value, body: Any, num_scan_inputs: int, scan_input_axes: tuple[int, ...] = (),
    scan_input_directions: tuple[int, ...] = (), scan_output_axes: tuple[int, ...] = (),
    scan_output_directions: tuple[int, ...] = (),
) -> tuple[Value, ...]:  # fmt: skip
    if not 1 <= num_scan_inputs <= len(inputs):
        raise ValueError(f"num_scan_inputs {num_scan_inputs} of {len(inputs)} inputs")
    n_states = len(inputs) - num_scan_inputs
    for what, axes, count in (
        ("scan_input_axes", scan_input_axes, num_scan_inputs), ("scan_input_directions", scan_input_directions, num_scan_inputs),
        ("scan_output_axes", scan_output_axes, len(body.output) - n_states), ("scan_output_directions", scan_output_directions, len(body.output) - n_states),
    ):  # fmt: skip
        if axes and len(axes) != count:
            raise ValueError(f"{what} has {len(axes)} entries for {count} of them")
    states, scanned = list(inputs[:n_states]), inputs[n_states:]
    in_axes = [normalize_axis(a, v.type.rank) for a, v in zip(scan_input_axes or (0,) * num_scan_inputs, scanned)]
    backward = scan_input_directions or (0,) * num_scan_inputs
    n_outputs = len(body.output) - n_states
    out_axes, out_backward = scan_output_axes or (0,) * n_outputs, scan_output_directions or (0,) * n_outputs
    length = scanned[0].shape[in_axes[0]]
    if isinstance(length, int) and length > 0 and length * max(1, len(body.node)) <= UNROLL_LIMIT:
        return _unrolled_scan(b, body, states, scanned, length, in_axes, backward, out_axes, out_backward)
    rows = [
        TensorType(v.type.dtype, tuple(s for i, s in enumerate(v.shape) if i != a)) for v, a in zip(scanned, in_axes)
    ]
    graph = b.body(body, [*(s.type for s in states), *rows], "body")
    outputs = [TensorType(o.type.dtype, s.shape) for o, s in zip(graph.outputs, states)]
    for o, axis in zip(graph.outputs[n_states:], out_axes):
        shape = list(o.shape)
        shape.insert(normalize_axis(axis, o.type.rank + 1), length)
        outputs.append(TensorType(o.type.dtype, tuple(shape)))
    node = b.node(
        "Scan", *inputs, bodies=(graph,), dtypes=tuple(t.dtype for t in outputs), shapes=tuple(t.shape for t in
        outputs), num_scan_inputs=num_scan_inputs, scan_input_axes=tuple(in_axes),
        scan_input_directions=tuple(backward), scan_output_axes=tuple(normalize_axis(a, o.rank) for a, o in
        zip(out_axes, outputs[n_states:])), scan_output_directions=tuple(out_backward),
    )  # fmt: skip
    return node.outputs


def _unrolled_scan(
    b: Scope, body: Any, states: list[Value], scanned: Sequence[Value], length: int, in_axes: Sequence[int],
    backward: Sequence[int], out_axes: Sequence[int], out_backward: Sequence[int],
) -> tuple[Value, ...]:  # fmt: skip
    collected: list[list[Value]] = [[] for _ in out_axes]
    for i in range(length):
        rows = []
        for v, axis, back in zip(scanned, in_axes, backward):
            part = declare.slice_axis(b, v, axis, length - 1 - i if back else i, 1)
            rows.append(declare.reshape(b, part, (s for k, s in enumerate(part.shape) if k != axis)))
        results = b.inline(body, [*states, *rows], f"body[{i}]")
        states = list(results[: len(states)])
        for c, r in zip(collected, results[len(states) :]):
            c.append(r)
    stacked = []
    for parts, axis, back in zip(collected, out_axes, out_backward):
        axis = normalize_axis(axis, parts[0].type.rank + 1)
        rows = [declare.unsqueeze(b, p, (axis,)) for p in (parts[::-1] if back else parts)]
        stacked.append(rows[0] if len(rows) == 1 else b.op("Concat", *rows, axis=axis))
    return (*states, *stacked)


@onnx_op("Scan", since=8)
def scan_8(
    b: Scope,
    lengths: Value | None = None,
    *inputs: Value,
    body: Any,
    num_scan_inputs: int,
    directions: tuple[int, ...] = (),
) -> tuple[Value, ...]:
    """With a batch axis in front of every input and output."""
    if lengths is not None:
        raise Unsupported(f"lengths ({lengths.type}) of a Scan of opset 8", "export with opset 9 or newer")
    if not inputs:
        raise ValueError("no inputs")
    batch = inputs[0].shape[0]
    if not isinstance(batch, int):
        raise Unsupported(
            f"a batch of {batch} in a Scan of opset 8", f"{declare.binding(batch)}, or export with opset 9 or newer"
        )
    results = []
    for n in range(batch):
        rows = [declare.reshape(b, declare.slice_axis(b, v, 0, n, 1), v.shape[1:]) for v in inputs]
        results.append(scan(b, *rows, body=body, num_scan_inputs=num_scan_inputs, scan_input_directions=directions))
    joined = []
    for parts in zip(*results):
        rows = [declare.unsqueeze(b, p, (0,)) for p in parts]
        joined.append(rows[0] if len(rows) == 1 else b.op("Concat", *rows, axis=0))
    return tuple(joined)
