"""Matrix products of gemm_sm90.h: persistent and split, both kinds of store, every major."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .gemm_cases import largest_power, zeros
from .problem import CTYPES, SIZES, Input, Map, Output, Problem, Scalar, operand_map_type, rounded, rounded_operand


@dataclass(frozen=True, slots=True)
class Sm90Tile:
    """The arguments of TileSm90<> in product_sm90.h."""

    BM: int
    BN: int
    stages: int
    cluster_m: int = 1
    cluster_n: int = 1
    ping_pong: bool = False
    staged: bool = False

    @property
    def text(self) -> str:
        """As written in a source."""
        return f"TileSm90<{self.BM}, {self.BN}, {self.stages}, {self.cluster_m}, {self.cluster_n}, {str(self.ping_pong).lower()}, {str(self.staged).lower()}>"

    @property
    def groups(self) -> int:
        """Warpgroups that multiply."""
        return 2 if self.ping_pong or self.BM == 256 else self.BM // 64

    @property
    def threads(self) -> int:
        """Threads a block."""
        return 128 * (self.groups + 1)

    @property
    def cluster(self) -> int:
        """Blocks a cluster."""
        return self.cluster_m * self.cluster_n

    @property
    def smem_bytes(self) -> int:
        """The formula that product_sm90.h documents."""
        WM = self.BM if self.ping_pong else self.BM // self.groups
        patches = WM // 64 * -(-self.BN // 64) * 2048 + 8 if self.staged else 4096
        return self.stages * ((self.BM + self.BN) * 128 + 16) + 16 + self.groups * 4 * patches

    def blocks(self, M: int, N: int, batch: int, units: int = 132) -> int:
        """Blocks to launch."""
        tiles = -(-M // (self.BM * self.cluster_m)) * -(-N // (self.BN * self.cluster_n)) * batch
        return min(tiles, units // self.cluster) * self.cluster


@dataclass(frozen=True, slots=True)
class SplitTile:
    """The arguments of SplitTileSm90<> in split_sm90.h."""

    BM: int
    BN: int
    stages: int
    split: int
    rows: int = 0

    @property
    def text(self) -> str:
        """As written in a source."""
        return f"SplitTileSm90<{self.BM}, {self.BN}, {self.stages}, {self.split}, {self.rows or self.BM}>"

    @property
    def threads(self) -> int:
        """Threads a block."""
        return self.BM * 2 + 32

    @property
    def cluster(self) -> int:
        """Blocks a cluster."""
        return self.split

    @property
    def smem_bytes(self) -> int:
        """The formula that split_sm90.h documents."""
        return self.stages * ((self.BM + self.BN) * 128 + 16) + self.BM * self.BN * 4

    def blocks(self, M: int, N: int, batch: int) -> int:
        """Blocks to launch."""
        return -(-M // self.BM) * -(-N // self.BN) * batch * self.split


FLOAT8_SUMS = 1e-3
"""The instruction loses what lies 13 bits below the greatest of the 128 products that it sums (rounding_cases.py): up to 6e-4 of random ones. Were K-blocks not summed apart,
a K of 2048 would lose 2e-3."""


def operand_maps(
    tile: Sm90Tile | SplitTile, M: int, N: int, K: int, batch: int, leads: tuple[int, int], majors: tuple[str, str], shared_b: bool, dtype: str
) -> tuple[Map, Map]:
    """The maps of A and B, as gemm_sm90.h documents them; `leads`: elements from row to row."""
    maps = []
    for n, (major, lead, outer) in enumerate(zip(majors, leads, (M, N), strict=True)):
        transposed = major != "K"
        rows = (tile.rows or tile.BM if n == 0 else tile.BN) if isinstance(tile, SplitTile) else (tile.BM // tile.cluster_n if n == 0 else tile.BN // tile.cluster_m)
        count = 1 if n == 1 and shared_b else batch
        inner, rest = (outer, K) if transposed else (K, outer)
        size = SIZES[dtype]
        maps.append(
            Map(0, of=n, dtype=operand_map_type(dtype), sizes=(inner, rest, count), strides=(lead * size, lead * rest * size),
                box=(128 // size, 64 if transposed else rows, 1))
        )  # fmt: skip
    return maps[0], maps[1]


def gemm(
    name: str,
    tile: Sm90Tile | SplitTile,
    M: int,
    N: int,
    K: int,
    dtype: str = "f16",
    majors: tuple[str, str] = ("K", "K"),
    batch: int = 1,
    pad: int = 0,
    returns: bool = True,
    dynamic: bool = False,
    shared_b: bool = False,
    out_dtype: str | None = None,
    light: bool = False,
    units: int = 132,
) -> Problem:
    """A product of (batch, M, K) and (batch, K, N) with a bias, and a residual where the tile is staged. `returns`: the copy engine stores. `pad`: elements between rows."""
    rng = np.random.default_rng(M * 7 + N * 3 + K)
    split = isinstance(tile, SplitTile)
    returns = returns and not split
    staged = isinstance(tile, Sm90Tile) and tile.staged
    out_dtype = out_dtype or dtype
    side = dtype if SIZES[dtype] > 1 else out_dtype  # of bias and residual
    ct, co, cs = CTYPES[dtype], CTYPES[out_dtype], CTYPES[side]
    if light:
        a, b, bias = zeros(batch, M, K), zeros(1 if shared_b else batch, K, N), zeros(N)
    else:
        a, b = (rounded(rng.standard_normal(s), dtype) for s in ((batch, M, K), (1 if shared_b else batch, K, N)))
        bias = rounded(rng.standard_normal(N), side)
    residual = zeros(batch, M, N) if light or not staged else rounded(rng.standard_normal((batch, M, N)), side)
    expected = zeros(batch, M, N) if light else np.matmul(rounded_operand(a, dtype), rounded_operand(b, dtype)) + bias + residual

    def lay(x: np.ndarray, transpose: bool) -> tuple[np.ndarray, int]:
        x = x.transpose(0, 2, 1) if transpose else x
        if light:
            return zeros(*x.shape[:2], x.shape[2] + pad), x.shape[2] + pad
        flat = np.full((*x.shape[:2], x.shape[2] + pad), np.nan)
        flat[..., : x.shape[2]] = x
        return flat, flat.shape[2]

    a_flat, a_lead = lay(a, majors[0] == "M")
    b_flat, b_lead = lay(b, majors[1] == "K")
    map_a, map_b = operand_maps(tile, M, N, K, batch, (a_lead, b_lead), majors, shared_b, dtype)
    map_s = Map(0, of=4, dtype=side, sizes=(N, M, batch), strides=(N * 2, M * N * 2), box=(64, 16, 1))
    map_d = Map(0, of=3, dtype=out_dtype, sizes=(N, M, batch), strides=(N * 2, M * N * 2), box=(64, 16, 1))
    kind = {True: "true", False: "false"}
    makes = [f"MatrixSm90<{ct}, {kind[majors[n] != 'K']}, {kind[batch > 1 and not (n == 1 and shared_b)]}, {kind[n == 1]}>{{&map_{'ab'[n]}}}" for n in (0, 1)]
    width = largest_power(N, limit=8)
    static = "" if dynamic else "static constexpr "
    init = (lambda v: "") if dynamic else (lambda v: f" = {v}")
    other = ", const float (&staged)[V]" if staged else ""
    element, tail = (f"{other}, float (&out)[V]", "out[j] = x") if returns else ("", "r[j] = convert<" + co + ">(x)")
    store = "" if returns else f"store<V>(y + (int64_t(batch) * {M} + row) * {N} + col, r);"
    source = f"""#include "aitc/gpu/hopper/gemm_sm90.h"
using namespace aitc;
struct Shape {{
  static constexpr int64_t batch = {batch};
  {static}int64_t M{init(M)};
  {static}int64_t N{init(N)};
  {static}int64_t K{init(K)};
}};
struct Store {{
  static constexpr int width = {width};
  {f'using result = {co};' if returns else ''}
  {f'using staged = {cs};' if staged else ''}
  const {cs}* bias;
  {co}* y;
  template <int V> AITC_FN void operator()(int batch, int64_t row, int64_t col, const float (&acc)[V]{element}) const {{
    const auto b = load<V>(bias + col);
    Vec<{co}, V> r;
    AITC_UNROLL
    for (int j = 0; j < V; ++j) {{
      const float x = acc[j] + convert<float>(b[j]){' + staged[j]' if staged else ''};
      {tail};
    }}
    {store}
  }}
}};
static_assert({tile.text}::threads == {tile.threads} && {tile.text}::smem_bytes == {tile.smem_bytes}, "threads and shared memory");
AITC_KERNEL({tile.threads}, 1) void AITC_ENTRY(gemm)(const {ct}* a, const {ct}* b, const {cs}* bias, {co}* y, const {cs}* residual,
    AITC_GRID_CONSTANT CUtensorMap map_a, AITC_GRID_CONSTANT CUtensorMap map_b, AITC_GRID_CONSTANT CUtensorMap map_d, AITC_GRID_CONSTANT CUtensorMap map_s, int64_t M, int64_t N, int64_t K) {{
  {'gemm_split_sm90' if split else 'gemm_sm90'}<{tile.text}>(Shape{{{'M, N, K' if dynamic else ''}}}, {makes[0]}, {makes[1]}, Store{{bias, y}}{'' if split else ', map_d, map_s'});
}}
"""
    return Problem(
        name=name,
        source=source,
        entry="gemm",
        blocks=tile.blocks(M, N, batch) if isinstance(tile, SplitTile) else tile.blocks(M, N, batch, units),
        threads=tile.threads,
        smem_bytes=tile.smem_bytes,
        arguments=(
            Input(a_flat, dtype), Input(b_flat, dtype), Input(bias, side), Output(expected, out_dtype, FLOAT8_SUMS if SIZES[dtype] == 1 and not returns else None),
            Input(residual, side), map_a, map_b,
            map_d if returns else map_a, map_s if staged else map_a, Scalar(M, "i64"), Scalar(N, "i64"), Scalar(K, "i64"),
        ),  # fmt: skip
        warp=32,
        cluster=tile.cluster,
        arch="90a",
    )


TILES = (
    Sm90Tile(128, 128, 4),
    Sm90Tile(64, 64, 6),
    Sm90Tile(128, 256, 3, 2),
    Sm90Tile(128, 192, 4, ping_pong=True),
    Sm90Tile(64, 128, 4, 1, 2, ping_pong=True),
    Sm90Tile(192, 64, 3),
    Sm90Tile(256, 128, 3),
    Sm90Tile(128, 160, 4),
    Sm90Tile(128, 168, 3),
    Sm90Tile(192, 192, 3),
    Sm90Tile(192, 96, 4),
    Sm90Tile(128, 80, 4),
    Sm90Tile(128, 176, 4, ping_pong=True),
)
SPLITS = (SplitTile(64, 64, 4, 4), SplitTile(64, 64, 3, 1), SplitTile(128, 64, 3, 2), SplitTile(64, 32, 4, 8), SplitTile(64, 96, 3, 2), SplitTile(128, 80, 3, 8), SplitTile(64, 48, 4, 2))


def cases() -> Iterator[Problem]:
    """Every tile at odd sizes with few blocks (many tiles a block), both stores, majors, batches, strides."""
    for t in TILES:
        tag = f"{t.BM}x{t.BN}_{t.cluster_m}{t.cluster_n}{'p' if t.ping_pong else ''}"
        few = 2 * t.cluster
        yield gemm(f"gemm_sm90 {tag} tails", t, t.BM * 2 + 9, t.BN + 24, 64 * 5 + 8, units=few)
        yield gemm(f"gemm_sm90 {tag} aligned", t, t.BM * 3, max(t.BN // 64, 1) * 64, 64 * t.stages, units=t.cluster)
        if t.BN % 64 == 0 and not (t.ping_pong and t.BN > 128):
            yield gemm(f"gemm_sm90 {tag} odd", t, t.BM - 3, t.BN + 33, 72, returns=False, units=few)
            yield gemm(f"gemm_sm90 {tag} stores", t, t.BM + 5, t.BN + 40, 200, returns=False, dynamic=True, units=few)
    for t in SPLITS:
        tag = f"split {t.BM}x{t.BN}_{t.split}"
        yield gemm(f"gemm_sm90 {tag} tails", t, t.BM + 9, t.BN + 24, 64 * 9 + 8)
        yield gemm(f"gemm_sm90 {tag} odd", t, t.BM - 3, t.BN + 33, 64 * t.split, dynamic=True)
    yield gemm("gemm_sm90 split few rows", SplitTile(64, 64, 4, 2, 16), 11, 72, 520)
    yield gemm("gemm_sm90 split more blocks than K", SplitTile(64, 64, 4, 8), 64, 64, 72)
    for dtype in ("f16", "bf16"):
        for t in (Sm90Tile(128, 128, 3), Sm90Tile(64, 64, 4, 1, 1, True), SplitTile(64, 64, 3, 2)):
            tag = "split" if isinstance(t, SplitTile) else "ping" if t.ping_pong else "together"
            for a_major in ("K", "M"):
                for b_major in ("K", "N"):
                    yield gemm(f"gemm_sm90 {dtype} {tag} A {a_major} B {b_major}", t, 136, 152, 104, dtype, (a_major, b_major), pad=8, units=2)
            yield gemm(f"gemm_sm90 {dtype} {tag} batch", t, 72, 80, 136, dtype, ("K", "N"), batch=3, units=2)
            yield gemm(f"gemm_sm90 {dtype} {tag} shared B", t, 72, 80, 136, dtype, batch=3, shared_b=True, units=2)
    for t in (Sm90Tile(128, 128, 3, staged=True), Sm90Tile(128, 128, 3, 2, 1, True, True), Sm90Tile(64, 64, 4, staged=True), Sm90Tile(128, 160, 3, staged=True),
              Sm90Tile(192, 192, 3, staged=True), Sm90Tile(128, 80, 4, staged=True)):
        tag = f"staged {t.BM}x{t.BN}{'p' if t.ping_pong else ''}"
        yield gemm(f"gemm_sm90 {tag} tails", t, t.BM * 2 + 9, t.BN + 24, 200, units=2 * t.cluster)
        yield gemm(f"gemm_sm90 {tag} aligned", t, t.BM * 3, 192, 136, batch=2, units=t.cluster)
    yield gemm("gemm_sm90 multicast N major", Sm90Tile(128, 128, 3, 2, 1), 300, 264, 200, majors=("K", "N"), units=4)
    for t in (Sm90Tile(128, 128, 3), Sm90Tile(128, 128, 3, 2, 1, True), Sm90Tile(64, 128, 4, 1, 2), Sm90Tile(256, 128, 3), SplitTile(64, 64, 4, 4), SplitTile(128, 32, 3, 1)):
        tag = "split" if isinstance(t, SplitTile) else "ping" if t.ping_pong else "together"
        yield gemm(f"gemm_sm90 f32 {tag} {t.BM}x{t.BN} tails", t, t.BM + 9, t.BN + 24, 32 * 5 + 4, "f32", returns=False, pad=4, units=2)
        yield gemm(f"gemm_sm90 f32 {tag} {t.BM}x{t.BN} batch", t, 72, 77, 100, "f32", batch=2, returns=False, dynamic=True, units=2)
    for dtype in ("e4m3", "e5m2"):
        for t in (Sm90Tile(128, 128, 4), Sm90Tile(64, 64, 6), Sm90Tile(128, 64, 4, 2, 1, True), SplitTile(64, 64, 4, 4), SplitTile(64, 64, 4, 2)):
            tag = "split" if isinstance(t, SplitTile) else "ping" if t.ping_pong else "together"
            yield gemm(f"gemm_sm90 {dtype} {tag} {t.BM}x{t.BN} tails", t, t.BM + 9, t.BN + 24, 128 * 5 + 16, dtype, out_dtype="f16", pad=16, units=2)
        yield gemm(f"gemm_sm90 {dtype} floats", Sm90Tile(128, 64, 4), 130, 77, 96, dtype, out_dtype="f32", batch=2, returns=False, dynamic=True)
        yield gemm(f"gemm_sm90 {dtype} long sums", Sm90Tile(64, 64, 4), 64, 64, 2048, dtype, out_dtype="f32", returns=False)
        yield gemm(f"gemm_sm90 {dtype} split long sums", SplitTile(64, 64, 4, 2), 64, 64, 4096, dtype, out_dtype="f32")
    yield gemm("gemm_sm90 float results", Sm90Tile(128, 64, 3), 130, 100, 96, out_dtype="f32", returns=False)
