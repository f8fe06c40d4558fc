"""Branches of an If whose results differ in rank: what follows moves into both branches, up to where the ranks are equal again.

Exporters write this for squeeze(): a branch drops an axis where the other keeps it, and a Reshape behind them makes one shape of both.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import onnx

from aitc.importer.order import read_names

Placed = tuple[int, onnx.NodeProto]  # a node and its place in the file


@dataclass(frozen=True, slots=True)
class Tail:
    """What is imported at the end of both branches. ``binds``: names that the branches' own results get; ``outputs``: names of what the
    If gives instead; ``hidden``: names of which only the tail knows, since their ranks differ."""

    binds: tuple[str, ...] = ()
    nodes: tuple[Placed, ...] = ()
    outputs: tuple[str, ...] = ()
    hidden: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Moved:
    """An If with its tail; ``before`` are nodes that have to come in front of it now, ``behind`` those that are left."""

    tail: Tail
    before: list[Placed]
    behind: list[Placed]


def move(names: Sequence[str], hidden: Collection[str], rest: Sequence[Placed], results: Collection[str]) -> Moved | None:
    """Takes from ``rest``, the nodes behind an If that gives ``names``, all that read ``hidden`` ones, and what lies between. ``results``
    are names that the graph gives. None where a hidden one is among them."""
    if any(name in results for name in hidden):
        return None
    reads = [set(read_names(node)) for _, node in rest]
    made, depends = {name for name in names if name}, set()
    for k, (_, node) in enumerate(rest):
        if reads[k] & made:
            depends.add(k)
            made.update(o for o in node.output if o)
    inside = {k for k in depends if reads[k] & set(hidden)}
    needed = {name for k in inside for name in reads[k]}
    early: set[int] = set()  # what the tail reads and does not depend on the If
    for k in reversed(range(len(rest))):
        if k not in inside and needed.isdisjoint(rest[k][1].output):
            continue
        (inside if k in depends else early).add(k)
        needed |= reads[k]
    left = [k for k in range(len(rest)) if k not in inside and k not in early]
    wanted = set(results).union(*(reads[k] for k in left))
    given = [*names, *(o for k in sorted(inside) for o in rest[k][1].output)]
    outputs = tuple(name for name in given if name and name in wanted and name not in hidden)
    tail = Tail(tuple(names), tuple(rest[k] for k in sorted(inside)), outputs, frozenset(hidden))
    return Moved(tail, [rest[k] for k in sorted(early)], [rest[k] for k in left])
