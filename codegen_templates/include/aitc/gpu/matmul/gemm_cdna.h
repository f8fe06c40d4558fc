// gemm_cdna.h: matrix products by MFMA on gfx90a and gfx942 (MI200, MI300): half_t, bfloat16_t, float (exact), and on
// gfx942 float8_e4m3fnuz_t and float8_e5m2fnuz_t; sums in float. Never run on AMD hardware yet: compiled for it, and run by the emulator.
//
// gemm_cdna<CdnaTile<BM, BN, BK, warps_m, warps_n, mfma, split>>(shape, a, b, store[, blocks])
//   blocks: those of the launch that take this product, where it runs several (blocks.h).
//   Shape, A, B, Store: as in gemm_sm80.h. Major::K for both is fastest: other majors are turned when they are written
//   to shared memory.
// Blocks   ceil(M / BM) * ceil(N / BN) * batch in x
// Threads  CdnaTile::threads = 64 * warps_m * warps_n * split
// Shared   GemmCdna<Tile, Shape, A, B>::smem_bytes, the formula at the top of tile_cdna.h
// Tiles    aitc/kernels/matmul/cdna.py has them, with the blocks that a compute unit is meant to hold of each
// Example: gemm_sm80.h's with the last lines
//   AITC_KERNEL(256) void AITC_ENTRY(gemm_4)(const half_t* x, const half_t* w, half_t* out, int M) {
//     gemm_cdna<CdnaTile<128, 128, 32, 2, 2>>(Shape{M}, A{x}, B{w}, Store{out});
//   }
#pragma once
#include "aitc/gpu/core/blocks.h"
#include "aitc/gpu/matmul/tile_cdna.h"

AITC_BEGIN

template <class Tile, class Shape, class A, class B> struct GemmCdna {
  using T = typename A::type;
  static_assert(is_same<T, typename B::type>, "A and B have one type");
  using SourceA = SimtMatrix<A, T, true, 16>;
  using SourceB = SimtMatrix<B, T, false, 16>;
  using Loop = CdnaLoop<T, Tile, SourceA, SourceB>;
  static constexpr int threads = Tile::threads, smem_bytes = Loop::smem_bytes;
};

template <class Tile, class Shape, class A, class B, class Store, class Blocks = AllBlocks>
AITC_FN void gemm_cdna(const Shape& shape, const A& a, const B& b, const Store& store, const Blocks& blocks = {}) {
  using Gemm = GemmCdna<Tile, Shape, A, B>;
  const int M = shape.M, N = shape.N, K = shape.K;
  const BlockPlace place = block_place(ceil_div(M, Tile::BM), ceil_div(N, Tile::BN), blocks.index());
  const int row0 = place.tile_m * Tile::BM, col0 = place.tile_n * Tile::BN;
  typename Gemm::Loop loop;
  loop.run(typename Gemm::SourceA(a, place.batch, row0, M, K), typename Gemm::SourceB(b, place.batch, col0, N, K),
           ceil_div(K, Tile::BK));
  loop.template epilogue<static_multiple<Shape, Store::width>>(store, place.batch, row0, M, col0, N);
}

AITC_END
