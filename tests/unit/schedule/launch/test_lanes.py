"""Branches run side by side where that pays, what they touch is apart, and a plan where it is not is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from aitc.describe import launches_said, launches_text
from aitc.emit.project import emit
from aitc.ir.builder import Builder
from aitc.ir.dim import Dim, symbol
from aitc.ir.dtype import F16, F32, DType
from aitc.ir.graph import Graph, Value
from aitc.ir.types import TensorType
from aitc.passes import stages
from aitc.passes.base import Context
from aitc.schedule.launch.lanes import Edges, Places, Work, choose
from aitc.schedule.plan.check import InvalidPlan, check_plan
from aitc.schedule.plan.plan import Fork, Plan, PointerArg, Space
from aitc.schedule.plan.serialize import plan_from_json, plan_to_json
from aitc.schedule.schedule import PlanOptions, schedule
from aitc.targets.target import find_target

CHEAP = Edges(0.5, 0.5)


def chains(*needs: Sequence[int], us: float = 4.0, share: float = 0.1) -> list[tuple[int, list[list[int]]]]:
    return choose([set(n) for n in needs], [Work(us, share)] * len(needs), CHEAP)


def test_two_chains_behind_one_launch() -> None:
    assert chains((), (0,), (1,), (0,), (3,), (2, 4)) == [(1, [[1, 2], [3, 4]])]


def test_the_longest_chain_is_first_and_the_others_share_the_lanes_that_are_left() -> None:
    needs = [(), (), (1,), (2,), (), (), ()]
    ((first, lanes),) = choose([set(n) for n in needs], [Work(4.0, 0.05)] * 7, CHEAP, most=2)
    assert (first, lanes) == (0, [[1, 2, 3, 6], [0, 4, 5]])


def test_a_single_chain_has_no_branches() -> None:
    assert chains((), (0,), (0, 1), (2,)) == []


@pytest.mark.parametrize(("us", "share"), [(4.0, 1.0), (1.0, 0.1)])
def test_launches_that_fill_the_device_or_cost_less_than_the_edges_stay_in_line(us: float, share: float) -> None:
    assert chains((), (0,), (0,), (1, 2), us=us, share=share) == []


def test_two_forks_follow_each_other() -> None:
    block = [(), (0,), (0,), (1, 2), (3,), (3,), (4, 5)]
    assert chains(*block) == [(1, [[1], [2]]), (4, [[4], [5]])]


def test_places() -> None:
    places = Places([Fork(2, (2, 1))])
    beside = {(a, b) for a, b in combinations(range(7), 2) if places.beside(a, b)}
    assert beside == {(2, 4), (3, 4)}
    assert [places.span(n, n) for n in range(7)] == [(0, 0), (1, 1), (2, 4), (2, 4), (2, 4), (5, 5), (6, 6)]
    assert 1 not in places and 3 in places


def branches(target_name: str, lanes: int = 4, batch: Dim = 1, depths: tuple[int, ...] = (3, 2, 3), dtype: DType = F32) -> Plan:
    """Branches of convolutions, joined in the memory of a Concat, whose result goes through one more."""
    target = find_target(target_name)
    graph = Graph("g")
    b = Builder(graph)
    rng = np.random.default_rng(0)

    def conv(x: Value, size: int) -> Value:
        w = graph.constant(rng.standard_normal((16, x.shape[1], size, size)).astype(dtype.numpy))
        pads = (size // 2,) * 4
        return b.op("Relu", b.op("Conv", x, w, strides=(1, 1), pads=pads, dilations=(1, 1), group=1, out=None))

    x = graph.add_input("x", TensorType(dtype, (batch, 16, 9, 9)))
    x = conv(x, 1)
    ends = []
    for depth in depths:
        v = x
        for i in range(depth):
            v = conv(v, 3 - 2 * (i % 2))
        ends.append(v)
    graph.outputs, graph.output_names = [conv(b.op("Concat", *ends, axis=1), 1)], ["y"]
    stages.layout(graph, Context(target=target))
    return check_plan(schedule(graph, target, PlanOptions("m", "m.onnx", lanes=lanes)))


@pytest.mark.parametrize("target", ["h200", "a100", "mi250"])
def test_a_plan_with_branches(target: str) -> None:
    plan = branches(target)
    (fork,) = plan.forks
    assert sorted(fork.lanes) == [2, 3, 3]
    inside = range(fork.first, fork.first + 8)
    live = [b for b in plan.buffers if b.space is Space.ARENA and b.first in inside]
    assert len(live) >= 5 and all((b.first, b.last) >= (inside[0], inside[-1]) for b in live)
    assert plan_from_json(plan_to_json(plan)).forks == plan.forks
    lines = [line.strip().split("(")[0] for line in emit(plan)["model.cpp"].splitlines() if line.startswith("  r.")]
    launch = "r.launch"
    body = ["r.fork", *[launch] * fork.lanes[0], "r.lane", *[launch] * fork.lanes[1], "r.lane", *[launch] * fork.lanes[2], "r.join"]
    assert lines == [*[launch] * fork.first, *body, *[launch] * (len(plan.launches) - 8 - fork.first)]


def test_sizes_that_are_known_only_at_run_time() -> None:
    plan = branches("a100", batch=symbol("n", 1, 4, hint=1))
    (fork,) = plan.forks
    inside = range(fork.first, fork.first + 8)
    live = [b.name for b in plan.buffers if b.space is Space.ARENA and b.first <= inside[0] and inside[-1] <= b.last]
    assert plan.arena_bytes < 0 and {written(plan, n) for n in inside} <= set(live)


def test_branches_against_shared_launches() -> None:
    """On Hopper products share launches: branches that are one launch long do, longer ones would wait for each other at every step."""
    assert [n.note for n in branches("h200", depths=(1, 1, 1), dtype=F16).launches if "|" in n.note] == ["Conv + Relu | Conv + Relu | Conv + Relu"]
    assert branches("h200", depths=(1, 1, 1), dtype=F16).forks == ()
    plan = branches("h200", dtype=F16)
    assert [sorted(f.lanes) for f in plan.forks] == [[2, 3, 3]] and not any("|" in n.note for n in plan.launches)
    assert any("|" in n.note for n in branches("h200", lanes=1, dtype=F16).launches)


def test_reports_say_what_runs_side_by_side() -> None:
    plan = branches("a100")
    lines = launches_text(plan).splitlines()
    assert [line for line in lines if line.startswith("--")] == [
        "-- side by side, lane 1 of 3: 3 launches", "-- side by side, lane 2 of 3: 3 launches",
        "-- side by side, lane 3 of 3: 2 launches", "-- all lanes have ended",
    ]  # fmt: skip
    assert "8 launches in 1 fork" in launches_said(plan).line


def test_without_lanes_and_on_cpu_nothing_forks() -> None:
    for plan in (branches("a100", lanes=1), branches("cpu")):
        assert plan.forks == ()
        assert "fork" not in emit(plan)["model.cpp"] and "lanes" not in emit(plan)["model.cpp"]


def test_a_batch_that_fills_the_device_does_not_fork() -> None:
    assert branches("a100", batch=512).forks == ()


def written(plan: Plan, launch: int) -> str:
    return next(a.buffer for a in plan.launches[launch].args if isinstance(a, PointerArg) and not a.const)


def test_a_launch_that_needs_another_lane_is_refused() -> None:
    plan = branches("a100")
    (fork,) = plan.forks
    broken = replace(plan, forks=(Fork(fork.first, (1, fork.lanes[0] - 1, *fork.lanes[1:])),))
    with pytest.raises(InvalidPlan, match="may run at the same time"):
        check_plan(broken)


def test_memory_that_two_lanes_share_is_refused() -> None:
    plan = branches("a100")
    (fork,) = plan.forks
    a, b = written(plan, fork.first), written(plan, fork.first + fork.lanes[0])
    assert a != b
    moved = tuple(replace(x, offset=plan.buffer(a).offset) if x.name == b else x for x in plan.buffers)
    with pytest.raises(InvalidPlan, match="may run at the same time"):
        check_plan(replace(plan, buffers=moved))


def test_parts_are_what_their_launches_say() -> None:
    plan = branches("a100")
    whole = next(a.buffer for launch in plan.launches for a in launch.args if isinstance(a, PointerArg) and a.part)
    launches = tuple(
        replace(n, args=tuple(replace(a, part=False) if isinstance(a, PointerArg) and a.buffer == whole else a for a in n.args)) for n in plan.launches
    )
    with pytest.raises(InvalidPlan, match="may run at the same time"):
        check_plan(replace(plan, launches=launches))


@pytest.mark.parametrize("fork", [Fork(0, (3,)), Fork(0, (0, 2)), Fork(8, (4, 4)), Fork(0, (1, 1))])
def test_forks_that_cannot_be(fork: Fork) -> None:
    plan = branches("a100")
    with pytest.raises(InvalidPlan):
        check_plan(replace(plan, forks=(fork,)))
