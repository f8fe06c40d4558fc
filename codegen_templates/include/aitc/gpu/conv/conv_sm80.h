// conv_sm80.h: convolution as an implicit matrix product on the tensor cores (mma.sync, sm_80 and newer): half_t,
// bfloat16_t, float as TF32; sums in float. NHWC; 1-D to 3-D, strided, dilated, grouped. The patches are gathered by
// cp.async with zero fill straight into shared memory.
//
// conv_sm80<Tile<BM, BN, BK, warps_m, warps_n, stages, warps_k = 1>>(shape, window, x, filter, store)
//   Shape, Window, X, Filter, Store: see image.h. X and Filter have one type.
//   A width of 16 bytes is fastest; 8 and 4 bytes still copy asynchronously; less goes through registers. BK need not
//   divide C.
// Blocks   ceil(batch * O * P * Q / BM) * ceil(K / BN) * groups in x
// Threads  Tile::threads, a multiple of BK / width
// Shared   ConvSm80<Tile, Shape, Window, X, Filter>::smem_bytes, the formula at the top of tile_sm80.h
// Tiles    16 bits, measured on an H200: large <128, 64, 32, 2, 2, 4>, <128, 64, 64, 2, 2, 3>, <64, 64, 64, 2, 2, 3>;
//          one image <32, 32, 128, 1, 1, 4, 4> (many channels), <32, 64, 64, 1, 2, 4, 2>, <64, 64, 32, 2, 2, 4>.
//          Pad 3 channels to 4: twice as fast
//
//   #include "aitc/gpu/conv/conv_sm80.h"
//   using namespace aitc;
//   struct Shape {
//     int batch;
//     static constexpr int D = 1, H = 56, W = 56, O = 1, P = 56, Q = 56, C = 64, K = 64, groups = 1;
//   };
//   struct Window {
//     static constexpr int T = 1, R = 3, S = 3, stride_d = 1, stride_h = 1, stride_w = 1;
//     static constexpr int dilation_d = 1, dilation_h = 1, dilation_w = 1, pad_d = 0, pad_h = 1, pad_w = 1;
//   };
//   struct X {                                              // (N, D, H, W, groups C)
//     using type = half_t;
//     static constexpr int width = 8;
//     static constexpr int64_t stride_n = 200704, stride_d = 200704, stride_h = 3584, stride_w = 64;
//     const half_t* data;
//   };
//   struct Filter {                                         // (groups, K, T R S C)
//     using type = half_t;
//     static constexpr Major major = Major::K;
//     static constexpr int width = 8;
//     static constexpr int64_t stride_row = 1, stride_col = 576;
//     const half_t* data;
//     AITC_FN const half_t* matrix(int group) const { return data + int64_t(group) * 36864; }
//   };
//   struct Store {
//     static constexpr int width = 8;
//     const half_t* bias;
//     half_t* out;
//     template <int V> AITC_FN void operator()(int group, int64_t row, int64_t col, const float (&acc)[V]) const {
//       const auto b = load<V>(bias + col);
//       Vec<half_t, V> r;
//       AITC_UNROLL for (int j = 0; j < V; ++j) r[j] = convert<half_t>(m_max(acc[j] + convert<float>(b[j]), 0.0f));
//       store<V>(out + row * 64 + col, r);
//     }
//   };
//   AITC_KERNEL(128) void AITC_ENTRY(conv_7)(const half_t* x, const half_t* w, const half_t* bias, half_t* y, int N) {
//     conv_sm80<Tile<128, 64, 32, 2, 2, 4>>(Shape{N}, Window{}, X{x}, Filter{w}, Store{bias, y});
//   }
#pragma once
#include "aitc/gpu/matmul/gemm_sm80.h"
#include "aitc/gpu/conv/image.h"

AITC_BEGIN

// Tiles of patches: BM output pixels x BK taps and channels. A thread's pieces lie in one column, so one tap serves all
// of them.
template <class X, class Shape, class Window, int BM, int BK, int Threads> struct PatchLoader {
  using T = typename X::type;
  using Shared = SharedTile<T, BM, BK>;
  static constexpr bool k_major = true;
  static constexpr int width = min_of(X::width, 16 / int(sizeof(T)));
  static constexpr int per_row = BK / width, row_step = Threads / per_row, rounds = ceil_div(BM, row_step);
  static_assert(Threads % per_row == 0, "the threads are a multiple of BK / width");

  X x;
  Shape shape;
  Window window;
  const T* base;
  Pixel pixels[rounds];

  AITC_FN PatchLoader(const Shape& s, const Window& w, const X& x_, int group, int row0)
      : x(x_), shape(s), window(w), base(x_.data + int64_t(group) * s.C) {
    AITC_UNROLL
    for (int r = 0; r < rounds; ++r) pixels[r].set(shape, window, x, row0 + thread_index() / per_row + r * row_step);
  }
  AITC_FN void load(char* stage, int k_tile) const {
    const int row = thread_index() / per_row, col = thread_index() % per_row * width;
    Tap tap;
    tap.set(shape, window, x, k_tile * BK + col);
    AITC_UNROLL
    for (int r = 0; r < rounds; ++r)
      if (BM % row_step == 0 || row + r * row_step < BM)
        copy_piece<T, width>(stage, Shared::element_offset(row + r * row_step, col),
                             base + pixels[r].offset + tap.offset, tap.inside(shape, pixels[r]));
  }
};

template <class Tile, class Shape, class Window, class X, class Filter> struct ConvSm80 {
  using T = typename X::type;
  static_assert(is_same<T, typename Filter::type>, "X and Filter have one type");
  static_assert(is_same<T, half_t> || is_same<T, bfloat16_t> || is_same<T, float>, "half, bfloat16, or float as TF32");
  using LoaderA = PatchLoader<X, Shape, Window, Tile::BM, Tile::BK, Tile::threads>;
  using LoaderB = OperandLoader<Filter, Tile::BN, Tile::BK, Tile::threads, false>;
  using Loop = MainLoop<T, Tile, LoaderA, LoaderB>;
  static constexpr int threads = Tile::threads, smem_bytes = Loop::smem_bytes;
};

template <class Tile, class Shape, class Window, class X, class Filter, class Store>
AITC_FN void conv_sm80(const Shape& shape, const Window& window, const X& x, const Filter& filter, const Store& store) {
  using Conv = ConvSm80<Tile, Shape, Window, X, Filter>;
  const int M = conv_rows(shape), N = shape.K, K = conv_depth(shape, window);
  const BlockPlace place = block_place(ceil_div(M, Tile::BM), ceil_div(N, Tile::BN));
  const int row0 = place.tile_m * Tile::BM, col0 = place.tile_n * Tile::BN;
  grid_dependency_wait();
  typename Conv::LoaderA load_a(shape, window, x, place.batch, row0);
  typename Conv::LoaderB load_b(filter, place.batch, col0, N, K);
  typename Conv::Loop loop;
  loop.run(load_a, load_b, ceil_div(K, Tile::BK));
  grid_dependency_launch();
  loop.template epilogue<static_filters<Shape, Store::width>>(store, place.batch, int64_t(row0), int64_t(M),
                                                              int64_t(col0), int64_t(N));
}

AITC_END
