"""Attention: attention_sm80.h and attention_simt.h."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from aitc.kernels.attention.attention_gpu import AttentionCdnaTile
from aitc.targets.target import find_target

from .gemm_cases import largest_power, zeros
from .problem import CTYPES, SIZES, Input, Output, Problem, Scalar, rounded, scratch


def data(
    rng: np.random.Generator,
    batch: int,
    heads: int,
    queries: int,
    keys: int,
    D: int,
    DV: int,
    kv_heads: int,
    causal: bool,
    mask: str,
    dtype: str,
    scale: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Q, K, V, the mask, and the result in float64."""
    q = rounded(rng.standard_normal((batch, queries, heads, D)), dtype)
    k = rounded(rng.standard_normal((batch, keys, kv_heads, D)), dtype)
    v = rounded(rng.standard_normal((batch, keys, kv_heads, DV)), dtype)
    score = np.einsum("bqhd,bkhd->bhqk", q, np.repeat(k, heads // kv_heads, 2)) * np.float32(scale)
    m = np.zeros(1)
    if mask == "row":
        m = np.where(rng.random((batch, keys)) < 0.3, -np.inf, rng.standard_normal((batch, keys)))
        m[:, 0] = 0.5
        m = rounded(m, dtype)
        score = score + m[:, None, None, :]
    elif mask == "pad":  # each text is shorter than the one before, the first has all keys
        m = np.where(np.arange(keys) < keys - np.arange(batch)[:, None] * (keys // 3), 0, -np.inf)
        score = score + m[:, None, None, :]
    elif mask == "full":
        m = rounded(rng.standard_normal((heads, queries, keys)), dtype)
        score = score + m[None]
    if causal:
        score = np.where(np.arange(keys)[None, :] > np.arange(queries)[:, None] + keys - queries, -np.inf, score)
    with np.errstate(invalid="ignore"):
        p = np.exp(score - score.max(-1, keepdims=True))
        y = np.einsum("bhqk,bkhd->bqhd", p / p.sum(-1, keepdims=True), np.repeat(v, heads // kv_heads, 2))
    return q, k, v, m, y


def attention(
    kernel: str,
    tile: tuple[int, ...],
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
    light: bool = False,
    scale: float | None = None,
    wide: bool = False,
) -> Problem:
    """Attention over (batch, rows, heads, D).

    `mask`: none, row (batch, keys) with -inf, full (heads, queries, keys). `packed`: Q, K, V are slices of one tensor.
    `light`: shapes only. `wide`: for warps of 64 lanes. `tile`: the numbers of the kernel's tile type.
    """
    rng = np.random.default_rng(queries + keys + D)
    DV, kv_heads = DV or D, kv_heads or heads
    ct, acc = CTYPES[dtype], "double" if dtype == "f64" else "float"
    scale = 1 / np.sqrt(D) if scale is None else scale
    body = {
        "row": f"data[int64_t(batch) * {keys} + col]",
        "full": f"data[(int64_t(head) * {queries} + row) * {keys} + col]",
    }.get(mask, "data[0]")
    if light:
        q, k, v, y = (
            zeros(batch, queries, heads, D),
            zeros(batch, keys, kv_heads, D),
            zeros(batch, keys, kv_heads, DV),
            zeros(batch, queries, heads, DV),
        )
        m = {"row": zeros(batch, keys), "full": zeros(heads, queries, keys)}.get(mask, zeros(1))
    else:
        q, k, v, m, y = data(rng, batch, heads, queries, keys, D, DV, kv_heads, causal, mask, dtype, scale)
    blocks, extra, declared, own, bounds = -(-queries // tile[0]) * heads * batch, (), "", "", ""
    if kernel == "attention_split_sm80":
        BN, warps, stages, slabs, splits = tile
        d, dv, rows = -(-D // 16) * 16, -(-DV // 16) * 16, 16 * slabs
        smem = 2 * rows * d + max(2 * warps * stages * BN * (d + dv), 4 * warps * rows * (dv + 4), 4 * rows * splits)
        threads, text = 32 * warps, f"AttentionSplitTile<{', '.join(map(str, tile))}>"
        groups = batch * kv_heads * -(-queries * (heads // kv_heads) // rows)
        blocks, declared, own = groups * splits, ", float* parts, int* tickets", ", parts, tickets"
        extra = (scratch(groups * splits * rows * (dv + 4), "f32"), scratch(min(groups, 1024), "i32", zeroed=True))
    elif kernel == "attention_split_simt":
        MR, _, lanes, _, warps, splits = tile
        warp = 64 if wide else 32
        dv, threads, text = -(-DV // 4) * 4, warps * warp, f"AttentionSplitSimtTile<{', '.join(map(str, tile))}>"
        smem = 4 * max(threads // lanes * MR * (dv + 4), MR * splits) + 16
        groups = batch * kv_heads * -(-queries * (heads // kv_heads) // MR)
        blocks, declared, own = groups * splits, ", float* parts, int* tickets", ", parts, tickets"
        extra = (scratch(groups * splits * MR * (dv + 4), "f32"), scratch(min(groups, 1024), "i32", zeroed=True))
    elif kernel == "attention_simt":
        d, dv, size = -(-D // 4) * 4, -(-DV // 4) * 4, 8 if dtype == "f64" else 4
        smem = (tile[0] * (d + 4) + tile[1] * (max(d, dv) + 4) + tile[0] * (tile[1] + 4)) * size
        threads, text = tile[0] // tile[2] * 16, f"AttentionSimtTile<{tile[0]}, {tile[1]}, {tile[2]}>"
    elif kernel == "attention_cdna":
        cdna = AttentionCdnaTile(tile[1], tile[2], tile[0] // tile[2])
        smem, threads, bounds = cdna.smem_bytes(D, DV), cdna.threads, f", {cdna.blocks(D, DV, find_target('gfx90a'))}"
        text = f"AttentionCdnaTile<{cdna.BN}, {cdna.warps}, {cdna.mfma}>"
    else:
        d, dv = -(-D // 16) * 16, -(-DV // 16) * 16
        smem = max(2 * (tile[0] * d + tile[1] * d + tile[1] * dv), tile[2] * 16 * (dv + 8) * 4)
        threads, text = 32 * tile[2], f"AttentionTile<{tile[0]}, {tile[1]}, {tile[2]}>"
    if packed:
        both = np.concatenate([q, k, v], axis=3)
        total = D + D + DV
        arguments = [Input(both, dtype)] * 3
        starts, rows = (0, D, 2 * D), (heads * total,) * 3
        strides = (total,) * 3
    else:
        arguments = [Input(q, dtype), Input(k, dtype), Input(v, dtype)]
        starts, rows, strides = (0, 0, 0), (heads * D, kv_heads * D, kv_heads * DV), (D, D, DV)
    lengths, extents = (queries, keys, keys), (D, D, DV)
    make_mask = "NoMask{}" if mask == "none" else "Mask{mask}"
    operands = ""
    for name, start, row, stride, length, extent in zip("QKV", starts, rows, strides, lengths, extents, strict=True):
        width = largest_power(extent, row, stride, start, limit=16 // SIZES[dtype])
        operands += f"""struct {name} {{
  using type = {ct};
  static constexpr int width = {width};
  static constexpr int64_t stride_row = {row};
  const {ct}* data;
  AITC_FN const {ct}* base(int batch, int head) const {{ return data + int64_t(batch) * {length * row} + head * {stride} + {start}; }}
}};
"""
    source = f"""#include "aitc/gpu/attention/{kernel}.h"
using namespace aitc;
struct Shape {{
  int batch, queries, keys, offset;
  static constexpr int heads = {heads}, kv_heads = {kv_heads}, D = {D}, DV = {DV};
  static constexpr float scale = {float(np.float32(scale))!r}f;
}};
{operands}struct Mask {{
  const {ct}* data;
  AITC_FN {acc} operator()(int batch, int head, int row, int col) const {{ return convert<{acc}>({body}); }}
}};
struct Store {{
  static constexpr int width = {largest_power(DV, limit=8)};
  {ct}* y;
  int queries;
  template <int V> AITC_FN void operator()(int batch, int head, int64_t row, int64_t d, const {acc} (&v)[V]) const {{
    Vec<{ct}, V> r;
    AITC_UNROLL
    for (int j = 0; j < V; ++j) r[j] = convert<{ct}>(v[j]);
    store<V>(y + ((int64_t(batch) * queries + row) * {heads} + head) * {DV} + d, r);
  }}
}};
using Kernel = {"".join(part.title() for part in kernel.split("_"))}<{text}, Shape{"" if kernel == "attention_split_simt" else ", Q"}>;
static_assert(Kernel::threads == {threads} && Kernel::smem_bytes == {smem}, "threads and shared memory");
AITC_KERNEL({threads}{bounds}) void AITC_ENTRY(attend)(const {ct}* q, const {ct}* k, const {ct}* v, const {ct}* mask, {ct}* y{declared},
                                               int N, int queries, int keys) {{
  const Shape shape{{N, queries, keys, keys - queries}};
  {kernel}<{"true" if causal else "false"}, {text}>(shape, Q{{q}}, K{{k}}, V{{v}}, {make_mask}, Store{{y, queries}}{own});
}}
"""
    sizes = f"({batch},{heads}/{kv_heads},{queries}x{keys},{D}/{DV})"
    negative = " negative scale" if scale < 0 else ""
    label = f"{kernel} {tile} {dtype} {sizes}{negative}{' causal' if causal else ''} mask {mask}{' packed' if packed else ''}"
    tolerance = {"f16": 2e-3, "bf16": 1.6e-2}.get(dtype)
    return Problem(
        name=label,
        source=source,
        entry="attend",
        blocks=blocks,
        threads=threads,
        smem_bytes=smem,
        arguments=(
            *arguments,
            Input(m, dtype),
            Output(y, dtype, tolerance),
            *extra,
            Scalar(batch),
            Scalar(queries),
            Scalar(keys),
        ),
        warp={"attention_simt": 0, "attention_cdna": 64, "attention_split_simt": 64 if wide else 32}.get(kernel, 32),
    )


def _problems(
    kernel: str, dtype: str, small: tuple[int, int, int], large: tuple[int, int, int], deep: tuple[int, int, int]
) -> Iterator[Problem]:
    for tile in (small, large):
        yield attention(kernel, tile, 2, 3, 65, 63, 64, dtype=dtype)
        yield attention(kernel, tile, 1, 2, 129, 200, 40, dtype=dtype, causal=True)
    yield attention(kernel, small, 2, 4, 33, 97, 32, kv_heads=2, dtype=dtype, mask="row")
    yield attention(kernel, small, 1, 4, 31, 64, 128, kv_heads=1, dtype=dtype, mask="full", causal=True)
    yield attention(kernel, small, 1, 2, 1, 1, 16, dtype=dtype)
    yield attention(kernel, small, 1, 2, 1, 333, 80, dtype=dtype, causal=True)
    yield attention(kernel, small, 2, 2, 130, 130, 24, 56, dtype=dtype)
    yield attention(kernel, small, 1, 2, 77, 77, 64, dtype=dtype, packed=True, mask="full")
    yield attention(kernel, small, 1, 2, 45, 51, 20, dtype=dtype, mask="row")
    yield attention(kernel, small, 1, 2, 40, 50, 32, dtype=dtype, scale=-0.2, causal=True)
    yield attention(kernel, deep, 1, 1, 70, 100, 256, dtype=dtype, causal=True)


def sm80_cases() -> Iterator[Problem]:
    """Odd lengths, GQA, every kind of mask, head sizes 16 to 256."""
    for dtype in ("f16", "bf16"):
        yield from _problems("attention_sm80", dtype, (64, 64, 4), (128, 64, 4), (64, 32, 4))
    yield attention("attention_sm80", (16, 64, 1), 1, 3, 5, 100, 64, kv_heads=1)
    yield attention("attention_sm80", (64, 64, 4), 1, 1, 17, 50, 9)


def split_cases() -> Iterator[Problem]:
    """Few rows over many keys: one split and several, more splits than keys, rows that fill no tile, several tiles of rows."""
    one, four, many, wide = (16, 4, 3, 1, 1), (16, 2, 2, 1, 4), (32, 1, 2, 1, 40), (16, 2, 2, 2, 3)
    for dtype in ("f16", "bf16"):
        yield attention("attention_split_sm80", one, 2, 8, 1, 333, 64, kv_heads=2, dtype=dtype)
        yield attention("attention_split_sm80", four, 2, 6, 1, 1001, 128, kv_heads=2, dtype=dtype, mask="row")
        yield attention("attention_split_sm80", many, 1, 3, 3, 500, 40, 24, kv_heads=1, dtype=dtype, causal=True)
        yield attention("attention_split_sm80", wide, 1, 5, 9, 257, 80, kv_heads=1, dtype=dtype, mask="full", causal=True)
    yield attention("attention_split_sm80", four, 3, 2, 1, 1, 16)
    yield attention("attention_split_sm80", four, 1, 2, 17, 17, 32, packed=True, mask="full")
    yield attention("attention_split_sm80", one, 1, 2, 2, 77, 9, mask="row")
    yield attention("attention_split_sm80", (16, 4, 2, 2, 2), 1, 4, 7, 300, 256, kv_heads=2, causal=True)
    yield attention("attention_split_sm80", four, 1, 4, 1, 200, 32, kv_heads=2, scale=-0.2)
    yield attention("attention_split_sm80", (16, 1, 2, 1, 2), 1, 4, 6, 4, 32, kv_heads=2, causal=True)  # two queries see no key
    yield attention("attention_split_sm80", (16, 1, 2, 1, 2), 1100, 1, 1, 40, 16)  # more groups than are split


def split_simt_cases() -> Iterator[Problem]:
    """The same by plain multiply-adds, in floats and halves, with warps of 32 and 64 lanes."""
    kernel = "attention_split_simt"
    for wide in (False, True):
        yield attention(kernel, (4, 4, 16, 2, 4, 1), 2, 8, 1, 333, 64, kv_heads=2, dtype="f32", wide=wide)
        yield attention(kernel, (1, 4, 32, 4, 2, 5), 2, 2, 1, 501, 128, dtype="f32", wide=wide, mask="row")
        yield attention(kernel, (4, 8, 16, 4, 2, 3), 1, 6, 1, 401, 128, kv_heads=2, dtype="f16", wide=wide)
        yield attention(kernel, (4, 8, 8, 2, 2, 40), 1, 3, 3, 300, 40, 24, kv_heads=1, dtype="bf16", causal=True, wide=wide)
    yield attention(kernel, (8, 4, 8, 2, 4, 2), 1, 5, 3, 130, 20, kv_heads=1, dtype="f32", mask="full", causal=True)
    yield attention(kernel, (2, 1, 16, 2, 2, 2), 1, 2, 2, 77, 9, dtype="f32", mask="row")
    yield attention(kernel, (2, 4, 8, 4, 1, 2), 1, 4, 6, 4, 32, kv_heads=2, dtype="f32", causal=True)  # two queries see no key
    yield attention(kernel, (1, 4, 4, 2, 1, 2), 1100, 1, 1, 20, 16, dtype="f32")  # more groups than are split


def simt_cases() -> Iterator[Problem]:
    """The same for plain multiply-adds, and head sizes that are no multiple of anything."""
    for dtype in ("f32", "f16"):
        yield from _problems("attention_simt", dtype, (32, 32, 2), (64, 32, 4), (16, 32, 1))
    yield attention("attention_simt", (32, 32, 2), 1, 2, 33, 45, 13, 7, dtype="f64", mask="full")
    yield attention("attention_simt", (16, 64, 1), 1, 3, 5, 100, 64, kv_heads=1, dtype="f32")


def cdna_cases() -> Iterator[Problem]:
    """The same by MFMA; the tile's first number is 32 or 16 queries for each of its waves."""
    for dtype in ("f16", "bf16"):
        yield from _problems("attention_cdna", dtype, (64, 64, 2), (128, 32, 4), (64, 32, 2))
        yield from _problems("attention_cdna", dtype, (16, 64, 1), (64, 64, 4), (32, 32, 2))
    yield attention("attention_cdna", (32, 64, 1), 1, 3, 5, 100, 64, kv_heads=1)
    yield attention("attention_cdna", (64, 64, 2), 1, 1, 17, 50, 9)
