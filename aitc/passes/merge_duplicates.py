"""Computes the same thing once."""

from __future__ import annotations

from typing import Any

import numpy as np

from aitc.ir.graph import Graph, Node, Value
from aitc.passes.base import Context, graphs, register

_COMMUTATIVE = frozenset(
    {"Add", "Mul", "Min", "Max", "And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Equal"}
)
_LOCS = 32  # a value that everything shares does not list everything


@register
def run(graph: Graph, context: Context) -> int:
    """Merges equal constants, and nodes with the same op, inputs and attributes. Random ops and control flow are left alone."""
    constants = _Constants()
    return sum(_merge(g, constants) for g in graphs(graph)[::-1])


def _merge(graph: Graph, constants: _Constants) -> int:
    merged = 0
    canonical: dict[Value, Value] = {}
    known: dict[Any, Node] = {}
    for node in graph.nodes:
        inputs = []
        for v in node.inputs:
            if v is not None and v.const is not None:
                same = canonical.get(v)
                if same is None:
                    same = canonical[v] = constants.canonical(v)
                merged += same is not v
                v = same
            inputs.append(v)
        if tuple(inputs) != node.inputs:
            graph.set_inputs(node, inputs)
        if node.bodies or node.op.name.startswith("Random") or node.op.name in ("Bernoulli", "Multinomial", "ReadDims"):
            continue
        ids: Any = tuple(id(v) for v in inputs)
        if node.op.name in _COMMUTATIVE:
            ids = tuple(sorted(ids))
        # Types are part of the key: a pass may have given equal nodes different storage orders. repr tells -0.0 from 0.0.
        key = (node.op.name, ids, node.attrs, repr(node.attrs), tuple(v.type for v in node.outputs))
        first = known.setdefault(key, node)
        if first is node:
            continue
        for old, new in zip(node.outputs, first.outputs):
            graph.replace_uses(old, new)
        if len(first.locs) < _LOCS:
            first.locs = tuple(dict.fromkeys((*first.locs, *node.locs)))
        graph.remove(node)
        merged += 1
    return merged


class _Constants:
    """Constants by type and content. A sample of the bytes is the key; only where it collides are all bytes compared."""

    def __init__(self) -> None:
        self._known: dict[Any, list[Value]] = {}

    def canonical(self, v: Value) -> Value:
        """The first constant seen that equals ``v``."""
        array = v.const
        assert array is not None
        candidates = self._known.setdefault((v.type, _sample(array)), [])
        for other in candidates:
            if other is v or other.const is array or _same(array, other.const):
                return other
        candidates.append(v)
        return v


def _sample(array: np.ndarray) -> Any:
    if array.dtype == object:
        return repr(array.tolist())
    flat = array.reshape(-1) if array.flags.c_contiguous else array.flat
    return tuple(flat[at : at + 8].tobytes() for at in range(0, array.size, max(8, array.size // 16)))


def _same(a: np.ndarray, b: np.ndarray | None) -> bool:
    if b is None or a.dtype == object:
        return b is not None
    return np.array_equal(_bits(a), _bits(b))


def _bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
