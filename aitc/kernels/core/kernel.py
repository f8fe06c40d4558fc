"""What every kernel says of itself: which groups it accepts, in which configurations, what they cost, and the text of an instance."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from aitc.ir.cpp import c_expr, comment
from aitc.ir.dim import Dim, Symbol, as_symbol, bounds, min_, product, symbols, upper
from aitc.ir.graph import Node, Value
from aitc.ir.index import Index, flatten, source_index, target_index, unflatten
from aitc.ir.op import Kind
from aitc.kernels.core.functor import INDENT, FunctorBuilder, Line, Parameters, Storage, StorageOf
from aitc.kernels.core.group import Group
from aitc.kernels.core.spelling import dim_name
from aitc.kernels.core.vectors import vectorizes
from aitc.registry import Registry
from aitc.targets.target import Target


@dataclass(frozen=True, slots=True)
class No:
    """Why a kernel does not take a group. ``copies`` (input number, storage order): it would, if these inputs of the anchor were copied first."""

    reason: str
    copies: tuple[tuple[int, tuple[int, ...] | None], ...] = ()


@dataclass(frozen=True, slots=True)
class FunctorText:
    """A functor struct, ready to print."""

    name: str
    comment: str
    width: int
    members: tuple[str, ...]  # declarations
    initializers: tuple[str, ...]  # of the members, in the entry point
    signature: str  # "index_t i"
    element: str  # "" or the parameter that carries V elements, e.g. "const float (&acc)[V]"
    lines: tuple[Line, ...]
    aliases: tuple[str, ...] = ()  # e.g. "using type = float;"
    held: tuple[str, ...] = ()  # members that the methods fill
    methods: tuple[tuple[Line, ...], ...] = ()  # besides operator()


@dataclass(frozen=True, slots=True)
class ShapeMember:
    """A member of struct Shape: a compile-time constant, or read at run time from an entry point's dims."""

    name: str
    value: str  # C++ text
    static: bool


@dataclass(frozen=True, slots=True)
class Context:
    """What a template gets; each kernel extends it. Only ``banner`` and the notes of lines are not part of a kernel's identity."""

    entry: str
    banner: tuple[str, ...]
    headers: tuple[str, ...]
    index_type: str
    shape: tuple[ShapeMember, ...]
    functors: tuple[FunctorText, ...]
    structs: tuple[tuple[str, ...], ...]  # further struct definitions, as lines
    parameters: tuple[str, ...]
    threads: int
    call: tuple[str, ...]  # the statement(s) of the entry point
    min_blocks: int = 0  # on a multiprocessor at once; 0: the compiler's choice
    fast_math: bool = False  # elementary functions may err by 5e-4: all outputs have 16 bits or fewer


@dataclass(frozen=True, slots=True)
class ScratchSpec:
    """Temporary memory that a launch needs: elements of ``c_type``; ``zeroed`` asks for memory that starts as 0 and is left as 0."""

    parameter: str
    c_type: str
    elems: Dim
    zeroed: bool = False


@dataclass(frozen=True, slots=True)
class MapSpec:
    """A TMA descriptor parameter, see ``TensorMapArg``. ``root`` is among the draft's ``parameters`` too (declared or not), packed or as it is."""

    parameter: str
    root: Value
    offset: Dim
    sizes: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    swizzle: int = 128
    im2col: tuple[tuple[int, ...], tuple[int, ...], int, int] | None = None
    tf32: bool = False


@dataclass(frozen=True, slots=True)
class Draft:
    """One launch before memory is planned."""

    kernel: str
    config: str
    template: str
    context: Context
    parameters: Parameters
    grid: tuple[Dim, Dim, Dim] = (1, 1, 1)
    block: tuple[int, int, int] = (1, 1, 1)
    smem_bytes: int = 0
    cluster: int = 1
    overlap: bool = False
    skip_if_zero: Dim = 1
    flops: Dim = 0
    scratch: tuple[ScratchSpec, ...] = ()
    maps: tuple[MapSpec, ...] = ()
    packed: dict[str, Any] = field(
        default_factory=dict
    )  # parameter -> array to store in place of the constant it points to
    in_place: tuple[
        tuple[Value, Value], ...
    ] = ()  # (output, input root): may share memory, every element is read before its place is written


class Kernel(ABC):
    """A kernel. Stateless; registered once under its name."""

    name: str
    template: str
    requires: frozenset[str] = frozenset()
    anchors: frozenset[str] = frozenset()  # names of core ops it can anchor on; empty: groups without an anchor
    heads: bool = False  # whether pointwise producers of the anchor's input may be computed while it is loaded
    tails: bool = True  # whether pointwise consumers may be computed while results are stored
    moments: int = 0  # columns of its results whose Moments it can store beside them; 0: of none
    priority: int = (
        0  # kernels are asked in this order, highest first; the first that accepts (or asks for copies) gets the node
    )
    doc: str = ""
    chains: bool = False
    """Whether it takes groups of two parts, of which the second reads what the first makes (``group.one_after_another``), and no others."""
    family: str = ""
    """Kernels of one family can share a launch (``together``); "": never."""

    def available(self, target: Target) -> bool:
        return self.requires <= target.features

    def takes_around(self, other: "Kernel") -> bool:
        """Whether all that may have grown around an anchor of ``other`` may also stand around one of this kernel's."""
        return self.heads >= other.heads and self.tails >= other.tails and self.moments >= other.moments

    @abstractmethod
    def accepts(self, group: Group, storage: StorageOf, target: Target) -> "Any | No":
        """The Problem (a hashable frozen dataclass that says all that matters for speed), or why not."""

    @abstractmethod
    def configs(self, problem: Any, target: Target) -> Sequence[Any]:
        """Configurations worth trying, the likely best first; each prints as its name."""

    @abstractmethod
    def score_us(self, problem: Any, config: Any, target: Target) -> float:
        """Predicted time in microseconds, deterministic."""

    @abstractmethod
    def build(self, group: Group, problem: Any, config: Any, storage: StorageOf, target: Target) -> Draft:
        """The text of one instance."""

    def together(self, parts: "Sequence[Part]", target: Target) -> tuple[float, tuple[Any, ...]] | None:
        """The predicted time of one launch for independent groups of this family, and the configuration of each; None if they do not go together."""
        return None

    def build_together(self, parts: "Sequence[Part]", configs: Sequence[Any], storage: StorageOf, target: Target) -> Draft | None:
        """The text of that launch; None if it cannot be written after all."""
        return None


@dataclass(frozen=True, slots=True)
class Part:
    """A group that may share its launch with others."""

    kernel: Kernel
    group: Group
    problem: Any


KERNELS: Registry[Kernel] = Registry("kernel")


def kernels_for(op: str, target: Target) -> list["Kernel"]:
    """Kernels that can anchor on ``op`` on ``target``, the preferred first."""
    found = [kernel for kernel in KERNELS if op in kernel.anchors and kernel.available(target)]
    return sorted(found, key=lambda kernel: (-kernel.priority, kernel.name))


def register(cls: type[Kernel]) -> type[Kernel]:
    """Class decorator: adds an instance to KERNELS."""
    KERNELS.add(cls.name, cls())
    return cls


# --- coordinates and functors, shared by all kernels


def coordinate(name: str, extent: Dim) -> Symbol:
    """The symbol of a coordinate that C++ code calls ``name``, of ``extent`` values from 0. Its own name begins with @, which no dim's does."""
    top = upper(extent)
    return Symbol(
        "@" + name, 0, None if top is None else max(top - 1, 0), 1, None, None if isinstance(extent, int) else extent
    )


def dim_of(s: Symbol) -> Dim:
    """The Dim that is the symbol, or 0 for a coordinate with a single value."""
    from aitc.ir.dim import Sum

    return 0 if s.hi == 0 else Sum((((s,), 1),))


def index_type(*extents: Dim) -> str:
    """``int`` when every linear index surely fits, else ``int64_t``."""
    tops = [upper(e) for e in extents]
    return "int" if all(t is not None and t < 2**31 for t in tops) else "int64_t"


def spread_indices(nodes: Sequence[Node], start: Value, index: Index, backward: bool = False) -> dict[Value, Index]:
    """Where values of ``nodes`` are computed when ``start`` is at ``index``: along pointwise nodes of one shape and invertible views.

    With ``backward`` the walk also goes from outputs to inputs (groups without an anchor).
    """
    known: dict[Value, Index] = {start: index}
    changed = True
    while changed:
        changed = False
        for n in nodes:
            if n.op.kind is Kind.VIEW:
                if n.input in known and n.output not in known:
                    target = target_index(n, known[n.input])
                    if target is not None:
                        known[n.output] = target
                        changed = True
                elif backward and n.output in known and n.input not in known and n.op.name in ("Reshape", "Transpose"):
                    known[n.input] = source_index(n, known[n.output])
                    changed = True
            elif n.op.kind is Kind.POINTWISE:
                same = [v for v in n.inputs if v is not None and v.shape == n.output.shape]
                if n.output not in known:
                    hit = next((known[v] for v in same if v in known), None)
                    if hit is not None:
                        known[n.output] = hit
                        changed = True
                elif backward:
                    for v in same:
                        if v not in known:
                            known[v] = known[n.output]
                            changed = True
        if not backward:
            break  # nodes are in topological order: one walk forward is all
    return known


def output_indices(group: Group, start: Value, index: Index, backward: bool = False) -> dict[Value, Index] | None:
    """The index of each output of ``group`` that is computed at ``index`` of ``start``; None if one cannot be."""
    known = spread_indices(group.nodes, start, index, backward)
    if any(o not in known for o in group.outputs):
        return None
    return {o: known[o] for o in group.outputs}


def finish(
    builder: FunctorBuilder, name: str, comment: str, signature: str, element: str, aliases: tuple[str, ...] = (),
    methods: tuple[tuple[Line, ...], ...] = (),
) -> FunctorText:  # fmt: skip
    """The functor's text from what its builder wrote. The last coordinate of ``signature`` is the vector: ``enter`` gets the others."""
    lines = builder.lines()
    pointers = {p.name: p for p in builder.parameters.pointers.values()}
    members = [f"{pointers[n].declaration};" for n in builder.used]
    members += [f"int64_t {d};" for d in builder.used_dims]
    if builder.held:
        aliases = (*aliases, "static constexpr bool enters = true;")
        given = f"{signature.rpartition(', ')[0]}, const RowQuad& across"
        for head, body in ((f"enter({given})", builder.enter), ("settle(const RowQuad& across)", builder.settle)):
            methods = (*methods, (Line(f"AITC_FN void {head} {{"), *(Line(INDENT + line.code, line.note) for line in body), Line("}")))
    if builder.prefetch and builder.columns:
        aliases = (*aliases, "static constexpr bool prefetches = true;")
        head, vector = "AITC_FN void prefetch(int64_t {}) const {{", signature.rpartition(" ")[2]
        methods = (*methods, (Line(head.format(vector)), *(Line(f"{INDENT}prefetch_l2({where});") for where in builder.columns), Line("}")))
    return FunctorText(
        name,
        comment,
        builder.width,
        tuple(members),
        (*builder.used, *builder.used_dims),
        signature,
        element,
        lines,
        aliases,
        tuple(builder.held),
        methods,
    )


def entry_parameters(parameters: Parameters, extra: Sequence[str] = ()) -> tuple[str, ...]:
    """Declarations of an entry point: pointers, extras (scratch, tensor maps), run-time dims."""
    return (
        *(p.declaration for p in parameters.pointers.values()),
        *extra,
        *(f"int64_t {dim_name(name)}" for name in parameters.dims),
    )


def shape_members(parameters: Parameters, **sizes: Dim) -> tuple[ShapeMember, ...]:
    """Members of struct Shape; symbolic ones are registered as run-time dims."""
    return tuple(
        ShapeMember(n, str(d), True) if isinstance(d, int) else ShapeMember(n, c_expr(d, parameters.dim), False)
        for n, d in sizes.items()
    )


def shape_struct(name: str, members: Sequence[ShapeMember]) -> tuple[tuple[str, ...], str]:
    """The definition of a struct Shape among others, as lines, and the expression that makes one."""
    lines = [f"  static constexpr int64_t {m.name} = {m.value};" if m.static else f"  int64_t {m.name};" for m in members]
    return (f"struct {name} {{", *lines, "};"), f"{name}{{{', '.join(m.value for m in members if not m.static)}}}"


def block_range(first: Dim, blocks: Dim, parameters: Parameters) -> str:
    """The declaration of ``blocks``, those of a launch from ``first`` on (include/aitc/gpu/core/blocks.h)."""
    first_text, blocks_text = (str(d) if isinstance(d, int) else f"int({c_expr(d, parameters.dim)})" for d in (first, blocks))
    return f"const SomeBlocks blocks{{{first_text}, {blocks_text}}}"


def banner(group: Group, limit: int = 12) -> tuple[str, ...]:
    """Lines that name the ONNX nodes of a group."""
    lines = [comment(f'{loc.op_type} "{loc.name or f"#{loc.index}"}"') for loc in group.locs[:limit]]
    return tuple(lines + ([f"and {len(group.locs) - limit} more"] if len(group.locs) > limit else []))


def widths(values: Sequence[Value], target: Target) -> list[int]:
    """Vector widths to try for a functor that touches ``values``, widest first."""
    smallest = min((v.type.dtype.bytes for v in values), default=4)
    if target.gpu:
        widest = max(1, min(8, 16 // smallest))
    else:
        widest = 16 if smallest >= 4 else 32
    return [w for w in (32, 16, 8, 4, 2) if w <= widest] + [1]


def nbytes(group: Group) -> Dim:
    """What ``group`` reads and writes, each element once; of a table that it gathers from alone no more than comes out."""
    inside = set(group.nodes)
    total: Dim = 0
    for v in (*group.inputs, *group.outputs):
        readers = [n for n in v.users if n in inside]
        count = product(v.shape)
        if readers and all(n.op.name == "Gather" and n.inputs[0] is v for n in readers):
            gathered: Dim = 0
            for n in readers:
                gathered = gathered + product(n.output.shape)
            count = min_(count, gathered)
        total = total + count * v.type.dtype.bytes
    return total


__all__ = [
    "KERNELS",
    "Context",
    "Draft",
    "FunctorText",
    "Kernel",
    "MapSpec",
    "No",
    "Part",
    "ScratchSpec",
    "ShapeMember",
    "Storage",
    "as_symbol",
    "banner",
    "block_range",
    "bounds",
    "coordinate",
    "dim_of",
    "entry_parameters",
    "finish",
    "flatten",
    "index_type",
    "nbytes",
    "output_indices",
    "register",
    "shape_members",
    "shape_struct",
    "spread_indices",
    "symbols",
    "unflatten",
    "vectorizes",
    "widths",
]  # fmt: skip
