// conv_cdna.h: convolution as an implicit matrix product by MFMA on gfx90a and gfx942: half_t, bfloat16_t, float
// (exact); NHWC; 1-D to 3-D, strided, dilated, grouped. Never run on AMD hardware yet: compiled for it, and run by the
// emulator.
//
// conv_cdna<CdnaTile<BM, BN, BK, warps_m, warps_n>>(shape, window, x, filter, store)
//   Shape, Window, X, Filter, Store: see image.h. X and Filter have one type.
// Blocks   ceil(batch * O * P * Q / BM) * ceil(K / BN) * groups in x
// Threads  CdnaTile::threads
// Shared   ConvCdna<Tile, Shape, Window, X, Filter>::smem_bytes, the formula at the top of tile_cdna.h
// Tiles    as gemm_cdna.h. Example: conv_sm80.h's with AITC_KERNEL(256) and the last line
//     conv_cdna<CdnaTile<128, 64, 32, 2, 2>>(Shape{N}, Window{}, X{x}, Filter{w}, Store{bias, y});
#pragma once
#include "aitc/gpu/conv/patch_source.h"
#include "aitc/gpu/matmul/tile_cdna.h"

AITC_BEGIN

template <class Tile, class Shape, class Window, class X, class Filter> struct ConvCdna {
  using T = typename X::type;
  static_assert(is_same<T, typename Filter::type>, "X and Filter have one type");
  using SourceA = PatchSource<X, Shape, Window, T, 8>;
  using SourceB = SimtMatrix<Filter, T, false, 8>;
  using Loop = CdnaLoop<T, Tile, SourceA, SourceB>;
  static constexpr int threads = Tile::threads, smem_bytes = Loop::smem_bytes;
};

template <class Tile, class Shape, class Window, class X, class Filter, class Store>
AITC_FN void conv_cdna(const Shape& shape, const Window& window, const X& x, const Filter& filter, const Store& store) {
  using Conv = ConvCdna<Tile, Shape, Window, X, Filter>;
  const int M = conv_rows(shape), N = shape.K, K = conv_depth(shape, window);
  const BlockPlace place = block_place(ceil_div(M, Tile::BM), ceil_div(N, Tile::BN));
  const int row0 = place.tile_m * Tile::BM, col0 = place.tile_n * Tile::BN;
  typename Conv::Loop loop;
  loop.run(typename Conv::SourceA(shape, window, x, place.batch, row0),
           typename Conv::SourceB(filter, place.batch, col0, N, K), ceil_div(K, Tile::BK));
  loop.template epilogue<static_filters<Shape, Store::width>>(store, place.batch, row0, M, col0, N);
}

AITC_END
