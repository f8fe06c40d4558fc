"""Attention of attention_sm90.h: odd lengths, strides, masks, both kinds of store."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .attention_cases import data
from .gemm_cases import largest_power, zeros
from .problem import CTYPES, Input, Map, Output, Problem, Scalar


def attention(
    tile: tuple[int, int, int, int, bool],
    batch: int,
    heads: int,
    queries: int,
    keys: int,
    D: int,
    DV: int | None = None,
    kv_heads: int | None = None,
    causal: bool = False,
    mask: str = "none",
    dtype: str = "f16",
    packed: bool = False,
    returns: bool = True,
    band: int = 1,
    blocks: int = 132,
    light: bool = False,
) -> Problem:
    """Attention over (batch, rows, heads, D). `tile`: BN, groups, stages, blocks, single; the rest as in attention_cases."""
    rng = np.random.default_rng(queries + keys + D)
    DV, kv_heads = DV or D, kv_heads or heads
    ct = CTYPES[dtype]
    BN, groups, stages, resident, single = tile
    scale = 1 / np.sqrt(D)
    if light:
        q, k, v, y = zeros(batch, queries, heads, D), zeros(batch, keys, kv_heads, D), zeros(batch, keys, kv_heads, DV), zeros(batch, queries, heads, DV)
        m = {"row": zeros(batch, keys), "pad": zeros(batch, keys), "full": zeros(heads, queries, keys)}.get(mask, zeros(1))
    else:
        q, k, v, m, y = data(rng, batch, heads, queries, keys, D, DV, kv_heads, causal, mask, dtype, scale)
    threads = 128 * groups + (32 if groups == 1 else 128)
    d, dv = -(-D // 64), -(-DV // 64)
    smem = 128 * (64 * groups * d + stages * BN * (d + dv)) + groups * 8192 + 16 + 32 * stages
    text = f"AttentionTileSm90<{D}, {DV}, {BN}, {groups}, {stages}, {resident}, {str(single).lower()}, {band}>"
    if packed:
        arguments = [Input(np.concatenate([q, k, v], axis=3), dtype)] * 3
        total = D + D + DV
        starts, rows, strides = (0, D, 2 * D), (heads * total,) * 3, (total,) * 3
    else:
        arguments = [Input(q, dtype), Input(k, dtype), Input(v, dtype)]
        starts, rows, strides = (0, 0, 0), (heads * D, kv_heads * D, kv_heads * DV), (D, D, DV)
    maps = [
        Map(0, of=n, dtype=dtype, offset=starts[n], sizes=(depth, length, count, batch), strides=(rows[n] * 2, strides[n] * 2, length * rows[n] * 2), box=(64, box, 1, 1))
        for n, (depth, length, count, box) in enumerate(((D, queries, heads, 64 * groups), (D, keys, kv_heads, BN), (DV, keys, kv_heads, BN)))
    ]
    map_o = Map(0, of=4, dtype=dtype, sizes=(DV, queries, heads, batch), strides=(heads * DV * 2, DV * 2, queries * heads * DV * 2), box=(64, 16, 1, 1))
    width = 2 if keys % 2 == 0 else 1
    body = {"row": f"data + int64_t(batch) * {keys} + col", "pad": f"data + int64_t(batch) * {keys} + col", "full": f"data + (int64_t(head) * {queries} + row) * {keys} + col"}.get(mask, "data")
    element, tail = (", float (&out)[V]", "out[j] = v[j]") if returns else ("", f"r[j] = convert<{ct}>(v[j])")
    store = "" if returns else f"store<V>(y + ((int64_t(batch) * {queries} + row) * {heads} + head) * {DV} + d, r);"
    source = f"""#include "aitc/gpu/hopper/attention_sm90.h"
using namespace aitc;
struct Shape {{
  int batch, queries, keys, offset;
  static constexpr int heads = {heads}, kv_heads = {kv_heads}, D = {D}, DV = {DV};
  static constexpr float scale = {float(np.float32(scale))!r}f;
}};
struct Mask {{
  static constexpr int width = {width};
  static constexpr bool by_row = {str(mask == "full").lower()};
  const {ct}* data;
  template <int V> AITC_FN void operator()(int batch, int head, int row, int col, float (&x)[V]) const {{
    const auto v = load<V>({body});
    for (int j = 0; j < V; ++j) x[j] = convert<float>(v[j]);
  }}
}};
struct Store {{
  static constexpr int width = {largest_power(DV, limit=8)};
  {f'using result = {ct};' if returns else ''}
  {ct}* y;
  template <int V> AITC_FN void operator()(int batch, int head, int64_t row, int64_t d, const float (&v)[V]{element}) const {{
    Vec<{ct}, V> r;
    AITC_UNROLL
    for (int j = 0; j < V; ++j) {tail};
    {store}
  }}
}};
using Tile = {text};
static_assert(Tile::threads == {threads} && Tile::smem_bytes == {smem}, "threads and shared memory");
AITC_KERNEL({threads}, {resident}) void AITC_ENTRY(attend)(const {ct}* q, const {ct}* k, const {ct}* v, const {ct}* mask, {ct}* y, AITC_GRID_CONSTANT CUtensorMap map_q,
    AITC_GRID_CONSTANT CUtensorMap map_k, AITC_GRID_CONSTANT CUtensorMap map_v, AITC_GRID_CONSTANT CUtensorMap map_o, int N, int queries, int keys) {{
  attention_sm90<{str(causal).lower()}, Tile, {ct}>(Shape{{N, queries, keys, keys - queries}}, map_q, map_k, map_v, {'NoMask{}' if mask == 'none' else 'Mask{mask}'}, Store{{y}}, map_o);
}}
"""
    label = (
        f"attention_sm90 g{groups}n{BN}s{stages}b{resident}{'_one' if single else ''} {dtype} ({batch},{heads}/{kv_heads},{queries}x{keys},{D}/{DV})"
        f"{' causal' if causal else ''} mask {mask}{' packed' if packed else ''}{'' if returns else ' stores'}"
    )
    tiles = -(-queries // (64 * groups)) * heads * batch
    return Problem(
        name=label,
        source=source,
        entry="attend",
        blocks=min(tiles, blocks * resident),
        threads=threads,
        smem_bytes=smem,
        arguments=(
            *arguments, Input(m, dtype), Output(y, dtype, {"f16": 2e-3, "bf16": 1.6e-2}[dtype]), *maps, map_o, Scalar(batch), Scalar(queries), Scalar(keys),
        ),  # fmt: skip
        warp=32,
        arch="90a",
    )


def cases() -> Iterator[Problem]:
    """One to three warpgroups, streamed and in one tile, several tiles a block."""
    one, two, three, whole = (64, 1, 2, 2, False), (128, 2, 2, 1, False), (80, 3, 2, 1, False), (128, 1, 1, 2, True)
    yield attention(one, 2, 3, 65, 63, 64, blocks=1)
    yield attention(one, 1, 2, 129, 200, 40, causal=True, blocks=1, band=2)
    yield attention(two, 1, 2, 200, 333, 64, blocks=1)
    yield attention(two, 1, 2, 300, 129, 64, causal=True)
    yield attention(three, 1, 3, 250, 250, 64, blocks=2, causal=True, band=3)
    yield attention(three, 1, 1, 77, 300, 128, returns=False)
    yield attention(whole, 2, 2, 128, 128, 64, blocks=1, packed=True)
    yield attention(whole, 2, 2, 101, 77, 64, mask="row", returns=False)
    yield attention((208, 1, 1, 2, True), 1, 2, 197, 197, 64, packed=True)
    yield attention((80, 3, 1, 1, True), 1, 2, 300, 77, 40, blocks=1)
    yield attention((208, 2, 1, 1, True), 1, 2, 197, 197, 64)
    yield attention(one, 2, 4, 33, 98, 32, kv_heads=2, mask="row")
    yield attention(one, 1, 4, 31, 64, 128, kv_heads=1, mask="full", causal=True)
    yield attention(two, 1, 2, 77, 77, 64, packed=True, mask="full")
    yield attention(one, 1, 2, 1, 1, 32)
    yield attention(one, 1, 2, 1, 333, 80, causal=True, returns=False)
    yield attention(one, 2, 2, 130, 130, 24, 48)
    yield attention(one, 1, 2, 66, 66, 8, packed=True, mask="row")
    yield attention((64, 2, 2, 1, False), 1, 1, 70, 100, 256, causal=True)
    yield attention(two, 1, 2, 100, 200, 64, dtype="bf16")
    yield attention(whole, 1, 2, 100, 100, 96, dtype="bf16", mask="full", returns=False)
    yield attention(two, 3, 2, 70, 333, 64, mask="pad")
    yield attention(one, 3, 1, 65, 130, 64, mask="pad", causal=True, blocks=1)
    yield attention(three, 2, 2, 200, 249, 64, mask="row", blocks=1)
    yield attention(whole, 3, 1, 40, 126, 64, mask="pad")
