"""Where a wrong result comes from: the stage, and the first ONNX node whose value differs from the reference.

The graph is evaluated by the numpy interpreter after each stage. If a stage's graph is wrong, its first wrong value
names the node. If all graphs are right, a kernel is wrong: the same kernels are built again with every buffer as an
output, and the first launch that writes something else than the interpreter computes is the one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aitc.build.memory import available_bytes
from aitc.errors import Loc
from aitc.ir import dim as dm
from aitc.ir.graph import Graph, Value
from aitc.ir.interpret import InterpretError, interpret
from aitc.schedule.plan.plan import DimArg, Plan, Port, Space
from aitc.verify.compare import OutputReport, Tolerance, compare
from aitc.verify.inputs import Arrays
from aitc.verify.reference import NoReference, Reference, node_outputs


@dataclass(frozen=True, slots=True)
class Steps:
    """How the graph came to be, to be gone through again: ``start`` imports, each of ``stages`` changes the graph in
    place, ``plan`` schedules it, ``run`` builds a plan and runs it on arrays.
    """

    start: Callable[[], Graph]
    stages: Sequence[tuple[str, Callable[[Graph], object]]]
    plan: Callable[[Graph], Plan]
    run: Callable[[Plan, Arrays], Mapping[str, np.ndarray]]


def first_difference(steps: Steps, model: Any, feeds: Arrays, limit: Tolerance) -> str:
    """One sentence that names the first difference."""
    graph = steps.start()
    kept = _kept_bytes(graph)
    if kept > available_bytes():
        return f"not searched: all values together take {kept / 2**30:.2f} GiB, more than this machine's memory"
    try:
        reference = Reference(model, [name for name, _, _ in node_outputs(model)])
        want = reference.run(feeds)
    except NoReference:
        reference = Reference(model)  # some value in the middle cannot be an output: its outputs alone, then
        want = reference.run(feeds)
    order = {name: i for i, (name, _, _) in enumerate(node_outputs(model))}
    for stage, change in (("import", None), *steps.stages):
        if change is not None:
            change(graph)
        try:
            have = interpret(graph, feeds, keep=True)
        except InterpretError as error:
            return f"after stage {stage} the graph cannot be evaluated: {error}"
        wrong = _first_wrong_value(graph, have, want, order, limit)
        if wrong is not None:
            value, report = wrong
            first = f"{_nodes(_locs(graph, value))} is the first whose value differs"
            return f"stage {stage}: {first}: {value}, {_by_how_much(report)}"
    plan = steps.plan(graph)
    have = interpret(graph, feeds, keep=True)  # scheduling inserts copies
    return _first_wrong_launch(graph, plan, steps.run(expose(plan), feeds), have, limit)


def _kept_bytes(graph: Graph) -> int:
    """What keeping every value takes, twice: the interpreter's and the reference's."""
    return 2 * sum(dm.hint(v.type.elems) * max(4, v.type.dtype.bytes) for v in graph.values() if v.const is None)


def _first_wrong_value(
    graph: Graph, have: Mapping[str, Any], want: Mapping[str, Any], order: Mapping[str, int], limit: Tolerance
) -> tuple[str, OutputReport] | None:
    """The first value, in the model's order, that both sides know by one name and that differs."""
    types = {v.name: v.type.dtype for v in graph.values()}
    types.update({n: v.type.dtype for n, v in zip(graph.output_names, graph.outputs)})
    for name in sorted((n for n in want if n in have and n in types), key=lambda n: order.get(n, -1)):
        if np.shape(have[name]) != np.shape(want[name]) and name not in graph.output_names:
            continue  # a value of that name which a pass gave another shape
        report = compare(name, types[name], have[name], want[name], limit)
        if not report.ok:
            return name, report
    return None


def expose(plan: Plan) -> Plan:
    """``plan`` with every arena buffer that holds a value as a further output named after the buffer, flat. Kernels
    stay the same."""
    buffers, ports = [], []
    for b in plan.buffers:
        if b.space is Space.ARENA and b.holds:
            buffers.append(replace(b, space=Space.OUTPUT, offset=0))
            ports.append(Port(b.name, b.dtype, (dm.floordiv(b.bytes, b.dtype.bytes),), b.name))
        else:
            buffers.append(b)
    gone = {p.name for p in ports}
    kept = [replace(b, above=tuple(n for n in b.above if n not in gone)) for b in buffers]
    return replace(plan, name=f"{plan.name}_exposed", buffers=tuple(kept), outputs=(*plan.outputs, *ports))


def _first_wrong_launch(
    graph: Graph, plan: Plan, got: Mapping[str, np.ndarray], have: Mapping[str, Any], limit: Tolerance
) -> str:
    values = {v.name: v for v in graph.values()}
    values.update({p.buffer: v for p, v in zip(plan.outputs, graph.outputs)})
    held = {b.name: b.holds[-1] for b in plan.buffers if b.holds}
    last_writer = {
        a.buffer: i
        for i, launch in enumerate(plan.launches)
        for a in launch.args
        if not isinstance(a, DimArg) and not a.const
    }
    outputs = {p.buffer: p.name for p in plan.outputs}
    for i, launch in enumerate(plan.launches):
        for a in launch.args:
            if isinstance(a, DimArg) or a.const or last_writer[a.buffer] != i:
                continue
            name = outputs.get(a.buffer, a.buffer)
            value = values.get(held.get(a.buffer, ""))
            if value is None or name not in got or value.name not in have:
                continue
            report = compare(
                value.name, value.type.dtype, got[name].reshape(-1), _stored(value, have[value.name]), limit
            )
            if not report.ok:
                first = f"{_nodes(launch.locs)} is the first whose value differs: {value.name}, {_by_how_much(report)}"
                return f"kernel {launch.entry} in launch {launch.name}: {first}"
    return "no launch: with every value in the middle as an output all are right, so it is the planning of memory"


def _stored(value: Value, array: Any) -> np.ndarray:
    """The array as it lies in memory, flat."""
    array = np.asarray(array)
    return np.asarray(array if value.type.order is None else array.transpose(value.type.order)).reshape(-1)


def _locs(graph: Graph, name: str) -> tuple[Loc, ...]:
    named = dict(zip(graph.output_names, graph.outputs))
    value = named.get(name) or next((v for v in graph.values() if v.name == name), None)
    return value.producer.locs if value is not None and value.producer is not None else ()


def _nodes(locs: Sequence[Loc]) -> str:
    return ", ".join(f'{loc.op_type} "{loc.name or f"#{loc.index}"}"' for loc in locs[:6]) or "a node without origin"


def _by_how_much(r: OutputReport) -> str:
    return r.note or f"max abs {r.max_abs:.2e}, {r.wrong} of {r.elements} elements beyond the tolerance"
