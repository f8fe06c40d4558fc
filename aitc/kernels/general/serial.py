"""Ops with a loop of their own: each work item runs through a line of elements in order (CumSum, Scatter, TopK).

A rule writes the body of an item with the same builder that writes functors, so operands are read at any strides. These kernels are for what
is not worth tuning: right everywhere, deterministic, parallel over items.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aitc.ir.dim import Dim, ceildiv, floordiv, hint, mod, product, upper
from aitc.ir.graph import Node
from aitc.ir.index import unflatten
from aitc.kernels.core import kernel as k
from aitc.kernels.core.functor import FunctorBuilder, Parameters, Ref, StorageOf
from aitc.kernels.core.group import Group
from aitc.kernels.core.spelling import literal
from aitc.registry import Registry
from aitc.targets.target import Target

THREADS = 128


@dataclass(frozen=True, slots=True)
class SerialRule:
    """``items`` of a node on a target, and the writer of one item's body: (builder, node, item coordinate, target)."""

    items: Callable[[Node, Target], Dim]
    write: Callable[[FunctorBuilder, Node, Dim, Target], None]
    headers: tuple[str, ...] = ()


SERIAL: Registry[SerialRule] = Registry("serial rule")


@dataclass(frozen=True, slots=True)
class SerialProblem:
    op: str
    dtype: str
    items: Dim
    elems: Dim

    def __str__(self) -> str:
        return f"{self.op} {self.dtype} {self.items} of {self.elems}"


@dataclass(frozen=True, slots=True)
class SerialConfig:
    def __str__(self) -> str:
        return f"t{THREADS}"


@k.register
class Serial(k.Kernel):
    name = "serial"
    template = "kernel"
    anchors = frozenset(
        {"CumSum", "ScatterElements", "ScatterND", "TopK", "NonZeroRoom", "UniqueRoom", "NonMaxSuppressionRoom", "PackRows"}
    )
    tails = False
    doc = "ops with a loop of their own, parallel over lines"

    def accepts(self, group: Group, storage: StorageOf, target: Target) -> SerialProblem | k.No:
        node = group.anchor
        assert node is not None
        x = node.input
        return SerialProblem(
            node.op.name, x.type.dtype.name, SERIAL[node.op.name].items(node, target), product(x.shape)
        )

    def configs(self, problem: SerialProblem, target: Target) -> Sequence[SerialConfig]:
        return (SerialConfig(),)

    def score_us(self, problem: SerialProblem, config: SerialConfig, target: Target) -> float:
        return target.launch_us + hint(problem.elems) * 1e-3

    def build(
        self, group: Group, problem: SerialProblem, config: SerialConfig, storage: StorageOf, target: Target
    ) -> k.Draft:
        node = group.anchor
        assert node is not None
        parameters = Parameters()
        item = k.coordinate("i", problem.items)
        builder = FunctorBuilder(frozenset(), None, 1, parameters, storage)
        SERIAL[node.op.name].write(builder, node, k.dim_of(item), target)
        body = k.finish(builder, "Body", "work item i", "index_t i", "")
        shape = k.shape_members(parameters, items=problem.items)
        call = (f"for_each<1>(shape.items, Body{{{', '.join(body.initializers)}}});",)
        extents = [product(v.shape) for v in (*node.inputs, *node.outputs) if v is not None]
        headers = (
            "aitc/generic/map.h",
            "aitc/generic/element.h",
            *SERIAL[node.op.name].headers,
        )
        context = k.Context(
            "",
            k.banner(group),
            headers,
            k.index_type(problem.items, *extents),
            shape,
            (body,),
            (),
            k.entry_parameters(parameters),
            THREADS,
            call,
        )
        return k.Draft(
            self.name, str(config), self.template, context, parameters, grid=(ceildiv(problem.items, THREADS), 1, 1),
            block=(THREADS, 1, 1), skip_if_zero=problem.items, overlap=True,
        )  # fmt: skip


# --- rules


def _line(node_shape: tuple[Dim, ...], axis: int, item: Dim) -> list[Dim]:
    """The index of line ``item``: all axes but ``axis``, which is left 0."""
    rest = tuple(d for a, d in enumerate(node_shape) if a != axis)
    index = list(unflatten(item, rest))
    index.insert(axis, 0)
    return index


def _items_without(axis: int, shape: tuple[Dim, ...]) -> Dim:
    return product(d for a, d in enumerate(shape) if a != axis)


def _cumulate(code: FunctorBuilder, node: Node, item: Dim, target: Target) -> None:
    x, a, dtype = node.input, node.attrs, node.output.type.dtype
    size = x.shape[a.axis]
    index = _line(x.shape, a.axis, item)
    total = code.fresh("a")
    code.emit(f"{dtype.compute_c} {total} = {literal(0 if a.function == 'sum' else 1, dtype)};", True)
    name = code.fresh("r")
    top = upper(size)
    r = code.local(name, 0, None if top is None else max(top - 1, 0), False)
    with code.nested([f"for (index_t {name} = 0; {name} < {code.c(size)}; ++{name}) {{"], element=False):
        index[a.axis] = size - 1 - r if a.reverse else r
        at = tuple(index)
        operator = "+" if a.function == "sum" else "*"
        value = code.value(x, at)
        if a.exclusive:
            code.store(node.output, at, Ref(total, False, True))
        code.emit(f"{total} = {dtype.compute_c}({total} {operator} {value.text});", False)
        if not a.exclusive:
            code.store(node.output, at, Ref(total, False, True))


SERIAL.add("CumSum", SerialRule(lambda node, target: _items_without(node.attrs.axis, node.input.shape), _cumulate))


def combined(reduction: str, old: str, new: str, c_type: str) -> str:
    """The value that a scatter writes over ``old``."""
    forms = {"none": "{1}", "add": "{0} + {1}", "mul": "{0} * {1}", "max": "max_({0}, {1})", "min": "min_({0}, {1})"}
    text = forms[reduction].format(old, new)
    return f"{c_type}({text})" if reduction in ("add", "mul") else text


def _combine(code: FunctorBuilder, node: Node, at: tuple[Dim, ...], new: Ref) -> None:
    """Writes ``new`` into the output, which already holds a copy of the data, at ``at``."""
    out, dtype = node.output, node.output.type.dtype
    if node.attrs.reduction == "none":
        code.store(out, at, new)
        return
    storage = code.storage(out)
    pointer = code.parameters.pointer(storage.root, const=False)
    code.used[pointer] = None
    place = f"{pointer}[{code.c(storage.at(at))}]"
    old = place if dtype.compute_c == dtype.c else f"convert<{dtype.compute_c}>({place})"
    code.store(out, at, Ref(combined(node.attrs.reduction, old, new.text, dtype.compute_c), False, True))


def loop(code: FunctorBuilder, size: Dim) -> tuple[str, Dim]:
    """A loop over ``size``: its opening line and its counter."""
    name = code.fresh("r")
    top = upper(size)
    r = code.local(name, 0, None if top is None else max(top - 1, 0), False)
    return f"for (index_t {name} = 0; {name} < {code.c(size)}; ++{name}) {{", r


def _below(extent: Dim) -> int | None:
    top = upper(extent)
    return None if top is None else max(top - 1, 0)


def _scatter_elements(code: FunctorBuilder, node: Node, item: Dim, target: Target) -> None:
    data, indices, updates = node.inputs
    assert data is not None and indices is not None and updates is not None
    axis = node.attrs.axis
    index = _line(indices.shape, axis, item)
    opening, r = loop(code, indices.shape[axis])
    with code.nested([opening], element=False):
        index[axis] = r
        extent = data.shape[axis]
        g = code.integer(code.value(indices, tuple(index)), 0, _below(extent), wrap=extent)
        new = code.value(updates, tuple(index))
        index[axis] = g
        _combine(code, node, tuple(index), new)


SERIAL.add(
    "ScatterElements",
    SerialRule(lambda node, target: _items_without(node.attrs.axis, node.inputs[1].shape), _scatter_elements),  # type: ignore[union-attr]
)


def _slice_shape(node: Node) -> tuple[Dim, ...]:
    indices = node.inputs[1]
    assert indices is not None
    depth = indices.shape[-1]
    assert isinstance(depth, int)
    return node.input.shape[depth:]


def _scatter_nd(code: FunctorBuilder, node: Node, item: Dim, target: Target) -> None:
    data, indices, updates = node.inputs
    assert data is not None and indices is not None and updates is not None
    depth = indices.shape[-1]
    assert isinstance(depth, int)
    inner = unflatten(item, data.shape[depth:])
    lead = indices.shape[:-1]
    opening, r = loop(code, product(lead))
    with code.nested([opening], element=False):
        row = unflatten(r, lead)
        outer = []
        for d in range(depth):
            extent = data.shape[d]
            outer.append(code.integer(code.value(indices, (*row, d)), 0, _below(extent), wrap=extent))
        _combine(code, node, (*outer, *inner), code.value(updates, (*row, *inner)))


SERIAL.add("ScatterND", SerialRule(lambda node, target: product(_slice_shape(node)), _scatter_nd))


def _topk_items(node: Node, target: Target) -> Dim:
    lines = _items_without(node.attrs.axis, node.input.shape)
    return lines * node.input.shape[node.attrs.axis] if target.gpu else lines


def _topk(code: FunctorBuilder, node: Node, item: Dim, target: Target) -> None:
    """GPUs: an item is an element, and finds its rank by counting. The processor: an item is a line, partially sorted."""
    x, a = node.input, node.attrs
    dtype = x.type.dtype
    size = x.shape[a.axis]
    values, places = node.outputs
    line = floordiv(item, size) if target.gpu else item
    line = code.index(line) if target.gpu else line
    index = _line(x.shape, a.axis, line)
    name = code.fresh("r")
    r = code.local(name, 0, _below(size), False)
    with code.nested([f"const auto at = [&](index_t {name}) {{"], element=False, closing="};"):
        index[a.axis] = r
        code.emit(f"return {code.value(x, tuple(index)).text};", False)
    largest = str(a.largest).lower()
    rank = code.local("rank", 0, _below(a.k), False)
    place = code.local("place", 0, _below(size), False)

    def keep() -> None:
        index[a.axis] = place
        ref = Ref("at(place)", False, True)
        index[a.axis] = rank
        code.store(values, tuple(index), ref)
        code.store(places, tuple(index), Ref("int64_t(place)", False, True))

    if target.gpu:
        code.emit(f"const index_t place = {code.c(mod(item, size))};", False)
        code.emit(
            f"const index_t rank = topk_rank<{largest}, {dtype.compute_c}>(at, place, index_t({code.c(size)}), index_t({code.c(a.k)}));",
            False,
        )
        with code.nested([f"if (rank < {code.c(a.k)}) {{"], element=True):
            keep()
    else:
        opening = f"topk_line<{largest}, {dtype.compute_c}>(at, index_t({code.c(size)}), index_t({code.c(a.k)}), [&](index_t rank, index_t place) {{"
        with code.nested([opening], element=True, closing="});"):
            keep()


SERIAL.add("TopK", SerialRule(_topk_items, _topk, ("aitc/generic/topk.h",)))
