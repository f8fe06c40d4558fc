"""Convolutions: conv_sm80.h and conv_simt.h."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from .gemm_cases import SIMT_TILES, AnyTile, CdnaTile, SimtTile, Sm80Tile, largest_power, zeros
from .problem import CTYPES, SIZES, Input, Output, Problem, Scalar, rounded

Triple = tuple[int, int, int]


def reference(
    x: np.ndarray, w: np.ndarray, stride: Triple, dilation: Triple, pad: Triple, out: Triple, groups: int
) -> np.ndarray:
    """x (N, D, H, W, groups C), w (groups, K, T, R, S, C) -> (groups, N, O, P, Q, K), in float64."""
    n = x.shape[0]
    _, k, t, r, s, c = w.shape
    y = np.zeros((groups, n, *out, k))
    far = tuple(
        max(0, (o - 1) * st + (f - 1) * di + 1 - p - e)
        for o, st, f, di, p, e in zip(out, stride, (t, r, s), dilation, pad, x.shape[1:4], strict=True)
    )
    padded = np.pad(x, ((0, 0), *((p, q) for p, q in zip(pad, far, strict=True)), (0, 0)))
    for g in range(groups):
        for i in range(t):
            for j in range(r):
                for m in range(s):
                    at = [
                        slice(f * di, f * di + (o - 1) * st + 1, st)
                        for f, di, o, st in zip((i, j, m), dilation, out, stride, strict=True)
                    ]
                    y[g] += padded[:, at[0], at[1], at[2], g * c : (g + 1) * c] @ w[g, :, i, j, m].T
    return y


def conv(
    name: str,
    tile: AnyTile,
    n: int,
    size: Triple,
    c: int,
    k: int,
    window: Triple,
    stride: Triple = (1, 1, 1),
    dilation: Triple = (1, 1, 1),
    pad: Triple = (0, 0, 0),
    groups: int = 1,
    dtype: str = "f16",
    dynamic: bool = False,
    extra_channels: int = 0,
    light: bool = False,
) -> Problem:
    """A convolution of (n, *size, groups c) with `k` filters a group. `extra_channels`: the input is a slice of a wider tensor. `light`: shapes only."""
    rng = np.random.default_rng(n + c + k)
    simt, cdna = isinstance(tile, SimtTile), isinstance(tile, CdnaTile)
    out = tuple(
        (e + 2 * p - (f - 1) * di - 1) // st + 1
        for e, p, f, di, st in zip(size, pad, window, dilation, stride, strict=True)
    )
    depth, total = window[0] * window[1] * window[2] * c, groups * c + extra_channels
    if light:
        stored, w, bias, y = (
            zeros(n, *size, total),
            zeros(groups, k, *window, c),
            zeros(groups * k),
            zeros(n, *out, groups * k),
        )
    else:
        x = rounded(rng.standard_normal((n, *size, groups * c)), dtype)
        w = rounded(rng.standard_normal((groups, k, *window, c)) / np.sqrt(depth), dtype)
        stored = np.full((n, *size, total), np.nan)
        stored[..., : groups * c] = x
        bias = rounded(rng.standard_normal(groups * k), dtype)
        y = reference(x, w, stride, dilation, pad, out, groups)
        y = np.maximum(np.moveaxis(y, 0, 4).reshape(n, *out, groups * k) + bias, 0)
    width = largest_power(c, total, limit=16 // SIZES[dtype])
    ct = CTYPES[dtype]
    acc = "double" if dtype == "f64" else "float"
    width_store = largest_power(k, groups * k, limit=8)
    element = 8 if dtype == "f64" else 4 if simt else SIZES[dtype]
    names = (
        dict(zip(("D", "H", "W"), size, strict=True))
        | dict(zip(("O", "P", "Q"), out, strict=True))
        | {"C": c, "K": k, "groups": groups}
    )
    if dynamic:
        members = "  int batch, D, H, W, O, P, Q, C, K, groups;"
        make = "Shape{N, " + ", ".join(str(v) for v in names.values()) + "}"
    else:
        members = "  int batch;\n  static constexpr int " + ", ".join(f"{a} = {b}" for a, b in names.items()) + ";"
        make = "Shape{N}"
    taps = ", ".join(f"{a} = {b}" for a, b in zip("TRS", window, strict=True))
    rest = ", ".join(
        f"{what}_{axis} = {v}"
        for what, vs in (("stride", stride), ("dilation", dilation), ("pad", pad))
        for axis, v in zip("dhw", vs, strict=True)
    )
    kernel = "conv_simt" if simt else "conv_cdna" if cdna else "conv_sm80"
    source = f"""#include "aitc/gpu/conv/{kernel}.h"
using namespace aitc;
struct Shape {{
{members}
}};
struct Window {{
  static constexpr int {taps}, {rest};
}};
struct X {{
  using type = {ct};
  static constexpr int width = {width};
  static constexpr int64_t stride_n = {math.prod(size) * total}, stride_d = {size[1] * size[2] * total};
  static constexpr int64_t stride_h = {size[2] * total}, stride_w = {total};
  const {ct}* data;
}};
struct Filter {{
  using type = {ct};
  static constexpr Major major = Major::K;
  static constexpr int width = {largest_power(c, depth, limit=16 // SIZES[dtype])};
  static constexpr int64_t stride_row = 1, stride_col = {depth};
  const {ct}* data;
  AITC_FN const {ct}* matrix(int group) const {{ return data + int64_t(group) * {k * depth}; }}
}};
struct Store {{
  static constexpr int width = {width_store};
  const {ct}* bias;
  {ct}* out;
  template <int V> AITC_FN void operator()(int group, int64_t row, int64_t col, const {acc} (&acc)[V]) const {{
    const auto b = load<V>(bias + group * {k} + col);
    Vec<{ct}, V> r;
    AITC_UNROLL
    for (int j = 0; j < V; ++j) r[j] = convert<{ct}>(m_max(acc[j] + convert<{acc}>(b[j]), {acc}(0)));
    store<V>(out + row * {groups * k} + group * {k} + col, r);
  }}
}};
using Kernel = {"ConvSimt" if simt else "ConvCdna" if cdna else "ConvSm80"}<{tile.text}, Shape, Window, X, Filter>;
static_assert(Kernel::threads == {tile.threads}, "threads");
static_assert(Kernel::smem_bytes == {tile.smem_bytes(element)}, "shared memory");
AITC_KERNEL({tile.threads}{f", {tile.blocks}" if isinstance(tile, CdnaTile) else ""}) void AITC_ENTRY(conv)(const {ct}* x, const {ct}* w, const {ct}* bias, {ct}* y, int N) {{
  {kernel}<{tile.text}>({make}, Window{{}}, X{{x}}, Filter{{w}}, Store{{bias, y}});
}}
"""
    rows = n * out[0] * out[1] * out[2]
    return Problem(
        name=name,
        source=source,
        entry="conv",
        blocks=-(-rows // tile.BM) * -(-k // tile.BN) * groups,
        threads=tile.threads,
        smem_bytes=tile.smem_bytes(element),
        arguments=(
            Input(stored, dtype),
            Input(w, dtype),
            Input(bias, dtype),
            Output(y, dtype, 2e-3 if dtype == "f32" and kernel == "conv_sm80" else None),
            Scalar(n),
        ),
        warp=0 if simt else 64 if cdna else 32,
    )


def _problems(kernel: str, tile: AnyTile, dtype: str) -> Iterator[Problem]:
    def make(label: str, *args: object, **kw: object) -> Problem:
        return conv(f"{kernel} {dtype} {label}", tile, *args, dtype=dtype, **kw)  # type: ignore[arg-type]

    one, same = (1, 1, 1), (0, 1, 1)
    yield make("3x3", 2, (1, 14, 13), 16, 24, (1, 3, 3), pad=same)
    yield make("3x3 dynamic", 2, (1, 14, 13), 16, 24, (1, 3, 3), pad=same, dynamic=True)
    yield make("7x7 stride 2, 3 channels", 1, (1, 23, 21), 3, 17, (1, 7, 7), stride=(1, 2, 2), pad=(0, 3, 3))
    yield make("5x5 dilated, 4 channels", 1, (1, 19, 17), 4, 33, (1, 5, 5), dilation=(1, 2, 3), pad=(0, 4, 5))
    yield make("1x1 stride 2, 1 image of many channels", 1, (1, 9, 9), 72, 65, one, stride=(1, 2, 2))
    yield make("groups of 8", 2, (1, 9, 7), 8, 8, (1, 3, 3), pad=same, groups=5)
    yield make("groups of 3, odd", 1, (1, 9, 7), 3, 5, (1, 3, 2), pad=(0, 1, 0), groups=3)
    yield make("1-D", 3, (1, 1, 37), 10, 31, (1, 1, 5), stride=(1, 1, 2), pad=(0, 0, 2))
    yield make("3-D", 2, (5, 6, 7), 8, 16, (3, 3, 3), stride=(2, 1, 1), pad=one)
    yield make("slice of a wider tensor", 1, (1, 8, 8), 8, 16, (1, 3, 3), pad=same, extra_channels=16)
    yield make("1 x 1 x 1", 1, one, 1, 1, one)


def sm80_cases() -> Iterator[Problem]:
    """Every shape of window in each type, several tiles."""
    yield from _problems("conv_sm80", Sm80Tile(64, 64, 32, 2, 2, 3), "f16")
    yield from _problems("conv_sm80", Sm80Tile(128, 64, 32, 2, 2, 4), "bf16")
    yield from _problems("conv_sm80", Sm80Tile(64, 32, 32, 2, 1, 3, 2), "f32")


def simt_cases() -> Iterator[Problem]:
    """The same for plain multiply-adds."""
    yield from _problems("conv_simt", SIMT_TILES[1], "f32")
    yield from _problems("conv_simt", SIMT_TILES[0], "f16")
    yield from _problems("conv_simt", SIMT_TILES[2], "f64")


def cdna_cases() -> Iterator[Problem]:
    """The same by MFMA."""
    yield from _problems("conv_cdna", CdnaTile(64, 64, 32, 2, 2, 3), "f16")
    yield from _problems("conv_cdna", CdnaTile(128, 64, 32, 2, 2, 2), "bf16")
    yield from _problems("conv_cdna", CdnaTile(16, 32, 64, 1, 2, 2, mfma=16, split=2), "f16")
    yield from _problems("conv_cdna", CdnaTile(64, 32, 32, 2, 1, 2), "f32")
