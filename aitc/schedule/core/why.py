"""What fusion did and why it stopped: written down where it decides, printed by ``aitc show --stage schedule --why``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from aitc.ir.apart import Apart, label
from aitc.ir.graph import Node, Value
from aitc.ir.index import is_view
from aitc.ir.op import Kind
from aitc.kernels.core.group import Group

TAKEN = "it is part of the launch of"  # says little where another reason is known


@dataclass(slots=True)
class Fusions:
    """How many launches each kind of fusion saved, and the pairs that stayed apart.

    ``nodes`` are computed in launches of their own or together; ``views`` move elements and are no launch, since they are read or
    written in place; ``joined`` Concats are written in place; ``copies`` were needed where that was not possible. ``groups`` are the
    launches before independent ones share one, ``launches`` those that are left.
    """

    nodes: int = 0
    views: int = 0
    joined: int = 0
    copies: int = 0
    chained: int = 0
    groups: int = 0
    launches: int = 0
    copied: list[Apart] = field(default_factory=list)
    _vertical: list[Apart | None] = field(default_factory=list, repr=False)
    _behind: dict[str, list[int]] = field(default_factory=dict, repr=False)  # consumer -> places in _vertical
    _reasons: dict[tuple[Node, Node], dict[str, None]] = field(default_factory=dict, repr=False)

    @property
    def apart(self) -> list[Apart]:
        """The pairs that stayed apart: copied values, then neighbours that are not in one launch."""
        return [*self.copied, *(a for a in self._vertical if a is not None)]

    def no(self, producer: Node, consumer: Node, reason: str) -> None:
        """``producer`` and ``consumer`` do not get into one launch; a pair may have several reasons, one from each side."""
        self._reasons.setdefault((producer, consumer), {})[reason] = None

    def not_in_place(self, v: Value, reader: Node, reason: str) -> None:
        """``v`` is copied, since ``reader`` cannot take it where it is."""
        source = source_of(v)
        self.copied.append(Apart("memory", label(source) if source is not None else f"%{v.name}", label(reader), reason))

    def chain(self, first: Group, second: Group) -> None:
        """Product ``second`` runs in the launch of product ``first``."""
        self.chained += 1
        one, other = ({label(n) for n in g.nodes} for g in (first, second))
        for at in (at for second in other for at in self._behind.get(second, ())):
            a = self._vertical[at]
            if a is not None and a.first in one:
                self._vertical[at] = None

    def unchained(self, first: Group, second: Group, reason: str) -> None:
        """Product ``second`` does not run in the launch of product ``first``, whose results it reads: that is why, whatever else is said of the two."""
        if second.anchor is None:
            return
        inside = {label(n) for n in first.nodes}
        for at in self._behind.get(label(second.anchor), ()):
            a = self._vertical[at]
            if a is not None and a.first in inside:
                self._vertical[at] = replace(a, reason=reason)

    def settle(self, nodes: Iterable[Node], group_of: Mapping[Node, object]) -> None:
        """All nodes have their groups: pairs of different groups keep their reasons."""
        for n in nodes:
            if n not in group_of:
                self.views += is_view(n) and moves(n)
                self.joined += n.op.name == "Concat"
                continue
            self.nodes += 1
            self.copies += n.op.name == "Copy"
            for p in dict.fromkeys(source_of(v) for v in n.inputs if v is not None):
                if p is not None and p in group_of and group_of[p] is not group_of[n]:
                    self._behind.setdefault(label(n), []).append(len(self._vertical))
                    self._vertical.append(Apart("vertical", label(p), label(n), self._reason(p, n)))
        self._reasons.clear()

    def _reason(self, producer: Node, consumer: Node) -> str:
        found = list(self._reasons.get((producer, consumer), {}))
        return "; ".join([r for r in found if not r.startswith(TAKEN)] or found[:1])


def source_of(v: Value) -> Node | None:
    """The node that computes ``v``, behind views; None for inputs, constants and what comes from an outer graph."""
    p = v.producer
    while p is not None and is_view(p):
        p = p.input.producer
    return p


def moves(view: Node) -> bool:
    """Whether a view would be a launch of its own elsewhere: a Reshape never moves anything."""
    return view.op.kind is Kind.VIEW and view.op.name != "Reshape"


def text(fusions: Fusions, merged: int, apart: Sequence[Apart] = ()) -> str:
    """The launches after each kind of fusion, and the pairs. ``merged``: products that became part of another; ``apart``: those
    that did not."""
    lines = ["launches"]
    lines += [f"  {n:6}  {what}" + (f" ({more})" if more else "") for what, n, more in counts(fusions, merged)]
    heads = {
        "horizontal": "read one input, and are not one product",
        "vertical": "not in one launch",
        "memory": "copied, not read or written in place",
    }
    for kind, head in heads.items():
        mine = [a for a in (*apart, *fusions.apart) if a.kind == kind]
        lines += [f"{head}: {len(mine)} pairs"] if mine else []
        lines += [f"  {a.first} {'and' if kind == 'horizontal' else '->'} {a.second}: {a.reason}" for a in mine]
    return "\n".join(lines) + "\n"


def counts(fusions: Fusions, merged: int) -> list[tuple[str, int, str]]:
    """(kind of fusion, launches after it, what it did), in order; the first is a launch for each node."""
    unfused = fusions.nodes - fusions.copies + fusions.views + fusions.joined
    return [
        ("a launch for each node", unfused + merged, ""),
        ("horizontal: products of one input are one", unfused, f"{merged} fewer"),
        (
            "memory: views and Concats in place", fusions.nodes,
            f"{fusions.views} views, {fusions.joined} Concats, less {fusions.copies} copies",
        ),
        (
            "vertical: heads and tails of one launch", fusions.groups + fusions.chained,
            f"{fusions.nodes - fusions.groups - fusions.chained} fewer",
        ),
        ("vertical: a product in the launch of the one before", fusions.groups, f"{fusions.chained} fewer"),
        ("horizontal: independent groups share a launch", fusions.launches, f"{fusions.groups - fusions.launches} fewer"),
    ]  # fmt: skip
