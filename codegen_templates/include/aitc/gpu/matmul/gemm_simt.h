// gemm_simt.h: matrix products by plain multiply-adds, for every type and every GPU: strict float32, double, integers,
// and whatever does not fit the tensor cores.
//
// gemm_simt<SimtTile<BM, BN, BK, TM, TN, split = 1>>(shape, a, b, store)
//   Shape, A, B, Store as in gemm_sm80.h, except: A and B may have different types of one accumulator (see simt.h), and
//   acc is of that accumulator's type: operator()<V>(int batch, int64_t row, int64_t col, const Acc (&acc)[V]), V <=
//   min(width, 4). Widths beyond 4 elements are not used.
// Blocks   ceil(M / BM) * ceil(N / BN) * batch in x
// Threads  SimtTile::threads = (BM / TM) * (BN / TN) * split
// Shared   GemmSimt<Tile, Shape, A, B>::smem_bytes = max(split * 2 * BK * (BM + 4 + BN + 4), (split - 1) * BM * BN) *
//          sizeof(accumulator)
// Tiles    float, measured on an H200: <128, 128, 8, 8, 8> (large), <64, 64, 16, 8, 8, 4> (some hundred blocks),
//          <32, 32, 16, 4, 4, 4> (few blocks, long K), <128, 64, 8, 8, 4> (N = 64), <64, 64, 16, 4, 4>;
//          double <64, 64, 8, 4, 4>; M <= 8 see gemv.h
//
//   #include "aitc/gpu/matmul/gemm_simt.h"
//   using namespace aitc;
//   struct Shape { static constexpr int batch = 1; int M; static constexpr int N = 1000, K = 2048; };
//   struct A {                                              // (batch, M, K)
//     using type = float;
//     static constexpr Major major = Major::K;
//     static constexpr int width = 4;
//     static constexpr int64_t stride_row = 2048, stride_col = 1;
//     const float* data;
//     AITC_FN const float* matrix(int) const { return data; }
//   };
//   struct B {                                              // (batch, K, N)
//     using type = float;
//     static constexpr Major major = Major::K;
//     static constexpr int width = 4;
//     static constexpr int64_t stride_row = 1, stride_col = 2048;
//     const float* data;
//     AITC_FN const float* matrix(int) const { return data; }
//   };
//   struct Store {
//     static constexpr int width = 4;
//     float* out;
//     template <int V> AITC_FN void operator()(int, int64_t row, int64_t col, const float (&acc)[V]) const {
//       Vec<float, V> r;
//       AITC_UNROLL for (int j = 0; j < V; ++j) r[j] = acc[j];
//       store<V>(out + row * 1000 + col, r);
//     }
//   };
//   AITC_KERNEL(256) void AITC_ENTRY(gemm_9)(const float* x, const float* w, float* out, int M) {
//     gemm_simt<SimtTile<64, 64, 16, 4, 4>>(Shape{M}, A{x}, B{w}, Store{out});
//   }
#pragma once
#include "aitc/gpu/core/simt.h"

AITC_BEGIN

template <class Tile, class Shape, class A, class B> struct GemmSimt {
  using Acc = accumulator_t<typename A::type>;
  static_assert(is_same<Acc, accumulator_t<typename B::type>>, "A and B have one accumulator");
  using SourceA = SimtMatrix<A, Acc, true>;
  using SourceB = SimtMatrix<B, Acc, false>;
  using Loop = SimtLoop<Acc, Tile, SourceA, SourceB>;
  static constexpr int threads = Tile::threads, smem_bytes = Loop::smem_bytes;
};

template <class Tile, class Shape, class A, class B, class Store>
AITC_FN void gemm_simt(const Shape& shape, const A& a, const B& b, const Store& store) {
  using Gemm = GemmSimt<Tile, Shape, A, B>;
  const int M = shape.M, N = shape.N, K = shape.K;
  const BlockPlace place = block_place(ceil_div(M, Tile::BM), ceil_div(N, Tile::BN));
  const int row0 = place.tile_m * Tile::BM, col0 = place.tile_n * Tile::BN;
  grid_dependency_wait();
  typename Gemm::Loop loop;
  loop.run(typename Gemm::SourceA(a, place.batch, row0, M, K), typename Gemm::SourceB(b, place.batch, col0, N, K),
           ceil_div(K, Tile::BK));
  grid_dependency_launch();
  loop.template epilogue<static_multiple<Shape, Store::width>>(store, place.batch, row0, M, col0, N);
}

AITC_END
