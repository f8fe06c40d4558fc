"""Two products in one launch, chain_sm90.h: what the first makes is an operand of the second."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .gemm_cases import zeros
from .problem import CTYPES, Input, Map, Output, Problem, Scalar, rounded


@dataclass(frozen=True, slots=True)
class ChainTile:
    """The arguments of ChainTileSm90<> in chain_sm90.h."""

    BM: int
    BN: int
    BE: int
    stages: int
    slots: int
    stored: bool = True
    staged: bool = False

    @property
    def text(self) -> str:
        """As written in a source."""
        flags = ", ".join(str(f).lower() for f in (self.stored, self.staged))
        return f"ChainTileSm90<{self.BM}, {self.BN}, {self.BE}, {self.stages}, {self.slots}, {flags}>"

    @property
    def threads(self) -> int:
        """Threads a block."""
        return 128 * (self.BM // 64 + 1)

    @property
    def smem_bytes(self) -> int:
        """The formula that chain_sm90.h documents."""
        return self.stages * (max(self.BM + self.BN, self.BE) * 128 + 16) + self.BM // 16 * self.slots * (self.BN * 32 + 8)


def chain(
    name: str, tile: ChainTile, M: int, N: int, K: int, N2: int, dtype: str = "f16", dynamic: bool = False, units: int = 132, light: bool = False
) -> Problem:
    """relu(relu(A B + bias + residual) C + bias2); the residual where the tile is staged, the first result stored where it says so."""
    rng = np.random.default_rng(M * 7 + N * 3 + K + N2)
    ct = CTYPES[dtype]
    if light:
        a, b, c, bias, bias2, residual, d, e = zeros(M, K), zeros(N, K), zeros(N, N2), zeros(N), zeros(N2), zeros(M, N), zeros(M, N), zeros(M, N2)
    else:
        shapes = (M, K), (N, K), (N, N2), (N,), (N2,), (M, N)
        a, b, c, bias, bias2, residual = (rounded(rng.standard_normal(s), dtype) for s in shapes)
        d = rounded(np.maximum(a @ b.T + bias + (residual if tile.staged else 0), 0), dtype)
        e = np.maximum(d @ c + bias2, 0)
    staged = ", const float (&staged)[V]" if tile.staged else ""

    def store(name: str, more: str, value: str) -> str:
        return f"""struct {name} {{
  static constexpr int width = 8;
  using result = {ct};
  {f"using staged = {ct};" if more else ""}
  const {ct}* bias;
  template <int V> AITC_FN void operator()(int, int64_t row, int64_t col, const float (&acc)[V]{more}, float (&out)[V]) const {{
    AITC_UNROLL
    for (int j = 0; j < V; ++j) out[j] = m_max(acc[j] + convert<float>(bias[col + j]){value}, 0.0f);
  }}
}};
"""

    def shape(name: str, columns: int) -> str:
        m = "int64_t M;" if dynamic else f"static constexpr int64_t M = {M};"
        return f"struct {name} {{\n  {m}\n  static constexpr int64_t N = {columns};\n}};\n"

    source = f"""#include "aitc/gpu/hopper/gemm_sm90.h"
#include "aitc/gpu/hopper/chain_sm90.h"
using namespace aitc;
{shape("Shape", N)}{shape("Shape2", N2)}{store("Store", staged, " + staged[j]" if staged else "")}{store("Store2", "", "")}
static_assert({tile.text}::threads == {tile.threads} && {tile.text}::smem_bytes == {tile.smem_bytes}, "threads and shared memory");
AITC_KERNEL({tile.threads}, 1) void AITC_ENTRY(chain)(const {ct}* a, const {ct}* b, const {ct}* c, const {ct}* bias, const {ct}* bias2, const {ct}* residual, {ct}* d, {ct}* e,
    {", ".join(f"AITC_GRID_CONSTANT CUtensorMap map_{n}" for n in "abcdse")}, int64_t M) {{
  chain_sm90<{tile.text}>(Shape{{{"M" if dynamic else ""}}}, Shape2{{{"M" if dynamic else ""}}}, MatrixSm90<{ct}, false, false, false>{{&map_a}},
    MatrixSm90<{ct}, false, false, true>{{&map_b}}, MatrixSm90<{ct}, true, false, true>{{&map_c}}, Store{{bias}}, Store2{{bias2}}, map_d, map_s, map_e, {-(-K // 64)});
}}
"""

    def rows(of: int, columns: int, count: int, box: tuple[int, int]) -> Map:
        return Map(0, of=of, dtype=dtype, sizes=(columns, count, 1), strides=(columns * 2, columns * count * 2), box=(*box, 1))

    maps = (rows(0, K, M, (64, tile.BM)), rows(1, K, N, (64, tile.BN)), rows(2, N2, N, (64, 64)), rows(6, N, M, (64, 16)), rows(5, N, M, (64, 16)), rows(7, N2, M, (64, 16)))
    first = Output(d, dtype) if tile.stored else Input(d, dtype)
    return Problem(
        name=name, source=source, entry="chain", blocks=min(-(-M // tile.BM), units), threads=tile.threads, smem_bytes=tile.smem_bytes,
        arguments=(*(Input(x, dtype) for x in (a, b, c, bias, bias2, residual)), first, Output(e, dtype), *maps, Scalar(M, "i64")), warp=32, cluster=1,
        arch="90a",
    )  # fmt: skip


def cases() -> Iterator[Problem]:
    """Every height and width, stored or not, with a residual or not, rows and columns around the tiles, several tiles a block, more uses than slots."""
    yield chain("chain_sm90 128x128 staged", ChainTile(128, 128, 64, 3, 3, True, True), 128 * 3 + 9, 256, 72, 64, units=2)
    yield chain("chain_sm90 128x128 moved on", ChainTile(128, 128, 128, 3, 2, False, False), 128 + 31, 384, 200, 104, dynamic=True, units=1)
    yield chain("chain_sm90 64x64 stored bf16", ChainTile(64, 64, 256, 3, 3, True, False), 64 * 2 + 1, 128, 64, 232, "bf16", units=2)
    yield chain("chain_sm90 192x64 staged", ChainTile(192, 64, 192, 3, 4, True, True), 192 * 2 - 1, 320, 136, 192, units=1)
    yield chain("chain_sm90 128x64 residual alone", ChainTile(128, 64, 128, 4, 2, False, True), 33, 64, 8, 72, dynamic=True)
    yield chain("chain_sm90 64x128 one row", ChainTile(64, 128, 64, 3, 2, True, False), 1, 128, 24, 8)
    yield chain("chain_sm90 128x64 wide", ChainTile(128, 64, 256, 4, 3, True, True), 128 * 4, 512, 256, 256, units=3)
    yield chain("chain_sm90 192x128 stored", ChainTile(192, 128, 64, 3, 2, True, False), 193, 256, 64, 64, dynamic=True, units=1)
