"""What a model input is for, read off the graph: random inputs have to respect it."""

from __future__ import annotations

from aitc.ir.graph import Graph, Node, Value
from aitc.ir.op import Kind

IMAGE_CHANNELS = (1, 3, 4)
_COMPARE = frozenset({"Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Not", "And"})
_FOLLOW = frozenset({Kind.VIEW, Kind.SOURCE})


def input_uses(graph: Graph) -> dict[str, str]:
    """``ids:LIMIT``, ``mask``, ``image`` or "" by input name.

    Integers that index an axis of N elements (an embedding's Gather, a OneHot) are ids below N; bools and integers
    that a comparison, a Where or a Cast to float turns into a mask are masks; 4-D floats with 1, 3 or 4 channels are
    images.
    """
    return {v.name: _use(v) for v in graph.inputs}


def _use(v: Value) -> str:
    dtype = v.type.dtype
    if dtype.name == "bool":
        return "mask"
    if dtype.is_integer:
        limit, masked = _integer_roles(v)
        if limit is not None:
            return f"ids:{limit}"
        return "mask" if masked or "mask" in v.name.lower() else ""
    if dtype.is_float and v.type.rank == 4:
        channels = {d for d in (v.shape[1], v.shape[3]) if isinstance(d, int)}
        return "image" if channels & set(IMAGE_CHANNELS) else ""
    return ""


def _integer_roles(v: Value) -> tuple[int | None, bool]:
    """The least size of an axis that ``v`` indexes, and whether it is compared, selected by, or turned into a float."""
    limit: int | None = None
    masked = False
    seen: set[Node] = set()
    stack = [v]
    while stack:
        value = stack.pop()
        for node in value.users:
            if node in seen:
                continue
            name = node.op.name
            if name in ("Gather", "GatherElements") and len(node.inputs) > 1 and node.inputs[1] is value:
                seen.add(node)
                table = node.inputs[0]
                axis = getattr(node.attrs, "axis", 0)
                size = table.shape[axis] if table is not None else None
                if isinstance(size, int):
                    limit = size if limit is None else min(limit, size)
            elif name in _COMPARE or (name == "Cast" and node.output.type.dtype.is_float):
                seen.add(node)
                masked = True
            elif node.op.kind in _FOLLOW or name in ("Cast", "Clip", "Max", "Min", "Where", "Concat"):
                seen.add(node)
                stack.extend(node.outputs)
    return limit, masked
