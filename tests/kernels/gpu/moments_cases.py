"""Statistics of rows in the epilogues of gemm_sm90.h: products that store those of their results' parts, and products that merge and apply those of A's rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .gemm_cases import zeros
from .gemm_sm90_cases import Sm90Tile, SplitTile, operand_maps
from .problem import CTYPES, Input, Map, Output, Problem, rounded

PART = 32
EPSILON = 1e-5


def moments(x: np.ndarray) -> np.ndarray:
    """(rows, n) -> (rows, n / PART, 2): mean, and the sum of squared differences from it, of each part."""
    parts = x.reshape(len(x), -1, PART)
    mean = parts.mean(axis=-1)
    return np.stack([mean, np.square(parts - mean[..., None]).sum(axis=-1)], axis=-1)


def _problem(name: str, tile: Sm90Tile | SplitTile, sizes: tuple[int, int, int], dtype: str, store: str, declared: str, arguments: list[Input | Output], d: int, s: int, units: int) -> Problem:
    """A product whose arguments begin with A and B; `store` defines the functor and an alias `make` of its members; D and the residual are arguments `d` and `s`."""
    M, N, K = sizes
    split = isinstance(tile, SplitTile)
    map_a, map_b = operand_maps(tile, M, N, K, 1, (K, K), ("K", "K"), True, dtype)
    map_d, map_s = (Map(0, of=n, dtype=dtype, sizes=(N, M, 1), strides=(N * 2, M * N * 2), box=(64, 16, 1)) for n in (d, s))
    ct = CTYPES[dtype]
    operands = ", ".join(f"MatrixSm90<{ct}, false, false, {c}>{{&map_{m}}}" for m, c in (("a", "false"), ("b", "true")))
    source = f"""#include "aitc/gpu/hopper/gemm_sm90.h"
#include "aitc/generic/moments.h"
using namespace aitc;
struct Shape {{
  static constexpr int64_t batch = 1, M = {M}, N = {N}, K = {K};
}};
{store}
AITC_KERNEL({tile.threads}, 1) void AITC_ENTRY(rows)(const {ct}* a, const {ct}* b, {declared}, AITC_GRID_CONSTANT CUtensorMap map_a,
    AITC_GRID_CONSTANT CUtensorMap map_b, AITC_GRID_CONSTANT CUtensorMap map_d, AITC_GRID_CONSTANT CUtensorMap map_s) {{
  {'gemm_split_sm90' if split else 'gemm_sm90'}<{tile.text}>(Shape{{}}, {operands}, Store{{{', '.join(p.split('* ')[1] for p in declared.split(', '))}}}{'' if split else ', map_d, map_s'});
}}
"""
    blocks = tile.blocks(M, N, 1) if isinstance(tile, SplitTile) else tile.blocks(M, N, 1, units)
    return Problem(
        name=name, source=source, entry="rows", blocks=blocks, threads=tile.threads, smem_bytes=tile.smem_bytes, arguments=(*arguments, map_a, map_b, map_d, map_s),
        warp=32, cluster=tile.cluster, arch="90a",
    )  # fmt: skip


def described(name: str, tile: Sm90Tile | SplitTile, M: int, N: int, K: int, dtype: str = "f16", units: int = 132, light: bool = False) -> Problem:
    """A B + bias of whole numbers that the type holds, so that there is one right result, far from 0, and the moments of its parts."""
    rng = np.random.default_rng(M + N + K)
    if light:
        a, b, bias = zeros(M, K), zeros(K, N), zeros(N)
    else:
        a, b, bias = rng.integers(-1, 2, (M, K)), rng.integers(0, 2, (K, N)), rng.integers(0, 3, N) + (700.0 if dtype == "f16" else 100.0)
    y = rounded(a.astype(np.float64) @ b + bias, dtype)
    ct, split = CTYPES[dtype], isinstance(tile, SplitTile)
    element, tail = ("kept", f"r[j] = convert<{ct}>(x), kept[j] = convert<float>(r[j])") if split else ("out", "out[j] = x")
    store = f"""struct Store {{
  static constexpr int width = 8, moments_of = {PART};
  {'' if split else f'using result = {ct};'}
  const {ct}* bias;
  {ct}* y;
  float* parts;
  AITC_FN void moments(int, int64_t row, int64_t col, float mean, float squares) const {{
    store<2>(parts + row * {N // PART * 2} + col / {PART} * 2, Vec<float, 2>{{mean, squares}});
  }}
  template <int V> AITC_FN void operator()(int, int64_t row, int64_t col, const float (&acc)[V], float (&{element})[V]) const {{
    const auto b = load<V>(bias + col);
    Vec<{ct}, V> r;
    AITC_UNROLL
    for (int j = 0; j < V; ++j) {{
      const float x = acc[j] + convert<float>(b[j]);
      {tail};
    }}
    {f'store<V>(y + row * {N} + col, r);' if split else ''}
  }}
}};"""
    arguments: list[Input | Output] = [Input(a, dtype), Input(b.T.copy(), dtype), Input(bias, dtype), Output(y, dtype), Output(moments(y), "f32")]
    return _problem(name, tile, (M, N, K), dtype, store, f"const {ct}* bias, {ct}* y, float* parts", arguments, 3, 3, units)


def applied(
    name: str, tile: Sm90Tile | SplitTile, M: int, N: int, K: int, dtype: str = "f16", mean: float = 100.0, units: int = 132, light: bool = False,
    tolerance: float | None = None, centred: bool = True,
) -> Problem:  # fmt: skip
    """(A - mean) B / deviation + bias, row by row, of rows whose mean is large beside their deviation; a residual where the tile is staged. Without `centred`
    the mean counts as 0."""
    rng = np.random.default_rng(M + N + K)
    split, staged = isinstance(tile, SplitTile), isinstance(tile, Sm90Tile) and tile.staged
    if light:
        a, b, bias, residual = zeros(M, K), zeros(K, N), zeros(N), zeros(M, N)
    else:
        a, b, bias, residual = (rounded(x, dtype) for x in (rng.standard_normal((M, K)) + mean, rng.standard_normal((K, N)) / 8, rng.standard_normal(N), rng.standard_normal((M, N))))
    apart = a - a.mean(axis=1, keepdims=True) * centred
    y = apart / np.sqrt(np.square(apart).mean(axis=1, keepdims=True) + EPSILON) @ b + bias + (residual if staged else 0)
    ct = CTYPES[dtype]
    element = "" if split else f"{', const float (&staged)[V]' if staged else ''}, float (&out)[V]"
    tail = f"r[j] = convert<{ct}>(x)" if split else "out[j] = x"
    store = f"""struct Store {{
  static constexpr int width = 8;
  static constexpr bool enters = true, prefetches = true;
  {'' if split else f'using result = {ct};'}
  {f'using staged = {ct};' if staged else ''}
  const {ct}* bias;
  {ct}* y;
  const float* parts;
  const float* sums;
  const {ct}* residual;
  RowParts<{K // PART}, RowQuad> loaded;
  RowMoments of;
  AITC_FN void prefetch(int64_t col) const {{ prefetch_l2(bias + col), prefetch_l2(sums + col); }}
  AITC_FN void enter(int, int64_t row, const RowQuad& across) {{ loaded.load_from(parts + row * {K // PART * 2}, across); }}
  AITC_FN void settle(const RowQuad& across) {{ of = merged_moments<{PART}, {str(centred).lower()}>(loaded, {EPSILON}f, across); }}
  template <int V> AITC_FN void operator()(int, int64_t row, int64_t col, const float (&acc)[V]{element}) const {{
    const auto b = load<V>(bias + col);
    const auto s = load<V>(sums + col);
    Vec<{ct}, V> r;
    AITC_UNROLL
    for (int j = 0; j < V; ++j) {{
      const float x = (acc[j] - of.mean * s[j]) * of.inverse + convert<float>(b[j]){' + staged[j]' if staged else ''};
      {tail};
    }}
    {f'store<V>(y + row * {N} + col, r);' if split else ''}
  }}
}};"""
    arguments: list[Input | Output] = [
        Input(a, dtype), Input(b.T.copy(), dtype), Input(bias, dtype), Output(y, dtype, tolerance), Input(moments(a), "f32"), Input(b.sum(axis=0), "f32"), Input(residual, dtype),
    ]  # fmt: skip
    declared = f"const {ct}* bias, {ct}* y, const float* parts, const float* sums, const {ct}* residual"
    return _problem(name, tile, (M, N, K), dtype, store, declared, arguments, 3, 6, units)


FAR = 1e-2
"""A float keeps 24 bits of a sum that is a thousand times what is left of it when the mean is taken out; A's own rounding, of 0.25 in 1000, costs more."""
SPLITS = (SplitTile(64, 64, 4, 4), SplitTile(64, 32, 4, 2), SplitTile(64, 96, 3, 2), SplitTile(64, 64, 3, 1), SplitTile(128, 64, 3, 2), SplitTile(64, 64, 4, 8))
TILES = (Sm90Tile(64, 64, 4), Sm90Tile(128, 128, 3, 2), Sm90Tile(128, 160, 3, 1, 1, True), Sm90Tile(256, 128, 3), Sm90Tile(64, 64, 4, staged=True), Sm90Tile(128, 96, 3))


def cases() -> Iterator[Problem]:
    """Every form of split and tile, at numbers of rows around theirs; several tiles a block; an even and an odd number of parts; means of 0, 100 and 1000 deviations."""
    for n, s in enumerate(SPLITS):
        tag = f"{s.BM}x{s.BN}_{s.split}"
        yield described(f"moments split {tag}", s, s.BM + 9, s.BN * 2 + 32, 200, "bf16" if n == 1 else "f16")
        yield applied(f"moments applied split {tag}", s, s.BM + 9, s.BN + 40, 64 * (6, 8, 5, 24, 4, 9)[n])
    for t in TILES:
        tag = f"{t.BM}x{t.BN}{'p' if t.ping_pong else ''}{'r' if t.staged else ''}"
        yield applied(f"moments applied {tag}", t, t.BM * 2 + 9, t.BN + 24, 256, units=2 * t.cluster)
        if not t.staged:
            yield described(f"moments {tag}", t, t.BM * 2 + 9, t.BN * 2 + 32, 200, units=2 * t.cluster)
    yield described("moments split few rows", SplitTile(64, 64, 4, 2, 16), 11, 96, 136)
    yield applied("moments applied odd parts", SplitTile(64, 64, 4, 2), 20, 72, 96)
    yield applied("moments applied root mean square", SplitTile(64, 64, 4, 2), 70, 72, 128, mean=0.5, centred=False)
    yield applied("moments applied far from 0", Sm90Tile(64, 64, 4), 70, 128, 768, mean=1000.0, tolerance=FAR)
