"""Every graph gets a valid plan on every API: each node in one group, groups in an order that can run, memory that never overlaps."""

from __future__ import annotations

import pytest
from graph_strategies import graphs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aitc.errors import AitcError
from aitc.ir import dtype as dt
from aitc.ir.graph import Graph
from aitc.ir.index import is_view
from aitc.kernels.core.group import Group
from aitc.passes import stages
from aitc.passes.base import Context
from aitc.registry import load
from aitc.schedule.core.storage import Storages
from aitc.schedule.group.groups import form_groups
from aitc.schedule.launch import lanes
from aitc.schedule.plan import memory
from aitc.schedule.plan.check import check_plan
from aitc.schedule.rewrite.prepare import prepare
from aitc.schedule.schedule import PlanOptions, schedule
from aitc.targets.target import find_target

QUICK = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
load("aitc.kernels")


def prepared(graph: Graph, target: str) -> tuple[Storages, list[Group]]:
    context = Context(find_target(target))
    for stage in (stages.simplify, stages.fuse, stages.layout):
        stage(graph, context)
    storage = Storages()
    kernels = prepare(graph, storage, find_target(target))
    return storage, form_groups(graph, kernels, storage)


@pytest.mark.parametrize("target", ["cpu", "a100", "h200", "mi250"])
@QUICK
@given(graph=graphs())
def test_plans_hold_together(target: str, graph: Graph) -> None:
    context = Context(find_target(target))
    for stage in (stages.simplify, stages.fuse, stages.layout):
        stage(graph, context)
    try:
        plan = schedule(graph, find_target(target), PlanOptions("g", "g.onnx"))
    except AitcError as error:
        assert all(d.code == "S01" for d in error.diagnostics)  # an op without a kernel, by name
        return
    check_plan(plan)
    written = {a.buffer for launch in plan.launches for a in launch.args if hasattr(a, "const") and not a.const}
    assert {p.buffer for p in plan.outputs} <= written


@pytest.mark.parametrize("target", ["a100", "h200"])
def test_plans_with_branches_hold_together(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where forks cost nothing and no launch fills the device, whatever can runs side by side: it shares no memory that it writes.

    (They would share launches instead: so they may not.)"""
    monkeypatch.setattr(lanes, "edges", lambda target: lanes.Edges(0.0, 0.0))
    monkeypatch.setattr(lanes, "work", lambda scheduled, target: lanes.Work(1.0, 0.0))
    monkeypatch.setattr("aitc.schedule.launch.lanes.bundle", lambda scheduled, storage, target: list(scheduled))
    monkeypatch.setattr(lanes, "GAIN_US", 1e-3)
    monkeypatch.setattr(lanes, "GAIN_SHARE", 0.0)
    forked = 0

    @QUICK
    @given(graph=graphs())
    def plans(graph: Graph) -> None:
        nonlocal forked
        context = Context(find_target(target))
        for stage in (stages.simplify, stages.fuse, stages.layout):
            stage(graph, context)
        try:
            plan = schedule(graph, find_target(target), PlanOptions("g", "g.onnx"))
        except AitcError:
            return
        check_plan(plan)
        forked += bool(plan.forks)

    plans()
    assert forked >= 5


@QUICK
@given(graph=graphs())
def test_groups_partition_the_graph_and_run_in_order(graph: Graph) -> None:
    try:
        storage, groups = prepared(graph, "cpu")
    except AitcError:
        return
    owner = {n: i for i, g in enumerate(groups) for n in g.nodes if not is_view(n)}
    assert sum(not is_view(n) for g in groups for n in g.nodes) == len(owner)
    for n in graph.nodes:
        assert is_view(n) or storage.joined(n) or n in owner
    for i, g in enumerate(groups):
        for n in g.nodes:
            for v in n.inputs:
                p = v.producer if v is not None else None
                while p is not None and is_view(p):
                    p = p.input.producer
                assert p is None or p not in owner or owner[p] <= i
        for o in g.outputs:
            assert o.producer in g.nodes


lifetimes = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 6), st.integers(0, 5000)).map(lambda t: (t[0], t[0] + t[1], t[2])), max_size=24
)


@QUICK
@given(lifetimes)
def test_best_fit_never_overlaps(spans: list[tuple[int, int, int]]) -> None:
    lives = [memory.Lifetime(f"b{i}", dt.F32, size, first, last) for i, (first, last, size) in enumerate(spans)]
    buffers, owner, arena = memory.place(lives)
    assert owner == {b.name: b.name for b in lives}
    for a in buffers:
        assert a.offset % 256 == 0 and a.offset + a.upper_bytes <= arena
        for b in buffers:
            if a is not b and a.first <= b.last and b.first <= a.last and a.upper_bytes and b.upper_bytes:
                assert a.offset + a.upper_bytes <= b.offset or b.offset + b.upper_bytes <= a.offset


@QUICK
@given(lifetimes)
def test_shared_symbolic_buffers_are_free_when_they_are_taken(spans: list[tuple[int, int, int]]) -> None:
    from aitc.ir.dim import symbol

    n = symbol("n", 1)
    lives = [memory.Lifetime(f"b{i}", dt.F32, n * (size + 1), first, last) for i, (first, last, size) in enumerate(spans)]
    buffers, owner, arena = memory.place(lives)
    assert arena == (-1 if lives else 0)
    for a in lives:
        for b in lives:
            if a is not b and owner[a.name] == owner[b.name]:
                assert a.last < b.first or b.last < a.first
    assert [b.above for b in buffers[1:]] == [(a.name,) for a in buffers[:-1]]
