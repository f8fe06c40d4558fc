"""A plan that is right passes; each way to break it is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hand_plans import scale_then_shift

from aitc.schedule.plan.check import InvalidPlan, check_plan
from aitc.schedule.plan.plan import Plan, PointerArg, Space

HAND = scale_then_shift()
PLAN = replace(
    HAND, buffers=tuple(replace(b, last=len(HAND.launches)) for b in HAND.buffers)
)  # written by hand without lifetimes


def test_a_right_plan_passes() -> None:
    assert check_plan(PLAN) is PLAN


def test_a_buffer_that_is_read_when_it_is_dead_is_refused() -> None:
    with pytest.raises(InvalidPlan, match="lives from 0 to 0"):
        check_plan(HAND)


def no_kernel(p: Plan) -> Plan:
    return replace(p, kernels=())


def no_buffer(p: Plan) -> Plan:
    return replace(p, buffers=p.buffers[1:])


def doubled(p: Plan) -> Plan:
    return replace(p, buffers=(*p.buffers, p.buffers[0]))


def output_elsewhere(p: Plan) -> Plan:
    return replace(p, outputs=(replace(p.outputs[0], buffer="nowhere"), *p.outputs[1:]))


def writes_an_input(p: Plan) -> Plan:
    target = next(b.name for b in p.buffers if b.space is Space.INPUT)
    launch = p.launches[-1]
    args = tuple(replace(a, buffer=target) if isinstance(a, PointerArg) and not a.const else a for a in launch.args)
    return replace(p, launches=(*p.launches[:-1], replace(launch, args=args)))


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (no_kernel, "launches"),
        (no_buffer, "not there"),
        (doubled, "one name"),
        (output_elsewhere, "nowhere"),
        (writes_an_input, "read-only"),
    ],
)
def test_broken_plans_are_refused(break_it: Callable[[Plan], Plan], words: str) -> None:
    with pytest.raises(InvalidPlan, match=words):
        check_plan(break_it(PLAN))


def test_overlap_at_the_same_time_and_only_then() -> None:
    base = next(b for b in PLAN.buffers)
    a = replace(base, name="a", space=Space.ARENA, bytes=64, upper_bytes=64, offset=0, first=0, last=1, above=())
    b = replace(a, name="b", offset=32, first=1, last=2)
    bare = replace(PLAN, launches=(), kernels=(), inputs=(), outputs=(), arena_bytes=128)
    with pytest.raises(InvalidPlan, match=r"a and b|b and a"):
        check_plan(replace(bare, buffers=(a, b)))
    check_plan(replace(bare, buffers=(a, replace(b, first=2))))
    check_plan(replace(bare, buffers=(a, replace(b, offset=64))))
    with pytest.raises(InvalidPlan, match="behind the arena"):
        check_plan(replace(bare, buffers=(a, replace(b, offset=96))))


@pytest.mark.parametrize(("target", "room"), [("mi250", 65536), ("h200", 232448)])
def test_shared_memory_beyond_the_targets_is_refused(target: str, room: int) -> None:
    api = "hip" if target == "mi250" else "cuda"
    hand = scale_then_shift(api=api, target=target)
    right = replace(hand, buffers=tuple(replace(b, last=len(hand.launches)) for b in hand.buffers))
    assert check_plan(replace(right, launches=tuple(replace(x, smem_bytes=room) for x in right.launches)))
    with pytest.raises(InvalidPlan, match=f"bytes of shared memory, a block has {room}"):
        check_plan(replace(right, launches=tuple(replace(x, smem_bytes=room + 16) for x in right.launches)))
