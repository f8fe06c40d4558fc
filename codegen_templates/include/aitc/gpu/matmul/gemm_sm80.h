// gemm_sm80.h: matrix products on the tensor cores by mma.sync (sm_80 and newer): half_t, bfloat16_t, and float as
// TF32; sums in float.
//
// gemm_sm80<Tile<BM, BN, BK, warps_m, warps_n, stages, warps_k = 1>>(shape, a, b, store)
//   Shape   batch, M, N, K: static constexpr int, or int members read at run time
//   A       (batch, M, K): using type = half_t | bfloat16_t | float; major (Major::K, Major::M, Major::none); width;
//           stride_row, stride_col (elements; static constexpr or members; any value, 0 and negative too, along what is
//           not contiguous); matrix(batch) -> const type*.
//           width: elements of the widest aligned load along the contiguous axis. Its extent (K
//           for Major::K), the other stride, and every matrix(batch) are multiples of it. 16 bytes are fastest, 8 and 4
//           still copy asynchronously, less goes through registers. Major::none: width = 1
//   B       (batch, K, N), same type; major Major::K ("transposed", stride_row == 1), Major::N (stride_col == 1),
//           Major::none; the rest likewise
//   Store   width; operator()<V>(int batch, int64_t row, int64_t col, const float (&acc)[V]), V <= min(width, 8)
// K may be 0 (results are 0).
// Blocks   ceil(M / BM) * ceil(N / BN) * batch in x
// Threads  Tile::threads = 32 * warps_m * warps_n * warps_k
// Shared   GemmSm80<Tile, Shape, A, B>::smem_bytes, the formula at the top of tile_sm80.h with sizeof(type)
// Tiles    measured on an H200 (where mma.sync reaches 0.6 of what wgmma does):
//          16 bits, large  <128, 128, 64, 2, 2, 3>, <128, 96, 64, 2, 2, 3>, <128, 128, 32, 2, 2, 4>
//          16 bits, small  <32, 32, 64, 1, 1, 6, 4>, <32, 32, 128, 1, 1, 4, 4>, <64, 64, 64, 2, 2, 4>;
//                          M <= 32 <16, 32, 128, 1, 1, 4, 8>
//          TF32            <128, 128, 32, 2, 2, 3>, <128, 128, 16, 2, 2, 4>, <64, 64, 32, 2, 2, 4>
//          M <= 8          see gemv.h
//
//   #include "aitc/gpu/matmul/gemm_sm80.h"
//   using namespace aitc;
//   struct Shape { static constexpr int batch = 1; int M; static constexpr int N = 768, K = 3072; };
//   struct A {                                              // (batch, M, K)
//     using type = half_t;
//     static constexpr Major major = Major::K;
//     static constexpr int width = 8;
//     static constexpr int64_t stride_row = 3072, stride_col = 1;
//     const half_t* data;
//     AITC_FN const half_t* matrix(int) const { return data; }
//   };
//   struct B {                                              // (batch, K, N)
//     using type = half_t;
//     static constexpr Major major = Major::N;
//     static constexpr int width = 8;
//     static constexpr int64_t stride_row = 768, stride_col = 1;
//     const half_t* data;
//     AITC_FN const half_t* matrix(int) const { return data; }
//   };
//   struct Store {
//     static constexpr int width = 8;
//     half_t* out;
//     template <int V> AITC_FN void operator()(int, int64_t row, int64_t col, const float (&acc)[V]) const {
//       Vec<half_t, V> r;
//       AITC_UNROLL for (int j = 0; j < V; ++j) r[j] = convert<half_t>(acc[j]);
//       store<V>(out + row * 768 + col, r);
//     }
//   };
//   AITC_KERNEL(128) void AITC_ENTRY(gemm_4)(const half_t* x, const half_t* w, half_t* out, int M) {
//     gemm_sm80<Tile<128, 128, 32, 2, 2, 4>>(Shape{M}, A{x}, B{w}, Store{out});
//   }
#pragma once
#include "aitc/gpu/matmul/tile_sm80.h"

AITC_BEGIN

// One operand's tiles. Along its tile's rows lies `outer` (M or N) if KMajor, else K; columns are contiguous in memory,
// unless Major::none.
template <class Operand, int Outer, int BK, int Threads, bool IsA> struct OperandLoader {
  using T = typename Operand::type;
  static constexpr bool k_major = Operand::major == Major::K || Operand::major == Major::none;
  static constexpr int width = Operand::major == Major::none ? 1 : min_of(Operand::width, 16 / int(sizeof(T)));
  using Shared = SharedTile<T, k_major ? Outer : BK, k_major ? BK : Outer, !k_major && sizeof(T) == 4>;
  static constexpr int per_row = Shared::cols / width, pieces = Shared::rows * per_row,
                       rounds = ceil_div(pieces, Threads);
  static constexpr bool regular = Threads % per_row == 0;  // a thread's pieces all lie in one column
  static constexpr int row_step = regular ? Threads / per_row : 0;

  Operand operand;
  const T* base;  // the first element of this thread's first piece of tile 0, or of the matrix if not regular
  int outer0, outer_end, k_end;

  AITC_FN OperandLoader(const Operand& o, int batch, int first, int end, int k_size)
      : operand(o), base(o.matrix(batch)), outer0(first), outer_end(end), k_end(k_size) {
    if constexpr (regular) {
      const int row = thread_index() / per_row, col = thread_index() % per_row * width;
      outer0 += k_major ? row : col;
      base += outer0 * stride_outer() + (k_major ? col : row) * stride_k();
    }
  }

  AITC_FN int64_t stride_outer() const {
    if constexpr (!k_major) return 1;
    else return IsA ? int64_t(operand.stride_row) : int64_t(operand.stride_col);
  }
  AITC_FN int64_t stride_k() const {
    if constexpr (Operand::major == Major::K) return 1;
    else return IsA ? int64_t(operand.stride_col) : int64_t(operand.stride_row);
  }

  AITC_FN void load(char* stage, int k_tile) const {
    if constexpr (width * sizeof(T) >= 4) {
      AITC_UNROLL
      for (int i = 0; i < rounds; ++i) load_round(stage, k_tile, i);
    } else {  // through registers: not too many at a time
      AITC_UNROLL_4
      for (int i = 0; i < rounds; ++i) load_round(stage, k_tile, i);
    }
  }

  AITC_FN void load_round(char* stage, int k_tile, int i) const {
    const int thread = thread_index(), k0 = k_tile * BK;
    if constexpr (regular) {
      const int row = thread / per_row + i * row_step, col = thread % per_row * width;
      const int outer = outer0 + (k_major ? i * row_step : 0), k = k0 + (k_major ? col : row);
      const T* from = base + int64_t(k0 + (k_major ? 0 : i * row_step)) * stride_k();
      if (k_major) from += i * row_step * stride_outer();
      if (pieces % Threads == 0 || row < Shared::rows)
        copy_piece<T, width>(stage, Shared::element_offset(row, col), from, outer < outer_end && k < k_end);
    } else {
      const int p = thread + i * Threads, row = p / per_row, col = p % per_row * width;
      const int outer = outer0 + (k_major ? row : col), k = k0 + (k_major ? col : row);
      const T* from = base + outer * stride_outer() + k * stride_k();
      if (pieces % Threads == 0 || p < pieces)
        copy_piece<T, width>(stage, Shared::element_offset(row, col), from, outer < outer_end && k < k_end);
    }
  }
};

template <class Tile, class Shape, class A, class B> struct GemmSm80 {
  using T = typename A::type;
  static_assert(is_same<T, typename B::type>, "A and B have one type");
  static_assert(is_same<T, half_t> || is_same<T, bfloat16_t> || is_same<T, float>, "half, bfloat16, or float as TF32");
  using LoaderA = OperandLoader<A, Tile::BM, Tile::BK, Tile::threads, true>;
  using LoaderB = OperandLoader<B, Tile::BN, Tile::BK, Tile::threads, false>;
  using Loop = MainLoop<T, Tile, LoaderA, LoaderB>;
  static constexpr int threads = Tile::threads, smem_bytes = Loop::smem_bytes;
};

template <class Tile, class Shape, class A, class B, class Store>
AITC_FN void gemm_sm80(const Shape& shape, const A& a, const B& b, const Store& store) {
  using Gemm = GemmSm80<Tile, Shape, A, B>;
  const int M = shape.M, N = shape.N, K = shape.K;
  const BlockPlace place = block_place(ceil_div(M, Tile::BM), ceil_div(N, Tile::BN));
  const int row0 = place.tile_m * Tile::BM, col0 = place.tile_n * Tile::BN;
  grid_dependency_wait();
  typename Gemm::LoaderA load_a(a, place.batch, row0, M, K);
  typename Gemm::LoaderB load_b(b, place.batch, col0, N, K);
  typename Gemm::Loop loop;
  loop.run(load_a, load_b, ceil_div(K, Tile::BK));
  grid_dependency_launch();
  loop.template epilogue<static_multiple<Shape, Store::width>>(store, place.batch, int64_t(row0), int64_t(M),
                                                               int64_t(col0), int64_t(N));
}

AITC_END
