"""Memory fusion: what a Concat joins is written in its place at once, and the Concat itself disappears."""

from __future__ import annotations

from aitc.ir.builder import Builder
from aitc.ir.dim import Dim, divisor, hint, product, symbols
from aitc.ir.graph import Graph, Node, Value
from aitc.ir.index import is_view
from aitc.ir.op import Kind
from aitc.kernels.functor import Storage
from aitc.schedule.anchors import IN_PLACE, is_anchor
from aitc.schedule.storage import Storages
from aitc.targets.target import Target


def join_in_place(graph: Graph, storage: Storages, target: Target) -> None:
    """Gives the inputs of Concats a place inside the output's memory, the last Concat first, so that chains end in one buffer.

    An input that cannot be written there (it is a model input, a view, or belongs to another Concat) is copied, if that is the smaller
    part. A Concat of pointwise results alone stays a node: one launch computes it.
    """
    made: list[Node] = []
    for node in reversed(list(graph.nodes)):
        if node.op.name == "Concat" and not storage.joined(node):
            made += _join(graph, node, storage, target)
    if made:
        graph.reorder(made)


def _join(graph: Graph, node: Node, storage: Storages, target: Target) -> list[Node]:
    out = node.output
    place = storage(out)
    axis = node.attrs.axis
    if not {s.name for d in out.shape for s in symbols(d)} <= {s.name for v in graph.inputs for d in v.shape for s in symbols(d)}:
        return []  # what is joined may be computed before the size of the whole is known
    starts: list[Dim] = []
    position: Dim = 0
    for v in node.inputs:
        assert v is not None
        starts.append(place.offset + position * place.strides[axis])
        position = position + v.shape[axis]
    if target.gpu and any(divisor(s) * out.type.dtype.bytes % 16 for s in starts if s != 0):
        return []  # every row would begin off the 16 bytes that a thread moves at once
    fits = [_may_move(graph, v, storage) for v in node.inputs]
    ready = sum(hint(product(v.shape)) for v, fit in zip(node.inputs, fits, strict=True) if v is not None and fit)
    if not ready or ready * 2 < hint(product(out.shape)):
        return []
    made: list[Node] = []
    inputs: list[Value | None] = []
    for v, fit, start in zip(node.inputs, fits, starts, strict=True):
        assert v is not None
        if not fit or any(v is w for w in inputs):
            builder = Builder(graph, v.producer.locs if v.producer else node.locs, place=False)
            v = builder.op("Copy", v, order=out.type.order)
            made += builder.made
        storage.alias(v, Storage(place.root, start, place.strides))
        inputs.append(v)
    graph.set_inputs(node, inputs)
    storage.join(node)
    return made


def _may_move(graph: Graph, v: Value | None, storage: Storages) -> bool:
    """Whether the memory of ``v`` is nobody else's business, and a kernel of its own writes it."""
    if v is None or v.const is not None or v.producer is None or v.producer not in graph or is_view(v.producer):
        return False
    if v.producer.bodies or v in graph.outputs or storage.aliased(v) or v.producer.op.name in IN_PLACE:
        return False
    if any(u.op.name in IN_PLACE for u in v.users):
        return False
    return v.producer.op.name == "Concat" or _computed_by_anchor(v.producer)


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
