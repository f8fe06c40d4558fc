"""Convolutions of conv_sm90.h: pixels gathered by the copy engine, persistent and split, both kinds of store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .conv_cases import reference
from .gemm_cases import largest_power, zeros
from .gemm_sm90_cases import Sm90Tile, SplitTile
from .problem import CTYPES, SIZES, Input, Map, Output, Problem, Scalar, operand_map_type, rounded, rounded_operand

Pair = tuple[int, int]


def conv(
    name: str,
    tile: Sm90Tile | SplitTile,
    n: int,
    size: Pair,
    c: int,
    k: int,
    window: Pair,
    stride: Pair = (1, 1),
    dilation: Pair = (1, 1),
    pad: Pair = (0, 0),
    end: Pair | None = None,
    dtype: str = "f16",
    returns: bool = True,
    residual: bool = False,
    extra_channels: int = 0,
    units: int = 132,
    light: bool = False,
) -> Problem:
    """A convolution of (n, *size, c) with `k` filters, bias and ReLU. `end`: border behind; `extra_channels`: the input is a slice of a wider tensor."""
    rng = np.random.default_rng(n + c + k)
    split = isinstance(tile, SplitTile)
    returns = returns and not split
    end = end or pad
    out = tuple((e + p + q - (f - 1) * d - 1) // s + 1 for e, p, q, f, d, s in zip(size, pad, end, window, dilation, stride, strict=True))
    P, Q = out
    total, M, taps = c + extra_channels, n * P * Q, window[0] * window[1]
    if light:
        stored, w, bias, other, y = zeros(n, *size, total), zeros(k, *window, c), zeros(k), zeros(M, k), zeros(M, k)
    else:
        x = rounded(rng.standard_normal((n, *size, c)), dtype)
        w = rounded(rng.standard_normal((1, k, 1, *window, c)) / np.sqrt(taps * c), dtype)
        bias, other = rounded(rng.standard_normal(k), dtype), rounded(rng.standard_normal((M, k)), dtype)
        stored = np.full((n, *size, total), np.nan)
        stored[..., :c] = x
        y = reference(rounded_operand(x, dtype)[:, None], rounded_operand(w, dtype), (1, *stride), (1, *dilation), (0, *pad), (1, P, Q), 1).reshape(M, k)
        y = np.maximum(y + bias + (other if residual else 0), 0)
    slices = (tile.rows or tile.BM, tile.BN) if isinstance(tile, SplitTile) else (tile.BM // tile.cluster_n, tile.BN // tile.cluster_m)
    upper = tuple((o - 1) * s - p - (e - 1) for o, s, p, e in zip(out, stride, pad, size, strict=True))
    elem, operand = SIZES[dtype], operand_map_type(dtype)
    pixel, depth = total * elem, 128 // elem
    map_x = Map(
        0, of=0, dtype=operand, sizes=(c, size[1], size[0], n), strides=(pixel, pixel * size[1], pixel * size[1] * size[0]),
        steps=(1, stride[1], stride[0], 1), im2col=((-pad[1], -pad[0]), (upper[1], upper[0]), depth, slices[0]),
    )  # fmt: skip
    map_w = Map(0, of=1, dtype=operand, sizes=(c, taps, k), strides=(c * elem, taps * c * elem), box=(depth, 1, slices[1]))
    map_d = Map(0, of=4, dtype=dtype, sizes=(k, M, 1), strides=(k * 2, M * k * 2), box=(64, 16, 1))
    ct = CTYPES[dtype]
    element, tail = (", float (&out)[V]", "out[j] = x") if returns else ("", f"r[j] = convert<{ct}>(x)")
    store = "" if returns else f"store<V>(y + row * {k} + col, r);"
    source = f"""#include "aitc/gpu/hopper/conv_sm90.h"
using namespace aitc;
struct Shape {{
  static constexpr int64_t batch = 1, N = {k};
  int64_t M;
}};
struct Window {{
  static constexpr int C = {c}, R = {window[0]}, S = {window[1]}, P = {P}, Q = {Q}, stride_h = {stride[0]}, stride_w = {stride[1]}, dilation_h = {dilation[0]},
                       dilation_w = {dilation[1]}, pad_h = {pad[0]}, pad_w = {pad[1]};
}};
struct Store {{
  static constexpr int width = {largest_power(k, limit=8)};
  {f'using result = {ct};' if returns else ''}
  const {ct}* bias;
  const {ct}* other;
  {ct}* y;
  template <int V> AITC_FN void operator()(int, int64_t row, int64_t col, const float (&acc)[V]{element}) const {{
    const auto b = load<V>(bias + col);
    const auto o = load<V>(other + row * {k} + col);
    Vec<{ct}, V> r;
    AITC_UNROLL
    for (int j = 0; j < V; ++j) {{
      const float x = m_max(acc[j] + convert<float>(b[j]){' + convert<float>(o[j])' if residual else ''}, 0.0f);
      {tail};
    }}
    {store}
  }}
}};
AITC_KERNEL({tile.threads}, 1) void AITC_ENTRY(conv)(const {ct}* x, const {ct}* w, const {ct}* bias, const {ct}* other, {ct}* y, AITC_GRID_CONSTANT CUtensorMap map_x,
    AITC_GRID_CONSTANT CUtensorMap map_w, AITC_GRID_CONSTANT CUtensorMap map_d, int64_t M) {{
  {'conv_split_sm90' if split else 'conv_sm90'}<{tile.text}>(Shape{{M}}, PixelsSm90<{ct}, Window>{{&map_x}}, FilterSm90<{ct}, Window>{{&map_w}}, Store{{bias, other, y}}{'' if split else ', map_d, map_d'});
}}
"""
    return Problem(
        name=name,
        source=source,
        entry="conv",
        blocks=tile.blocks(M, k, 1) if isinstance(tile, SplitTile) else tile.blocks(M, k, 1, units),
        threads=tile.threads,
        smem_bytes=tile.smem_bytes,
        arguments=(
            Input(stored, dtype), Input(w, dtype), Input(bias, dtype), Input(other, dtype), Output(y, dtype), map_x, map_w,
            map_d if returns else map_w, Scalar(M, "i64"),
        ),  # fmt: skip
        warp=32,
        cluster=tile.cluster,
        arch="90a",
    )


@dataclass(frozen=True, slots=True)
class Term:
    """One of two convolutions that add up: the image's size and channels, taps, stride and border."""

    size: Pair
    c: int
    window: Pair
    stride: Pair = (1, 1)
    pad: Pair = (0, 0)

    @property
    def in_rows(self) -> bool:
        """Whether its pixels are the rows of a matrix."""
        return self.window == (1, 1) and self.stride == (1, 1)


def conv_sum(name: str, tile: Sm90Tile | SplitTile, n: int, out: Pair, k: int, terms: tuple[Term, Term], dtype: str = "f16", units: int = 132) -> Problem:
    """ReLU of the sum of two convolutions of `n` images and a bias, as dense results; a split stores by itself."""
    rng = np.random.default_rng(n + k)
    split = isinstance(tile, SplitTile)
    P, Q = out
    M, ct = n * P * Q, CTYPES[dtype]
    slices = (tile.rows or tile.BM, tile.BN) if isinstance(tile, SplitTile) else (tile.BM // tile.cluster_n, tile.BN // tile.cluster_m)
    bias = rounded(rng.standard_normal(k), dtype)
    y = np.zeros((M, k))
    arguments: list[Input | Output | Scalar] = []
    maps: list[Map] = []
    structs, sources, filters, blocks = "", [], [], []
    for at, t in enumerate(terms):
        taps = t.window[0] * t.window[1]
        x = rounded(rng.standard_normal((n, *t.size, t.c)), dtype)
        w = rounded(rng.standard_normal((1, k, 1, *t.window, t.c)) / np.sqrt(taps * t.c), dtype)
        y += reference(x[:, None], w, (1, *t.stride), (1, 1, 1), (0, *t.pad), (1, P, Q), 1).reshape(M, k)
        arguments += [Input(x, dtype), Input(w, dtype)]
        pixel = t.c * 2
        upper = tuple((o - 1) * s - p - (e - 1) for o, s, p, e in zip(out, t.stride, t.pad, t.size, strict=True))
        if t.in_rows:
            maps.append(Map(0, of=2 * at, dtype=dtype, sizes=(t.c, M, 1), strides=(pixel, M * pixel), box=(64, slices[0], 1)))
            maps.append(Map(0, of=2 * at + 1, dtype=dtype, sizes=(t.c, k, 1), strides=(pixel, k * pixel), box=(64, slices[1], 1)))
        else:
            maps.append(Map(
                0, of=2 * at, dtype=dtype, sizes=(t.c, t.size[1], t.size[0], n), strides=(pixel, pixel * t.size[1], pixel * t.size[1] * t.size[0]),
                steps=(1, t.stride[1], t.stride[0], 1), im2col=((-t.pad[1], -t.pad[0]), (upper[1], upper[0]), 64, slices[0]),
            ))  # fmt: skip
            maps.append(Map(0, of=2 * at + 1, dtype=dtype, sizes=(t.c, taps, k), strides=(pixel, taps * pixel), box=(64, 1, slices[1])))
        structs += f"""struct Window{at} {{
  static constexpr int C = {t.c}, R = {t.window[0]}, S = {t.window[1]}, P = {P}, Q = {Q}, stride_h = {t.stride[0]}, stride_w = {t.stride[1]}, dilation_h = 1,
                       dilation_w = 1, pad_h = {t.pad[0]}, pad_w = {t.pad[1]};
}};
"""
        sources.append(f"MatrixSm90<{ct}, false, false, false>" if t.in_rows else f"PixelsSm90<{ct}, Window{at}>")
        filters.append(f"MatrixSm90<{ct}, false, false, true>" if t.in_rows else f"FilterSm90<{ct}, Window{at}>")
        blocks.append(str(taps * -(-t.c // 64)))
    element, tail = ("", f"r[j] = convert<{ct}>(x)") if split else (", float (&out)[V]", "out[j] = x")
    sums = [
        f"{kind}<{', '.join((*types, *blocks))}>{{{', '.join(f'{t}{{&map_{side}{i}}}' for i, t in enumerate(types))}}}"
        for kind, side, types in (("SumPixelsSm90", "x", sources), ("SumSm90", "w", filters))
    ]
    source = f"""#include "aitc/gpu/hopper/conv_sum_sm90.h"
using namespace aitc;
struct Shape {{
  static constexpr int64_t batch = 1, N = {k};
  int64_t M;
}};
{structs}struct Store {{
  static constexpr int width = {largest_power(k, limit=8)};
  {'' if split else f'using result = {ct};'}
  const {ct}* bias;
  {ct}* y;
  template <int V> AITC_FN void operator()(int, int64_t row, int64_t col, const float (&acc)[V]{element}) const {{
    const auto b = load<V>(bias + col);
    Vec<{ct}, V> r;
    AITC_UNROLL
    for (int j = 0; j < V; ++j) {{
      const float x = m_max(acc[j] + convert<float>(b[j]), 0.0f);
      {tail};
    }}
    {f"store<V>(y + row * {k} + col, r);" if split else ""}
  }}
}};
AITC_KERNEL({tile.threads}, 1) void AITC_ENTRY(conv_sum)(const {ct}*, const {ct}*, const {ct}*, const {ct}*, const {ct}* bias, {ct}* y,
    AITC_GRID_CONSTANT CUtensorMap map_x0, AITC_GRID_CONSTANT CUtensorMap map_w0, AITC_GRID_CONSTANT CUtensorMap map_x1, AITC_GRID_CONSTANT CUtensorMap map_w1,
    AITC_GRID_CONSTANT CUtensorMap map_d, int64_t M) {{
  {'conv_sum_split_sm90' if split else 'conv_sum_sm90'}<{tile.text}>(Shape{{M}}, {sums[0]}, {sums[1]}, Store{{bias, y}}{'' if split else ', map_d, map_d'});
}}
"""
    map_d = Map(0, of=5, dtype=dtype, sizes=(k, M, 1), strides=(k * 2, M * k * 2), box=(64, 16, 1))
    return Problem(
        name=name,
        source=source,
        entry="conv_sum",
        blocks=tile.blocks(M, k, 1) if isinstance(tile, SplitTile) else tile.blocks(M, k, 1, units),
        threads=tile.threads,
        smem_bytes=tile.smem_bytes,
        arguments=(*arguments, Input(bias, dtype), Output(np.maximum(y + bias, 0), dtype), *maps, map_d, Scalar(M, "i64")),
        warp=32,
        cluster=tile.cluster,
        arch="90a",
    )


def stem_weights(w: np.ndarray, lead: int) -> np.ndarray:
    """(K, R, S, 4) as conv_stem_sm90.h wants them."""
    k, r, s, _ = w.shape
    steps = -(-(lead + s) // 4)
    wide = np.zeros((k, r, steps * 4, 4))
    wide[:, :, lead : lead + s] = w
    return wide.reshape(k // 8, 8, r, steps, 2, 8).transpose(2, 3, 4, 0, 1, 5)


def stem(name: str, tile: tuple[int, int], n: int, size: Pair, k: int, window: Pair, pad: Pair, dtype: str = "f16", units: int = 132, light: bool = False) -> Problem:
    """A convolution of (n, *size, 4) with stride 2, bias and ReLU; `tile`: blocks and stages."""
    rng = np.random.default_rng(n + k)
    blocks, stages = tile
    R, S = window
    out = tuple((e + 2 * p - f) // 2 + 1 for e, p, f in zip(size, pad, window, strict=True))
    P, Q = out
    lead = pad[1] % 2
    steps = -(-(lead + S) // 4)
    wide, lines = -(-(14 + 4 * steps) // 4) * 4, 16 * blocks - 2 + R
    stage = -(-lines * wide * 8 // 1024) * 1024
    smem = stages * (stage + 16) + R * steps * k * 32 + 8 * 4096 + 8
    x = rounded(rng.standard_normal((n, *size, 4)), dtype)
    x[..., 3] = 0
    w = rounded(rng.standard_normal((1, k, 1, *window, 4)) / np.sqrt(R * S * 3), dtype)
    bias = rounded(rng.standard_normal(k), dtype)
    y = zeros(n, P, Q, k) if light else np.maximum(reference(x[:, None], w, (1, 2, 2), (1, 1, 1), (0, *pad), (1, P, Q), 1).reshape(n, P, Q, k) + bias, 0)
    ct = CTYPES[dtype]
    source = f"""#include "aitc/gpu/hopper/conv_stem_sm90.h"
using namespace aitc;
struct Window {{
  static constexpr int R = {R}, S = {S}, P = {P}, Q = {Q}, pad_h = {pad[0]}, pad_w = {pad[1]};
}};
struct Store {{
  static constexpr int width = 2;
  using result = {ct};
  const {ct}* bias;
  template <int V> AITC_FN void operator()(int, int64_t, int64_t col, const float (&acc)[V], float (&out)[V]) const {{
    const auto b = load<V>(bias + col);
    AITC_UNROLL
    for (int j = 0; j < V; ++j) out[j] = m_max(acc[j] + convert<float>(b[j]), 0.0f);
  }}
}};
using Tile = StemTileSm90<{k}, {blocks}, {stages}>;
static_assert(Tile::smem_bytes<StemPatchSm90<{ct}, Window, {k}, {blocks}>>() == {smem}, "shared memory");
AITC_KERNEL(384, 1) void AITC_ENTRY(stem)(const {ct}* x, const {ct}* w, const {ct}* bias, {ct}* y, AITC_GRID_CONSTANT CUtensorMap map_x, AITC_GRID_CONSTANT CUtensorMap map_d, int images) {{
  conv_stem_sm90<Tile, {ct}, Window>(images, map_x, w, Store{{bias}}, map_d);
}}
"""
    map_x = Map(0, of=0, dtype=dtype, sizes=(4 * size[1], size[0], n), strides=(size[1] * 8, size[1] * size[0] * 8), box=(4 * wide, lines, 1), swizzle=0)
    map_d = Map(0, of=3, dtype=dtype, sizes=(k, Q, P, n), strides=(k * 2, k * Q * 2, k * Q * P * 2), box=(64, 8, 2, 1))
    return Problem(
        name=name,
        source=source,
        entry="stem",
        blocks=min(units, -(-Q // 8) * -(-P // (8 * blocks)) * n),
        threads=384,
        smem_bytes=smem,
        arguments=(Input(x, dtype), Input(stem_weights(w[0, :, 0], lead), dtype), Input(bias, dtype), Output(y, dtype), map_x, map_d, Scalar(n)),
        warp=32,
        arch="90a",
    )


def patch(name: str, tile: tuple[int, int], n: int, size: Pair, k: int, window: Pair, pad: Pair, dtype: str = "f16", units: int = 132, light: bool = False) -> Problem:
    """A convolution of (n, *size, 64) with stride 1, bias and ReLU, its weights resident; `tile`: blocks and stages."""
    rng = np.random.default_rng(n + k)
    blocks, stages = tile
    R, S = window
    P, Q = (e + 2 * p - f + 1 for e, p, f in zip(size, pad, window, strict=True))
    wide, lines = 7 + S, 8 * blocks - 1 + R
    smem = stages * (-(-lines * wide * 128 // 1024) * 1024 + 16) + R * S * k * 128 + 8 * 4096 + 8
    bias = rounded(rng.standard_normal(k), dtype)
    if light:
        x, w, y = zeros(n, *size, 64), zeros(1, k, 1, *window, 64), zeros(n, P, Q, k)
    else:
        x = rounded(rng.standard_normal((n, *size, 64)), dtype)
        w = rounded(rng.standard_normal((1, k, 1, *window, 64)) / np.sqrt(R * S * 64), dtype)
        y = np.maximum(reference(x[:, None], w, (1, 1, 1), (1, 1, 1), (0, *pad), (1, P, Q), 1).reshape(n, P, Q, k) + bias, 0)
    ct = CTYPES[dtype]
    source = f"""#include "aitc/gpu/hopper/conv_patch_sm90.h"
using namespace aitc;
struct Window {{
  static constexpr int R = {R}, S = {S}, P = {P}, Q = {Q}, pad_h = {pad[0]}, pad_w = {pad[1]};
}};
struct Store {{
  static constexpr int width = 2;
  using result = {ct};
  const {ct}* bias;
  template <int V> AITC_FN void operator()(int, int64_t, int64_t col, const float (&acc)[V], float (&out)[V]) const {{
    const auto b = load<V>(bias + col);
    AITC_UNROLL
    for (int j = 0; j < V; ++j) out[j] = m_max(acc[j] + convert<float>(b[j]), 0.0f);
  }}
}};
using Tile = PatchTileSm90<{k}, {blocks}, {stages}>;
static_assert(Tile::smem_bytes<ChannelPatchSm90<{ct}, Window, {k}, {blocks}>>() == {smem}, "shared memory");
AITC_KERNEL(384, 1) void AITC_ENTRY(patch)(const {ct}*, const {ct}*, const {ct}* bias, {ct}* y, AITC_GRID_CONSTANT CUtensorMap map_x, AITC_GRID_CONSTANT CUtensorMap map_w,
    AITC_GRID_CONSTANT CUtensorMap map_d, int images) {{
  conv_patch_sm90<Tile, {ct}, Window>(images, map_x, map_w, Store{{bias}}, map_d);
}}
"""
    map_x = Map(0, of=0, dtype=dtype, sizes=(64, size[1], size[0], n), strides=(128, size[1] * 128, size[1] * size[0] * 128), box=(64, wide, lines, 1))
    map_w = Map(0, of=1, dtype=dtype, sizes=(64, R * S, k), strides=(128, R * S * 128), box=(64, 1, k))
    map_d = Map(0, of=3, dtype=dtype, sizes=(k, Q, P, n), strides=(k * 2, k * Q * 2, k * Q * P * 2), box=(64, 8, 2, 1))
    return Problem(
        name=name,
        source=source,
        entry="patch",
        blocks=min(units, -(-Q // 8) * -(-P // (8 * blocks)) * n),
        threads=384,
        smem_bytes=smem,
        arguments=(Input(x, dtype), Input(w, dtype), Input(bias, dtype), Output(y, dtype), map_x, map_w, map_d, Scalar(n)),
        warp=32,
        arch="90a",
    )


def cases() -> Iterator[Problem]:
    """Odd sizes, strides, dilation, borders that differ, few channels, slices of channels, residuals."""
    small, large, ping, split = Sm90Tile(64, 64, 4), Sm90Tile(128, 128, 3, 2), Sm90Tile(64, 128, 4, ping_pong=True), SplitTile(64, 64, 4, 4)
    for tag, t in (("together", small), ("cluster", large), ("ping", ping), ("split", split)):
        yield conv(f"conv_sm90 {tag} 3x3", t, 2, (9, 11), 72, 136, (3, 3), pad=(1, 1), units=2)
        yield conv(f"conv_sm90 {tag} stride 2", t, 1, (15, 14), 64, 64, (3, 3), (2, 2), pad=(1, 1), residual=True, units=2)
    yield conv("conv_sm90 few channels", small, 1, (12, 10), 8, 24, (5, 3), pad=(2, 1), returns=False)
    yield conv("conv_sm90 dilation", small, 3, (10, 9), 40, 72, (3, 3), dilation=(2, 2), pad=(2, 2), units=2)
    yield conv("conv_sm90 borders differ", small, 1, (10, 9), 16, 40, (4, 4), (2, 2), pad=(1, 0), end=(2, 3))
    yield conv("conv_sm90 1x1/2", split, 2, (9, 9), 104, 64, (1, 1), (2, 2))
    yield conv("conv_sm90 slice of channels", small, 1, (7, 7), 24, 64, (3, 3), pad=(1, 1), extra_channels=16, dtype="bf16")
    yield conv("conv_sm90 odd filters", small, 1, (8, 8), 64, 37, (3, 3), pad=(1, 1), returns=False, residual=False)
    yield conv("conv_sm90 tiny", SplitTile(64, 64, 4, 2, 8), 1, (3, 2), 64, 64, (3, 3), pad=(1, 1))
    yield conv("conv_sm90 multicast pixels", Sm90Tile(128, 64, 3, 1, 2), 2, (12, 12), 64, 128, (3, 3), pad=(1, 1), units=4)
    for tag, t in (("together", small), ("cluster", large), ("split", split)):
        yield conv(f"conv_sm90 f32 {tag}", t, 2, (9, 11), 36, 76, (3, 3), (1, 2), pad=(1, 1), returns=False, extra_channels=4, dtype="f32", units=2)
    deep = (Term((9, 11), 72, (3, 3), pad=(1, 1)), Term((9, 11), 136, (1, 1)))
    strided = (Term((8, 7), 104, (1, 1)), Term((15, 14), 72, (1, 1), (2, 2)))
    for tag, t in (("together", small), ("cluster", large), ("ping", ping), ("split", split)):
        yield conv_sum(f"conv_sm90 sum {tag} deep", t, 2, (9, 11), 136, deep, units=2)
        yield conv_sum(f"conv_sm90 sum {tag} strided", t, 3, (8, 7), 64, strided, dtype="bf16", units=2)
    yield patch("conv_sm90 patch 3x3", (1, 4), 2, (11, 18), 64, (3, 3), (1, 1), units=2)
    yield patch("conv_sm90 patch 3x3 high bf16", (2, 2), 1, (37, 9), 32, (3, 3), (1, 1), dtype="bf16", units=2)
    yield patch("conv_sm90 patch 1x5", (1, 2), 2, (9, 20), 24, (1, 5), (0, 1), units=1)
    yield stem("conv_sm90 stem 7x7", (2, 4), 2, (37, 42), 64, (7, 7), (3, 3), units=2)
    yield stem("conv_sm90 stem 3x3", (1, 6), 1, (30, 28), 32, (3, 3), (1, 1), units=1)
    yield stem("conv_sm90 stem 6x6 bf16", (2, 2), 1, (40, 40), 96, (6, 6), (2, 2), dtype="bf16", units=2)
    yield stem("conv_sm90 stem 5x5", (1, 2), 2, (19, 18), 24, (5, 5), (0, 1))
