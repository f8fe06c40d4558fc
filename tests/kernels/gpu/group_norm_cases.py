"""Group and instance norms of channels-last images (gpu/hopper/group_norm_sm90.h), and their statistics alone (gpu/rows/statistics.h)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .gemm_cases import zeros
from .problem import CTYPES, SIZES, Input, Output, Problem, Scalar, rounded, scratch
from .rowwise_cases import load_functor, store_functor


def group_norm(
    op: str,
    tile: tuple[int, int, int, int, int],
    images: int,
    space: int,
    C: int,
    width: int,
    dtype: str = "f16",
    light: bool = False,
) -> Problem:
    """`images` of `space` pixels and C channels, groups of `width`; scale by channel in the store; means far from 0.

    `light`: shapes only.
    """
    rng = np.random.default_rng(space + C)
    groups = C // width
    scale = rounded(rng.standard_normal(C), dtype)
    if light:
        x, y = zeros(images, space, C), zeros(images, space, C)
    else:
        x = rng.standard_normal((images, space, groups, width)) * 2
        x = rounded(x + rng.standard_normal((images, 1, groups, 1)) * 20, dtype)
        mean = x.mean((1, 3), keepdims=True) if op == "LayerNorm" else 0.0
        y = (x - mean) / np.sqrt(np.square(x - mean).mean((1, 3), keepdims=True) + 1e-5)
        y = y.reshape(images, space, C) * scale
    V, across, down, _, cluster = tile
    ct = CTYPES[dtype]
    width_limit = min(V, 16 // SIZES[dtype])
    scaled = "v[j] * convert<float>(scale[k + j])"
    source = f"""#include "aitc/gpu/hopper/group_norm_sm90.h"
using namespace aitc;
struct Shape {{
  int images;
  static constexpr int space = {space}, C = {C}, width = {width};
}};
{load_functor(dtype, "float", width_limit, f"row * {C} + k")}
{store_functor(dtype, "float", width_limit, f"row * {C} + k", "", f"const {ct}* scale;", scaled)}
AITC_KERNEL({across * down}) void AITC_ENTRY(group_norm)(const {ct}* x, const {ct}* scale, {ct}* y, int images) {{
  group_norm_sm90<GroupTileSm90<{", ".join(map(str, tile))}>>({op}{{1e-5f}}, Shape{{images}}, Load{{x}}, Store{{y, scale}});
}}
"""
    return Problem(
        name=f"group_norm {op} {tile} {dtype} ({images},{space},{C}) groups of {width}",
        source=source,
        entry="group_norm",
        blocks=images * C // (across * V) * cluster,
        threads=across * down,
        smem_bytes=across * down * (V + 1) * 8 + cluster * (across * V // width) * 8,
        arguments=(Input(x, dtype), Input(scale, dtype), Output(y, dtype), Scalar(images)),
        warp=32,
        cluster=cluster,
        arch="90a",
    )


def cases() -> Iterator[Problem]:
    """Groups narrower and wider than a vector, held and read again, alone and in clusters, pixels that do not divide."""
    yield group_norm("LayerNorm", (8, 5, 32, 2, 4), 2, 211, 80, 10)
    yield group_norm("LayerNorm", (8, 2, 16, 0, 2), 1, 133, 32, 4)
    yield group_norm("RMSNorm", (8, 4, 8, 3, 1), 3, 21, 64, 32)
    yield group_norm("LayerNorm", (8, 1, 64, 1, 8), 2, 300, 16, 1)  # instance norm
    yield group_norm("LayerNorm", (4, 3, 32, 4, 1), 2, 100, 24, 6, "f32")
    yield group_norm("LayerNorm", (8, 15, 32, 0, 8), 1, 517, 240, 30, "bf16")
    yield group_norm("LayerNorm", (2, 1, 32, 2, 2), 1, 77, 6, 2)
    yield group_norm("LayerNorm", (8, 5, 96, 6, 8), 2, 4096, 320, 10)  # of Stable Diffusion's UNet


def statistics(
    op: str,
    tile: tuple[int, int, int, int],
    images: int,
    space: int,
    C: int,
    width: int,
    dtype: str = "f16",
    light: bool = False,
) -> Problem:
    """What a norm of groups multiplies and adds, of `images`; means far from 0. `light`: shapes only."""
    rng = np.random.default_rng(space + C)
    groups = C // width
    scale, bias = (rounded(rng.standard_normal(C), "f32") for _ in range(2))
    if light:
        x, y = zeros(images, space, C), zeros(2, images, C)
    else:
        x = rng.standard_normal((images, space, groups, width)) * 2
        x = rounded(x + rng.standard_normal((images, 1, groups, 1)) * 20, dtype)
        mean = x.mean((1, 3), keepdims=True) if op == "LayerNorm" else np.zeros((images, 1, groups, 1))
        inverse = 1 / np.sqrt(np.square(x - mean).mean((1, 3), keepdims=True) + 1e-5)
        factor = (inverse[:, 0] * scale.reshape(groups, width)).reshape(images, C)
        y = np.stack([factor, bias - np.broadcast_to(mean[:, 0], (images, groups, width)).reshape(images, C) * factor])
    V, across, down, parts = tile
    ct = CTYPES[dtype]
    units = C // (across * V) * images
    source = f"""#include "aitc/gpu/rows/statistics.h"
using namespace aitc;
struct Shape {{
  int images;
  static constexpr int space = {space}, C = {C}, width = {width};
}};
{load_functor(dtype, "float", min(V, 16 // SIZES[dtype]), f"row * {C} + k")}
AITC_KERNEL({across * down}) void AITC_ENTRY(group_statistics)(const {ct}* x, const float* scale, const float* bias, float* y, float* sums, int* tickets,
    int images) {{
  statistics<StatisticsTile<{", ".join(map(str, tile))}>>({op}{{1e-5f}}, Shape{{images}}, Load{{x}}, scale, bias, y, sums, tickets);
}}
"""
    return Problem(
        name=f"statistics {op} {tile} {dtype} ({images},{space},{C}) groups of {width}",
        source=source,
        entry="group_statistics",
        blocks=units * parts,
        threads=across * down,
        smem_bytes=across * down * V * 8,
        arguments=(
            Input(x, dtype),
            Input(scale, "f32"),
            Input(bias, "f32"),
            Output(y, "f32"),
            scratch(images * groups * parts * 2, "f32"),
            scratch(min(units, 1024), "i32", zeroed=True),
            Scalar(images),
        ),
    )


def statistics_cases() -> Iterator[Problem]:
    """Groups narrower and wider than a vector, one part and many, parts without a pixel, more units than tickets."""
    yield statistics("LayerNorm", (8, 10, 32, 3), 2, 211, 80, 10)
    yield statistics("LayerNorm", (8, 10, 32, 2), 2, 90, 80, 20)
    yield statistics("LayerNorm", (8, 4, 16, 5), 1, 133, 32, 4)
    yield statistics("LayerNorm", (8, 3, 64, 1), 1, 70, 24, 6)
    yield statistics("RMSNorm", (8, 8, 8, 2), 3, 21, 64, 32)
    yield statistics("LayerNorm", (8, 2, 32, 7), 2, 12, 16, 1)
    yield statistics("LayerNorm", (4, 6, 32, 4), 2, 100, 24, 6, "f32")
    yield statistics("LayerNorm", (8, 8, 32, 1), 1, 517, 128, 16, "bf16")
    yield statistics("LayerNorm", (2, 1, 64, 2), 1030, 5, 2, 2)
    yield statistics("LayerNorm", (8, 16, 32, 132), 1, 9001, 128, 4)  # of Stable Diffusion's decoder
