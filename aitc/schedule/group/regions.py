"""Groups while they grow: who is in which, what reads what between them, and the order in which they can run.

What gets into a group is decided by ``groups.py``; here is what holds for any of its rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from aitc.ir.graph import Graph, Node, Value
from aitc.ir.index import is_view, root_of
from aitc.kernels.core.group import Group, make_group
from aitc.schedule.core.mentioned import mentioned
from aitc.schedule.core.storage import Storages
from aitc.schedule.core.why import Fusions, source_of


@dataclass(slots=True)
class Growing:
    """A group that may still grow; ``first`` and ``last`` are places in the graph's order."""

    anchor: Node | None
    nodes: set[Node] = field(default_factory=set)
    first: int = 0
    last: int = 0


class Regions:
    """The groups of a graph as far as they have grown. ``defined``: the nodes that give late symbols their values; ``why`` gets what
    stays apart."""

    def __init__(self, graph: Graph, storage: Storages, defined: Mapping[str, Node], why: Fusions):
        self.graph = graph
        self.storage = storage
        self.order = {n: i for i, n in enumerate(graph.nodes)}
        self.list = list(self.order)
        self.group_of: dict[Node, Growing] = {}
        self.outputs = kept(graph)
        self.why = why
        self.defined = defined
        self._producers: dict[Node, tuple[Node, ...]] = {}  # as far as they were asked for: the graph does not change while groups grow

    def start(self, node: Node, anchor: Node | None) -> Growing:
        """A new group of ``node`` alone."""
        g = Growing(anchor, {node}, self.order[node], self.order[node])
        self.group_of[node] = g
        return g

    def add(self, g: Growing, nodes: list[Node]) -> None:
        """Takes ``nodes`` into ``g``; views may be in several groups."""
        for n in nodes:
            g.nodes.add(n)
            if not is_view(n):
                self.group_of[n] = g
            g.first = min(g.first, self.order[n])
            g.last = max(g.last, self.order[n])

    def free(self, n: Node) -> bool:
        """Whether no group has ``n`` yet."""
        return n not in self.group_of

    def no(self, v: Value | None, reader: Node, reason: str) -> None:
        """``reader`` does not get into the launch that computes ``v``."""
        source = source_of(v) if v is not None else None
        if source is not None and source in self.order:
            self.why.no(source, reader, reason)

    def producers(self, n: Node) -> tuple[Node, ...]:
        """Nodes that ``n`` reads, looking through views, and those that define the dims that it needs."""
        found = self._producers.get(n)
        if found is None:
            found = self._producers[n] = tuple(dict.fromkeys(self._read_by(n)))
        return found

    def _read_by(self, n: Node) -> Iterator[Node]:
        if self.defined:
            for name in {s.name for s in mentioned(n)}:
                if name in self.defined and self.defined[name] is not n:
                    yield self.defined[name]
        for v in (*n.inputs, *(v for body in n.bodies for v in body.captured)):
            p = v.producer if v is not None else None
            while p is not None and is_view(p):
                p = p.input.producer
            if p is not None and self.storage.joined(p):
                yield from self.producers(p)
            elif p is not None and p in self.order:
                yield p

    def cyclic(self, g: Growing, extra: list[Node]) -> bool:
        """Whether a path would leave ``g`` with ``extra`` and come back."""
        members = g.nodes | set(extra)
        low = min(g.first, *(self.order[n] for n in extra))
        seen: set[int] = set()
        stack: list[Node] = []

        def push(n: Node) -> None:
            if n in members or id(n) in seen:
                return
            other = self.group_of.get(n)
            if other is None:
                if self.order[n] > low:
                    seen.add(id(n))
                    stack.append(n)
            elif other is not g and other.last > low:
                for m in other.nodes:
                    if id(m) not in seen:
                        seen.add(id(m))
                        stack.append(m)

        for n in members:
            for p in self.producers(n):
                push(p)
        while stack:
            for p in self.producers(stack.pop()):
                if p in members:
                    return True
                push(p)
        return False

    def inside(self, g: Growing, v: Value) -> bool:
        """Whether ``g`` computes ``v``, or what it is a view of."""
        p = v.producer
        while p is not None and is_view(p) and p not in g.nodes:
            p = p.input.producer
        return p is not None and p in g.nodes

    def in_order(self, growing: list[Growing]) -> list[Group]:
        """The groups in an order in which each runs after what it reads."""
        done: dict[int, None] = {}
        result: list[Group] = []
        for root in sorted(growing, key=lambda g: g.last):
            stack = [root]
            while stack:
                g = stack[-1]
                if id(g) in done:
                    stack.pop()
                    continue
                waiting = []
                for n in g.nodes:
                    for p in self.producers(n):
                        other = self.group_of[p]
                        if other is not g and id(other) not in done:
                            waiting.append(other)
                if waiting:
                    if any(w in stack for w in waiting):
                        raise AssertionError(f"groups depend on each other around {g.anchor!r}")
                    stack.extend(_unique(waiting))
                else:
                    done[id(g)] = None
                    nodes = sorted(g.nodes, key=self.order.__getitem__)
                    result.append(make_group(nodes, g.anchor, self.outputs))
                    stack.pop()
        return result


def kept(graph: Graph) -> set[int]:
    """ids of the values that are stored whoever reads them."""
    return {id(v) for v in graph.outputs} | _needed_by_bodies(graph)


def _needed_by_bodies(graph: Graph) -> set[int]:
    """ids of the values that bodies read or return; of views, those behind them."""
    needed: set[int] = set()
    for node in graph.holders:
        for v in (v for body in node.bodies for v in body.captured):
            needed.add(id(root_of(v)))
    return needed


def _unique(groups: list[Growing]) -> list[Growing]:
    seen: dict[int, Growing] = {}
    for g in groups:
        seen.setdefault(id(g), g)
    return list(seen.values())
