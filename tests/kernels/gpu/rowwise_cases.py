"""Reductions, normalisations, transposes and depthwise convolutions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from .conv_cases import reference
from .gemm_cases import largest_power, zeros
from .problem import CTYPES, SIZES, Input, Output, Problem, Scalar, rounded

Functor = tuple[str, str]


def load_functor(dtype: str, compute: str, width: int, address: str) -> str:
    """A Load of (row, k) that reads `address` and converts."""
    ct = CTYPES[dtype]
    return f"""struct Load {{
  using type = {compute};
  static constexpr int width = {width};
  const {ct}* x;
  template <int V> AITC_FN void operator()(int64_t row, int64_t k, {compute} (&v)[V]) const {{
    const auto v0 = load<V>(x + {address});
    AITC_UNROLL
    for (int j = 0; j < V; ++j) v[j] = convert<{compute}>(v0[j]);
  }}
}};
"""


def store_functor(
    dtype: str, compute: str, width: int, address: str, extra: str = "", members: str = "", value: str = "v[j]"
) -> str:
    """A Store of (row, k, v) that converts and writes `address`."""
    ct = CTYPES[dtype]
    return f"""struct Store {{
  static constexpr int width = {width};
  {ct}* y;
  {members}
  template <int V> AITC_FN void operator()(int64_t row, int64_t k, const {compute} (&v)[V]) const {{
    Vec<{ct}, V> r;
    AITC_UNROLL
    for (int j = 0; j < V; ++j) r[j] = convert<{ct}>({value});
    store<V>(y + {address}, r);
  }}
  {extra}
}};
"""


REDUCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Sum": lambda x: x.sum(1),
    "Mean": lambda x: x.mean(1),
    "Max": lambda x: x.max(1),
    "Min": lambda x: x.min(1),
    "Prod": lambda x: x.prod(1),
    "SumSquare": lambda x: (x * x).sum(1),
    "L1": lambda x: np.abs(x).sum(1),
    "L2": lambda x: np.sqrt((x * x).sum(1)),
    "LogSum": lambda x: np.log(x.sum(1)),
    "LogSumExp": lambda x: np.log(np.exp(x - x.max(1, keepdims=True)).sum(1)) + x.max(1),
    "ArgMax<false>": lambda x: x.argmax(1),
    "ArgMax<true>": lambda x: x.shape[1] - 1 - x[:, ::-1].argmax(1),
    "ArgMin<false>": lambda x: x.argmin(1),
    "ArgMin<true>": lambda x: x.shape[1] - 1 - x[:, ::-1].argmin(1),
}


def reduction(
    op: str,
    form: str,
    tile: tuple[int, int, int],
    rows: int,
    K: int,
    dtype: str = "f32",
    warp: int = 32,
    light: bool = False,
) -> Problem:
    """One reduction of (rows, K); `columns` stores it transposed. `light`: shapes only."""
    rng = np.random.default_rng(rows + K)
    integer = dtype in ("i32", "i64")
    shape = (1, K) if light else (rows, K)
    x = (
        rng.integers(1, 3 if op == "Prod" else 9, shape)
        if integer or op.startswith("Arg")
        else rng.standard_normal(shape)
    )
    if op == "LogSum":
        x = np.abs(x) + 0.1
    if op == "Prod" and not integer:
        x = 1 + 0.05 * x
    x = rounded(x, dtype)
    compute = {"f64": "double", "i32": "int32_t", "i64": "int64_t"}.get(dtype, "float")
    y = REDUCTIONS[op](x)
    if light:
        x, y = zeros(rows, K), zeros(rows)
    out = "i64" if op.startswith("Arg") else dtype
    columns = form == "columns"
    V = tile[0]
    width = min(V, 16 // SIZES[dtype])
    address = f"k * {rows} + row" if columns else f"row * {K} + k"
    state_words = {"L": 2 if op == "LogSumExp" else 1, "A": 2}.get(op[0], 1)
    state = state_words * SIZES["f64" if compute in ("double", "int64_t") else "f32"]
    if columns:
        threads, blocks = tile[1] * tile[2], -(-rows // (V * tile[1]))
        smem = tile[1] * tile[2] * V * state if tile[2] > 1 else 0
        call = f"reduce_columns<{op}, ColumnReduction<{V}, {tile[1]}, {tile[2]}>>"
    else:
        threads, blocks = tile[2], -(-rows // (tile[2] // tile[1]))
        smem = threads // warp * state if tile[1] > warp else 0
        call = f"reduce_rows<{op}, RowReduction<{V}, {tile[1]}, {tile[2]}>>"
    result = "int64_t" if op.startswith("Arg") else compute
    source = f"""#include "aitc/gpu/rows/reduce.h"
using namespace aitc;
struct Shape {{
  int64_t rows, K;
}};
{load_functor(dtype, compute, width, address)}{store_functor(out, result, V if columns else 1, "row")}
AITC_KERNEL({threads}) void AITC_ENTRY(reduce)(const {CTYPES[dtype]}* x, {CTYPES[out]}* y, int rows, int K) {{
  {call}(Shape{{rows, K}}, Load{{x}}, Store{{y}});
}}
"""
    return Problem(
        name=f"reduce {op} {form} {tile} {dtype} ({rows},{K})",
        source=source,
        entry="reduce",
        blocks=blocks,
        threads=threads,
        smem_bytes=smem,
        arguments=(Input(x.T if columns else x, dtype), Output(y, out), Scalar(rows), Scalar(K)),
        warp=warp if not columns and tile[1] >= 32 else 0,
    )


def reduce_cases() -> Iterator[Problem]:
    """Every operation in both forms; every way to share a row; odd sizes."""
    for op in REDUCTIONS:
        yield reduction(op, "rows", (4, 32, 128), 7, 100)
        yield reduction(op, "columns", (4, 8, 8), 36, 33)
    for dtype in ("f16", "bf16", "f64", "i32", "i64"):
        for op in ("Sum", "Max", "ArgMax<false>"):
            yield reduction(op, "rows", (1, 8, 64), 33, 31, dtype)
            yield reduction(op, "columns", (2, 16, 4), 66, 17, dtype)
    yield reduction("LogSumExp", "rows", (2, 256, 256), 3, 5000)
    yield reduction("ArgMin<true>", "rows", (8, 128, 128), 5, 4096, "f16")
    yield reduction("Sum", "rows", (8, 32, 32), 1, 8, "f16")
    yield reduction("Mean", "columns", (8, 16, 8), 2048, 49, "f16")
    yield reduction("Mean", "columns", (1, 32, 1), 45, 1)
    yield reduction("Prod", "rows", (1, 1, 64), 65, 3)


def normalization(
    op: str,
    form: str,
    tile: tuple[int, ...],
    rows: int,
    K: int,
    dtype: str = "f16",
    warp: int = 32,
    statistics: bool = False,
    light: bool = False,
) -> Problem:
    """One normalisation of (rows, K) with a scale in the store. `light`: shapes only."""
    rng = np.random.default_rng(rows + K)
    x = rounded(rng.standard_normal((1 if light else rows, K)) * 2 + 1, dtype)
    scale = rounded(rng.standard_normal(K), dtype)
    eps = 1e-5
    mean, deviation = np.zeros(len(x)), np.ones(len(x))
    if op in ("Softmax", "LogSoftmax"):
        e = np.exp(x - x.max(1, keepdims=True))
        y = e / e.sum(1, keepdims=True)
        y = np.log(y) if op == "LogSoftmax" else y
    else:
        mean = x.mean(1) if op == "LayerNorm" else mean
        deviation = 1 / np.sqrt(np.square(x - mean[:, None]).mean(1) + eps)
        y = (x - mean[:, None]) * deviation[:, None]
    compute = "double" if dtype == "f64" else "float"
    columns = form == "columns"
    V = tile[0]
    size = 8 if dtype == "f64" else 4
    if columns:
        threads, blocks = tile[1] * tile[2], -(-rows // (V * tile[1]))
        smem = tile[1] * tile[2] * V * size if tile[2] > 1 else 0
        text = f"ColumnNorm<{V}, {tile[1]}, {tile[2]}>"
    else:
        threads, blocks = tile[3], -(-rows // (tile[3] // tile[1]))
        smem = 2 * threads // warp * size if tile[1] > warp else 0
        text = f"RowNorm<{', '.join(map(str, tile))}>"
    make = f"{op}{{}}" if "oftmax" in op else f"{op}{{{eps}f}}"
    address = f"k * {rows} + row" if columns else f"row * {K} + k"
    value = f"v[j] * convert<{compute}>(scale[{'k' if columns else 'k + j'}])"
    extra = (
        f"AITC_FN void statistics(int64_t row, {compute} m, {compute} d) const {{ mean[row] = m, deviation[row] = d; }}"
        if statistics
        else ""
    )
    source = f"""#include "aitc/gpu/rows/normalize.h"
using namespace aitc;
struct Shape {{
  int64_t rows, K;
}};
{load_functor(dtype, compute, min(V, 16 // SIZES[dtype]), address)}
{store_functor(dtype, compute, min(V, 16 // SIZES[dtype]), address, extra, f"const {CTYPES[dtype]}* scale; {compute} *mean, *deviation;", value)}
AITC_KERNEL({threads}) void AITC_ENTRY(normalize)(const {CTYPES[dtype]}* x, const {CTYPES[dtype]}* scale,
                                                  {CTYPES[dtype]}* y, {compute}* mean, {compute}* deviation,
                                                  int rows, int K) {{
  normalize_{form}<{text}>({make}, Shape{{rows, K}}, Load{{x}}, Store{{y, scale, mean, deviation}});
}}
"""
    y = y * scale
    if light:
        x, y = zeros(rows, K), zeros(rows, K)
    side = "f64" if dtype == "f64" else "f32"
    unused = np.full(rows, np.nan)
    return Problem(
        name=f"normalize {op} {form} {tile} {dtype} ({rows},{K})",
        source=source,
        entry="normalize",
        blocks=blocks,
        threads=threads,
        smem_bytes=smem,
        arguments=(
            Input(x.T if columns else x, dtype),
            Input(scale, dtype),
            Output(y.T if columns else y, dtype),
            Output(mean if statistics else unused, side),
            Output(deviation if statistics else unused, side),
            Scalar(rows),
            Scalar(K),
        ),
        warp=warp if not columns and tile[1] >= 32 else 0,
    )


def normalize_cases() -> Iterator[Problem]:
    """Every operation, every pack size, every way to share a row, rows too long for registers."""
    for op in ("Softmax", "LogSoftmax", "LayerNorm", "RMSNorm"):
        yield normalization(op, "rows", (8, 32, 3, 128), 9, 768)
        yield normalization(op, "rows", (4, 32, 2, 64), 5, 132, "f32", statistics="Norm" in op)
        yield normalization(op, "rows", (2, 8, 2, 64), 31, 30, "bf16")
        yield normalization(op, "rows", (1, 1, 4, 64), 65, 3, "f32")
        yield normalization(op, "rows", (8, 256, 2, 256), 3, 3080, statistics="Norm" in op)
        yield normalization(op, "rows", (4, 128, 0, 128), 3, 5004, "f32", statistics="Norm" in op)
        yield normalization(op, "rows", (1, 32, 0, 64), 5, 333)
        yield normalization(op, "columns", (2, 16, 8), 34, 45, "f32", statistics="Norm" in op)
        yield normalization(op, "columns", (1, 32, 1), 33, 7)
    yield normalization("Softmax", "rows", (1, 32, 4, 64), 33, 127, "f64")
    yield normalization("LayerNorm", "rows", (1, 16, 1, 64), 4, 1, "f32")


def transposition(
    tile: tuple[int, int, int], batch: int, rows: int, cols: int, dtype: str = "f16", light: bool = False
) -> Problem:
    """A batch of transposes, with the widest vectors the extents allow. `light`: shapes only."""
    rng = np.random.default_rng(rows + cols)
    x = (
        zeros(batch, rows, cols)
        if light
        else rounded(
            rng.integers(0, 2, (batch, rows, cols))
            if dtype == "bool"
            else rng.integers(-100, 100, (batch, rows, cols)),
            dtype,
        )
    )
    limit = 16 // SIZES[dtype]
    wl, ws = largest_power(cols, limit=limit), largest_power(rows, limit=limit)
    ct = CTYPES[dtype]
    size = SIZES[dtype]
    source = f"""#include "aitc/gpu/core/transpose.h"
using namespace aitc;
struct Shape {{
  static constexpr int batch = {batch};
  int rows, cols;
}};
struct Load {{
  using type = {ct};
  static constexpr int width = {wl};
  const {ct}* x;
  template <int V> AITC_FN void operator()(int64_t batch, int64_t row, int64_t col, {ct} (&v)[V]) const {{
    const auto v0 = load<V>(x + (batch * {rows} + row) * {cols} + col);
    AITC_UNROLL
    for (int j = 0; j < V; ++j) v[j] = v0[j];
  }}
}};
struct Store {{
  static constexpr int width = {ws};
  {ct}* y;
  template <int V> AITC_FN void operator()(int64_t batch, int64_t row, int64_t col, const {ct} (&v)[V]) const {{
    Vec<{ct}, V> r;
    AITC_UNROLL
    for (int j = 0; j < V; ++j) r[j] = v[j];
    store<V>(y + (batch * {cols} + col) * {rows} + row, r);
  }}
}};
AITC_KERNEL({tile[2]}) void AITC_ENTRY(transposition)(const {ct}* x, {ct}* y, int rows, int cols) {{
  transpose<TransposeTile<{tile[0]}, {tile[1]}, {tile[2]}>>(Shape{{rows, cols}}, Load{{x}}, Store{{y}});
}}
"""
    return Problem(
        name=f"transpose {tile} {dtype} ({batch},{rows},{cols})",
        source=source,
        entry="transposition",
        blocks=-(-rows // tile[0]) * -(-cols // tile[1]) * batch,
        threads=tile[2],
        smem_bytes=tile[0] * (tile[1] + max(4 // size, 1)) * size,
        arguments=(Input(x, dtype), Output(x.transpose(0, 2, 1), dtype), Scalar(rows), Scalar(cols)),
    )


def transpose_cases() -> Iterator[Problem]:
    """Every element size, aligned and odd extents."""
    for dtype in ("f16", "bool", "i8", "f32", "i64"):
        for batch, rows, cols in ((1, 64, 128), (3, 31, 33), (2, 1, 65), (1, 130, 72)):
            yield transposition((64, 64, 256) if SIZES[dtype] < 4 else (32, 32, 256), batch, rows, cols, dtype)


def depthwise(
    tile: tuple[int, int, int],
    n: int,
    size: tuple[int, int, int],
    c: int,
    window: tuple[int, int, int],
    dtype: str = "f16",
    light: bool = False,
    **kw: tuple[int, int, int],
) -> Problem:
    """A depthwise convolution of (n, *size, c). `light`: shapes only."""
    rng = np.random.default_rng(n + c)
    stride, dilation, pad = kw.get("stride", (1, 1, 1)), kw.get("dilation", (1, 1, 1)), kw.get("pad", (0, 0, 0))
    out = tuple(
        (e + 2 * p - (f - 1) * di - 1) // st + 1
        for e, p, f, di, st in zip(size, pad, window, dilation, stride, strict=True)
    )
    if light:
        x, w, y = zeros(n, *size, c), zeros(*window, c), zeros(n, *out, c)
    else:
        x = rounded(rng.standard_normal((n, *size, c)), dtype)
        w = rounded(rng.standard_normal((*window, c)), dtype)
        y = reference(x, np.moveaxis(w, 3, 0)[:, None, ..., None], stride, dilation, pad, out, c)  # type: ignore[arg-type]
        y = np.moveaxis(y[..., 0], 0, 4)
    ct, acc = CTYPES[dtype], "double" if dtype == "f64" else "float"
    names = dict(zip(("D", "H", "W"), size, strict=True)) | dict(zip(("O", "P", "Q"), out, strict=True)) | {"C": c}
    taps = ", ".join(f"{a} = {b}" for a, b in zip("TRS", window, strict=True))
    rest = ", ".join(
        f"{what}_{axis} = {v}"
        for what, vs in (("stride", stride), ("dilation", dilation), ("pad", pad))
        for axis, v in zip("dhw", vs, strict=True)
    )
    V, pixels, threads = tile
    source = f"""#include "aitc/gpu/conv/depthwise.h"
using namespace aitc;
struct Shape {{
  int batch;
  static constexpr int {", ".join(f"{a} = {b}" for a, b in names.items())};
}};
struct Window {{
  static constexpr int {taps}, {rest};
}};
struct X {{
  using type = {ct};
  static constexpr int64_t stride_n = {size[0] * size[1] * size[2] * c}, stride_d = {size[1] * size[2] * c}, stride_h = {size[2] * c}, stride_w = {c};
  const {ct}* data;
}};
struct Filter {{
  using type = {ct};
  const {ct}* data;
}};
struct Store {{
  static constexpr int width = {V};
  {ct}* y;
  template <int V> AITC_FN void operator()(int, int64_t row, int64_t col, const {acc} (&v)[V]) const {{
    Vec<{ct}, V> r;
    AITC_UNROLL
    for (int j = 0; j < V; ++j) r[j] = convert<{ct}>(v[j]);
    store<V>(y + row * {c} + col, r);
  }}
}};
AITC_KERNEL({threads}) void AITC_ENTRY(depthwise_conv)(const {ct}* x, const {ct}* w, {ct}* y, int N) {{
  depthwise<DepthwiseTile<{V}, {pixels}, {threads}>>(Shape{{N}}, Window{{}}, X{{x}}, Filter{{w}}, Store{{y}});
}}
"""
    total = n * out[0] * out[1] * -(-out[2] // pixels) * (c // V)
    return Problem(
        name=f"depthwise {tile} {dtype} {n} x {size} x {c}, {window} {kw}",
        source=source,
        entry="depthwise_conv",
        blocks=-(-total // threads),
        threads=threads,
        smem_bytes=0,
        arguments=(Input(x, dtype), Input(w, dtype), Output(y, dtype), Scalar(n)),
    )


def depthwise_cases() -> Iterator[Problem]:
    """Strides, dilations, odd channels, 1-D to 3-D."""
    same = (0, 1, 1)
    yield depthwise((8, 4, 128), 2, (1, 14, 14), 32, (1, 3, 3), pad=same)
    yield depthwise((8, 4, 128), 1, (1, 15, 13), 16, (1, 3, 3), pad=same, stride=(1, 2, 2))
    yield depthwise((1, 2, 64), 2, (1, 9, 31), 7, (1, 5, 5), "f32", pad=(0, 2, 2))
    yield depthwise((2, 4, 64), 1, (1, 20, 20), 6, (1, 3, 3), "bf16", dilation=(1, 2, 3), pad=(0, 2, 3))
    yield depthwise((4, 1, 64), 1, (5, 6, 7), 4, (3, 3, 3), "f32", pad=(1, 1, 1))
    yield depthwise((1, 4, 32), 3, (1, 1, 33), 3, (1, 1, 4), "f64", pad=(0, 0, 1))
    yield depthwise((8, 4, 128), 1, (1, 7, 7), 8, (1, 7, 7), pad=(0, 3, 3))
    yield depthwise((1, 1, 32), 1, (1, 1, 1), 1, (1, 1, 1), "f32")
