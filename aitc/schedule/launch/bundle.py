"""Horizontal fusion of launches: independent groups that are too small to fill the device run side by side in one."""

from __future__ import annotations

from collections.abc import Sequence

from aitc.kernels.core.functor import StorageOf
from aitc.kernels.core.group import side_by_side
from aitc.kernels.core.kernel import KERNELS, Draft, Part
from aitc.schedule.choose.select import Choice
from aitc.schedule.core.anchors import IN_PLACE
from aitc.schedule.launch.steps import Scheduled
from aitc.targets.target import Target

MOST = 6
"""Groups of a launch: their tensor maps fit among a kernel's parameters, which are 4 KiB at the most."""
WINDOW = 32
"""Launches among which partners are looked for."""
GAIN_US = 0.3
"""That a launch must be predicted to save by each group that joins."""


def bundle(scheduled: Sequence[Scheduled], storage: StorageOf, target: Target) -> list[Scheduled]:
    """``scheduled`` with bundles in place of groups. What a bundle needs moves ahead of it; else the order stays.

    Kernels say which groups go together and how long that takes (``Kernel.together``). Where the host takes part (late dims, branches) nothing moves.
    """
    if any(s.host is not None for s in scheduled):
        return list(scheduled)
    order = list(scheduled)
    at = 0
    while at < len(order):
        window = order[at : at + WINDOW]
        needs = _needs(window) if _part(order[at]) is not None else []
        members = _partners(window, needs, target) if needs else [0]
        joined = _joined([window[i] for i in members], storage, target) if len(members) > 1 else None
        if joined is not None:
            needed = 0
            for m in members:
                needed |= needs[m]
            ahead = [i for i in range(members[-1]) if needed >> i & 1]
            rest = [i for i in range(len(window)) if i not in members and i not in ahead]
            order[at : at + len(window)] = [*(window[i] for i in ahead), joined, *(window[i] for i in rest)]
            at += len(ahead)
        at += 1
    return order


def _part(s: Scheduled) -> Part | None:
    """``s`` as a part of a bundle, if its kernel shares launches."""
    kernel = KERNELS.get(s.draft.kernel)
    if kernel is None or not kernel.family or s.group.parts or s.draft.scratch or any(n.op.name in IN_PLACE for n in s.group.nodes):
        return None
    return Part(kernel, s.group, s.choice.problem)


def _needs(order: Sequence[Scheduled]) -> list[int]:
    """For each launch of a window the launches of it that must have run before, as bits: what leads from one to the other lies between them.

    Parts of bundles that write one root write parts of it (a Concat's) and do not need each other; anybody else's writes of a root stay in their order.
    """
    needs: list[int] = []
    readers: dict[int, int] = {}
    writers: dict[int, int] = {}
    sharing = 0  # the launches that are parts, or bundles of them
    for n, s in enumerate(order):
        bit, found = 1 << n, 0
        shares = bool(s.group.parts) or _part(s) is not None
        pointers = s.draft.parameters.pointers.values()
        reads = {id(p.root) for p in pointers if p.const and p.root.const is None}
        writes = {id(p.root) for p in pointers if not p.const}
        for r in reads:
            found |= writers.get(r, 0)
        for r in writes:
            found |= readers.get(r, 0) | writers.get(r, 0) & (~sharing if shares else -1)
        for r in reads:
            readers[r] = readers.get(r, 0) | bit
        for r in writes:
            writers[r] = writers.get(r, 0) | bit
        sharing |= bit if shares else 0
        direct = found
        while direct:
            low = direct & -direct
            found |= needs[low.bit_length() - 1]
            direct ^= low
        needs.append(found)
    return needs


def _partners(order: Sequence[Scheduled], needs: Sequence[int], target: Target) -> list[int]:
    """The first launch and those after it that gain by running with it, each with the ones before."""
    start = _part(order[0])
    if start is None:
        return [0]
    members, parts, mask = [0], [start], 1
    us = order[0].choice.score_us
    for i in range(1, len(order)):
        part = _part(order[i])
        if part is None or part.kernel.family != start.kernel.family or needs[i] & mask:
            continue
        found = start.kernel.together([*parts, part], target)
        if found is None or found[0] > us + order[i].choice.score_us - GAIN_US:
            continue
        members.append(i)
        parts.append(part)
        mask |= 1 << i
        us = found[0]
        if len(members) == MOST:
            break
    return members


def _joined(members: Sequence[Scheduled], storage: StorageOf, target: Target) -> Scheduled | None:
    """The launch that runs ``members``; None if it cannot be written."""
    parts = [part for part in map(_part, members) if part is not None]
    kernel = parts[0].kernel
    found = kernel.together(parts, target)
    assert found is not None
    us, configs = found
    draft: Draft | None = kernel.build_together(parts, configs, storage, target)
    if draft is None:
        return None
    choice = Choice(draft.kernel, tuple(p.problem for p in parts), configs, "model", us, " | ".join(m.choice.key for m in members))
    return Scheduled(side_by_side([p.group for p in parts]), choice, draft)
