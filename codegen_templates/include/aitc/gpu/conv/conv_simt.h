// conv_simt.h: convolution as an implicit matrix product by plain multiply-adds: strict float32, double, any type, any
// GPU. NHWC; 1-D to 3-D, strided, dilated, grouped.
//
// conv_simt<SimtTile<BM, BN, BK, TM, TN, split = 1>>(shape, window, x, filter, store)
//   Shape, Window, X, Filter, Store: see image.h; acc of the accumulator's type (see simt.h), V <= min(width, 4).
// Blocks   ceil(batch * O * P * Q / BM) * ceil(K / BN) * groups in x
// Threads  SimtTile::threads
// Shared   ConvSimt<Tile, Shape, Window, X, Filter>::smem_bytes = max(split * 2 * BK * (BM + 4 + BN + 4), (split - 1) *
//          BM * BN) * sizeof(accumulator)
// Tiles    as gemm_simt.h. Example: conv_sm80.h with the last line
//     conv_simt<SimtTile<64, 64, 16, 4, 4>>(Shape{N}, Window{}, X{x}, Filter{w}, Store{bias, y});
#pragma once
#include "aitc/gpu/conv/patch_source.h"

AITC_BEGIN

template <class Tile, class Shape, class Window, class X, class Filter> struct ConvSimt {
  using Acc = accumulator_t<typename X::type>;
  static_assert(is_same<Acc, accumulator_t<typename Filter::type>>, "X and Filter have one accumulator");
  using SourceA = PatchSource<X, Shape, Window, Acc>;
  using SourceB = SimtMatrix<Filter, Acc, false>;
  using Loop = SimtLoop<Acc, Tile, SourceA, SourceB>;
  static constexpr int threads = Tile::threads, smem_bytes = Loop::smem_bytes;
};

template <class Tile, class Shape, class Window, class X, class Filter, class Store>
AITC_FN void conv_simt(const Shape& shape, const Window& window, const X& x, const Filter& filter, const Store& store) {
  using Conv = ConvSimt<Tile, Shape, Window, X, Filter>;
  const int M = conv_rows(shape), N = shape.K, K = conv_depth(shape, window);
  const BlockPlace place = block_place(ceil_div(M, Tile::BM), ceil_div(N, Tile::BN));
  const int row0 = place.tile_m * Tile::BM, col0 = place.tile_n * Tile::BN;
  grid_dependency_wait();
  typename Conv::Loop loop;
  loop.run(typename Conv::SourceA(shape, window, x, place.batch, row0),
           typename Conv::SourceB(filter, place.batch, col0, N, K), ceil_div(K, Tile::BK));
  grid_dependency_launch();
  loop.template epilogue<static_filters<Shape, Store::width>>(store, place.batch, row0, M, col0, N);
}

AITC_END
