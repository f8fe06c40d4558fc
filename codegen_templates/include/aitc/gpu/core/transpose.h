// transpose.h: element (batch, row, col) is loaded along col and stored along row, through shared memory, on GPUs.
//
//   transpose<TransposeTile<tile_rows, tile_cols, threads>>(shape, load, store)
//
//   Shape    batch, rows, cols: static constexpr int, or int members read at run time
//   Load     using type = T (what passes through; 1, 2, 4 or 8 bytes); static constexpr int width;
//            operator()<V>(int64_t batch, int64_t row, int64_t col, T (&x)[V]): x[j] = element (row, col + j)
//   Store    static constexpr int width;
//            operator()<V>(int64_t batch, int64_t row, int64_t col, const T (&x)[V]): x[j] is element (row + j, col)
// V is 1 or the functor's width (at most 16 bytes, and a divisor of the tile), the coordinate it runs along a multiple
// of V; the last vectors of a row or column that are not whole are passed one by one.
// Blocks   ceil(rows / tile_rows) * ceil(cols / tile_cols) * batch in x
// Threads  threads
// Shared   tile_rows * (tile_cols + pad) * sizeof(T), pad = max(4 / sizeof(T), 1)
// Tiles    <32, 64, 128>, <64, 64, 256> for 1 and 2 bytes; <32, 32, 256> for 4 and 8
//
//   #include "aitc/gpu/core/transpose.h"
//   using namespace aitc;
//   struct Shape { static constexpr int batch = 1, rows = 64, cols = 3136; };     // (C, HW) -> (HW, C)
//   struct Load {
//     using type = half_t;
//     static constexpr int width = 8;
//     const half_t* x;
//     template <int V> AITC_FN void operator()(int64_t, int64_t row, int64_t col, half_t (&v)[V]) const {
//       const auto v0 = load<V>(x + row * 3136 + col);
//       AITC_UNROLL for (int j = 0; j < V; ++j) v[j] = v0[j];
//     }
//   };
//   struct Store {
//     static constexpr int width = 8;
//     half_t* y;
//     template <int V> AITC_FN void operator()(int64_t, int64_t row, int64_t col, const half_t (&v)[V]) const {
//       Vec<half_t, V> r;
//       AITC_UNROLL for (int j = 0; j < V; ++j) r[j] = v[j];
//       store<V>(y + col * 64 + row, r);
//     }
//   };
//   AITC_KERNEL(256) void AITC_ENTRY(transpose_1)(const half_t* x, half_t* y) {
//     transpose<TransposeTile<64, 64, 256>>(Shape{}, Load{x}, Store{y});
//   }
#pragma once
#include "aitc/types.h"

AITC_BEGIN

template <int Rows, int Cols, int Threads> struct TransposeTile {
  static constexpr int rows = Rows, cols = Cols, threads = Threads;
};

template <class Tile, class Shape, class Load, class Store>
AITC_FN void transpose(const Shape& shape, const Load& load, const Store& store) {
  using T = typename Load::type;
  constexpr int most = 16 / int(sizeof(T)), pad = max_of(4 / int(sizeof(T)), 1), stride = Tile::cols + pad;
  constexpr int VL = greatest_divisor(min_of(Load::width, most), Tile::cols),
                VS = greatest_divisor(min_of(Store::width, most), Tile::rows);
  const int rows = shape.rows, cols = shape.cols;
  const int tiles_r = ceil_div(rows, Tile::rows), tiles_c = ceil_div(cols, Tile::cols);
  const int64_t tiles = int64_t(tiles_r) * tiles_c, batch = blockIdx.x / tiles, index = blockIdx.x - batch * tiles;
  const int row0 = int(index / tiles_c) * Tile::rows, col0 = int(index % tiles_c) * Tile::cols;
  T* tile = reinterpret_cast<T*>(shared_memory());  // (rows,cols+pad)
  grid_dependency_wait();
  constexpr int across = Tile::cols / VL, loads = Tile::rows * across;
  AITC_UNROLL
  for (int i = 0; i < ceil_div(loads, Tile::threads); ++i) {
    const int p = thread_index() + i * Tile::threads, r = p / across, c = p % across * VL;
    const int row = row0 + r, col = col0 + c;
    if ((loads % Tile::threads == 0 || p < loads) && row < rows) {
      if (col + VL <= cols) {
        T x[VL];
        load.template operator()<VL>(batch, row, col, x);
        AITC_UNROLL
        for (int j = 0; j < VL; ++j) tile[r * stride + c + j] = x[j];
      } else {
        AITC_NO_UNROLL
        for (int j = 0; col + j < cols; ++j) {
          T x[1];
          load.template operator()<1>(batch, row, col + j, x);
          tile[r * stride + c + j] = x[0];
        }
      }
    }
  }
  block_barrier();
  grid_dependency_launch();
  constexpr int down = Tile::rows / VS, stores = Tile::cols * down;
  AITC_UNROLL
  for (int i = 0; i < ceil_div(stores, Tile::threads); ++i) {
    const int p = thread_index() + i * Tile::threads, c = p / down, r = p % down * VS;
    const int row = row0 + r, col = col0 + c;
    if ((stores % Tile::threads == 0 || p < stores) && col < cols) {
      if (row + VS <= rows) {
        T x[VS];
        AITC_UNROLL
        for (int j = 0; j < VS; ++j) x[j] = tile[(r + j) * stride + c];
        store.template operator()<VS>(batch, row, col, x);
      } else {
        AITC_NO_UNROLL
        for (int j = 0; row + j < rows; ++j) {
          const T x[1] = {tile[(r + j) * stride + c]};
          store.template operator()<1>(batch, row + j, col, x);
        }
      }
    }
  }
}

AITC_END
