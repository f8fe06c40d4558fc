"""Where a kernel meets the graph: its store and load functors, and operands read by strides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from aitc.ir.cpp import c_expr
from aitc.ir.dim import Dim, Sum, Symbol, divisor, floordiv, symbols
from aitc.ir.graph import Node, Value
from aitc.ir.index import Index, is_view, source_index
from aitc.kernels.core.functor import FunctorBuilder, Line, Parameters, Ref, StorageOf
from aitc.kernels.core.group import Group
from aitc.kernels.core.kernel import FunctorText, finish, output_indices, spread_indices, widths
from aitc.kernels.core.spelling import address, converted, dim_name, note, stored
from aitc.kernels.core.vectors import vectorizes
from aitc.targets.target import Target


def store_functor(
    group: Group,
    index: Index,
    coords: Sequence[Symbol],
    parameters: Parameters,
    storage: StorageOf,
    target: Target,
    signature: str,
    *,
    name: str = "Store",
    start: Value | None = None,
    acc: str = "acc[j]",
    element: str = "const {type} (&acc)[V]",
    comment: str = "what happens to V neighbouring results",
    widest: int = 16,
    rows: Sequence[Symbol] = (),
    prefetch: bool = False,
) -> FunctorText:
    """The functor that takes the anchor's results (``start``, its first output unless given) at ``index`` over ``coords`` through the tail to memory.

    The last coordinate is the vector. The widest vector is taken in which every output can be stored, unless a narrower one saves loads element by element.
    ``rows``: what the kernel calls ``enter`` with; ``prefetch``: whether it calls that. Where a Moments is in the group, the functor also gives back
    what it describes, as stored, in ``kept``, and stores the moments that the kernel makes of it.
    """
    assert group.anchor is not None
    start = start or group.anchor.output
    described, group = described_by(group)
    element += ", float (&kept)[V]" if described is not None else ""
    outputs = output_indices(group, start, index)
    assert outputs is not None, f"no place for the outputs of {group.describe()}"
    c_type = start.type.dtype.compute_c

    def write(width: int) -> tuple[int, Parameters, FunctorText]:
        """Loads element by element, the parameters, and the text of a functor so wide."""
        trial = parameters.clone()
        builder = FunctorBuilder(group.inside, coords[-1], width, trial, storage, {start: (index, acc)}, rows=rows, prefetch=prefetch)
        for o, at in outputs.items():
            builder.store(o, at, builder.value(o, at))
        aliases, methods = _moments_method(builder, described, spread_indices(group.nodes, start, index), signature, True) if described else ((), ())
        text = finish(builder, name, comment, signature, element.format(type=c_type), aliases, methods)
        return sum(mode == "element" for _, _, mode in builder.reads), trial, text

    best: tuple[int, Parameters, FunctorText] | None = None
    for width in [w for w in widths([*group.inputs, *group.outputs], target) if w <= widest]:
        if width > 1 and not all(vectorizes(storage(o).at(at), coords[-1], width) for o, at in outputs.items()):
            continue
        found = write(width)
        if best is None or found[0] < best[0]:
            best = found
        if found[0] == 0:
            break
    best = best or write(1)  # nothing can be stored in vectors: a wide functor may still compute in them
    parameters.adopt(best[1])
    return best[2]


def described_by(group: Group) -> tuple[Node | None, Group]:
    """The Moments among the nodes of a group, which its kernel stores beside the results; and the group with the results alone."""
    node = next((n for n in group.nodes if n.op.name == "Moments"), None)
    return node, group if node is None else replace(group, outputs=tuple(o for o in group.outputs if o is not node.output))


def _moments_method(
    builder: FunctorBuilder, node: Node, known: Mapping[Value, Index], signature: str, keep: bool
) -> tuple[tuple[str, ...], tuple[tuple[Line, ...], ...]]:
    """(aliases, methods) of a functor that stores the moments of ``node``; with ``keep`` it gives back what they describe, rounded as it is stored."""
    x, at, part = node.input, known[node.input], node.attrs.part
    if keep:
        ref = builder.value(x, at)
        builder.emit(f"kept[j] = {converted(stored(ref.text, x.type.dtype), x.type.dtype)};", False)
    place = builder.storage(node.output)
    pointer = builder.parameters.pointer(place.root, const=False)
    builder.used[pointer] = None
    where = builder.c(place.at((*at[:-1], floordiv(at[-1], part), 0)))
    head = f"AITC_FN void moments({signature}, float mean, float squares) const {{"
    body = f"  store<2>({address(pointer, where)}, Vec<float, 2>{{mean, squares}});"
    return (f"static constexpr int moments_of = {part};",), ((Line(head), Line(body, note(node)), Line("}")),)


def dense_result(
    group: Group, start: Value, index: Index, coords: Sequence[Symbol], storage: StorageOf
) -> "Matrix | None":
    """The one output of the group as a matrix of 16-bit elements over the last two of ``coords`` that the copy engine can store; None if it is no such."""
    described, group = described_by(group)
    outputs = output_indices(group, start, index)
    if outputs is None or len(outputs) != 1:
        return None
    ((o, at),) = outputs.items()
    if described is not None and described.input is not o:
        return None
    s = storage(o)
    if o.type.dtype.name not in ("f16", "bf16"):
        return None
    form = linear(s.at(at), tuple(coords[-2:]))
    if form is None or form[1][1] != 1 or divisor(form[1][0]) % 8 or divisor(form[0]) % 8:
        return None
    return Matrix(o, s.root, form[0], *form[1])


class _StagedBuilder(FunctorBuilder):
    """Takes what it would load from ``root`` at ``offset`` from the parameter ``staged``."""

    root: Value | None = None
    offset: Dim = 0

    def load(self, v: Value, index: Index) -> Ref:
        s = self.storage(v)
        if s.root is self.root and s.at(index) == self.offset:
            return Ref("staged[j]", uniform=False, outer=True)
        return super().load(v, index)


def result_functor(
    group: Group,
    start: Value,
    index: Index,
    coords: Sequence[Symbol],
    parameters: Parameters,
    storage: StorageOf,
    signature: str,
    *,
    staged: Matrix | None = None,
    name: str = "Store",
    comment: str = "what becomes of V neighbouring results, before they are rounded and stored",
    rows: Sequence[Symbol] = (),
    prefetch: bool = False,
) -> FunctorText:
    """As ``store_functor`` for a ``dense_result``, but it returns the results in ``out``, two neighbours at a time, and stores nothing.

    ``staged``: an operand (from ``staged_operand``) that the kernel brings itself. ``rows``, ``prefetch``: as for ``store_functor``.
    """
    described, group = described_by(group)
    outputs = output_indices(group, start, index)
    assert outputs is not None and len(outputs) == 1
    ((o, at),) = outputs.items()
    builder = _StagedBuilder(group.inside, coords[-1], 2, parameters, storage, {start: (index, "acc[j]")}, rows=rows, prefetch=prefetch)
    more, methods = _moments_method(builder, described, spread_indices(group.nodes, start, index), signature, False) if described else ((), ())
    aliases = [f"using result = {o.type.dtype.c};", *more]
    if staged is not None:
        builder.root, builder.offset = staged.root, staged.rest + staged.stride_row * _coordinate(coords[-2]) + _coordinate(coords[-1])
        aliases.append(f"using staged = {staged.root.type.dtype.c};")
    ref = builder.value(o, at)
    builder.emit(f"out[j] = {ref.text};", False)
    extra = ", const float (&staged)[V]" if staged is not None else ""
    return finish(builder, name, comment, signature, f"const float (&acc)[V]{extra}, float (&out)[V]", tuple(aliases), methods)


def _coordinate(s: Symbol) -> Dim:
    return 0 if s.hi == 0 else Sum((((s,), 1),))


def staged_operand(group: Group, start: Value, index: Index, coords: Sequence[Symbol], storage: StorageOf) -> Matrix | None:
    """A matrix of 16-bit elements, as large as the results, that the tail reads and the copy engine can bring; None if there is none."""
    outputs = output_indices(described_by(group)[1], start, index)
    if outputs is None or len(outputs) != 1:
        return None
    ((o, at),) = outputs.items()
    builder = FunctorBuilder(group.inside, coords[-1], 2, Parameters(), storage, {start: (index, "acc[j]")})
    builder.value(o, at)
    for root, offset, mode in builder.reads:
        if mode != "vector" or root.const is not None or root.type.dtype.name not in ("f16", "bf16"):
            continue
        form = linear(offset, tuple(coords[-2:]))
        if form is None or form[1][1] != 1 or form[1][0] == 0 or divisor(form[1][0]) % 8 or divisor(form[0]) % 8:
            continue
        return Matrix(root, root, form[0], *form[1])
    return None


def load_functor(
    group: Group,
    v: Value,
    index: Index,
    vector: Symbol,
    parameters: Parameters,
    storage: StorageOf,
    target: Target,
    signature: str,
    *,
    name: str = "Load",
    comment: str = "V neighbouring elements of the input",
    widest: int = 16,
    c_type: str = "",
) -> FunctorText:
    """The functor that computes ``v`` at ``index`` from memory (with the group's heads) into ``x``, of ``c_type`` (v's compute type unless given)."""
    assert group.anchor is not None
    c_type = c_type or v.type.dtype.compute_c
    inside = group.inside - {group.anchor}
    best: tuple[int, Parameters, FunctorText] | None = None
    sources = list(group.inputs) or [v]
    for width in [w for w in widths(sources, target) if w <= widest]:
        trial = parameters.clone()
        builder = FunctorBuilder(inside, vector, width, trial, storage)
        ref = builder.value(v, index)
        builder.emit(f"x[j] = {ref.text};", False)
        scattered = sum(mode == "element" for _, _, mode in builder.reads)
        if best is None or scattered < best[0]:
            best = (
                scattered,
                trial,
                finish(builder, name, comment, signature, f"{c_type} (&x)[V]", (f"using type = {c_type};",)),
            )
        if scattered == 0:
            break
    assert best is not None
    parameters.adopt(best[1])
    return best[2]


def locate(v: Value, index: Index, storage: StorageOf) -> tuple[Value, Dim]:
    """The memory behind ``v`` at ``index``, looking through views: (root, offset in elements)."""
    while is_view(v.producer):
        assert v.producer is not None
        index = source_index(v.producer, index)
        v = v.producer.input
    s = storage(v)
    return s.root, s.at(index)


def linear(offset: Dim, coords: Sequence[Symbol]) -> tuple[Dim, tuple[Dim, ...]] | None:
    """``(rest, strides)`` with ``offset = rest + Σ stride · coord`` and none of the coordinates elsewhere; None if there is no such form."""
    if isinstance(offset, int):
        return offset, (0,) * len(coords)
    strides: list[Dim] = [0] * len(coords)
    rest: Dim = offset.const
    wanted = frozenset(coords)
    for product, c in offset.terms:
        hits = [a for a in product if isinstance(a, Symbol) and a in wanted]
        others = tuple(a for a in product if a not in hits)
        mentioned = any(wanted & symbols(Sum((((a,), 1),))) for a in others)
        if mentioned or len(hits) > 1:
            return None
        term: Dim = Sum(((others, c),)) if others else c
        if hits:
            at = coords.index(hits[0])
            strides[at] = strides[at] + term
        else:
            rest = rest + term
    return rest, tuple(strides)


@dataclass(frozen=True, slots=True)
class Matrix:
    """An operand of a contraction: ``rest`` (over the batch coordinate) + row · stride_row + col · stride_col, in elements of ``root``."""

    value: Value
    root: Value
    rest: Dim
    stride_row: Dim
    stride_col: Dim

    @property
    def alignment(self) -> int:
        """Elements to which every row or column start is aligned (the gcd of offset and the stride that is not 1)."""
        from math import gcd

        other = self.stride_row if self.stride_col == 1 else self.stride_col
        return gcd(divisor(self.rest), divisor(other)) or 1 << 20


def matrix(v: Value, index: Index, row: Symbol, col: Symbol, storage: StorageOf) -> Matrix | None:
    """``v`` as a matrix over ``row`` and ``col``; None if its elements do not lie at strides."""
    root, offset = locate(v, index, storage)
    form = linear(offset, (row, col))
    if form is None:
        return None
    return Matrix(v, root, form[0], form[1][0], form[1][1])


def member(text_type: str, name: str, d: Dim, parameters: Parameters) -> tuple[str, str | None]:
    """A struct member: (declaration, initializer or None when it is a constant)."""
    if isinstance(d, int):
        return f"static constexpr {text_type} {name} = {d};", None
    return f"{text_type} {name};", c_expr(d, parameters.dim)


def matrix_struct(
    name: str, comment: str, m: Matrix, majors: tuple[str, str], parameters: Parameters, width: int = 1
) -> tuple[tuple[str, ...], str]:
    """The struct that describes ``m`` to a kernel, as lines, and the expression that makes one. ``majors`` name the axis that is contiguous
    when stride_col, respectively stride_row, is 1."""
    pointer = parameters.pointer(m.root, const=True)
    c_type = m.root.type.dtype.c
    major = majors[0] if m.stride_col == 1 else majors[1] if m.stride_row == 1 else "none"
    lines = [f"struct {name} {{  // {comment}", f"  using type = {c_type};", f"  static constexpr Major major = Major::{major};",
             f"  static constexpr int width = {width};", f"  const {c_type}* data;"]  # fmt: skip
    init = [pointer]
    dims: dict[str, None] = {}

    def spell(s: Symbol) -> str:
        if not s.name.startswith("@"):
            dims[dim_name(s.name)] = None
        return parameters.dim(s)

    for label, d in (("stride_row", m.stride_row), ("stride_col", m.stride_col)):
        declaration, value = member("int64_t", label, d, parameters)
        lines.append("  " + declaration)
        if value is not None:
            init.append(value)
    offset = c_expr(m.rest, spell)
    for name_ in dims:
        lines.append(f"  int64_t {name_};")
        init.append(name_)
    shown = "batch" if any(s.name == "@batch" for s in symbols(m.rest)) else "/*batch*/"
    lines.append(
        f"  AITC_FN const {c_type}* matrix(int {shown}) const {{ return data{'' if offset == '0' else ' + ' + offset}; }}"
    )
    lines.append("};")
    return tuple(lines), f"{name}{{{', '.join(init)}}}"


def constant_array(v: Value) -> "object | None":
    """The array behind a constant, seen through its views; None if ``v`` is not constant."""
    path: list[Node] = []
    root = v
    while is_view(root.producer):
        assert root.producer is not None
        path.append(root.producer)
        root = root.producer.input
    if root.const is None:
        return None
    array = root.const
    for node in reversed(path):
        array = node.op.reference(array, node.attrs)
    return array
