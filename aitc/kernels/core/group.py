"""A Group is what one launch runs: a closed region of nodes around at most one anchor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from aitc.errors import Loc
from aitc.ir.dim import hint, product
from aitc.ir.graph import Node, Value
from aitc.ir.index import is_view, root_of

HEAVY_FLOPS = 8
"""An operation that counts as so many, or more, is worth telling apart in an epilogue."""


@dataclass(frozen=True, slots=True)
class Group:
    """``nodes`` in topological order (views between them included); ``inputs`` are read from memory, ``outputs`` written.

    ``parts``: the groups of a launch that runs several: side by side, or, ``chained``, one after another on the same rows.
    """

    nodes: tuple[Node, ...]
    anchor: Node | None
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    locs: tuple[Loc, ...]
    parts: tuple["Group", ...] = ()
    chained: bool = False

    @property
    def inside(self) -> frozenset[Node]:
        return frozenset(self.nodes)

    def describe(self) -> str:
        """One line for reports: anchor and what is fused with it."""
        if self.parts:
            return (" then " if self.chained else " | ").join(part.describe() for part in self.parts)
        rest = [n.op.name for n in self.nodes if n is not self.anchor and not is_view(n)]
        parts = ([self.anchor.op.name] if self.anchor else []) + rest
        return " + ".join(parts[:6]) + (f" + {len(parts) - 6} more" if len(parts) > 6 else "")


def make_group(nodes: list[Node], anchor: Node | None, needed: set[int]) -> Group:
    """Closes ``nodes``: finds what is read and what is needed outside. ``needed`` holds ids of values that must be stored anyway."""
    inside = set(nodes)
    inputs: dict[int, Value] = {}
    outputs: dict[int, Value] = {}

    def escapes(v: Value) -> bool:
        if id(v) in needed:
            return True
        return any(escapes(u.output) if is_view(u) else u not in inside for u in v.users)

    for n in nodes:
        for v in n.inputs:
            if v is not None and (v.producer is None or v.producer not in inside):
                inputs[id(v)] = v
        if not is_view(n):
            outputs.update((id(o), o) for o in n.outputs if escapes(o))
    locs = dict.fromkeys(loc for n in nodes for loc in n.locs)
    return Group(tuple(nodes), anchor, tuple(inputs.values()), tuple(outputs.values()), tuple(locs))


def behind_anchor(group: Group) -> list[Node]:
    """The nodes that read, by whatever way, what the anchor computes; views too."""
    assert group.anchor is not None
    reached: set[Value] = set(group.anchor.outputs)
    found = []
    for n in group.nodes:
        if n is not group.anchor and any(v in reached for v in n.inputs if v is not None):
            reached |= set(n.outputs)
            found.append(n)
    return found


def heavy_epilogue(group: Group) -> bool:
    """Whether one of the operations behind the anchor is as dear as an exponential."""

    def flops(n: Node) -> int:
        return hint(n.op.flops([v.type for v in n.inputs if v is not None], n.attrs)) if n.op.flops else 0

    return any(flops(n) >= HEAVY_FLOPS * hint(product(n.output.shape)) for n in behind_anchor(group) if not is_view(n))


def side_by_side(groups: Sequence[Group]) -> Group:
    """Independent ``groups`` as one, without an anchor of its own."""
    inputs = {id(v): v for g in groups for v in g.inputs}
    outputs = {id(v): v for g in groups for v in g.outputs}
    nodes = dict.fromkeys(n for g in groups for n in g.nodes)
    locs = dict.fromkeys(loc for g in groups for loc in g.locs)
    return Group(tuple(nodes), None, tuple(inputs.values()), tuple(outputs.values()), tuple(locs), tuple(groups))


def one_after_another(first: Group, second: Group, needed: set[int]) -> Group:
    """``first``, and ``second`` that reads what it makes, as one; ``needed`` holds ids of values that must be stored anyway."""
    both = make_group([*first.nodes, *second.nodes], None, needed)
    return replace(both, inputs=tuple(v for v in both.inputs if root_of(v) not in first.outputs), parts=(first, second), chained=True)
