"""Rules, and the driver that applies them until none applies.

A rule looks at one node (its anchor) and what is around it. ``match`` answers None (nothing of the sort), ``Reason`` (nearly: which
condition failed, for the log) or ``Match``; ``rewrite`` builds the replacement. The driver replaces the anchor's outputs, unions the
locs of all that the match covers, and looks again at what changed. Its work is linear in the nodes and in the rewrites.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Union

from aitc.errors import Loc
from aitc.ir.builder import Builder
from aitc.ir.graph import Graph, Node, Value
from aitc.ir.verify import compatible
from aitc.registry import Registry


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a near miss is none: one sentence, and the node it is about."""

    text: str
    node: Node | None = None


@dataclass(frozen=True, slots=True)
class Match:
    """``nodes`` are what the idiom consists of besides the anchor; ``found`` is whatever the rule's ``rewrite`` wants to know."""

    nodes: tuple[Node, ...] = ()
    found: Any = None


Outcome = Union[Match, Reason, None]
Replacement = Union[Value, Sequence[Value]]


@dataclass(frozen=True, slots=True)
class Rule:
    """``anchors`` are the ops that ``match`` is asked about; ``rewrite`` returns a value for each output of the anchor."""

    name: str
    doc: str
    anchors: tuple[str, ...]
    match: Callable[[Node], Outcome]
    rewrite: Callable[[Builder, Node, Any], Replacement]


SIMPLIFY: Registry[Rule] = Registry("simplify rule")
FUSE: Registry[Rule] = Registry("fuse rule")


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the match log. ``reason`` is empty for a match."""

    rule: str
    anchor: str
    locs: tuple[Loc, ...]
    reason: str = ""

    def __str__(self) -> str:
        where = str(self.locs[0]) if self.locs else self.anchor
        return f"{self.rule}: {self.reason or 'matched'} at {where}" + (
            f" and {len(self.locs) - 1} more" if len(self.locs) > 1 else ""
        )


class MatchLog:
    """What matched, and what nearly did. A near miss is kept once per rule and anchor, and dropped if the anchor matches later."""

    def __init__(self) -> None:
        self.matches: list[Entry] = []
        self._misses: dict[tuple[str, str], Entry] = {}

    def matched(self, rule: Rule, name: str, locs: tuple[Loc, ...]) -> None:
        self.matches.append(Entry(rule.name, name, locs))
        self._misses.pop((rule.name, name), None)

    def missed(self, rule: Rule, node: Node, reason: Reason) -> None:
        locs = tuple(dict.fromkeys((*node.locs, *(reason.node.locs if reason.node else ()))))
        self._misses[rule.name, node.output.name] = Entry(rule.name, node.output.name, locs, reason.text)

    @property
    def misses(self) -> list[Entry]:
        return list(self._misses.values())

    def counts(self) -> dict[str, int]:
        """Matches by rule."""
        result: dict[str, int] = {}
        for e in self.matches:
            result[e.rule] = result.get(e.rule, 0) + 1
        return dict(sorted(result.items()))

    def to_text(self) -> str:
        lines = [f"{n:6} {rule}" for rule, n in self.counts().items()]
        return "\n".join([*lines, *(f"       near miss: {e}" for e in self.misses)]) + "\n"


def apply_rules(graph: Graph, rules: Iterable[Rule], log: MatchLog | None = None, limit: int | None = None) -> int:
    """Applies ``rules`` to ``graph`` and its bodies until none matches; returns how many rewrites were made.

    ``limit`` bounds the rewrites (by default 20 a node, and 1000): rules that undo each other are a defect, reported as RuntimeError.
    """
    by_op: dict[str, list[Rule]] = {}
    for rule in rules:
        for anchor in dict.fromkeys(rule.anchors):
            by_op.setdefault(anchor, []).append(rule)
    log = log or MatchLog()
    done = 0
    pending = [graph]
    while pending:
        g = pending.pop()
        done += _Driver(g, by_op, log, limit).run()
        pending += [body for node in g.nodes for body in node.bodies][::-1]
    return done


class _Driver:
    def __init__(self, graph: Graph, by_op: dict[str, list[Rule]], log: MatchLog, limit: int | None):
        self.graph = graph
        self.by_op = by_op
        self.log = log
        self.made: dict[Node, None] = {}  # attached by rewrites, not placed yet
        self.queue: deque[Node] = deque(n for n in graph.nodes if n.op.name in by_op)
        self.queued: set[Node] = set(self.queue)
        self.limit = limit if limit is not None else 1000 + 20 * len(graph)

    def run(self) -> int:
        done = 0
        while self.queue:
            node = self.queue.popleft()
            self.queued.discard(node)
            if not self.alive(node):
                continue
            for rule in self.by_op.get(node.op.name, ()):
                outcome = rule.match(node)
                if isinstance(outcome, Reason):
                    self.log.missed(rule, node, outcome)
                elif outcome is not None:
                    self.replace(rule, node, outcome)
                    done += 1
                    break
            if done > self.limit:
                raise RuntimeError(
                    f"rules do not come to an end on graph {self.graph.name}; the last one was {rule.name} at {node!r}"
                )
        if self.made:
            self.graph.reorder(self.made)
        return done

    def alive(self, node: Node) -> bool:
        return node in self.graph or node in self.made

    def enqueue(self, node: Node) -> None:
        if node.op.name in self.by_op and node not in self.queued and self.alive(node):
            self.queued.add(node)
            self.queue.append(node)

    def replace(self, rule: Rule, node: Node, match: Match) -> None:
        locs = tuple(dict.fromkeys((*(loc for n in match.nodes for loc in n.locs), *node.locs)))
        builder = Builder(self.graph, locs, place=False)
        result = rule.rewrite(builder, node, match.found)
        news = [result] if isinstance(result, Value) else list(result)
        fresh = dict.fromkeys(builder.made)
        self.made.update(fresh)
        self.log.matched(rule, node.output.name, locs)
        for old, new in zip(node.outputs, news, strict=True):
            if old is new:
                continue
            if _narrower(new, old):  # an operand that went had broadcast the rest
                new = builder.op("Expand", new, shape=old.shape)
                fresh = dict.fromkeys(builder.made)
                self.made.update(fresh)
            if old.type.dtype is not new.type.dtype or not compatible(old.shape, new.shape):
                raise RuntimeError(f"rule {rule.name} replaces {old!r} by {new!r} at {node!r}")
            if new.producer is None or new.producer in fresh:
                self.adopt(old, new)
            elif new.producer is not node:
                self.join(new.producer, locs)
            readers = list(old.users)
            self.graph.replace_uses(old, new)
            for user in readers:
                self.enqueue(user)
        for n in builder.made:
            self.enqueue(n)
        self.discard(node)

    def adopt(self, old: Value, new: Value) -> None:
        """A value that the rule made takes the old one's name and what is known of it."""
        if new.producer is not None:
            old.name, new.name = new.name, old.name
            if new.content is None:
                new.content = old.content

    def join(self, producer: Node, locs: tuple[Loc, ...]) -> None:
        """Nothing new stands for the anchor: what gives its value now stands for it too, unless it is far more general."""
        if len(producer.outputs) == 1 and len(producer.locs) < 64:
            producer.locs = tuple(dict.fromkeys((*producer.locs, *locs)))

    def discard(self, node: Node) -> None:
        """Removes ``node`` and what only it needed; producers that lost a reader are looked at again."""
        stack = [node]
        outputs = set(self.graph.outputs)
        captured = {v for holder in self.graph.holders for body in holder.bodies for v in body.captured}
        while stack:
            n = stack.pop()
            if (
                not self.alive(n)
                or n.op.name == "ReadDims"
                or any(o.users or o in outputs or o in captured for o in n.outputs)
            ):
                self.enqueue(n)
                continue
            producers = [v.producer for v in n.inputs if v is not None and v.producer is not None]
            siblings = [
                u for v in n.inputs if v is not None and v.producer is not None for u in v.users if len(v.users) <= 4
            ]
            if n in self.made:
                self.graph.release(n)
                del self.made[n]
            else:
                self.graph.remove(n)
            stack.extend(dict.fromkeys(producers))
            for u in siblings:  # a value with fewer readers may let another reader's rule match
                self.enqueue(u)


def _narrower(new: Value, old: Value) -> bool:
    """Whether ``new`` has to be broadcast to stand for ``old``."""
    if new.type.rank > old.type.rank or new.shape == old.shape:
        return False
    tail = old.shape[old.type.rank - new.type.rank :]
    if any(a not in (1, b) and isinstance(a, int) and isinstance(b, int) for a, b in zip(new.shape, tail)):
        return False
    return new.type.rank < old.type.rank or any(a == 1 and b != 1 for a, b in zip(new.shape, tail))
