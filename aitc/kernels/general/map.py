"""The map kernel: one thread (or loop iteration) computes V neighbouring elements of the output space from whatever they need.

It runs every group without an anchor: pointwise regions, copies of views that a kernel cannot read, and the ops that have an element rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aitc.ir.cpp import c_expr
from aitc.ir.dim import Dim, ceildiv, hint, is_multiple, product
from aitc.ir.graph import Value
from aitc.ir.index import Index, unflatten
from aitc.kernels.core import kernel as k
from aitc.kernels.core.functor import FunctorBuilder, Parameters, StorageOf
from aitc.kernels.core.group import Group, side_by_side
from aitc.targets.target import Target

THREADS = 256
SHARED_NODES = 32
"""Of the groups of one launch: the longest decides how many registers all threads get."""


@dataclass(frozen=True, slots=True)
class MapProblem:
    elems: Dim
    bytes: Dim


@dataclass(frozen=True, slots=True)
class MapConfig:
    def __str__(self) -> str:
        return f"t{THREADS}"


def storage_index(v: Value, position: Dim, storage: StorageOf) -> Index:
    """The index of the element of ``v`` that is number ``position`` in memory order."""
    strides = storage(v).strides
    declared = v.type.order or tuple(range(v.type.rank))
    axes = sorted(declared, key=lambda a: (-(hint(strides[a]) if v.shape[a] != 1 else 1 << 62), declared.index(a)))
    permuted = unflatten(position, tuple(v.shape[a] for a in axes))
    index: list[Dim] = [0] * v.type.rank
    for a, i in zip(axes, permuted, strict=True):
        index[a] = i
    return tuple(index)


@k.register
class Map(k.Kernel):
    name = "map"
    template = "kernel"
    family = "maps"
    doc = "pointwise regions, copies and per-element ops: V neighbouring outputs a thread"

    def accepts(self, group: Group, storage: StorageOf, target: Target) -> MapProblem | k.No:
        if group.anchor is not None:
            return k.No("the group has an anchor")
        out = group.outputs[0]
        indices = k.output_indices(
            group, out, tuple(k.dim_of(k.coordinate(f"i{a}", d)) for a, d in enumerate(out.shape)), backward=True
        )
        if indices is None:
            return k.No("the outputs are not computed at one place each")
        return MapProblem(product(out.shape), k.nbytes(group))

    def configs(self, problem: MapProblem, target: Target) -> Sequence[MapConfig]:
        return (MapConfig(),)

    def score_us(self, problem: MapProblem, config: MapConfig, target: Target) -> float:
        return target.launch_us + hint(problem.bytes) / target.gbps * 1e-3

    def build(
        self, group: Group, problem: MapProblem, config: MapConfig, storage: StorageOf, target: Target
    ) -> k.Draft:
        parameters = Parameters()
        body, reads = self._text(group, problem, parameters, storage, target, "")
        count = parameters_count = problem.elems
        shape = k.shape_members(parameters, count=count)
        call = (f"for_each<Body::width>(shape.count, Body{{{', '.join(body.initializers)}}});",)
        context = k.Context(
            entry="", banner=k.banner(group), headers=_headers(group),
            index_type=k.index_type(parameters_count, *(product(storage(v).root.shape) for v in group.inputs)),
            shape=shape, functors=(body,), structs=(), parameters=k.entry_parameters(parameters), threads=THREADS, call=call,
        )  # fmt: skip
        return k.Draft(
            self.name, str(config), self.template, context, parameters,
            grid=(ceildiv(count, THREADS * body.width), 1, 1), block=(THREADS, 1, 1), skip_if_zero=count, overlap=True,
            in_place=in_place_pairs(group, storage, reads, problem.elems),
        )  # fmt: skip

    def _text(
        self, group: Group, problem: MapProblem, parameters: Parameters, storage: StorageOf, target: Target, suffix: str
    ) -> tuple[k.FunctorText, list]:
        """The body, as wide as what is stored allows and what is loaded gains by, and what it reads; ``parameters`` gain what it needs."""
        best: tuple[int, Parameters, k.FunctorText, list] | None = None
        for width in k.widths([*group.inputs, *group.outputs], target):
            trial = parameters.clone()
            builder = self._body(group, width, trial, storage, target.gpu and is_multiple(problem.elems, width))
            if builder is None:
                continue
            scattered = sum(mode == "element" for _, _, mode in builder.reads)
            text = k.finish(builder, f"Body{suffix}", "V elements of the output from element i on", "index_t i", "")
            if best is None or scattered < best[0]:
                best = (scattered, trial, text, builder.reads)
            if scattered == 0:
                break
        assert best is not None
        parameters.adopt(best[1])
        return best[2], best[3]

    # --- several in one launch
    def together(self, parts: Sequence[k.Part], target: Target) -> tuple[float, tuple[MapConfig, ...]] | None:
        if not target.gpu or sum(len(part.group.nodes) for part in parts) > SHARED_NODES:
            return None
        if sum(hint(part.problem.elems) for part in parts) > target.units * 2048:
            return None  # they fill the device
        memory = sum(hint(part.problem.bytes) for part in parts) / target.gbps * 1e-3
        return target.launch_us + memory, (MapConfig(),) * len(parts)

    def build_together(self, parts: Sequence[k.Part], configs: Sequence[MapConfig], storage: StorageOf, target: Target) -> k.Draft | None:
        parameters = Parameters()
        bodies: list[k.FunctorText] = []
        call: list[str] = []
        headers: dict[str, None] = {}
        first: Dim = 0
        elems: Dim = 0
        for n, part in enumerate(parts):
            body, _ = self._text(part.group, part.problem, parameters, storage, target, str(n))
            count = part.problem.elems
            blocks = ceildiv(count, THREADS * body.width)
            text = str(count) if isinstance(count, int) else c_expr(count, parameters.dim)
            call.append(f"if ({k.block_range(first, blocks, parameters)}; blocks.mine())")
            call.append(f"  for_each<{body.name}::width>({text}, {body.name}{{{', '.join(body.initializers)}}}, blocks);")
            bodies.append(body)
            headers |= dict.fromkeys(_headers(part.group))
            first, elems = first + blocks, elems + count
        every = side_by_side([part.group for part in parts])
        context = k.Context(
            entry="", banner=k.banner(every), headers=(*headers, "aitc/gpu/core/blocks.h"),
            index_type=k.index_type(*(part.problem.elems for part in parts), *(product(storage(v).root.shape) for v in every.inputs)),
            shape=(), functors=tuple(bodies), structs=(), parameters=k.entry_parameters(parameters), threads=THREADS, call=tuple(call),
        )  # fmt: skip
        return k.Draft(
            self.family, str(configs[0]), self.template, context, parameters, grid=(first, 1, 1), block=(THREADS, 1, 1), skip_if_zero=elems, overlap=True,
        )  # fmt: skip

    def _body(
        self, group: Group, width: int, parameters: Parameters, storage: StorageOf, aligned: bool
    ) -> FunctorBuilder | None:
        """The body at ``width``; None if an output cannot be stored in vectors of that width."""
        out = group.outputs[0]
        i = k.coordinate("i", product(out.shape))
        index = storage_index(out, k.dim_of(i), storage)
        indices = k.output_indices(group, out, index, backward=True)
        assert indices is not None
        if width > 1 and not all(k.vectorizes(storage(o).at(at), i, width) for o, at in indices.items()):
            return None
        builder = FunctorBuilder(group.inside, i, width, parameters, storage, aligned=aligned)
        for o, at in indices.items():
            builder.store(o, at, builder.value(o, at))
        return builder


def _headers(group: Group) -> tuple[str, ...]:
    resize = ("aitc/generic/resize.h",) if any(n.op.name == "Resize" for n in group.nodes) else ()
    return ("aitc/generic/map.h", "aitc/generic/element.h", *resize)


def in_place_pairs(group: Group, storage: StorageOf, reads: list, elems: Dim) -> tuple[tuple[Value, Value], ...]:
    """Outputs that may take over the memory of an input that is read at the same places only."""
    pairs = []
    out = group.outputs[0]
    if storage(out).root is not out:
        return ()
    i = k.coordinate("i", elems)
    offset = storage(out).at(storage_index(out, k.dim_of(i), storage))
    by_root: dict[Value, list[Dim]] = {}
    for root, at, _ in reads:
        by_root.setdefault(root, []).append(at)
    for root, offsets in by_root.items():
        if (
            all(at == offset for at in offsets)
            and root.type.dtype.bytes == out.type.dtype.bytes
            and product(root.shape) == elems
        ):
            pairs.append((out, root))
    return tuple(pairs)
