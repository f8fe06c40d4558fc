// gemv.h: matrix products with few rows (M up to 8, more in steps), limited by reading B once; every type, every GPU.
//
//   gemv_k<GemvK<MR, V, cols, warps>>(shape, a, b, store)
//     B has major K: a warp reads `cols` columns of B along K, its lanes V elements each
//   gemv_n<GemvN<MR, V, across, warps>>(shape, a, b, store)
//     B has major N: `across` lanes of a warp (a power of two) read V neighbouring columns each; the other lanes and
//     the warps of the block divide K
//   Shape, A, B, Store: as in gemm_simt.h. V divides B's width (and for gemv_k K, and A's width if A's major is K); MR
//   rows of A a block.
// Blocks   in x, with rows = ceil(M / MR): gemv_k ceil(N / (warps * cols)) * rows * batch, gemv_n ceil(N / (across *
//          V)) * rows * batch
// Threads  warps * warp_size
// Shared   gemv_k none; gemv_n warps > 1 ? warps * MR * across * V * sizeof(accumulator) : 0
// Tiles    gemv_k <1, 8, 1, 4> (16 bits; N of thousands <1, 8, 2, 4>), <1, 4, 1, 4> (float); gemv_n <1, 4, 4, 16>, N of
//          thousands <1, 4, 8, 16>; MR = the power of two from M on, up to 8
//
// Example: gemm_simt.h's with M = 1 and the last lines
//   AITC_KERNEL(128) void AITC_ENTRY(gemm_9)(const float* x, const float* w, float* out, int M) {
//     gemv_k<GemvK<1, 4, 2, 4>>(Shape{M}, A{x}, B{w}, Store{out});
//   }
#pragma once
#include "aitc/gpu/core/simt.h"

AITC_BEGIN

template <int MR_, int V_, int Cols, int Warps> struct GemvK {
  static constexpr int MR = MR_, V = V_, cols = Cols, warps = Warps, threads = Warps * warp_size;
};
template <int MR_, int V_, int Across, int Warps> struct GemvN {
  static constexpr int MR = MR_, V = V_, across = Across, warps = Warps, threads = Warps * warp_size,
                       down = warp_size / Across;
  static_assert(warp_size % Across == 0, "a part of a warp");
};

// V elements of row `row` of A from k on.
template <int V, class Acc, class A>
AITC_FN void load_a_row(const A& a, const typename A::type* base, int row, int k, Acc (&x)[V]) {
  if constexpr (A::major == Major::K && A::width % V == 0) {
    const auto v = load<V>(base + row * int64_t(a.stride_row) + k);
    AITC_UNROLL
    for (int e = 0; e < V; ++e) x[e] = convert<Acc>(v[e]);
  } else {
    AITC_UNROLL
    for (int e = 0; e < V; ++e)
      x[e] = convert<Acc>(base[row * int64_t(a.stride_row) + (k + e) * int64_t(a.stride_col)]);
  }
}
template <int W, class Store, class Acc, int N>
AITC_FN void store_columns(const Store& store, int batch, int row, int col, int col_end, const Acc (&x)[N]) {
  constexpr int width = min_of(greatest_divisor(W, N), Store::width);
  AITC_UNROLL
  for (int j = 0; j < N; j += width) {
    if (col + j + width <= col_end) {
      Acc part[width];
      AITC_UNROLL
      for (int e = 0; e < width; ++e) part[e] = x[j + e];
      store.template operator()<width>(batch, row, col + j, part);
    } else {
      AITC_UNROLL
      for (int e = 0; e < width; ++e)
        if (col + j + e < col_end) {
          const Acc one[1] = {x[j + e]};
          store.template operator()<1>(batch, row, col + j + e, one);
        }
    }
  }
}

template <class Tile, class Shape, class A, class B, class Store>
AITC_FN void gemv_k(const Shape& shape, const A& a, const B& b, const Store& store) {
  using Acc = accumulator_t<typename A::type>;
  static_assert(B::major == Major::K && is_same<Acc, accumulator_t<typename B::type>>,
                "B has major K and A's accumulator");
  constexpr int MR = Tile::MR, V = Tile::V, cols = Tile::cols;
  const int M = shape.M, N = shape.N, K = shape.K, lane = lane_index();
  const int groups_n = ceil_div(N, Tile::warps * cols), groups_m = ceil_div(M, MR);
  const int index = int(blockIdx.x % unsigned(groups_n)), rest = int(blockIdx.x / unsigned(groups_n)),
            row0 = rest % groups_m * MR, batch = rest / groups_m;
  const int col0 = (index * Tile::warps + warp_index()) * cols;
  grid_dependency_wait();
  const auto *base_a = a.matrix(batch), *base_b = b.matrix(batch);
  Acc acc[MR][cols];
  AITC_UNROLL
  for (int i = 0; i < MR; ++i)
    AITC_UNROLL
    for (int j = 0; j < cols; ++j) acc[i][j] = Acc(0);
  AITC_UNROLL_4
  for (int k = lane * V; k < K; k += warp_size * V) {
    Vec<typename B::type, V> y[cols];
    AITC_UNROLL
    for (int j = 0; j < cols; ++j)
      if (col0 + j < N) y[j] = load<V>(base_b + (col0 + j) * int64_t(b.stride_col) + k);
      else y[j] = broadcast<V>(convert<typename B::type>(Acc(0)));
    AITC_UNROLL
    for (int i = 0; i < MR; ++i) {
      Acc x[V];
      if (row0 + i < M) load_a_row<V>(a, base_a, row0 + i, k, x);
      else {
        AITC_UNROLL
        for (int e = 0; e < V; ++e) x[e] = Acc(0);
      }
      AITC_UNROLL
      for (int j = 0; j < cols; ++j)
        AITC_UNROLL
        for (int e = 0; e < V; ++e) acc[i][j] += x[e] * convert<Acc>(y[j][e]);
    }
  }
  grid_dependency_launch();
  AITC_UNROLL
  for (int i = 0; i < MR; ++i) {
    AITC_UNROLL
    for (int j = 0; j < cols; ++j) acc[i][j] = warp_reduce(acc[i][j], [](Acc s, Acc t) { return s + t; });
    if (lane == i % warp_size && row0 + i < M) store_columns<cols>(store, batch, row0 + i, col0, N, acc[i]);
  }
}

template <class Tile, class Shape, class A, class B, class Store>
AITC_FN void gemv_n(const Shape& shape, const A& a, const B& b, const Store& store) {
  using Acc = accumulator_t<typename A::type>;
  static_assert(B::major == Major::N && is_same<Acc, accumulator_t<typename B::type>>,
                "B has major N and A's accumulator");
  constexpr int MR = Tile::MR, V = Tile::V, across = Tile::across, down = Tile::down;
  const int M = shape.M, N = shape.N, K = shape.K, lane = lane_index(), warp = warp_index();
  const int groups_n = ceil_div(N, across * V), groups_m = ceil_div(M, MR);
  const int index = int(blockIdx.x % unsigned(groups_n)), rest = int(blockIdx.x / unsigned(groups_n)),
            row0 = rest % groups_m * MR, batch = rest / groups_m;
  const int col = (index * across + lane % across) * V;
  grid_dependency_wait();
  const auto *base_a = a.matrix(batch), *base_b = b.matrix(batch);
  Acc acc[MR][V];
  AITC_UNROLL
  for (int i = 0; i < MR; ++i)
    AITC_UNROLL
    for (int j = 0; j < V; ++j) acc[i][j] = Acc(0);
  if (col < N) {
    AITC_UNROLL_4
    for (int k = warp * down + lane / across; k < K; k += Tile::warps * down) {
      const auto y = load<V>(base_b + k * int64_t(b.stride_row) + col);
      AITC_UNROLL
      for (int i = 0; i < MR; ++i)
        if (row0 + i < M) {
          Acc x[1];
          load_a_row<1>(a, base_a, row0 + i, k, x);
          AITC_UNROLL
          for (int j = 0; j < V; ++j) acc[i][j] += x[0] * convert<Acc>(y[j]);
        }
    }
  }
  grid_dependency_launch();
  AITC_UNROLL
  for (int i = 0; i < MR; ++i)
    AITC_UNROLL
    for (int j = 0; j < V; ++j)
      AITC_UNROLL
      for (int mask = warp_size / 2; mask >= across; mask /= 2) acc[i][j] += shuffle_xor(acc[i][j], mask);
  if constexpr (Tile::warps > 1) {
    Acc* scratch = reinterpret_cast<Acc*>(shared_memory());  // (warps,MR,across V)
    if (lane < across)
      AITC_UNROLL
      for (int i = 0; i < MR; ++i)
        AITC_UNROLL
        for (int j = 0; j < V; ++j) scratch[((warp * MR + i) * V + j) * across + lane] = acc[i][j];
    block_barrier();
    if (warp == 0 && lane < across)
      AITC_NO_UNROLL
      for (int w = 1; w < Tile::warps; ++w)
        AITC_UNROLL
        for (int i = 0; i < MR; ++i)
          AITC_UNROLL
          for (int j = 0; j < V; ++j) acc[i][j] += scratch[((w * MR + i) * V + j) * across + lane];
  }
  if (warp == 0 && lane < across)
    AITC_UNROLL
    for (int i = 0; i < MR; ++i)
      if (row0 + i < M) store_columns<V>(store, batch, row0 + i, col, N, acc[i]);
}

AITC_END
