"""Which norms a cluster shares, and how vectors of channels, pixels and blocks are divided."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aitc.ir.builder import Builder
from aitc.ir.dtype import F16
from aitc.ir.graph import Graph
from aitc.ir.types import TensorType
from aitc.kernels.rows.group_norm_sm90 import GroupNormProblem, GroupNormSm90
from aitc.registry import load
from aitc.schedule.plan.plan import Plan
from aitc.schedule.schedule import PlanOptions, schedule
from aitc.targets.target import find_target

load("aitc.ops")
H200 = find_target("h200")
NHWC = (0, 2, 3, 1)


def plan_of(channels: int, groups: int, side: int, order: tuple[int, ...] | None = NHWC, target: str = "h200") -> Plan:
    """Group norm of (2, channels, side, side), as the importer lowers it."""
    graph = Graph("main")
    b = Builder(graph)
    x = graph.add_input("x", TensorType(F16, (2, channels, side, side)))
    x = b.op("Silu", x)
    x.type = replace(x.type, order=order)
    parts = b.op("Reshape", x, shape=(2, groups, channels // groups, side, side))
    y = b.op("LayerNormalization", parts, axes=(2, 3, 4), epsilon=1e-5)
    y.type = replace(y.type, order=None if order is None else (0, 3, 4, 1, 2))
    graph.outputs = [b.op("Relu", b.op("Reshape", y, shape=(2, channels, side, side)))]
    graph.output_names = ["y"]
    return schedule(graph, find_target(target), PlanOptions("m", "m.onnx"))


def kernels(plan: Plan) -> list[str]:
    return [k.kernel for k in plan.kernels]


def test_groups_of_channels_last_images_are_shared_by_clusters() -> None:
    plan = plan_of(320, 32, 64)
    (launch,) = (n for n in plan.launches if "group_norm_sm90" in n.name)
    assert launch.cluster > 1 and launch.grid[0] >= 60 and launch.grid[0] % launch.cluster == 0


@pytest.mark.parametrize(
    ("order", "target"), [(None, "h200"), (NHWC, "a100")], ids=["channels first", "no clusters"]
)
def test_other_norms_stay_with_rows(order: tuple[int, ...] | None, target: str) -> None:
    assert "normalize" in kernels(plan_of(64, 8, 16, order, target))


@pytest.mark.parametrize("width", [1, 3, 4, 10, 16, 30, 40])
def test_every_tile_has_whole_groups_whole_warps_and_a_place_for_each_pixel(width: int) -> None:
    for space in (64, 1000, 4096, 262144):
        problem = GroupNormProblem("LayerNorm", "f16", 2, space, 32 * width, width, 2, 2)
        tiles = GroupNormSm90().configs(problem, H200)
        assert tiles
        for t in tiles:
            assert t.channels % width == 0 and problem.C % t.channels == 0
            assert t.threads % 32 == 0 and t.threads <= 512 and t.down >= t.V
            assert t.packs == 0 or t.packs * t.down * t.cluster >= space


def test_small_images_get_few_blocks_and_large_ones_all_of_the_machine() -> None:
    kernel = GroupNormSm90()

    def best(space: int, C: int) -> int:
        problem = GroupNormProblem("LayerNorm", "f16", 1, space, C, C // 32, 2, 2)
        tile = min(kernel.configs(problem, H200), key=lambda t: kernel.score_us(problem, t, H200))
        return C // tile.channels * tile.cluster

    assert best(64, 1280) <= 64
    assert best(128 * 128, 512) >= 60 and best(64 * 64, 320) >= 60
