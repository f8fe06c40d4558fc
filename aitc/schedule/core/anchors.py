"""Which nodes need a kernel of their own."""

from __future__ import annotations

from aitc.ir.graph import Node
from aitc.ir.op import Kind
from aitc.kernels.core.functor import ELEMENTS

IN_PLACE = frozenset({"ScatterElements", "ScatterND"})  # they write into a copy of their first input


def is_anchor(node: Node) -> bool:
    """Whether the node needs a kernel of its own (it is neither pointwise, nor a view, nor an op with an element rule)."""
    return node.op.kind not in (Kind.POINTWISE, Kind.VIEW) and node.op.name not in ELEMENTS
