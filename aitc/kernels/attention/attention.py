"""What the attention kernels share, and attention on the processor (include/aitc/cpu/attention.h)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from aitc.ir.cpp import c_expr
from aitc.ir.dim import Dim, Symbol, divisor, hint, mul, product, symbols, transform
from aitc.ir.dtype import BOOL
from aitc.ir.graph import Node, Value
from aitc.ir.index import Index, broadcast_index
from aitc.kernels.core import kernel as k
from aitc.kernels.core.functor import FunctorBuilder, Parameters, StorageOf
from aitc.kernels.core.group import Group
from aitc.kernels.core.sites import linear, locate, member, store_functor
from aitc.kernels.core.spelling import dim_name
from aitc.kernels.core.structs import int_struct
from aitc.targets.target import Target


@dataclass(frozen=True, slots=True)
class AttentionProblem:
    """batch × heads × (queries, keys), head sizes D and DV; ``mask``: none, add or keep; ``align``: elements every row start is a multiple of."""

    dtype: str
    batch: Dim
    heads: int
    kv_heads: int
    queries: Dim
    keys: Dim
    D: int
    DV: int
    causal: bool
    softcap: bool
    mask: str
    align: int

    def __str__(self) -> str:
        return (
            f"{self.dtype} b{self.batch} h{self.heads}/{self.kv_heads} q{self.queries} k{self.keys} d{self.D}/{self.DV}"
            f"{' causal' if self.causal else ''} {self.mask} a{self.align}"
        )

    @property
    def flops(self) -> Dim:
        return mul(product((self.batch, self.heads, self.queries, self.keys)), 2 * (self.D + self.DV))


LONG = 4096
"""Keys of a cache of which nothing else is known."""


def typical_keys(p: AttentionProblem) -> int:
    """A typical number of keys. Where the queries are known and the keys only by their bounds, they are those of a cache that grows: a long one matters."""
    if not isinstance(p.queries, int) or isinstance(p.keys, int):
        return hint(p.keys)

    def long(s: Symbol) -> int:
        return s.hint if s.hint is not None else LONG if s.hi is None else max(min(s.hi, LONG), s.lo)

    return hint(transform(p.keys, long))


@dataclass(frozen=True, slots=True)
class HeadRows:
    """One of Q, K, V: element (batch, head, row, d) at ``rest`` (over batch and head) + row · stride_row + d of ``root``."""

    value: Value
    root: Value
    rest: Dim
    stride_row: Dim


@dataclass(frozen=True, slots=True)
class AttentionForm:
    """An Attention in a kernel's coordinates."""

    node: Node
    problem: AttentionProblem
    coords: tuple[Symbol, Symbol, Symbol, Symbol]  # batch, head, row, d
    index: Index
    q: HeadRows
    k: HeadRows
    v: HeadRows
    mask: Value | None


def attention_form(node: Node, storage: StorageOf) -> AttentionForm | k.No:
    """The form of Attention ``node``, or the operands that have to be copied first."""
    q, key, v = (x for x in node.inputs[:3])
    assert q is not None and key is not None and v is not None
    mask = node.inputs[3] if len(node.inputs) > 3 else None
    if not all(isinstance(d, int) for d in (q.shape[1], key.shape[1], q.shape[3], v.shape[3])):
        return k.No("heads and head sizes must be known when compiling")
    batch = k.coordinate("batch", q.shape[0])
    head = k.coordinate("head", q.shape[1])
    row = k.coordinate("row", q.shape[2])
    d = k.coordinate("d", v.shape[3])
    operands: list[HeadRows] = []
    copies: list[tuple[int, tuple[int, ...] | None]] = []
    for n, x in enumerate((q, key, v)):
        at = (
            k.coordinate("batch", x.shape[0]),
            k.coordinate("head", x.shape[1]),
            k.coordinate("row", x.shape[2]),
            k.coordinate("d", x.shape[3]),
        )
        root, offset = locate(x, tuple(k.dim_of(c) for c in at), storage)
        form = linear(offset, at[2:])
        if form is None or (form[1][1] != 1 and x.shape[3] != 1):
            copies.append((n, None))
        else:
            operands.append(HeadRows(x, root, form[0], form[1][0]))
    if copies:
        return k.No("an operand's rows are not contiguous", tuple(copies))
    align = 0
    for o in operands:
        align = gcd(align, gcd(divisor(o.rest), divisor(o.stride_row)))
    a = node.attrs
    problem = AttentionProblem(
        q.type.dtype.name, q.shape[0], int(q.shape[1]), int(key.shape[1]), q.shape[2], key.shape[2], int(q.shape[3]), int(v.shape[3]),  # type: ignore[arg-type]
        a.causal, a.softcap != 0, "none" if mask is None else "keep" if mask.type.dtype is BOOL else "add", min(align or 16, 16),
    )  # fmt: skip
    index = (k.dim_of(batch), k.dim_of(head), k.dim_of(row), k.dim_of(d))
    rows_q, rows_k, rows_v = operands
    return AttentionForm(node, problem, (batch, head, row, d), index, rows_q, rows_k, rows_v, mask)


def rows_struct(
    name: str, comment: str, h: HeadRows, parameters: Parameters, width: int
) -> tuple[tuple[str, ...], str]:
    """The struct that describes Q, K or V to a kernel, and the expression that makes one."""
    pointer = parameters.pointer(h.root, const=True)
    c_type = h.root.type.dtype.c
    lines = [
        f"struct {name} {{  // {comment}",
        f"  using type = {c_type};",
        f"  static constexpr int width = {width};",
        f"  const {c_type}* data;",
    ]
    init = [pointer]
    declaration, value = member("int64_t", "stride_row", h.stride_row, parameters)
    lines.append("  " + declaration)
    if value is not None:
        init.append(value)
    dims: dict[str, None] = {}

    def spell(s: Symbol) -> str:
        if not s.name.startswith("@"):
            dims[dim_name(s.name)] = None
        return parameters.dim(s)

    offset = c_expr(h.rest, spell)
    for d in dims:
        lines.append(f"  int64_t {d};")
        init.append(d)
    used = {s.name for s in symbols(h.rest)}
    shown = ", ".join(f"int {n}" if "@" + n in used else f"int /*{n}*/" for n in ("batch", "head"))
    wide = offset.replace("batch *", "int64_t(batch) *")
    lines += [
        f"  AITC_FN const {c_type}* base({shown}) const {{ return data{'' if offset == '0' else ' + ' + wide}; }}",
        "};",
    ]
    return tuple(lines), f"{name}{{{', '.join(init)}}}"


def mask_struct(form: AttentionForm, parameters: Parameters, storage: StorageOf) -> tuple[tuple[str, ...], str]:
    """struct Mask: what is added to a scaled score (-infinity excludes), and the expression that makes one; NoMask{} without a mask."""
    mask = form.mask
    if mask is None:
        return (), "NoMask{}"
    coords = (*form.coords[:3], k.coordinate("col", form.problem.keys))
    index = broadcast_index(tuple(k.dim_of(c) for c in coords), mask.shape)
    builder = FunctorBuilder(frozenset(), None, 1, parameters, storage)
    ref = builder.value(mask, index)
    text = f"{ref.text} ? 0.0f : -inf_of<float>()" if mask.type.dtype is BOOL else f"float({ref.text})"
    builder.emit(f"return {text};", True)
    f = k.finish(builder, "Mask", "", "", "")
    lines = ["struct Mask {  // what is added to the score of (row, col)"]
    lines += ["  " + m for m in f.members]
    lines.append("  AITC_FN float operator()(int batch, int head, int row, int col) const {")
    lines += ["    " + line.code for line in f.lines]
    lines += ["  }", "};"]
    return tuple(lines), f"Mask{{{', '.join(f.initializers)}}}"


def shape_struct(form: AttentionForm, parameters: Parameters) -> tuple[tuple[str, ...], str]:
    """struct Shape of the attention headers."""
    p = form.problem
    sizes: dict[str, Dim] = {
        "batch": p.batch, "heads": p.heads, "kv_heads": p.kv_heads, "queries": p.queries, "keys": p.keys, "D": p.D, "DV": p.DV,
        "offset": p.keys - p.queries,
    }  # fmt: skip
    lines, make = int_struct("Shape", sizes, parameters)
    extra = [f"  static constexpr float scale = {form.node.attrs.scale!r}f;"]
    if p.softcap:
        extra.append(f"  static constexpr float softcap = {form.node.attrs.softcap!r}f;")
    if form.node.attrs.zero_rows:
        extra.append("  static constexpr bool zero_rows = true;")
    return (*lines[:-1], *extra, lines[-1]), make


@dataclass(frozen=True, slots=True)
class AttentionCpuConfig:
    def __str__(self) -> str:
        return "auto"


@k.register
class AttentionCpu(k.Kernel):
    name = "attention_cpu"
    template = "kernel"
    requires = frozenset({"cpu"})
    anchors = frozenset({"Attention"})
    doc = "attention on the processor: blocks of keys with a running maximum and sum, in float"

    def accepts(self, group: Group, storage: StorageOf, target: Target) -> AttentionProblem | k.No:
        assert group.anchor is not None
        form = attention_form(group.anchor, storage)
        if isinstance(form, k.No):
            return form
        if form.problem.softcap:
            return k.No("softcap")
        if form.problem.dtype not in ("f32", "f16", "bf16"):
            return k.No(f"elements are {form.problem.dtype}")
        return form.problem

    def configs(self, problem: AttentionProblem, target: Target) -> Sequence[AttentionCpuConfig]:
        return (AttentionCpuConfig(),)

    def score_us(self, problem: AttentionProblem, config: AttentionCpuConfig, target: Target) -> float:
        return target.launch_us + hint(problem.flops) / target.tflops["fp32"] * 1e-6

    def build(
        self, group: Group, problem: AttentionProblem, config: AttentionCpuConfig, storage: StorageOf, target: Target
    ) -> k.Draft:
        call = f"attention<{str(problem.causal).lower()}>"
        return attention_draft(self.name, "aitc/cpu/attention.h", call, config, 0, 1, group, storage, target, 0, 16)


def attention_draft(
    name: str, header: str, function: str, config: object, threads: int, blocks: Dim, group: Group, storage: StorageOf, target: Target,
    smem_bytes: int, widest: int, scratch: tuple[k.ScratchSpec, ...] = (),
) -> k.Draft:  # fmt: skip
    """An instance of an attention header. ``scratch``: the memory of its own that it takes as last arguments."""
    assert group.anchor is not None
    form = attention_form(group.anchor, storage)
    assert isinstance(form, AttentionForm)
    p = form.problem
    parameters = Parameters()
    sizes, make_shape = shape_struct(form, parameters)
    size = form.q.value.type.dtype.bytes
    structs, makes = [sizes], []
    for label, comment, rows, depth in (
        ("Q", f"({p.batch}, {p.heads}, {p.queries}, {p.D})", form.q, p.D),
        ("K", f"({p.batch}, {p.kv_heads}, {p.keys}, {p.D})", form.k, p.D),
        ("V", f"({p.batch}, {p.kv_heads}, {p.keys}, {p.DV})", form.v, p.DV),
    ):
        width = max(1, 16 // size)
        common = gcd(gcd(divisor(rows.rest), divisor(rows.stride_row)), depth)
        while width > 1 and common % width:
            width //= 2
        lines, make = rows_struct(label, comment, rows, parameters, width)
        structs.append(lines)
        makes.append(make)
    mask, make_mask = mask_struct(form, parameters, storage)
    if mask:
        structs.append(mask)
    store = store_functor(
        group,
        form.index,
        form.coords,
        parameters,
        storage,
        target,
        "int batch, int head, int64_t row, int64_t d",
        widest=widest,
    )
    own = "".join(f", {spec.parameter}" for spec in scratch)
    call = (f"{function}({make_shape}, {', '.join(makes)}, {make_mask}, Store{{{', '.join(store.initializers)}}}{own});",)
    context = k.Context(
        "", k.banner(group), (header, "aitc/generic/element.h"), "int64_t", (), (store,), tuple(structs),
        k.entry_parameters(parameters, [f"{spec.c_type}* {spec.parameter}" for spec in scratch]), threads, call,
    )  # fmt: skip
    return k.Draft(
        name, str(config), "kernel", context, parameters, grid=(blocks, 1, 1), block=(max(threads, 1), 1, 1), smem_bytes=smem_bytes,
        overlap=True, skip_if_zero=product((p.batch, p.queries)), flops=p.flops, scratch=scratch,
    )  # fmt: skip
