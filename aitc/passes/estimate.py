"""How large values are expected to get where nobody measured them: root mean squares, carried from the inputs to the outputs.

Inputs and what a normalization gives have 1. A product with weights multiplies by their norm, as if what it adds up were
independent; sums of values add squares. What only sums and normalizations read may grow without bound: a residual stream.
"""

from __future__ import annotations

import math

import numpy as np

from aitc.ir.dim import hint, product
from aitc.ir.graph import Graph, Node, Value
from aitc.ir.op import Kind

PEAK = 16.0  # the largest of a value's elements, in root mean squares
_SAMPLE = 1 << 18  # elements of a constant that are looked at, about
_MASK = -1e4  # numbers below it exclude what they are added to
_ONE = frozenset({"Tanh", "Erf", "Sin", "Cos", "Softsign", "Atan", "Asin", "Acos", "Exp", "LayerNormalization"})
_GATES = frozenset({"Sigmoid", "HardSigmoid"})
_HALVES = frozenset({"Relu", "LeakyRelu", "Elu", "PRelu"})  # of what is as often below 0 as above
_GATED = frozenset({"Gelu", "Silu", "HardSwish", "Mish"})  # x times a gate: a half where x is small
_PRODUCTS = frozenset({"MatMul", "Conv", "ConvTranspose"})


def estimated_ranges(graph: Graph) -> dict[str, float]:
    """The largest magnitude that each float value of the main graph is expected to have, by name; infinity for residual streams."""
    sizes: dict[Value, float] = {}
    norms: dict[int, float] = {}
    found: dict[str, float] = {}
    for node in graph.nodes:
        weighs = node.op.name in _PRODUCTS  # by the norm of its weights, not by their largest
        read = [v for v in node.inputs if v is not None and v.type.dtype.is_float]
        given = [(v, 1.0 if weighs and v.const is not None else _size(v, sizes)) for v in read]
        size = min(_result(node, given, norms), 1e30)
        stream = found.get(node.input.name) == math.inf if node.op.kind is Kind.VIEW else _is_stream(node)
        for v in node.outputs:
            if v.type.dtype.is_float:
                sizes[v] = size
                found[v.name] = math.inf if stream else PEAK * size
    return found


def _size(v: Value, sizes: dict[Value, float]) -> float:
    if v.const is None:
        return sizes.get(v, 1.0)
    array = _sample(v.const).astype(np.float32)
    if array.size == 0:
        return 0.0
    low, high = float(array.min()), float(array.max())
    if not (math.isfinite(low) and math.isfinite(high)) or low < _MASK:
        counted = array[np.isfinite(array) & (array >= _MASK)]
        return float(np.abs(counted).max()) if counted.size else 0.0
    return max(abs(low), abs(high))


def _result(node: Node, given: list[tuple[Value, float]], norms: dict[int, float]) -> float:
    op, sizes = node.op.name, [s for _, s in given]
    if not sizes or op in _ONE or node.bodies or node.op.kind in (Kind.RECURRENT, Kind.SOURCE):
        return 1.0
    if op == "Softmax":
        return 1.0 if node.attrs.log else 1 / math.sqrt(max(1, hint(node.output.shape[node.attrs.axis])))
    if op in _PRODUCTS:
        return _product(node, sizes, norms)
    if node.op.kind is Kind.ATTENTION:
        return sizes[2]
    if op == "Mul":
        return sizes[0] * sizes[1]
    if op in ("Add", "Sub"):
        return math.hypot(*sizes)
    if op == "Div":
        return sizes[0] / sizes[1] if sizes[1] else sizes[0]
    if op in _GATES:
        return 0.5
    if op in _HALVES:
        return sizes[0] / math.sqrt(2)
    if op in _GATED:
        return sizes[0] * (0.6 if sizes[0] <= 1 else 0.7)
    if op in ("Min", "Max"):
        return _clipped(node, sizes)
    if op == "Pow":
        return float(min(sizes[0] ** min(sizes[1], 8.0), 1e30))
    if op == "Reduce" and node.attrs.function in ("sum", "sumsquare"):
        size = sizes[0] if node.attrs.function == "sum" else sizes[0] ** 2
        return size * hint(product(node.input.shape)) / max(1, hint(product(node.output.shape)))
    return max(sizes)


def _product(node: Node, sizes: list[float], norms: dict[int, float]) -> float:
    """What a product of what is independent gives: the square root of how many terms it adds, or the norm of the weights."""
    for at in (1, 0):
        operand = node.inputs[at]
        weights = _weights(operand)
        if weights is None or operand is None:
            continue
        if id(weights) not in norms:
            assert weights.const is not None
            sample = _sample(weights.const).astype(np.float32).reshape(-1)
            norms[id(weights)] = math.sqrt(float(np.dot(sample, sample)) * weights.const.size / max(1, sample.size))
        if node.op.name == "MatMul":
            outputs = product((*operand.shape[:-2], operand.shape[-1 if at else -2]))
        else:
            outputs = node.output.shape[1]
        return sizes[1 - at] * norms[id(weights)] / math.sqrt(max(1, hint(outputs)))
    terms = node.input.shape[-1] if node.op.name == "MatMul" else product(node.inputs[1].shape[1:])  # type: ignore[union-attr]
    return sizes[0] * sizes[1] * math.sqrt(max(1, hint(terms)))


def _sample(array: np.ndarray) -> np.ndarray:
    """``array``, or evenly spaced rows of it where it is large: the norm of a part tells that of the whole."""
    if array.size <= _SAMPLE:
        return array.reshape(-1)
    return array[:: min(array.size // _SAMPLE, array.shape[0])]


def _weights(v: Value | None) -> Value | None:
    """The constant that ``v`` is a view of."""
    while v is not None and v.const is None and v.producer is not None and v.producer.op.name in ("Transpose", "Reshape"):
        v = v.producer.input
    return v if v is not None and v.const is not None else None


def _clipped(node: Node, sizes: list[float]) -> float:
    """Of Min and Max with constants: the bounds of both together, else what goes in."""
    computed = [(v, s) for v, s in zip(node.inputs, sizes) if v is not None and v.const is None]
    if len(computed) != 1:
        return max(sizes)
    (inner, size), bound = computed[0], max(s for v, s in zip(node.inputs, sizes) if v is not None and v.const is not None)
    other = inner.producer
    if other is not None and other.op.name in ("Min", "Max", "Relu") and other.op.name != node.op.name:
        limits = [bound, *(_size(v, {}) for v in other.inputs if v is not None and v.const is not None)]
        return min(size, max(limits)) / 2
    return size


def _is_stream(node: Node) -> bool:
    """Whether a node adds to a residual stream: sums and normalizations alone read it."""
    if node.op.name != "Add" or any(v is None or v.const is not None for v in node.inputs):
        return False
    readers = _readers(node.output)
    return any(_normalizes(n) for n in readers) and all(
        _normalizes(n) or (n.op.name == "Add" and all(v is not None and v.const is None for v in n.inputs)) for n in readers
    )


def _readers(v: Value) -> list[Node]:
    """The nodes that read ``v`` or a view of it."""
    found: list[Node] = []
    pending: list[Value] = [v]
    while pending:
        for n in pending.pop().users:
            if n.op.kind is Kind.VIEW:
                pending += n.outputs
            else:
                found.append(n)
    return found


def _normalizes(node: Node) -> bool:
    return node.op.name == "LayerNormalization"
