"""Graph to Plan: preparation, grouping, selection, texts of kernels, memory."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np

from aitc.ir.cpp import free_name
from aitc.ir.dim import Dim, Sum, product, symbols
from aitc.ir.graph import Graph, Node, Value
from aitc.kernels.core.functor import Line
from aitc.kernels.core.group import Group
from aitc.kernels.core.kernel import KERNELS, No, kernels_for
from aitc.kernels.core.spelling import dim_name
from aitc.registry import load
from aitc.schedule.choose.select import Choice, Select, Table, choosing
from aitc.schedule.core.storage import Storages
from aitc.schedule.core.why import Fusions
from aitc.schedule.group.chain import chain
from aitc.schedule.group.groups import form_groups
from aitc.schedule.group.regions import kept
from aitc.schedule.launch.lanes import MOST, Places, arrange
from aitc.schedule.launch.steps import SCRATCH_TYPES, Block, Scheduled, StepPlanner, known_symbols, touched
from aitc.schedule.plan import memory
from aitc.schedule.plan.dims import dim_sources
from aitc.schedule.plan.plan import (
    ALIGNMENT,
    Arg,
    Buffer,
    DimArg,
    Fork,
    KernelSource,
    Launch,
    Plan,
    PointerArg,
    Port,
    Space,
    TensorMapArg,
    Weight,
)
from aitc.schedule.plan.requirements import requirements
from aitc.schedule.rewrite.control import Control, definitions, lower_control
from aitc.schedule.rewrite.prepare import prepare
from aitc.targets.target import Target

PLAN_VERSION = 1

@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What the plan records besides the graph. ``dim_names``: symbol name -> the model's spelling, where they differ."""

    name: str
    model: str
    precision: str = "model"
    targets: tuple[str, ...] = ()
    metadata: tuple[tuple[str, str], ...] = ()
    statistics: tuple[tuple[str, int], ...] = ()
    dim_names: tuple[tuple[str, str], ...] = ()
    uses: tuple[tuple[str, str], ...] = ()  # input name -> Port.use
    lanes: int = MOST  # of launches side by side, see lanes.py; 1: launches run one after another


def identifier(name: str) -> str:
    """A C identifier close to ``name``."""
    text = re.sub(r"\W+", "_", name).strip("_").lower() or "v"
    return free_name(text) if text[0].isalpha() else f"n{text}"


def schedule(
    graph: Graph, target: Target, options: PlanOptions, table: Table | None = None, why: Fusions | None = None
) -> Plan:
    """The plan of ``graph`` on ``target``; ``why`` gets what fusion did and did not do. Changes the graph (copies are inserted).

    Raises AitcError when an op has no kernel.
    """
    return schedule_with(graph, target, options, choosing(table), share=True, why=why)[0]


def schedule_with(
    graph: Graph, target: Target, options: PlanOptions, select: Select, share: bool = False, why: Fusions | None = None
) -> tuple[Plan, tuple[Choice, ...]]:
    """As ``schedule``, with the choice of each launch. Where ``select`` gives several for a group, there is a launch for each, one after
    another, and each computes the group: whichever of them runs, the model's results are the same. ``share``: small independent groups may
    share a launch, or run side by side."""
    load("aitc.kernels")
    if options.precision == "tf32":
        target = replace(target, features=target.features | {"tf32"})
    storage = Storages()
    control = lower_control(graph)
    why = why or Fusions()
    block = _block(graph, target, select, storage, known_symbols(graph), why)
    why.groups = len(block.launches())
    forks: tuple[Fork, ...] = ()
    if share:
        block.scheduled, forks = arrange(block.scheduled, storage, target, options.lanes)
    planner = _Planner(block, target, options, storage, control, forks)
    why.launches = len(planner.scheduled)
    return planner.plan(), tuple(s.choice for s in planner.scheduled)


def _block(graph: Graph, target: Target, select: Select, storage: Storages, known: set[str], why: Fusions) -> Block:
    """The groups of a graph and of the bodies in it; ``known`` are the symbols that have values before it runs."""
    kernels = prepare(graph, storage, target, why)
    defined = definitions(graph, known)
    groups = form_groups(graph, kernels, storage, defined, why)
    by_model = choosing(None)
    groups = chain(
        groups, kept(graph), bool(defined), storage, target, lambda g: _select(by_model, g, kernels, storage, target)[1][0].score_us, why
    )
    scheduled = []
    for group in groups:
        name, choices = _select(select, group, kernels, storage, target)
        bodies = group.anchor.bodies if group.anchor is not None else ()
        inner = tuple(_block(b, target, select, storage, known | set(defined) | known_symbols(b), why) for b in bodies)
        for choice in choices:
            draft = KERNELS[name].build(group, choice.problem, choice.config, storage, target)
            scheduled.append(Scheduled(group, choice, draft, inner))
    return Block(graph, scheduled)


def _select(select: Select, group: Group, kernels: Mapping[Node, str], storage: Storages, target: Target) -> tuple[str, Sequence[Choice]]:
    """The kernel of a group and its choices: the one that took the anchor alone, or the next that takes what has grown around it
    (results of several types, say)."""
    anchor = group.anchor
    first = kernels[anchor] if anchor is not None else "map"
    able = [k.name for k in kernels_for(anchor.op.name, target) if k.takes_around(KERNELS[first])] if anchor is not None else [first]
    able = [k.name for k in KERNELS if k.chains and k.available(target)] if group.chained else able[able.index(first) :]
    reasons = []
    for name in able:
        choices = select(KERNELS[name], group, storage, target)
        if not isinstance(choices, No):
            return name, choices
        reasons.append(f"{name}: {choices.reason}")
    raise AssertionError(f"{first} took {anchor!r} alone, but no kernel does with its neighbours: {'; '.join(reasons)}")


class _Planner:
    def __init__(
        self, block: Block, target: Target, options: PlanOptions, storage: Storages, control: Control, forks: tuple[Fork, ...] = ()
    ):
        self.block = block
        self.graph = block.graph
        self.target = target
        self.options = options
        self.scheduled = block.launches()
        self.storage = storage
        self.forks = forks
        self.buffer_of: dict[int, str] = {}  # id(root value) -> buffer
        self.buffers: list[Buffer] = []
        self.weights: dict[str, Weight] = {}  # digest -> weight
        self.weights_end = 0
        self.names: set[str] = set()
        self.scratch_of: dict[tuple[int, str], str] = {}
        self.late = StepPlanner(
            storage, control, known_symbols(block.graph), self.buffer_of, lambda name: self.unique(identifier(name)), self._constant
        )

    # --- names
    def unique(self, name: str) -> str:
        candidate, n = name, 1
        while candidate in self.names:
            n += 1
            candidate = f"{name}_{n}"
        self.names.add(candidate)
        return candidate

    # --- the pieces
    def plan(self) -> Plan:
        inputs = tuple(self._port(v, Space.INPUT, v.name) for v in self.graph.inputs)
        names = self.graph.output_names or [v.name for v in self.graph.outputs]
        outputs = tuple(self._port(v, Space.OUTPUT, name) for v, name in zip(self.graph.outputs, names, strict=True))
        dims = dim_sources(self.graph, dict(self.options.dim_names))
        arena_bytes, state_bytes = self._memory()
        kernels, entries = self._kernels()
        launches = tuple(self._launch(n, s, entries[n]) for n, s in enumerate(self.scheduled))
        steps = self.late.steps(self.block) if any(s.host is not None for s in self.block.scheduled) else ()
        known = known_symbols(self.graph)
        needed = requirements(self.graph, known)
        requires = tuple(r for r in needed if {s.name for d in (r.less, r.more) for s in symbols(d)} <= known)
        weights = tuple(self.weights.values())
        digest = hashlib.sha256("".join(f"{w.offset} {w.sha256}\n" for w in weights).encode()).hexdigest()
        plan = Plan(
            PLAN_VERSION, self.options.name, self.options.model, self.options.targets or (self.target.name,), self.target.api,
            self.options.precision, dims, inputs, outputs, (*self.buffers, *self.late.buffers), weights, kernels, launches, arena_bytes,
            self.weights_end, digest, state_bytes, self.options.metadata, self.options.statistics,
            tuple(self.late.dims.values()), steps, requires, self.forks,
        )  # fmt: skip
        return plan

    def _port(self, v: Value, space: Space, name: str) -> Port:
        buffer = self.unique(identifier(name))
        size = product(v.shape) * v.type.dtype.bytes
        self.buffers.append(Buffer(buffer, space, v.type.dtype, size, 0, 0, 0, 0, (v.name,)))
        self.buffer_of[id(self.storage(v).root)] = buffer
        if space is Space.OUTPUT and self.late.is_late_size(size):
            self.late.late_outputs.add(buffer)
        use = dict(self.options.uses).get(name, "")
        return Port(name, v.type.dtype, v.shape, buffer, use if space is Space.INPUT else "")

    def _memory(self) -> tuple[int, int]:
        """Buffers of intermediate values and scratch; returns the bytes of arena and state."""
        lives: dict[int, memory.Lifetime] = {}
        same: dict[int, int] = {}  # id(root) -> id(root) whose memory it shares
        last_read: dict[int, int] = {}
        roots = [touched(s, self.storage) for s in self.block.scheduled]
        users: dict[int, list[int]] = {}
        for n, found in enumerate(roots):
            for root in found:
                last_read[id(root)] = n
                users.setdefault(id(root), []).append(n)
        spans = self._spans()
        places = Places(self.forks)

        def owner(key: int) -> int:
            while key in same:
                key = same[key]
            return key

        scratch: list[memory.Lifetime] = []
        for n, s in enumerate(self.block.scheduled):
            at, last = spans[n]
            first, last = places.span(at, last)
            for root in roots[n]:
                if id(root) in self.buffer_of or root.const is not None or self.late.is_late(root):
                    continue
                key = owner(id(root))
                if key in lives:
                    lives[key].last = max(lives[key].last, last)
                    continue
                size = product(root.shape) * root.type.dtype.bytes
                reused = None
                for out, source in s.draft.in_place:
                    k = owner(id(source))
                    if out is not root or k not in lives or last_read[id(source)] != n or lives[k].last > last or lives[k].bytes != size:
                        continue
                    if n in places and any(places.beside(n, m) for r in users if owner(r) == k or r == id(out) for m in users[r]):
                        continue  # another lane still reads or writes there
                    reused = k
                    break
                if reused is not None:
                    same[id(root)] = reused
                    lives[reused].last = last
                    lives[reused].holds.append(root.name)
                else:
                    lives[id(root)] = memory.Lifetime(self.unique(identifier(root.name)), root.type.dtype, size, first, last, [root.name])
            for spec in s.draft.scratch:
                size = spec.elems * SCRATCH_TYPES[spec.c_type].bytes
                if not spec.zeroed and not self.late.is_late_size(size):
                    name = self.unique(f"scratch_{at}_{spec.parameter}")
                    scratch.append(memory.Lifetime(name, SCRATCH_TYPES[spec.c_type], size, first, last))
                    self.scratch_of[at, spec.parameter] = name
        buffers, place_of, arena = memory.place([*lives.values(), *scratch])
        state = self._state()
        self.buffers.extend(buffers)
        for key, life in lives.items():
            self.buffer_of[key] = place_of[life.name]
        for key in same:
            self.buffer_of[key] = place_of[lives[owner(key)].name]
        self.scratch_of = {at: place_of.get(name, name) for at, name in self.scratch_of.items()}
        self.late.place(self.block, True)
        for n, s in enumerate(self.scheduled):
            self.late.index[id(s)] = n
            self.scratch_of.update({(n, p): name for (key, p), name in self.late.scratch_of.items() if key == id(s)})
        return arena, state

    def _spans(self) -> list[tuple[int, int]]:
        """The first and the last launch of each group. What the host reads between launches is alive until the launch before."""
        spans, at = [], 0
        for s in self.block.scheduled:
            count = 1 if s.host is None else sum(len(body.launches()) for body in s.bodies)
            spans.append((at, at + count - 1))
            at += count
        return spans

    def _state(self) -> int:
        """Buffers that keep their contents from launch to launch; returns their bytes."""
        end = 0
        for n, s in enumerate(self.scheduled):
            for spec in s.draft.scratch:
                if spec.zeroed:
                    dtype, name = SCRATCH_TYPES[spec.c_type], self.unique(f"scratch_{n}_{spec.parameter}")
                    size = spec.elems * dtype.bytes
                    assert isinstance(size, int), "state has a static size"
                    self.buffers.append(Buffer(name, Space.STATE, dtype, size, size, end, n, n))
                    end += -(-size // ALIGNMENT) * ALIGNMENT
                    self.scratch_of[n, spec.parameter] = name
        return end

    def _kernels(self) -> tuple[tuple[KernelSource, ...], list[str]]:
        """Kernel files, equal texts once, and the entry of each launch."""
        seen: dict[str, int] = {}
        sources: list[KernelSource] = []
        entries: list[str] = []
        count: dict[str, int] = {}
        for s in self.scheduled:
            d = s.draft
            short = self.target.gpu and all(o.type.dtype.bits <= 16 for o in s.group.outputs)
            context = replace(d.context, fast_math=short)
            key = hashlib.sha256(repr((d.template, identity(context))).encode()).hexdigest()
            if key not in seen:
                stem = d.kernel if s.group.anchor is None else f"{d.kernel}_{s.group.anchor.op.name.lower()}"
                count[stem] = count.get(stem, 0) + 1
                entry = f"{stem}_{count[stem]}"
                seen[key] = len(sources)
                sources.append(
                    KernelSource(entry, d.kernel, d.config, d.template, replace(context, entry=entry), d.context.parameters, s.group.locs)
                )
            else:
                old = sources[seen[key]]
                sources[seen[key]] = replace(old, locs=tuple(dict.fromkeys((*old.locs, *s.group.locs))))
            entries.append(sources[seen[key]].entry)
        return tuple(sources), entries

    def _launch(self, n: int, s: Scheduled, entry: str) -> Launch:
        d = s.draft
        args: list[Arg] = []
        traffic: Dim = 0
        placed: dict[int, str] = {}  # id(root) -> buffer, packed or not
        written: set[int] = set()
        for p in d.parameters.pointers.values():
            if p.name in d.packed:
                buffer = self._weight(f"{entry}_{p.name}", np.ascontiguousarray(d.packed[p.name]), p.root)
            elif p.root.const is not None:
                buffer = self._constant(p.root)
            else:
                buffer = self.buffer_of[id(p.root)]
            placed[id(p.root)] = buffer
            written |= {id(p.root)} if not p.const else set()
            args.append(PointerArg(p.name, p.c_type, buffer, 0, p.const, not p.const and self.storage.whole(id(p.root))))
            traffic = traffic + product(p.root.shape) * p.root.type.dtype.bytes
        for spec in d.scratch:
            args.append(PointerArg(spec.parameter, spec.c_type, self.scratch_of[n, spec.parameter], 0, False))
        for m in d.maps:
            stored = id(m.root) in written
            args.append(
                TensorMapArg(
                    m.parameter, m.root.type.dtype, placed[id(m.root)], m.offset, m.sizes, m.strides, m.box, m.element_strides,
                    m.swizzle, m.im2col, m.tf32, not stored, stored and self.storage.whole(id(m.root)),
                )
            )  # fmt: skip
        args += [DimArg(dim_name(name), Sum((((sym,), 1),))) for name, sym in d.parameters.dims.items()]
        by_name = {a.parameter: a for a in args}
        ordered = tuple(by_name[_parameter_name(p)] for p in d.context.parameters)
        name = f"{n:03d}_{entry}"
        # Code for older targets has no instruction that waits for the launch before: it must not begin early, also on a newer device.
        overlap = d.overlap and "dependent_launch" in self.target.features
        return Launch(
            name, entry, ordered, d.grid, d.block, d.smem_bytes, d.cluster, overlap, d.skip_if_zero, s.group.locs, d.flops, traffic,
            s.group.describe(), s.choice.source, s.choice.gone,
        )  # fmt: skip

    def _constant(self, v: Value) -> str:
        assert v.const is not None
        array = v.const
        if v.type.order is not None:
            array = array.transpose(v.type.order)
        return self._weight(identifier(v.name), np.ascontiguousarray(array), v)

    def _weight(self, name: str, array: np.ndarray, v: Value) -> str:
        dtype = v.type.dtype
        if dtype.bits < 8:  # a byte each: integers as numbers, floats as their bits
            array = array.view(np.uint8) if dtype.is_float else array.astype(np.int8 if dtype.kind == "int" else np.uint8)
        key = hashlib.sha256(array.view(np.uint8).data if array.size and array.ndim else array.tobytes()).hexdigest()
        digest = f"{key}:{array.nbytes}:{dtype.name}"
        found = self.weights.get(digest)
        if found is None:
            found = Weight(self.unique(f"w_{name}"), dtype, tuple(array.shape), self.weights_end, array.nbytes, key, array)
            self.weights[digest] = found
            self.buffers.append(Buffer(found.name, Space.WEIGHT, dtype, array.nbytes, array.nbytes, found.offset, 0, 0, (v.name,)))
            self.weights_end += -(-max(array.nbytes, 1) // ALIGNMENT) * ALIGNMENT
        return found.name


def _parameter_name(declaration: str) -> str:
    return re.split(r"[\s*&]+", declaration.strip())[-1]


def identity(x: Any) -> Any:
    """A kernel's context without what does not change its code: banner and notes."""
    if isinstance(x, Line):
        return x.code
    if is_dataclass(x) and not isinstance(x, type):
        return tuple((f.name, identity(getattr(x, f.name))) for f in fields(x) if f.name not in ("banner", "entry"))
    if isinstance(x, tuple):
        return tuple(identity(y) for y in x)
    return x
