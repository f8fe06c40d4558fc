// Transpose on cpu: element (batch, row, col) is loaded along col and stored along row.
//
//   transpose(shape, load, store)
//
//   Shape    batch, rows, cols: static constexpr int, or int members read at run time
//   Load     using type = T (what passes through; any of 1, 2, 4 or 8 bytes); static constexpr int width;
//            operator()<V>(int64_t batch, int64_t row, int64_t col, T (&x)[V]): x[j] = element (row, col + j)
//   Store    static constexpr int width;
//            operator()<V>(int64_t batch, int64_t row, int64_t col, const T (&x)[V]): x[j] is element (row + j, col)
//
// V is a power of two <= width, the coordinate it runs along a multiple of V. A width of 16 is best. Tiles of 64 x 64 go
// through the first-level cache and are transposed in registers.
//
//   #include "aitc/cpu/transpose.h"
//   using namespace aitc;
//   struct Shape { static constexpr int batch = 1, rows = 64, cols = 3136; };     // (C, HW) -> (HW, C)
//   struct Load {
//     using type = float;
//     static constexpr int width = 16;
//     const float* x;
//     template <int V> AITC_FN void operator()(int64_t, int64_t row, int64_t col, float (&v)[V]) const {
//       const auto v0 = load<V>(x + row * 3136 + col);
//       AITC_UNROLL for (int j = 0; j < V; ++j) v[j] = v0[j];
//     }
//   };
//   struct Store {
//     static constexpr int width = 16;
//     float* y;
//     template <int V> AITC_FN void operator()(int64_t, int64_t row, int64_t col, const float (&v)[V]) const {
//       Vec<float, V> r;
//       AITC_UNROLL for (int j = 0; j < V; ++j) r[j] = v[j];
//       store<V>(y + col * 64 + row, r);
//     }
//   };
//   AITC_KERNEL(0) void AITC_ENTRY(transpose_1)(const float* x, float* y) { transpose(Shape{}, Load{x}, Store{y}); }
#pragma once
#include "aitc/cpu/block_transpose.h"
#include "aitc/types.h"

AITC_BEGIN
namespace {

template <int V, typename T, typename Load>
AITC_FN void load_line(const Load& load, int64_t batch, int64_t row, int64_t col, int64_t count, T* line) {
  for (; count >= V; count -= V, col += V, line += V) {
    T x[V];  // (V)
    load.template operator()<V>(batch, row, col, x);
    copy_elements<V>(line, x);
  }
  if constexpr (V > 1) {
    if (count > 0) load_line<V / 2>(load, batch, row, col, count, line);
  }
}

template <int V, typename T, typename Store>
AITC_FN void store_line(const Store& store, int64_t batch, int64_t row, int64_t col, int64_t count, const T* line) {
  for (; count >= V; count -= V, row += V, line += V) {
    T x[V];  // (V)
    copy_elements<V>(x, line);
    store.template operator()<V>(batch, row, col, x);
  }
  if constexpr (V > 1) {
    if (count > 0) store_line<V / 2>(store, batch, row, col, count, line);
  }
}

template <typename Shape, typename Load, typename Store>
inline void transpose(const Shape& shape, const Load& load_functor, const Store& store_functor) {
  using T = typename Load::type;
  constexpr int64_t side = 64;
  constexpr int64_t stride = side + 64 / sizeof(T);  // rows of a tile fall into different lines of a set
  const int64_t row_tiles = ceil_div(shape.rows, side), col_tiles = ceil_div(shape.cols, side);
  parallel_for(shape.batch * row_tiles * col_tiles, 4, [&](int64_t begin, int64_t end) {
    const Load load = load_functor;
    const Store store = store_functor;
    T* tile = static_cast<T*>(scratch(2, size_t(2 * side * stride) * sizeof(T)));  // (rows,stride)
    T* turned = tile + side * stride;                                              // (cols,stride)
    for (int64_t i = begin; i < end; ++i) {
      const int64_t batch = i / (row_tiles * col_tiles), row = i / col_tiles % row_tiles * side, col = i % col_tiles * side;
      const int64_t rows = min_of(side, shape.rows - row), cols = min_of(side, shape.cols - col);
      for (int64_t r = 0; r < rows; ++r) load_line<Load::width>(load, batch, row + r, col, cols, tile + r * stride);
      transpose_block(rows, cols, tile, stride, turned, stride);
      for (int64_t c = 0; c < cols; ++c) store_line<Store::width>(store, batch, row, col + c, rows, turned + c * stride);
    }
  });
}

}  // namespace
AITC_END
