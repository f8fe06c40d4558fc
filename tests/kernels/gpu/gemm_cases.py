"""Matrix products: gemm_sm80.h and gemm_simt.h."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from aitc.kernels.matmul.cdna import FLOAT8_TILES as CDNA_FLOAT8_TILES
from aitc.kernels.matmul.cdna import FLOAT_TILES as CDNA_FLOAT_TILES
from aitc.kernels.matmul.cdna import HALF_TILES as CDNA_HALF_TILES
from aitc.kernels.matmul.cdna import CdnaTile
from aitc.kernels.matmul.tiles import SimtTile, Sm80Tile

from .problem import CTYPES, SIZES, Input, Output, Problem, Scalar, rounded

AnyTile = Sm80Tile | SimtTile | CdnaTile


@dataclass(frozen=True, slots=True)
class GemvTile:
    """The arguments of GemvK<> or GemvN<> in gemv.h: `width` is cols or across."""

    form: str
    MR: int
    V: int
    width: int
    warps: int
    warp: int = 32

    @property
    def text(self) -> str:
        """As written in a source."""
        return f"Gemv{self.form}<{self.MR}, {self.V}, {self.width}, {self.warps}>"

    @property
    def BM(self) -> int:
        """Rows a block."""
        return self.MR

    @property
    def BN(self) -> int:
        """Columns a block."""
        return self.warps * self.width if self.form == "K" else self.width * self.V

    @property
    def threads(self) -> int:
        """Threads a block."""
        return self.warps * self.warp

    def smem_bytes(self, element_bytes: int) -> int:
        """The formula that gemv.h documents; `element_bytes` of the accumulator's type."""
        return self.warps * self.MR * self.width * self.V * element_bytes if self.form == "N" and self.warps > 1 else 0


def largest_power(*extents: int, limit: int) -> int:
    """The largest power of two up to `limit` that divides all extents."""
    width = limit
    while any(e % width for e in extents):
        width //= 2
    return width


def zeros(*shape: int) -> np.ndarray:
    """An array that takes no memory, for problems that are only timed."""
    return np.broadcast_to(np.float32(0), shape)


def gemm(
    name: str,
    tile: AnyTile | GemvTile,
    M: int,
    N: int,
    K: int,
    dtype: str = "f16",
    majors: tuple[str, str] = ("K", "N"),
    batch: int = 1,
    pad: int = 0,
    epilogue: str = "plain",
    dynamic: bool = True,
    out_dtype: str | None = None,
    shared_b: bool = False,
    seed: int = 0,
    light: bool = False,
) -> Problem:
    """A product of (batch, M, K) and (batch, K, N). `pad`: elements between rows. `majors` none: an element between neighbours.

    `light`: shapes only, for timing; nothing is drawn or computed.
    """
    rng = np.random.default_rng(seed + M * 7 + N * 3 + K)
    gemv, cdna = isinstance(tile, GemvTile), isinstance(tile, CdnaTile)
    simt = isinstance(tile, SimtTile) or gemv
    kernel = (
        f"gemv_{tile.form.lower()}"
        if isinstance(tile, GemvTile)
        else "gemm_simt"
        if simt
        else "gemm_cdna"
        if cdna
        else "gemm_sm80"
    )
    out_dtype = out_dtype or dtype
    integer = dtype in ("i8", "u8", "i32", "i64")
    draw = (lambda *s: rng.integers(-8, 8, s)) if integer else (lambda *s: rng.standard_normal(s))
    if light:
        draw = zeros
        a, b = zeros(batch, M, K), zeros(1 if shared_b else batch, K, N)
    else:
        a, b = rounded(draw(batch, M, K), dtype), rounded(draw(1 if shared_b else batch, K, N), dtype)

    def lay(x: np.ndarray, major_is_last: bool, none: bool) -> tuple[np.ndarray, int, int, int]:
        """Storage of a stack of matrices with its strides of batch, row and column, in elements; what lies between is NaN."""
        count, rows, cols = x.shape
        lead = (cols if major_is_last else rows) + pad
        step = 2 if none else 1
        full = (count, (rows if major_is_last else cols), lead, step)
        flat = zeros(*full) if light else np.full(full, 0 if integer else np.nan)
        if not light:
            flat[:, :, : lead - pad, 0] = x if major_is_last else x.transpose(0, 2, 1)
        big, small = lead * step, step
        return flat, full[1] * full[2] * step, (big if major_is_last else small), (small if major_is_last else big)

    a_none, b_none = majors[0] == "none", majors[1] == "none"
    a_flat, a_batch, a_row, a_col = lay(a, majors[0] != "M", a_none)
    b_flat, b_batch, b_row, b_col = lay(b, majors[1] != "K", b_none)
    limit = 16 // SIZES[dtype]
    width_a = (
        1
        if a_none
        else largest_power(K if majors[0] == "K" else M, a_row if majors[0] == "K" else a_col, a_batch, limit=limit)
    )
    width_b = (
        1
        if b_none
        else largest_power(K if majors[1] == "K" else N, b_col if majors[1] == "K" else b_row, b_batch, limit=limit)
    )
    width_store = largest_power(N, limit=8)
    ct, co = CTYPES[dtype], CTYPES[out_dtype]
    acc = "double" if dtype == "f64" else "int64_t" if dtype == "i64" else "int32_t" if integer else "float"
    static = "" if dynamic else "static constexpr "
    init = (lambda v: "") if dynamic else (lambda v: f" = {v}")
    bias = epilogue == "bias"
    smem = tile.smem_bytes(8 if acc in ("double", "int64_t") else 4 if simt else SIZES[dtype])
    check = f"""using Kernel = {"GemmSimt" if simt else "GemmCdna" if cdna else "GemmSm80"}<{tile.text}, Shape, A, B>;
static_assert(Kernel::threads == {tile.threads} && Kernel::smem_bytes == {smem}, "threads and shared memory");
"""
    if gemv:
        check = f'static_assert({tile.text}::threads == {tile.threads}, "threads");\n'
    source = f"""#include "aitc/gpu/matmul/{"gemv" if gemv else kernel}.h"
using namespace aitc;
struct Shape {{
  static constexpr int batch = {batch};
  {static}int M{init(M)};
  {static}int N{init(N)};
  {static}int K{init(K)};
}};
struct A {{
  using type = {ct};
  static constexpr Major major = Major::{majors[0]};
  static constexpr int width = {width_a};
  static constexpr int64_t stride_row = {a_row}, stride_col = {a_col};
  const {ct}* data;
  AITC_FN const {ct}* matrix(int batch) const {{ return data + int64_t(batch) * {a_batch}; }}
}};
struct B {{
  using type = {ct};
  static constexpr Major major = Major::{majors[1]};
  static constexpr int width = {width_b};
  static constexpr int64_t stride_row = {b_row}, stride_col = {b_col};
  const {ct}* data;
  AITC_FN const {ct}* matrix(int batch) const {{ return data + int64_t(batch) * {0 if shared_b else b_batch}; }}
}};
struct Store {{
  static constexpr int width = {width_store};
  {co}* out;
  const {co}* bias;
  int64_t rows, cols;
  template <int V> AITC_FN void operator()(int batch, int64_t row, int64_t col, const {acc} (&acc)[V]) const {{
    Vec<{co}, V> r;
    const auto b = load<V>(bias + col);
    AITC_UNROLL
    for (int j = 0; j < V; ++j) r[j] = convert<{co}>(acc[j]{" + convert<" + acc + ">(b[j])" if bias else ""});
    store<V>(out + (batch * rows + row) * cols + col, r);
  }}
}};
{check}AITC_KERNEL({tile.threads}{f", {tile.blocks}" if isinstance(tile, CdnaTile) else ""}) void AITC_ENTRY(gemm)(const {ct}* a, const {ct}* b, const {co}* bias, {co}* out, int M, int N, int K) {{
  {kernel}<{tile.text}>(Shape{{{"M, N, K" if dynamic else ""}}}, A{{a}}, B{{b}}, Store{{out, bias, M, N}});
}}
"""
    bias_values = zeros(N) if light else rounded(draw(N), out_dtype)
    expected = (
        zeros(batch, M, N)
        if light
        else np.matmul(a.astype(np.float64), b.astype(np.float64)) + (bias_values if bias else 0)
    )
    tolerance = 2e-3 if dtype == "f32" and kernel == "gemm_sm80" else None
    if integer and not light:
        expected = expected.astype(np.int64)
    blocks = -(-M // tile.BM) * -(-N // tile.BN) * batch
    return Problem(
        name=name,
        source=source,
        entry="gemm",
        blocks=blocks,
        threads=tile.threads,
        smem_bytes=smem,
        arguments=(
            Input(a_flat, dtype),
            Input(b_flat, dtype),
            Input(bias_values, out_dtype),
            Output(expected, out_dtype, tolerance),
            Scalar(M),
            Scalar(N),
            Scalar(K),
        ),
        warp=tile.warp if isinstance(tile, GemvTile) else 0 if simt else 64 if cdna else 32,
        arch="gfx942" if dtype.endswith("fnuz") else "",
    )


SM80_TILES = (
    Sm80Tile(128, 128, 32, 2, 2, 4),
    Sm80Tile(64, 64, 64, 2, 2, 3),
    Sm80Tile(128, 256, 32, 2, 4, 3),
    Sm80Tile(32, 64, 64, 1, 2, 4, 2),
    Sm80Tile(64, 96, 32, 2, 2, 2),
    Sm80Tile(64, 32, 64, 2, 1, 3, 4),
)


def sm80_cases() -> Iterator[Problem]:
    """Every tile at odd sizes, every pair of majors, widths from 1 to 8, batches, strides."""
    for t in SM80_TILES:
        tag = t.text[5:-1].replace(", ", "x")
        odd = 1 if t.BM * t.BN // t.threads <= 64 else 8  # larger tiles are used where operands come by 16 bytes
        sizes = t.BM + odd, t.BN - odd, t.BK * 3 + odd
        yield gemm(f"gemm_sm80 {tag} {','.join(map(str, sizes))}", t, *sizes, epilogue="bias")
        yield gemm(f"gemm_sm80 {tag} aligned", t, t.BM - 8, t.BN + 8, t.BK * 5 + 8, epilogue="bias", dynamic=False)
    small, large = SM80_TILES[1], SM80_TILES[0]
    for dtype in ("f16", "bf16", "f32"):
        t = Sm80Tile(64, 64, 32, 2, 2, 3) if dtype == "f32" else small
        for a_major in ("K", "M", "none"):
            for b_major in ("K", "N", "none"):
                yield gemm(
                    f"gemm_sm80 {dtype} A {a_major} B {b_major}",
                    t,
                    72,
                    136,
                    104,
                    dtype,
                    (a_major, b_major),
                    epilogue="bias",
                )
        for size in (1, 31, 33):
            yield gemm(f"gemm_sm80 {dtype} {size}", t, size, size, size, dtype, ("K", "K"))
            yield gemm(f"gemm_sm80 {dtype} {size} transposed", t, size, size + 1, size + 2, dtype, ("M", "N"))
        yield gemm(f"gemm_sm80 {dtype} width 4", t, 68, 68, 100, dtype, ("M", "N"), pad=4)
        yield gemm(f"gemm_sm80 {dtype} width 2", t, 66, 70, 98, dtype, ("K", "K"), pad=2)
        yield gemm(f"gemm_sm80 {dtype} batch", t, 65, 40, 72, dtype, batch=3, pad=8)
        yield gemm(
            f"gemm_sm80 {dtype} shared B",
            t,
            65,
            40,
            72,
            dtype,
            batch=3,
            shared_b=True,
            out_dtype="f32" if dtype != "f32" else "f16",
        )
    yield gemm("gemm_sm80 tf32 128x128x16", Sm80Tile(128, 128, 16, 2, 2, 4), 200, 136, 100, "f32", ("M", "N"))
    yield gemm("gemm_sm80 many tiles", large, 1104, 304, 40, epilogue="bias")
    yield gemm("gemm_sm80 K = 0", small, 5, 8, 0)


SIMT_TILES = (
    SimtTile(128, 128, 8, 8, 8),
    SimtTile(64, 64, 16, 4, 4),
    SimtTile(32, 32, 16, 2, 2),
    SimtTile(16, 64, 16, 1, 4),
    SimtTile(32, 32, 16, 4, 4, 4),
)


def simt_cases() -> Iterator[Problem]:
    """The same for plain multiply-adds, in every accumulator type."""
    for t in SIMT_TILES:
        tag = t.text[9:-1].replace(", ", "x")
        for dtype in ("f32", "f16"):
            yield gemm(
                f"gemm_simt {dtype} {tag} {t.BM + 1},{t.BN - 1},{t.BK * 3 + 1}",
                t,
                t.BM + 1,
                t.BN - 1,
                t.BK * 3 + 1,
                dtype,
                epilogue="bias",
            )
            yield gemm(
                f"gemm_simt {dtype} {tag} aligned",
                t,
                t.BM - 8,
                t.BN + 8,
                t.BK * 5 + 8,
                dtype,
                epilogue="bias",
                dynamic=False,
            )
    t = SIMT_TILES[1]
    for dtype in ("f32", "f64", "bf16", "i32", "i64"):
        for a_major in ("K", "M", "none"):
            for b_major in ("K", "N", "none"):
                yield gemm(
                    f"gemm_simt {dtype} A {a_major} B {b_major}",
                    t,
                    72,
                    132,
                    50,
                    dtype,
                    (a_major, b_major),
                    epilogue="bias",
                )
        for size in (1, 31, 33):
            yield gemm(f"gemm_simt {dtype} {size}", t, size, size, size, dtype, ("K", "K"))
        yield gemm(f"gemm_simt {dtype} batch", t, 65, 40, 72, dtype, batch=3, pad=8)
    yield gemm("gemm_simt i8 to i32", t, 65, 67, 40, "i8", out_dtype="i32")
    yield gemm("gemm_simt K = 0", t, 5, 8, 0, "f32")


def gemv_cases() -> Iterator[Problem]:
    """One to nine rows, both forms."""
    for dtype in ("f32", "f16", "bf16", "f64", "i32"):
        for M in (1, 3, 9):
            v = 16 // SIZES[dtype]
            yield gemm(
                f"gemv_k {dtype} {M}",
                GemvTile("K", 1 if M == 1 else 4, v, 2, 4),
                M,
                37,
                40 * v,
                dtype,
                ("K", "K"),
                epilogue="bias",
            )
            yield gemm(
                f"gemv_k {dtype} {M} odd",
                GemvTile("K", 1 if M == 1 else 8, 1, 4, 2),
                M,
                33,
                101,
                dtype,
                ("M", "K"),
                batch=2,
            )
            yield gemm(
                f"gemv_n {dtype} {M}",
                GemvTile("N", 1 if M == 1 else 4, min(v, 4), 8, 4),
                M,
                24 * v,
                77,
                dtype,
                ("K", "N"),
                epilogue="bias",
            )
            yield gemm(
                f"gemv_n {dtype} {M} odd",
                GemvTile("N", 1 if M == 1 else 8, 1, 32, 1),
                M,
                33,
                101,
                dtype,
                ("M", "N"),
                batch=2,
            )


def cdna_cases() -> Iterator[Problem]:
    """Every tile at odd sizes, every pair of majors."""
    for dtype, tiles in {"f16": CDNA_HALF_TILES, "bf16": (CdnaTile(64, 64, 32, 2, 1, 1),), "f32": CDNA_FLOAT_TILES}.items():
        for t in tiles:
            tag = f"gemm_cdna {dtype} {t}"
            yield gemm(f"{tag} odd", t, t.BM + 1, t.BN - 1, t.step * 3 + 1, dtype, epilogue="bias")
            yield gemm(f"{tag} aligned", t, t.BM - 8, t.BN + 8, t.step * 5 + 8, dtype, ("K", "K"), epilogue="bias", dynamic=False)
            yield gemm(f"{tag} turned", t, t.BM, t.BN + 8, t.step * 2 + 8, dtype, ("M", "N"), dynamic=False)
        for t in tiles[:: len(tiles) - 1 or 1]:
            for majors in (("K", "K"), ("K", "N"), ("M", "K"), ("M", "N"), ("none", "none")):
                yield gemm(f"gemm_cdna {dtype} {t} A {majors[0]} B {majors[1]}", t, 72, 136, 104, dtype, majors)
        yield gemm(f"gemm_cdna {dtype} batch", tiles[-1], 65, 40, 72, dtype, batch=3, pad=8)
        yield gemm(f"gemm_cdna {dtype} 1", tiles[-1], 1, 1, 1, dtype)
    for dtype, t in zip(("e4m3fnuz", "e5m2fnuz") * len(CDNA_FLOAT8_TILES), CDNA_FLOAT8_TILES):
        yield gemm(f"gemm_cdna {dtype} {t} odd", t, t.BM + 1, t.BN - 1, t.step * 3 + 1, dtype, out_dtype="f32", epilogue="bias")
        yield gemm(f"gemm_cdna {dtype} {t} aligned", t, t.BM - 16, t.BN + 16, t.step * 2 + 16, dtype, ("K", "K"), out_dtype="f32", dynamic=False)
        yield gemm(f"gemm_cdna {dtype} {t} turned", t, t.BM, t.BN + 16, t.step * 2 + 16, dtype, ("M", "N"), out_dtype="f32", dynamic=False)
