"""Several products of gemm_sm90.h in one launch, each on blocks of its own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .gemm_cases import largest_power, zeros
from .gemm_sm90_cases import Sm90Tile, SplitTile, operand_maps
from .problem import CTYPES, Input, Map, Output, Problem, Scalar, rounded, rounded_operand

Size = tuple[int, int, int]


def grouped(name: str, tile: Sm90Tile | SplitTile, sizes: tuple[Size, ...], dtype: str = "f16", returns: bool = True, units: int = 132, light: bool = False) -> Problem:
    """Products of `sizes` (M, N, K), all with a bias; every second one with ReLU. `returns`: the copy engine stores."""
    split = isinstance(tile, SplitTile)
    returns = returns and not split
    ct = CTYPES[dtype]
    inputs: list[Input | Output] = []
    maps: list[Map] = []
    declared, structs, calls, first = [], "", "", 0
    for n, (M, N, K) in enumerate(sizes):
        rng = np.random.default_rng(M + N + K + n)
        if light:
            a, b, bias, y = zeros(M, K), zeros(N, K), zeros(N), zeros(M, N)
        else:
            a, b, bias = (rounded(rng.standard_normal(s), dtype) for s in ((M, K), (N, K), (N,)))
            y = rounded_operand(a, dtype) @ rounded_operand(b, dtype).T + bias
            y = np.maximum(y, 0) if n % 2 else y
        at = len(inputs)
        inputs += [Input(a, dtype), Input(b, dtype), Input(bias, dtype), Output(y, dtype)]
        map_a, map_b = (
            Map(m.value, of=at + m.of, dtype=m.dtype, sizes=m.sizes, strides=m.strides, box=m.box)
            for m in operand_maps(tile, M, N, K, 1, (K, K), ("K", "K"), False, dtype)
        )
        maps += [map_a, map_b, Map(0, of=at + 3, dtype=dtype, sizes=(N, M, 1), strides=(N * 2, M * N * 2), box=(64, 16, 1)) if returns else map_a]
        declared += [f"const {ct}* a{n}, const {ct}* b{n}, const {ct}* bias{n}, {ct}* y{n}"]
        element, tail = (", float (&out)[V]", "out[j] = x") if returns else ("", f"r[j] = convert<{ct}>(x)")
        store = "" if returns else f"store<V>(y + row * {N} + col, r);"
        structs += f"""struct Shape{n} {{
  static constexpr int64_t batch = 1, M = {M}, N = {N}, K = {K};
}};
struct Store{n} {{
  static constexpr int width = {largest_power(N, limit=8)};
  {f'using result = {ct};' if returns else ''}
  const {ct}* bias;
  {ct}* y;
  template <int V> AITC_FN void operator()(int, int64_t row, int64_t col, const float (&acc)[V]{element}) const {{
    const auto b = load<V>(bias + col);
    Vec<{ct}, V> r;
    AITC_UNROLL
    for (int j = 0; j < V; ++j) {{
      const float x = {'m_max(acc[j] + convert<float>(b[j]), 0.0f)' if n % 2 else 'acc[j] + convert<float>(b[j])'};
      {tail};
    }}
    {store}
  }}
}};
"""
        blocks = tile.blocks(M, N, 1) if isinstance(tile, SplitTile) else tile.blocks(M, N, 1, units)
        operands = f"MatrixSm90<{ct}, false, false, false>{{&map_a{n}}}, MatrixSm90<{ct}, false, false, true>{{&map_b{n}}}"
        calls += f"""  if (const SomeBlocks blocks{{{first}, {blocks}}}; blocks.mine())
    {'gemm_split_sm90' if split else 'gemm_sm90'}<{tile.text}>(Shape{n}{{}}, {operands}, Store{n}{{bias{n}, y{n}}}{'' if split else f', map_d{n}, map_d{n}'}, blocks);
"""
        first += blocks
    listed = ", ".join(f"AITC_GRID_CONSTANT CUtensorMap map_{m}{n}" for n in range(len(sizes)) for m in "abd")
    source = f"""#include "aitc/gpu/hopper/gemm_sm90.h"
using namespace aitc;
{structs}AITC_KERNEL({tile.threads}, 1) void AITC_ENTRY(grouped)({', '.join(declared)}, {listed}) {{
{calls}}}
"""
    every: tuple[Input | Output | Scalar, ...] = (*inputs, *maps)
    return Problem(
        name=name, source=source, entry="grouped", blocks=first, threads=tile.threads, smem_bytes=tile.smem_bytes, arguments=every, warp=32, cluster=tile.cluster,
        arch="90a",
    )  # fmt: skip


def cases() -> Iterator[Problem]:
    """Different widths, depths and tails; tiles, clusters, splits; several tiles a block."""
    sizes = ((70, 136, 200), (130, 72, 72), (9, 264, 520))
    yield grouped("grouped_sm90 together", Sm90Tile(64, 64, 4), sizes, units=2)
    yield grouped("grouped_sm90 split", SplitTile(64, 64, 4, 4), sizes)
    yield grouped("grouped_sm90 cluster bf16", Sm90Tile(64, 128, 3, 2, 1), sizes, "bf16", units=4)
    yield grouped("grouped_sm90 stores", Sm90Tile(128, 64, 3), sizes[:2], returns=False, units=1)
    yield grouped("grouped_sm90 split f32", SplitTile(128, 32, 3, 2), sizes, "f32")
