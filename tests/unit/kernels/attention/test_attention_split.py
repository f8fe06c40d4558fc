"""Decoding steps: keys are divided among blocks where that pays, and only there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aitc.ir.builder import Builder
from aitc.ir.dim import Symbol
from aitc.ir.dtype import F16
from aitc.ir.graph import Graph
from aitc.ir.types import TensorType
from aitc.kernels.attention.attention import AttentionProblem, typical_keys
from aitc.kernels.attention.attention_gpu import AttentionCdna, AttentionSimt, AttentionSm80
from aitc.kernels.attention.attention_split import AttentionSplit, AttentionSplitSimt, split_simt_tiles, split_tiles
from aitc.kernels.core.kernel import Kernel, dim_of
from aitc.kernels.hopper.attention_sm90 import AttentionSm90
from aitc.passes import stages
from aitc.passes.base import Context
from aitc.schedule.plan.plan import Space
from aitc.schedule.schedule import PlanOptions, schedule
from aitc.targets.target import Target, find_target

H200, A100, MI250 = find_target("h200"), find_target("a100"), find_target("mi250")


def problem(batch: int, queries: int, keys: object, heads: int = 32, kv_heads: int = 8, D: int = 128) -> AttentionProblem:
    return AttentionProblem("f16", batch, heads, kv_heads, queries, keys, D, D, False, False, "none", 8)  # type: ignore[arg-type]


@pytest.mark.parametrize(("kernel", "target"), [(AttentionSm90(), H200), (AttentionSm80(), A100)])
def test_long_caches_are_split_until_the_device_is_full(kernel: Kernel, target: Target) -> None:
    def best(p: AttentionProblem) -> object:
        return min(kernel.configs(p, target), key=lambda c: kernel.score_us(p, c, target))

    for batch in (1, 4):
        config = best(problem(batch, 1, 8192))
        assert isinstance(config, AttentionSplit)
        assert config.splits * 8 * batch >= 0.4 * target.units
    full = best(problem(16, 1, 8192))
    assert isinstance(full, AttentionSplit)  # one split or several: rows of heads that share keys are read once
    assert not isinstance(best(problem(1, 512, 512)), AttentionSplit)
    assert not isinstance(best(problem(1, 1, 64)), AttentionSplit)


@pytest.mark.parametrize("D", [16, 64, 80, 128, 256])
def test_what_is_offered_fits(D: int) -> None:
    for queries in (1, 4, 16):
        for tile in split_tiles(problem(1, queries, 5000, D=D), A100):
            assert tile.smem_bytes(D, D) <= A100.smem_bytes
            assert tile.slabs * D <= 256  # output in registers
    assert not split_tiles(problem(1, 17, 5000, D=D), A100)


@pytest.mark.parametrize(("kernel", "target", "dtype"), [(AttentionSimt(), H200, "f32"), (AttentionCdna(), MI250, "f16"), (AttentionSimt(), MI250, "bf16")])
def test_so_are_they_without_tensor_cores(kernel: Kernel, target: Target, dtype: str) -> None:
    p = replace(problem(1, 1, 8192), dtype=dtype)
    best = min(kernel.configs(p, target), key=lambda c: kernel.score_us(p, c, target))
    assert isinstance(best, AttentionSplitSimt)
    assert best.splits * 8 >= 0.4 * target.units
    many = replace(problem(1, 64, 8192), dtype=dtype)
    assert not any(isinstance(c, AttentionSplitSimt) for c in kernel.configs(many, target))


@pytest.mark.parametrize("D", [9, 20, 64, 80, 128, 256])
@pytest.mark.parametrize("target", [H200, MI250])
def test_lanes_hold_a_key(D: int, target: Target) -> None:
    for align in (1, 4, 8):
        for rows in (1, 3, 7, 16):
            p = replace(problem(1, rows, 5000, heads=4, kv_heads=4, D=D), align=align, dtype="f32")
            for c in split_simt_tiles(p, target):
                assert D <= c.V * c.lanes <= 4 * D
                assert c.lanes <= target.warp
                assert D % c.V == 0
                assert align % c.V == 0
                assert c.smem_bytes(D, target.warp) <= target.smem_bytes


def test_a_growing_cache_counts_as_long() -> None:
    bounded, free = Symbol("n", 1, 1000), Symbol("n", 1)
    assert typical_keys(problem(1, 1, dim_of(bounded) + 1)) == 1001
    assert typical_keys(problem(1, 1, dim_of(free))) == 4096
    assert typical_keys(problem(1, 1, dim_of(Symbol("n", 1, None, 1, 300)))) == 300
    assert typical_keys(problem(1, dim_of(free), dim_of(free))) == 1  # type: ignore[arg-type]


def test_the_parts_are_scratch_and_the_tickets_start_as_zero() -> None:
    graph = Graph("decode")
    q = graph.add_input("q", TensorType(F16, (1, 8, 1, 64)))
    key, value = (graph.add_input(n, TensorType(F16, (1, 2, 8192, 64))) for n in "kv")
    graph.outputs = [Builder(graph, ()).op("Attention", q, key, value, scale=0.125)]
    stages.layout(graph, Context(target=H200))
    plan = schedule(graph, H200, PlanOptions("decode", "decode.onnx"))
    (launch,) = plan.launches
    places = {a.parameter: plan.buffer(a.buffer) for a in launch.args if hasattr(a, "buffer")}
    assert places["parts"].space is Space.ARENA
    assert places["tickets"].space is Space.STATE
    assert plan.state_bytes >= 2 * 4
    assert launch.grid[0] * 16 * 68 * 4 == places["parts"].bytes
