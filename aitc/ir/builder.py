"""Builds graphs: every core node of aitc is made here, so types and contents are inferred in one place."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from aitc.errors import Loc
from aitc.ir import content
from aitc.ir import dim as d
from aitc.ir.graph import Graph, Node, Value
from aitc.ir.op import OPS
from aitc.ir.types import TensorType

MOST_BYTES = 2**62  # of a tensor: what a signed 64-bit offset reaches, with room for sums


class Builder:
    """Appends nodes to ``graph``. ``locs`` and ``names`` of the ONNX node being imported (or rewritten) apply to what is made.

    With ``place=False`` nodes are attached but not placed; they are collected in ``made`` for ``Graph.reorder``.
    """

    def __init__(self, graph: Graph, locs: Iterable[Loc] = (), place: bool = True):
        self.graph = graph
        self.locs = tuple(locs)
        self.place = place
        self.made: list[Node] = []

    def op(self, name: str, *inputs: Value | None, names: Sequence[str] = (), bodies: Sequence[Graph] = (), **attrs: Any) -> Value:
        """Makes a node and returns its first output. Raises ValueError when the op refuses the types."""
        return self.node(name, *inputs, names=names, bodies=bodies, **attrs).outputs[0]

    def node(self, name: str, *inputs: Value | None, names: Sequence[str] = (), bodies: Sequence[Graph] = (), **attrs: Any) -> Node:
        op = OPS[name]
        bound = op.attrs(**attrs)
        types = op.infer([None if v is None else v.type for v in inputs], bound)
        for type in types:
            check_sizes(type)
        node = Node(op, inputs, bound, self.locs, bodies)
        if self.place:
            self.graph.append(node, types, names)
        else:
            self.graph.attach(node, types, names)
            self.made.append(node)
        content.propagate(node)
        return node

    def constant(self, value: Any, dtype: np.dtype | type | None = None, name: str = "c") -> Value:
        v = self.graph.constant(np.asarray(value, dtype=dtype), name)
        content.of_constant(v)
        return v

    def like(self, value: Any, x: Value, name: str = "c") -> Value:
        """A scalar constant of x's element type."""
        return self.constant(np.asarray(value).astype(x.type.dtype.numpy), name=name)

    def with_type(self, v: Value, type: TensorType) -> Value:
        v.type = type
        return v


def check_sizes(t: TensorType) -> None:
    """Raises ValueError for a shape that no tensor has: a size below zero whatever the dims are, or more bytes than a
    signed 64-bit offset reaches."""
    if any(d.bounds(s)[1] < 0 for s in t.shape):
        raise ValueError(f"its result would be {t}, with a size below zero")
    known = [s for s in t.shape if isinstance(s, int)]
    if len(known) == t.rank and math.prod(known) * t.dtype.bits // 8 >= MOST_BYTES:
        raise ValueError(f"its result would be {t}, which is more than can be addressed")
