"""Vertical fusion of products: one and the one behind it, whose rows a block computes to their end, are one launch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from aitc.ir.graph import Node, Value
from aitc.ir.index import is_view
from aitc.kernels.core.group import Group, one_after_another
from aitc.kernels.core.kernel import KERNELS, No
from aitc.schedule.choose.select import choose
from aitc.schedule.core.storage import Storages
from aitc.schedule.core.why import Fusions, source_of
from aitc.targets.target import Target

GAIN_SHARE = 0.14
GAIN_US = 0.3
"""What a chain must be predicted to save: that part of its launches one after another, and so many microseconds. Of the pairs of ResNet-50 in
batches of 1 to 256 those above were faster as one launch, in the model on an H200, and those below as two."""


def chain(
    groups: Sequence[Group], needed: set[int], defined: bool, storage: Storages, target: Target, alone: Callable[[Group], float], why: Fusions
) -> list[Group]:
    """``groups`` with chains in place of pairs, those that save most first.

    Kernels that ``chains`` say which pairs they take; ``alone`` is the predicted time of a group by itself. ``needed``: ids of values that must be
    stored anyway. ``defined``: whether some groups give dims their values, which others wait for. Nothing but a chain's groups moves.
    """
    kernels = [kernel for kernel in KERNELS if kernel.chains and kernel.available(target)]
    if not kernels:
        return list(groups)
    found: list[tuple[float, int, int, Group]] = []
    times: dict[int, float] = {}
    place = _places(groups)
    for i, first in enumerate(groups):
        for j in _readers(first, place, groups):
            second = groups[j]
            if _reads_more(second, first, storage):
                why.unchained(first, second, "it reads these in other places, too, which it does from memory")
                continue
            group = one_after_another(first, second, needed)
            answers = [(kernel, kernel.accepts(group, storage, target)) for kernel in kernels]
            able = [kernel for kernel, problem in answers if not isinstance(problem, No) and kernel.configs(problem, target)]
            if not able:
                reasons = [problem.reason if isinstance(problem, No) else f"{kernel.name} has no configuration for it" for kernel, problem in answers]
                why.unchained(first, second, "; ".join(reasons))
                continue
            us = min(c.score_us for kernel in able if not isinstance(c := choose(kernel, group, storage, target), No))
            for n in (i, j):
                if n not in times:
                    times[n] = alone(groups[n])
            saved = times[i] + times[j] - us
            if saved < max(GAIN_US, GAIN_SHARE * (times[i] + times[j])):
                why.unchained(first, second, f"one after another they are predicted to take {times[i] + times[j]:.1f} us, as one {us:.1f}")
                continue
            found.append((saved, i, j, group))
    order = list(groups)
    taken: set[int] = set()
    for _, i, j, group in sorted(found, key=lambda f: (-f[0], f[1])):
        first, second = groups[i], groups[j]
        if i in taken or j in taken:
            why.unchained(first, second, "one of the two shares its launch with another product, which saves more")
            continue
        at = _meeting(order, first, second, defined, storage)
        if isinstance(at, str):
            why.unchained(first, second, at)
            continue
        taken |= {i, j}
        order = [group if g is at else g for g in order if g is at or (g is not first and g is not second)]
        why.chain(first, second)
    return order


def _places(groups: Sequence[Group]) -> dict[Node, int]:
    """The group that computes each node."""
    return {n: i for i, g in enumerate(groups) for n in g.nodes if not is_view(n)}


def _readers(first: Group, place: dict[Node, int], groups: Sequence[Group]) -> list[int]:
    """The products whose first operand is the one result of ``first``, itself a product."""
    if not _is_product(first) or len(first.outputs) != 1:
        return []
    found = set()
    stack = [first.outputs[0]]
    while stack:
        for user in stack.pop().users:
            if is_view(user):
                stack.append(user.output)
            elif user in place and _is_product(second := groups[place[user]]) and source_of(second.anchor.input) is first.outputs[0].producer:  # type: ignore[union-attr]
                found.add(place[user])
    return sorted(found)


def _is_product(group: Group) -> bool:
    return group.anchor is not None and group.anchor.op.name in ("MatMul", "Conv")


def _reads_more(group: Group, first: Group, storage: Storages) -> bool:
    """Whether ``group`` reads the result of ``first`` otherwise than as the first operand of its anchor."""
    made = first.outputs[0].producer
    others = (v for n in group.nodes for i, v in enumerate(n.inputs) if v is not None and (n, i) != (group.anchor, 0))
    return any(p is made for v in others if v.producer not in group.inside for p in _sources(v, storage))


def _sources(v: Value, storage: Storages) -> Iterator[Node]:
    """The nodes that compute ``v``: behind views, and through Concats that are written in place."""
    p = source_of(v)
    if p is not None and storage.joined(p):
        for x in p.inputs:
            if x is not None:
                yield from _sources(x, storage)
    elif p is not None:
        yield p


def _needs(group: Group, order: dict[Node, Group], storage: Storages) -> Iterator[Group]:
    """The groups that compute what ``group`` reads."""
    return (order[p] for v in group.inputs for p in _sources(v, storage) if p in order)


def _meeting(order: Sequence[Group], first: Group, second: Group, defined: bool, storage: Storages) -> Group | str:
    """At whose place both can run: ``second``, if nothing between them waits for the first; ``first``, if the second waits for nothing between.

    Or why at neither.
    """
    i, j = (next(n for n, g in enumerate(order) if g is x) for x in (first, second))
    between = order[i + 1 : j]
    if not between:
        return second
    if defined or any(n.bodies for g in between for n in g.nodes):
        return "what runs between the two may decide dims, branch or repeat: it keeps its place"
    of = {n: order[at] for n, at in _places(order).items()}
    if not any(g is first for b in between for g in _needs(b, of, storage)):
        return second
    if not any(g is b for g in _needs(second, of, storage) for b in between):
        return first
    return "what is computed between the two waits for the first, and the second for that"
