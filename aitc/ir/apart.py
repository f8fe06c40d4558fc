"""Nodes that fusion left apart, and why: what passes and the scheduler write down for ``aitc show --stage schedule --why``."""

from __future__ import annotations

from dataclasses import dataclass

from aitc.ir.graph import Node


@dataclass(frozen=True, slots=True)
class Apart:
    """Two nodes that one launch might run, or one place in memory hold, and the reason(s) why not.

    ``kind``: horizontal (two readers of one value), vertical (a producer and its consumer), memory (a value that is copied for its reader).
    """

    kind: str
    first: str
    second: str
    reason: str


def label(node: Node) -> str:
    """An op and the ONNX node it comes from: ``MatMul "/layer1/query"``."""
    loc = node.locs[-1] if node.locs else None
    name = f'"{loc.name}"' if loc is not None and loc.name else f"#{loc.index}" if loc is not None else f"%{node.output.name}"
    return f"{node.op.name} {name}"
