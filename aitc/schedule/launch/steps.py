"""Plans of what the data decides: late buffers, and the steps that the host takes between launches.

A block is a graph or a body. What is late in a block is taken from a pool before the first group that uses it and given back
after the last; results of bodies are handed over to the node's outputs, without a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from aitc.ir import dim as dm
from aitc.ir import dtype as dt
from aitc.ir.dim import Dim, Sum, as_symbol, hint, product, symbols
from aitc.ir.dtype import DType
from aitc.ir.graph import Graph, Node, Value
from aitc.kernels.core.functor import Storage
from aitc.kernels.core.group import Group
from aitc.kernels.core.host import NAME, dense_place
from aitc.kernels.core.kernel import Draft
from aitc.schedule.choose.select import Choice
from aitc.schedule.plan.plan import (
    Branch,
    Buffer,
    Carried,
    Fail,
    Give,
    LateDim,
    Move,
    Place,
    ReadDims,
    Repeat,
    Require,
    SetDims,
    Space,
    Stacked,
    Step,
    Take,
)
from aitc.schedule.plan.requirements import requirements, spelled
from aitc.schedule.rewrite.control import Control

SCRATCH_TYPES = {d.c: d for d in (dt.F32, dt.I32, dt.F16, dt.U8, dt.I64)}


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A group with the kernel, configuration and text that it got; a control node with its bodies."""

    group: Group
    choice: Choice
    draft: Draft
    bodies: tuple["Block", ...] = ()

    @property
    def host(self) -> Node | None:
        """The node that the host runs itself, if this is one."""
        return self.group.anchor if self.draft.kernel == NAME else None


@dataclass(slots=True)
class Block:
    """A scheduled graph or body. ``first`` and ``last`` are the groups between which late buffers live."""

    graph: Graph
    scheduled: list[Scheduled]
    first: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    handed: set[str] = field(default_factory=set)  # who takes them over gives them back

    def launches(self) -> list[Scheduled]:
        """All that is launched, bodies in their places."""
        found: list[Scheduled] = []
        for s in self.scheduled:
            if s.host is None:
                found.append(s)
            for body in s.bodies:
                found += body.launches()
        return found

    def made(self, storage: Callable[[Value], Storage]) -> set[int]:
        """ids of the roots that belong to this block or one inside it."""
        found = {id(v) for v in self.graph.inputs}
        for s in self.scheduled:
            found |= {id(p.root) for p in s.draft.parameters.pointers.values() if not p.const}
            if s.host is not None:
                found |= {id(storage(o).root) for o in s.host.outputs}
            for body in s.bodies:
                found |= body.made(storage)
        return found


def touched(s: Scheduled, storage: Callable[[Value], Storage]) -> list[Value]:
    """The roots that a group reads or writes, those that its bodies use from outside among them."""
    roots = {id(p.root): p.root for p in s.draft.parameters.pointers.values()}
    for body in s.bodies:
        own = body.made(storage)
        for inner in body.scheduled:
            roots.update({id(r): r for r in touched(inner, storage) if id(r) not in own})
    return list(roots.values())


class StepPlanner:
    """Late buffers and steps of one plan. The buffers that it makes are in ``buffers``, late dims in ``dims``."""

    def __init__(
        self,
        storage: Callable[[Value], Storage],
        control: Control,
        known: Iterable[str],
        buffer_of: dict[int, str],
        unique: Callable[[str], str],
        constant: Callable[[Value], str],
    ):
        self.storage = storage
        self.control = control
        self.known = set(known)
        self.buffer_of = buffer_of
        self.unique = unique
        self.constant = constant
        self.buffers: list[Buffer] = []
        self.dims: dict[str, LateDim] = {}
        self.late_outputs: set[str] = set()
        self.scratch_of: dict[tuple[int, str], str] = {}  # (id of the scheduled group, parameter)
        self.index: dict[int, int] = {}  # id of the scheduled group -> launch
        self.read: set[str] = set()  # late dims that have been read so far
        self.requirements: dict[int, list[Require]] = {}  # by id of the graph

    # --- buffers
    def is_late(self, v: Value) -> bool:
        """Whether memory for ``v`` cannot be set aside before the run."""
        return (v.producer is not None and bool(v.producer.bodies)) or self.is_late_size(product(v.shape))

    def is_late_size(self, size: Dim) -> bool:
        return any(s.name not in self.known for s in symbols(size))

    def _buffer(self, block: Block, name: str, dtype: DType, size: Dim, holds: tuple[str, ...], n: int) -> str:
        name = self.unique(name)
        self.buffers.append(Buffer(name, Space.LATE, dtype, size, hint(size), 0, 0, 0, holds))
        block.first[name] = block.last[name] = n
        return name

    def _late(self, block: Block, root: Value, n: int) -> str:
        size = product(root.shape) * root.type.dtype.bytes
        name = self._buffer(block, root.name, root.type.dtype, size, (root.name,), n)
        self.buffer_of[id(root)] = name
        return name

    def place(self, block: Block, top: bool) -> None:
        """Gives late values of ``block`` and of its bodies their buffers."""
        for v in block.graph.inputs if not top else ():
            block.handed.add(self._late(block, v, -1))
        for n, s in enumerate(block.scheduled):
            for root in touched(s, self.storage):
                name = self.buffer_of.get(id(root))
                if root.const is not None:
                    continue
                if name is None:
                    if not top or self.is_late(root):
                        self._late(block, root, n)
                elif name in block.first:
                    block.last[name] = n
                elif name in self.late_outputs:
                    block.first[name] = n
                    block.last[name] = n
                    block.handed.add(name)
            for o in s.host.outputs if s.host is not None and s.host.bodies else ():
                if id(o) not in self.buffer_of:
                    self._late(block, o, n)
            for spec in s.draft.scratch if s.host is None else ():
                size = spec.elems * SCRATCH_TYPES[spec.c_type].bytes
                if not spec.zeroed and (not top or self.is_late_size(size)):
                    name = self._buffer(block, f"scratch_{s.draft.kernel}_{spec.parameter}", SCRATCH_TYPES[spec.c_type], size, (), n)
                    self.scratch_of[id(s), spec.parameter] = name
            for body in s.bodies:
                self.place(body, False)
        if not top:
            block.handed |= {self.buffer_of[id(self.storage(v).root)] for v in block.graph.outputs}

    def at(self, v: Value) -> Place:
        """Where the host finds ``v``."""
        place = dense_place(v, self.storage)
        assert place is not None, f"{v.name} does not lie in one piece"
        root, offset = place
        return Place(self.constant(root) if root.const is not None else self.buffer_of[id(root)], offset, v.type.dtype)

    # --- steps
    def steps(self, block: Block, body: bool = False) -> tuple[Step, ...]:
        """What runs when in a block. A body begins with what has to be true of dims that it does not read itself; for the whole model that
        is ``Plan.requires``."""
        out: list[Step] = []
        if body:
            own = {s.name for node in block.graph.nodes if node.op.name == "ReadDims" for d in node.attrs.dims for s in symbols(d)}
            out += [r for r in self._requirements(block.graph) if not own & {s.name for d in (r.less, r.more) for s in symbols(d)}]
        for n, s in enumerate(block.scheduled):
            assigned = {self.buffer_of[id(o)] for o in s.host.outputs if id(o) in self.buffer_of} if s.host is not None else set()
            out += [Take(b) for b, first in block.first.items() if first == n and b not in assigned]
            out += self._host(s.host, s, block) if s.host is not None else [self.index[id(s)]]
            out += [Give(b) for b, last in block.last.items() if last == n and b not in block.handed]
        return tuple(out)

    def _requirements(self, graph: Graph) -> list[Require]:
        if id(graph) not in self.requirements:
            self.requirements[id(graph)] = requirements(graph, self.known)
        return self.requirements[id(graph)]

    def _required(self, graph: Graph, new: set[str]) -> list[Step]:
        """What has to be true of dims that were read just now."""
        found: list[Step] = []
        for r in self._requirements(graph):
            late = {s.name for d in (r.less, r.more) for s in symbols(d)} - self.known
            if late & new and late <= self.read:
                found.append(r)
        return found

    def _host(self, node: Node, s: Scheduled, block: Block) -> list[Step]:
        if node.op.name == "ReadDims":
            names = tuple(self._define(d) for d in node.attrs.dims)
            self.read |= set(names)
            return [ReadDims(self.at(node.input), names, spelled(node)), *self._required(block.graph, set(names))]
        if node.op.name == "If":
            fails = node.attrs.fails or ("", "")
            then, otherwise = (
                (*([Fail(f"{spelled(node)}: {why}")] if why else []), *self.steps(body, True), *self._hand_over(node, body.graph.outputs))
                for body, why in zip(s.bodies, fails, strict=True)
            )
            return [Branch(self.at(node.input), then, otherwise)]
        return self._repeat(node, s.bodies[0])

    def _define(self, d: Dim) -> str:
        symbol = as_symbol(d)
        assert symbol is not None, f"{d} is no symbol"
        self.dims.setdefault(symbol.name, LateDim(symbol.name, symbol.lo, 2**62 if symbol.hi is None else symbol.hi))
        return symbol.name

    def _set(self, pairs: Iterable[tuple[Dim, Dim]]) -> list[SetDims]:
        """Gives symbols their values; pairs that are equal, or whose first is no late symbol, need nothing."""
        found: dict[str, Dim] = {}
        for to, value in pairs:
            symbol = as_symbol(to)
            if symbol is not None and to != value and symbol.name not in self.known and symbol.name not in found:
                found[self._define(to)] = value
        return [SetDims(tuple(found), tuple(found.values()))] if found else []

    def _hand_over(self, node: Node, results: Iterable[Value]) -> list[Step]:
        """The results of a branch become the node's."""
        pairs = list(zip(node.outputs, results, strict=True))
        dims = self._set((a, b) for o, v in pairs for a, b in zip(o.shape, v.shape, strict=True))
        return [*dims, *(Move(self.buffer_of[id(o)], self.buffer_of[id(self.storage(v).root)]) for o, v in pairs)]

    def _repeat(self, node: Node, body: Block) -> list[Step]:
        form = self.control.loops[node]
        counter = Sum((((form.counter,), 1),))
        initial = [v for v in node.inputs[2:] if v is not None]
        inner, results = body.graph.inputs, body.graph.outputs[form.asks :]
        nexts, parts = results[: form.carried], results[form.carried :]
        wholes = node.outputs[form.carried :]
        before = self._set(
            [(a, b) for v, w in zip(inner, initial, strict=True) for a, b in zip(v.shape, w.shape, strict=True)]
            + [(a, 0) for o, v in zip(wholes, parts, strict=True) for a, b in zip(o.shape[1:], v.shape, strict=True) if a != b]
        )
        ends = self._set(
            [(a, b) for v, w in zip(inner, nexts, strict=True) for a, b in zip(v.shape, w.shape, strict=True)]
            + [(a, b) for o, v in zip(wholes, parts, strict=True) for a, b in zip(o.shape[1:], v.shape, strict=True)]
        )
        after = self._set(
            [(a, b) for o, v in zip(node.outputs, inner) for a, b in zip(o.shape, v.shape, strict=True)]
            + [(o.shape[0], counter) for o in wholes if _bare(o.shape[0])]
        )
        self._define(counter)
        repeat = Repeat(
            form.counter.name,
            self.at(form.trips) if isinstance(form.trips, Value) else form.trips,
            None if form.go is None else self.at(form.go),
            self.at(body.graph.outputs[0]) if form.asks else None,
            tuple(
                Carried(self.buffer_of[id(v)], self.at(w), product(w.shape) * w.type.dtype.bytes, self._own(n))
                for v, w, n in zip(inner, initial, nexts, strict=True)
            ),
            tuple(
                Stacked(self.buffer_of[id(o)], self._own(v), product(v.shape) * v.type.dtype.bytes)
                for o, v in zip(wholes, parts, strict=True)
            ),
            self.steps(body, True),
            tuple(ends),
        )
        moves = [Move(self.buffer_of[id(o)], self.buffer_of[id(v)]) for o, v in zip(node.outputs, inner)]
        return [*before, repeat, *after, *moves]

    def _own(self, v: Value) -> str:
        return self.buffer_of[id(self.storage(v).root)]


def _bare(d: Dim) -> bool:
    return as_symbol(d) is not None


def known_symbols(graph: Graph) -> set[str]:
    """Names of the symbols that the shapes of the inputs give."""
    return {s.name for v in graph.inputs for d in v.shape for s in dm.symbols(d)}
