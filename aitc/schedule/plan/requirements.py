"""What has to be true of a model's dims when it runs: sizes that only meet if they are equal, and shapes that the data gives.

Two dims with different names may stand where ONNX wants equal ones (``x[n] + y[m]``): the compiled code is for equal ones, so the run
ends with an error if they are not. That one of them is 1 and would be broadcast is such a case, too: it has to be a 1 in the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aitc.ir.dim import Dim, add, mul, product, symbols
from aitc.ir.graph import Graph, Node
from aitc.ir.op import Kind
from aitc.schedule.plan.plan import Require

Pair = tuple[Dim, Dim, bool]  # less, more, whether they must be equal


def requirements(graph: Graph, known: set[str]) -> list[Require]:
    """Of the nodes of ``graph``, in order, each once; what is certain is left out. ``known`` are the symbols that the inputs' shapes give:
    a Slice whose bounds are made of them was cut when it was imported."""
    found: dict[Pair, Require] = {}
    for node in graph.nodes:
        for less, more, equal in _pairs(node):
            if node.op.name == "Slice" and {s.name for s in symbols(less)} <= known:
                continue
            certain = less == more or (isinstance(less, int) and isinstance(more, int))
            if not certain and (more, less, equal) not in found:
                found.setdefault((less, more, equal), Require(less, more, equal, spelled(node)))
    return list(found.values())


def spelled(node: Node) -> str:
    """The node as messages name it."""
    loc = node.locs[0] if node.locs else None
    if loc is None:
        return node.op.name
    return f'{loc.op_type} "{loc.name}"' if loc.name else f"{loc.op_type} #{loc.index}"


def _pairs(node: Node) -> Iterator[Pair]:
    name, kind = node.op.name, node.op.kind
    if kind is Kind.POINTWISE or name == "Expand":
        for v in node.inputs:
            yield from _broadcast(v.shape if v is not None else (), node.output.shape)
    elif name == "Concat":
        first = node.input.shape
        for v in node.inputs[1:]:
            assert v is not None
            yield from ((a, b, True) for i, (a, b) in enumerate(zip(first, v.shape)) if i != node.attrs.axis)
    elif name == "MatMul":
        a, b = node.inputs[:2]
        assert a is not None and b is not None
        yield a.shape[-1], b.shape[-2], True
        for v in (a, b):
            yield from _broadcast(v.shape[:-2], node.output.shape[:-2])
    elif name == "Conv":
        x, w = node.inputs[:2]
        assert x is not None and w is not None
        yield x.shape[1], mul(w.shape[1], node.attrs.group), True
    elif name == "Attention":
        yield from _attention(node)
    elif name == "Reshape":
        yield product(node.output.shape), product(node.input.shape), True
    elif name in ("ScatterElements", "ScatterND"):
        yield from _scatter(node)
    elif name == "GatherElements":
        x, indices = node.inputs
        assert x is not None and indices is not None
        yield from ((b, a, False) for i, (a, b) in enumerate(zip(x.shape, indices.shape)) if i != node.attrs.axis)
    elif name == "TopK":
        yield node.attrs.k, node.input.shape[node.attrs.axis], False
    elif name == "Slice":
        for start, size, step, extent in zip(node.attrs.starts, node.attrs.sizes, node.attrs.steps, node.input.shape):
            if step == 1 and size != extent:
                yield add(start, size), extent, False


def _scatter(node: Node) -> Iterator[Pair]:
    """Each index has its update; ScatterND's are whole slices of the data."""
    x, indices, updates = node.inputs
    assert x is not None and indices is not None and updates is not None
    if node.op.name == "ScatterElements":
        yield from ((a, b, True) for a, b in zip(indices.shape, updates.shape))
        yield from ((b, a, False) for i, (a, b) in enumerate(zip(x.shape, indices.shape)) if i != node.attrs.axis)
        return
    depth = indices.shape[-1]
    slices = x.shape[depth:] if isinstance(depth, int) else ()
    yield from ((a, b, True) for a, b in zip((*indices.shape[:-1], *slices), updates.shape))


def _attention(node: Node) -> Iterator[Pair]:
    q, k, v = node.inputs[:3]
    assert q is not None and k is not None and v is not None
    yield q.shape[0], k.shape[0], True
    yield k.shape[0], v.shape[0], True
    yield q.shape[3], k.shape[3], True
    yield k.shape[2], v.shape[2], True
    mask = node.inputs[3] if len(node.inputs) > 3 else None
    if mask is not None:
        yield from _broadcast(mask.shape, (q.shape[0], q.shape[1], q.shape[2], k.shape[2]))


def _broadcast(shape: Sequence[Dim], target: Sequence[Dim]) -> Iterator[Pair]:
    for have, want in zip(reversed(shape), reversed(target)):
        if have != 1:
            yield have, want, True
