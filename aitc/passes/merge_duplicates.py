"""Computes the same thing once."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from aitc.ir.graph import Graph, Node, Value
from aitc.passes.base import Context, graphs, register

_COMMUTATIVE = frozenset({"Add", "Mul", "Min", "Max", "And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Equal"})
_LOCS = 32  # a value that everything shares does not list everything


@register
def run(graph: Graph, context: Context) -> int:
    """Merges equal constants, and nodes with the same op, inputs and attributes. Random ops and control flow are left alone."""
    constants: dict[Any, Value] = {}
    return sum(_merge(g, constants) for g in graphs(graph)[::-1])


def _merge(graph: Graph, constants: dict[Any, Value]) -> int:
    merged = 0
    canonical: dict[Value, Value] = {}
    known: dict[Any, Node] = {}
    for node in graph.nodes:
        inputs = []
        for v in node.inputs:
            if v is not None and v.const is not None:
                same = canonical.get(v)
                if same is None:
                    same = canonical[v] = constants.setdefault(_constant_key(v), v)
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


def _constant_key(v: Value) -> Any:
    """Equal for equal constants. Large ones are told apart by a sample first only in that the digest covers every byte once."""
    array = v.const
    assert array is not None
    if array.dtype == object:
        return (v.type, repr(array.tolist()))
    if array.nbytes <= 64:
        return (v.type, array.tobytes())
    data = np.ascontiguousarray(array)
    return (v.type, hashlib.blake2b(data.reshape(-1).view(np.uint8).data, digest_size=16).digest())
