"""Memory fusion: what a Concat joins is written in its place at once, and the Concat itself disappears."""

from __future__ import annotations

from aitc.ir.builder import Builder
from aitc.ir.dim import Dim, divisor, hint, product, symbols
from aitc.ir.graph import Graph, Node, Value
from aitc.ir.index import Index, is_view, target_index
from aitc.ir.op import Kind
from aitc.kernels.core.functor import Storage
from aitc.kernels.core.kernel import coordinate, dim_of
from aitc.kernels.core.sites import linear
from aitc.schedule.core.anchors import IN_PLACE, is_anchor
from aitc.schedule.core.storage import Storages
from aitc.schedule.core.why import Fusions
from aitc.targets.target import Target


def join_in_place(graph: Graph, storage: Storages, target: Target, why: Fusions | None = None) -> None:
    """Gives the inputs of Concats a place inside the output's memory, the last Concat first, so that chains end in one buffer.

    An input that cannot be written there (it is a model input, a part, or belongs to another Concat) is copied, if that is the smaller
    part; of a reshaped or transposed one, what is behind the view is written at the strides that make it so. A Concat of pointwise
    results alone stays a node: one launch computes it. ``why`` gets the reasons.
    """
    why = why or Fusions()
    made: list[Node] = []
    for node in reversed(list(graph.nodes)):
        if node.op.name == "Concat" and not storage.joined(node):
            made += _join(graph, node, storage, target, why)
    if made:
        graph.reorder(made)


def _join(graph: Graph, node: Node, storage: Storages, target: Target, why: Fusions) -> list[Node]:
    out = node.output
    place = storage(out)
    axis = node.attrs.axis

    def stays(reason: str) -> list[Node]:
        for v in node.inputs:
            if v is not None:
                why.not_in_place(v, node, reason)
        return []

    if not {s.name for d in out.shape for s in symbols(d)} <= {s.name for v in graph.inputs for d in v.shape for s in symbols(d)}:
        return stays("what is joined may be computed before the size of the whole is known")
    starts: list[Dim] = []
    position: Dim = 0
    for v in node.inputs:
        assert v is not None
        starts.append(place.offset + position * place.strides[axis])
        position = position + v.shape[axis]
    if target.gpu and any(divisor(s) * out.type.dtype.bytes % 16 for s in starts if s != 0):
        return stays("every row would begin off the 16 bytes that a thread moves at once")
    behind = [_behind(v, Storage(place.root, start, place.strides)) for v, start in zip(node.inputs, starts, strict=True)]
    reasons = ["it is a view of no other's whole" if b is None else _fixed(graph, b[0], storage) for b in behind]
    reasons = [r or ("it is an output" if v in graph.outputs else "") for v, r in zip(node.inputs, reasons, strict=True)]
    fits = [not reason for reason in reasons]
    ready = sum(hint(product(v.shape)) for v, fit in zip(node.inputs, fits, strict=True) if v is not None and fit)
    if not ready or ready * 2 < hint(product(out.shape)):
        for v, reason in zip(node.inputs, reasons, strict=True):
            if v is not None:
                why.not_in_place(v, node, reason or "most of what it is joined with would have to be copied")
        return []
    made: list[Node] = []
    inputs: list[Value | None] = []
    for v, reason, start, base in zip(node.inputs, reasons, starts, behind, strict=True):
        assert v is not None
        if reason or base is None or storage.aliased(base[0]):
            why.not_in_place(v, node, reason or "it is joined twice")
            builder = Builder(graph, v.producer.locs if v.producer else node.locs, place=False)
            v = builder.op("Copy", v, order=out.type.order)
            made += builder.made
            base = (v, Storage(place.root, start, place.strides))
        storage.alias(*base)
        inputs.append(v)
    graph.set_inputs(node, inputs)
    storage.join(node)
    return made


def _behind(v: Value | None, place: Storage) -> tuple[Value, Storage] | None:
    """The value that ``v`` is a view of, element by element, and where it lies when ``v`` lies at ``place``; None if it cannot."""
    assert v is not None
    views: list[Node] = []
    while is_view(v.producer):
        assert v.producer is not None
        views.append(v.producer)
        v = v.producer.input
    if not views:
        return v, place
    coords = [coordinate(f"b{a}", d) for a, d in enumerate(v.shape)]
    index: Index = tuple(dim_of(c) for c in coords)
    for view in reversed(views):
        seen = target_index(view, index)
        if seen is None:
            return None
        index = seen
    form = linear(place.at(index), coords)
    return None if form is None else (v, Storage(place.root, *form))


def _fixed(graph: Graph, v: Value | None, storage: Storages) -> str:
    """Why ``v`` cannot be computed in another place; "" if its memory is nobody else's business, and a kernel of its own writes it."""
    if v is None or v.const is not None or v.producer is None or v.producer not in graph:
        return "it is an input or a constant: nothing computes it anew"
    if v.producer.bodies or v in graph.outputs or storage.aliased(v) or v.producer.op.name in IN_PLACE:
        return "its place is given: an output, a part of another Concat, or written by a branch, a loop or a scatter"
    if any(u.op.name in IN_PLACE for u in v.users):
        return "a scatter writes into it"
    if v.producer.op.name == "Concat" or _computed_by_anchor(v.producer):
        return ""
    return "pointwise results are computed by the launch that joins them"


def _computed_by_anchor(node: Node) -> bool:
    """Whether ``node`` is an anchor or will be an anchor's epilogue."""
    for _ in range(16):
        if is_anchor(node):
            return len(node.outputs) == 1
        if node.op.kind is Kind.WINDOW:
            return True
        if node.op.kind is not Kind.POINTWISE:
            return False
        before = [v.producer for v in node.inputs if v is not None and v.producer is not None and v.shape == node.output.shape]
        if not before:
            return False
        node = before[0]
    return False
