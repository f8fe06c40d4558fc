"""Which kernel Hopper runs a graph with, and how operands, results and residuals reach it."""

from __future__ import annotations

import numpy as np
import pytest

from aitc.ir.builder import Builder
from aitc.ir.dtype import F16, F32
from aitc.ir.graph import Graph
from aitc.ir.types import TensorType
from aitc.kernels.hopper import sm90
from aitc.kernels.hopper.product_sm90 import product_configs
from aitc.passes import stages
from aitc.passes.base import Context
from aitc.schedule.plan.plan import Plan, TensorMapArg
from aitc.schedule.schedule import PlanOptions, schedule
from aitc.targets.target import find_target

H200 = find_target("h200")


def plan_of(graph: Graph) -> Plan:
    stages.layout(graph, Context(target=H200))
    return schedule(graph, H200, PlanOptions("m", "m.onnx"))


def product(M: int, K: int, N: int, residual: bool = False, dtype: object = F16) -> Plan:
    """Relu(x W + b), or with another matrix added."""
    graph = Graph("main")
    b = Builder(graph)
    x = graph.add_input("x", TensorType(dtype, (M, K)))
    rng = np.random.default_rng(0)
    w = b.constant(rng.standard_normal((K, N)).astype(dtype.numpy))
    y = b.op("Add", b.op("MatMul", x, w, out=None), b.constant(rng.standard_normal(N).astype(dtype.numpy)))
    if residual:
        y = b.op("Add", y, graph.add_input("r", TensorType(dtype, (M, N))))
    graph.outputs = [b.op("Relu", y)]
    graph.output_names = ["y"]
    return plan_of(graph)


def maps(plan: Plan, launch: int = 0) -> dict[str, TensorMapArg]:
    return {a.parameter: a for a in plan.launches[launch].args if isinstance(a, TensorMapArg)}


def test_a_weight_is_packed_along_k_and_the_results_are_stored_by_the_copy_engine() -> None:
    plan = product(512, 256, 384)
    (kernel,) = plan.kernels
    assert kernel.kernel == "gemm_sm90"
    found = maps(plan)
    assert set(found) == {"map_a", "map_b", "map_d"}
    assert found["map_a"].sizes == (256, 512, 1) and found["map_b"].sizes == (256, 384, 1) and found["map_d"].sizes == (384, 512, 1)
    (packed,) = [w for w in plan.weights if w.name == found["map_b"].buffer]
    assert packed.shape == (1, 384, 256)
    assert not any(p.endswith("y0") for p in kernel.parameters)


def test_a_residual_comes_by_the_copy_engine_where_the_tile_is_stored_by_it() -> None:
    plan = product(4096, 768, 768, residual=True)
    found = maps(plan)
    assert found["map_s"].buffer == "r" and found["map_s"].box == (64, 16, 1)
    text = "\n".join(line.code for line in plan.kernels[0].context.functors[0].lines)
    assert "staged[j]" in text


def test_few_rows_are_split_among_a_cluster_and_a_few_are_read_once() -> None:
    split = product(128, 3072, 768)
    assert split.launches[0].cluster > 1 and split.kernels[0].config.startswith("k")
    assert product(2, 3072, 768).kernels[0].kernel == "gemv"


@pytest.mark.parametrize(("M", "K", "dtype", "kernel"), [(64, 100, F16, "gemm_sm80"), (64, 128, F32, "gemm_simt")])
def test_what_the_copy_engine_cannot_read_goes_to_a_general_kernel(M: int, K: int, dtype: object, kernel: str) -> None:
    assert product(M, K, 64, dtype=dtype).kernels[0].kernel == kernel


@pytest.mark.parametrize("N", [36, 64])
def test_results_that_no_box_holds_are_stored_by_the_functor(N: int) -> None:
    assert ("map_d" in maps(product(512, 256, N))) == (N % 8 == 0 and not product(512, 256, N).kernels[0].config.startswith("k"))


def convolution(channels: int, filters: int, side: int, window: int, stride: int, pad: int) -> Plan:
    graph = Graph("main")
    b = Builder(graph)
    x = graph.add_input("x", TensorType(F16, (2, channels, side, side)))
    w = b.constant(np.random.default_rng(0).standard_normal((filters, channels, window, window)).astype(np.float16))
    y = b.op("Conv", x, w, strides=(stride,) * 2, pads=(pad,) * 4, dilations=(1, 1), group=1, out=None)
    last = b.constant(np.random.default_rng(1).standard_normal((8, filters, 1, 1)).astype(np.float16))  # what lies between is channels-last
    graph.outputs = [b.op("Conv", b.op("Relu", y), last, strides=(1, 1), pads=(0,) * 4, dilations=(1, 1), group=1, out=None)]
    graph.output_names = ["y"]
    return plan_of(graph)


def test_pixels_are_gathered_by_the_copy_engine() -> None:
    plan = convolution(64, 64, 14, 3, 2, 1)
    launch = next(n for n, x in enumerate(plan.launches) if "conv_sm90" in x.name)
    columns = maps(plan, launch)["map_x"].im2col
    assert columns is not None
    lower, upper, channels, _ = columns
    # The last window of 7 along an axis begins at 2 * 6 - 1 = 11, two pixels before the last.
    assert lower == (-1, -1) and upper == (-2, -2) and channels == 64


def test_a_convolution_of_one_tap_is_a_product_of_its_pixels() -> None:
    plan = convolution(64, 128, 14, 1, 1, 0)
    kernels = [k for k in plan.kernels if k.kernel == "conv_sm90"]
    assert kernels and all("gemm" in k.context.headers[0] for k in kernels)


def test_images_of_three_channels_take_the_kernel_of_first_convolutions() -> None:
    plan = convolution(3, 64, 64, 7, 2, 3)
    assert "conv_stem_sm90" in {k.kernel for k in plan.kernels}


def test_patches_become_a_product() -> None:
    plan = convolution(3, 64, 64, 16, 16, 0)
    assert "gemm_sm90" in {k.kernel for k in plan.kernels}


def test_tiles_fit_shared_memory_staged_or_not() -> None:
    tiles = [*sm90.TILES, *sm90.DENSE_TILES, *sm90.SPLITS, *sm90.staged_tiles(sm90.TILES, H200.smem_bytes)]
    assert all(t.smem_bytes <= H200.smem_bytes for t in tiles)
    assert len({str(t) for t in tiles}) == len(tiles)


def test_floats_are_multiplied_as_tf32_where_that_was_asked_for() -> None:
    for precision, kernel in (("tf32", "gemm_sm90"), ("model", "gemm_simt")):
        graph = Graph("g")
        x = graph.add_input("x", TensorType(F32, (300, 100)))
        graph.outputs = [Builder(graph).op("MatMul", x, graph.constant(np.ones((100, 72), np.float32)), out=None)]
        plan = schedule(graph, H200, PlanOptions("g", "g.onnx", precision))
        assert plan.kernels[0].kernel == kernel
        maps = [a for a in plan.launches[0].args if isinstance(a, TensorMapArg)]
        assert all(m.tf32 and m.box[0] == 32 for m in maps)
        assert len(maps) == (2 if precision == "tf32" else 0)


@pytest.mark.parametrize(
    ("dtype", "dense", "staged", "wide"), [("f16", True, False, True), ("f16", True, True, False), ("f16", False, False, False), ("f32", False, False, False)]
)
def test_no_tile_whose_epilogue_spills_is_offered(dtype: str, dense: bool, staged: bool, wide: bool) -> None:
    assert any(getattr(c, "ping_pong", False) and c.BN > 128 for c in product_configs(dtype, dense, staged, None, H200)) == wide


def product_us(config: sm90.Sm90Tile | sm90.Sm90Split, M: int, N: int, K: int) -> float:
    return sm90.products_us([config], [sm90.Extent(1, M, N, -(-K // 64), 2.0 * (M * K + K * N + M * N), True)], H200)


@pytest.mark.parametrize(("M", "N", "K"), [(6304, 768, 3072), (6304, 768, 768), (2048, 640, 2560), (4096, 768, 768), (1024, 768, 3072), (6272, 512, 1024)])
def test_tiles_come_close_to_whole_waves(M: int, N: int, K: int) -> None:
    """Of the 132 multiprocessors hardly one is idle in the last wave; tiles of 128 columns left a third to a half idle."""
    config = min(product_configs("f16", True, False, M, H200), key=lambda c: product_us(c, M, N, K))
    assert isinstance(config, sm90.Sm90Tile)
    tiles = -(-M // (config.BM * config.cluster_m)) * -(-N // (config.BN * config.cluster_n)) * config.cluster
    assert tiles / (-(-tiles // H200.units) * H200.units) > 0.9


def test_clusters_that_do_not_fit_at_once_take_a_second_wave() -> None:
    """30 clusters of 4 fit: 32 took 7.3 us where 28 take 5.0."""
    split = sm90.Sm90Split(64, 80, 6, 4)
    assert product_us(split, 128, 1280, 1280) > 1.3 * product_us(split, 128, 1120, 1280)


def test_sizes_that_are_typically_nothing_have_a_time() -> None:
    """Dims such as h // 2 are 0 for the smallest h, which is what is taken for typical where nothing else is known."""
    for config in (*sm90.TILES, *sm90.SPLITS):
        assert 0 < sm90.products_us([config], [sm90.Extent(1, 0, 64, 4, 0.0, False)], H200) < 100


def test_products_that_share_a_kernel_have_one_group_of_math_warps() -> None:
    """Several products whose warps hand registers to each other spill their sums: 3368 bytes of four convolutions."""
    graph = Graph("main")
    b = Builder(graph)
    x = graph.add_input("x", TensorType(F16, (2048, 512)))
    rng = np.random.default_rng(0)
    weights = [b.constant(rng.standard_normal((512, 512)).astype(np.float16)) for _ in range(3)]
    graph.outputs = [b.op("Relu", b.op("MatMul", x, w, out=None)) for w in weights]
    graph.output_names = ["p", "q", "r"]
    shared = [launch for launch in plan_of(graph).launches if "product_sm90" in launch.entry]
    assert shared and all(launch.block[0] <= 288 for launch in shared)
