// Depthwise convolution on cpu: one filter for each channel, channels last; vectors run along the channels.
//
//   depthwise(shape, window, x, filter, store)
//
//   Shape    batch, D, H, W, O, P, Q as in cpu/conv.h; C channels. static constexpr int, or members read at run time.
//            (Several filters a channel: use conv with groups.)
//   Window   as in cpu/conv.h
//   X        using type; const type* data; int64_t stride_n, stride_d, stride_h, stride_w (elements; channels are contiguous)
//   Filter   using type; const type* data: [T][R][S][C] contiguous. From w of shape (C, 1, T, R, S): w.reshape(C, -1).T.copy()
//   Store    static constexpr int width; operator()<V>(int zero, int64_t row, int64_t col, const S (&acc)[V]): row = ((n*O + o)*P + p)*Q + q,
//            col = channel, a multiple of V; S as in cpu/gemm.h
//
//   #include "aitc/cpu/depthwise.h"
//   using namespace aitc;
//   struct Shape { static constexpr int batch = 1, D = 1, H = 112, W = 112, O = 1, P = 56, Q = 56, C = 64; };
//   struct Window {
//     static constexpr int T = 1, R = 3, S = 3, stride_d = 1, stride_h = 2, stride_w = 2;
//     static constexpr int dilation_d = 1, dilation_h = 1, dilation_w = 1, pad_d = 0, pad_h = 1, pad_w = 1;
//   };
//   struct X {
//     using type = float;
//     static constexpr int64_t stride_n = 112 * 112 * 64, stride_d = 112 * 112 * 64, stride_h = 112 * 64, stride_w = 64;
//     const float* data;
//   };
//   struct Filter { using type = float; const float* data; };                    // (T, R, S, C)
//   struct Store {
//     static constexpr int width = 16;
//     float* out;
//     template <int V> AITC_FN void operator()(int, int64_t row, int64_t col, const float (&acc)[V]) const {
//       Vec<float, V> r;
//       AITC_UNROLL for (int j = 0; j < V; ++j) r[j] = acc[j];
//       store<V>(out + row * 64 + col, r);
//     }
//   };
//   AITC_KERNEL(0) void AITC_ENTRY(depthwise_1)(const float* x, const float* w, float* out) {
//     depthwise(Shape{}, Window{}, X{x}, Filter{w}, Store{out});
//   }
#pragma once
#include "aitc/cpu/taps.h"

AITC_BEGIN
namespace {

AITC_STATIC_MEMBER(C)

template <typename T, int N, typename U>
AITC_FN simd_t<T, N> load_as(const U* p) {
  if constexpr (is_same<T, U>) {
    return simd_load<simd_t<T, N>>(p);
  } else {
    T converted[N];  // (N)
#pragma omp simd
    for (int i = 0; i < N; ++i) converted[i] = convert<T>(p[i]);
    return simd_load<simd_t<T, N>>(converted);
  }
}

// tile(R, NV * N) = sum over taps of table[tap * R + r][c ..] * filter[tap * C + c ..]
template <typename T, int R, int NV, int N, typename XT, typename FT>
AITC_FN void depthwise_tile(const XT* const* table, int taps, const FT* filter, int64_t C, int64_t c, T* tile) {
  using V = simd_t<T, N>;
  V sum[R][NV];  // (R,NV)
  AITC_UNROLL_ALL
  for (int r = 0; r < R; ++r) {
    AITC_UNROLL_ALL
    for (int v = 0; v < NV; ++v) sum[r][v] = V{};
  }
  filter += c;
  for (int tap = 0; tap < taps; ++tap, table += R, filter += C) {
    V w[NV];  // (NV)
    AITC_UNROLL_ALL
    for (int v = 0; v < NV; ++v) w[v] = load_as<T, N>(filter + v * N);
    AITC_UNROLL_ALL
    for (int r = 0; r < R; ++r) {
      const XT* x = table[r] + c;
      AITC_UNROLL_ALL
      for (int v = 0; v < NV; ++v) sum[r][v] += load_as<T, N>(x + v * N) * w[v];
    }
  }
  AITC_UNROLL_ALL
  for (int r = 0; r < R; ++r) {
    AITC_UNROLL_ALL
    for (int v = 0; v < NV; ++v) simd_store(tile + (r * NV + v) * N, sum[r][v]);
  }
}

// Channels [c, C) of one strip of R pixels: two vectors at a time, then one, then halves of one.
template <int R, int NV, int N, int StaticC, typename T, typename XT, typename FT, typename Store>
AITC_FN void depthwise_channels(const XT* const* table, int taps, const FT* filter, int64_t C, int64_t c, int64_t row, int rows,
                                const Store& store) {
  constexpr int width = NV * N, V = Store::width < width ? Store::width : width;
  alignas(64) T tile[R * width];  // (R,width)
  for (; c + width <= C; c += width) {
    depthwise_tile<T, R, NV, N>(table, taps, filter, C, c, tile);
    for (int r = 0; r < rows; ++r)
      for (int i = 0; i < width; i += V) {
        T piece[V];  // (V)
        copy_elements<V>(piece, tile + r * width + i);
        store.template operator()<V>(0, row + r, c + i, piece);
      }
  }
  if constexpr (StaticC == 0 || StaticC % width != 0) {
    if constexpr (NV > 1) depthwise_channels<R, NV / 2, N, StaticC, T>(table, taps, filter, C, c, row, rows, store);
    else if constexpr (N > 1) depthwise_channels<R, 1, N / 2, StaticC, T>(table, taps, filter, C, c, row, rows, store);
  }
}

template <typename Shape, typename Window, typename X, typename Filter, typename Store>
inline void depthwise(const Shape& shape, const Window& window, const X& x, const Filter& filter, const Store& store_functor) {
  using XT = typename X::type;
  using T = sum_t<XT, typename Filter::type>;
  constexpr int R = 8, lanes = AITC_VECTOR_BYTES / int(sizeof(T)), NV = AITC_VECTOR_BYTES >= 64 ? 2 : 1;
  const int64_t M = int64_t(shape.batch) * shape.O * shape.P * shape.Q, C = shape.C;
  if (M <= 0 || C <= 0) return;
  const int taps = window.T * window.R * window.S;
  const int64_t strips = ceil_div(M, R), strip_work = R * C * taps;
  parallel_for(strips, max_of(int64_t(1), 65536 / max_of(strip_work, int64_t(1))), [&](int64_t begin, int64_t end) {
    const Store store = store_functor;
    const int64_t table_bytes = round_up(taps * R * int64_t(sizeof(XT*)), 64);
    char* memory = static_cast<char*>(scratch(2, size_t(table_bytes + C * int64_t(sizeof(XT)))));
    const XT** table = reinterpret_cast<const XT**>(memory);     // (taps,R)
    XT* zeros = reinterpret_cast<XT*>(memory + table_bytes);     // (C)
    for (int64_t c = 0; c < C; ++c) zeros[c] = XT{};
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i * R;
      const int rows = int(min_of(int64_t(R), M - row));
      for (int r = 0; r < R; ++r)
        point_to_taps<R>(shape, window, x, 0, corner_of(shape, window, row + min_of(r, rows - 1)), zeros, table + r);
      depthwise_channels<R, NV, lanes, static_C<Shape>(0), T>(table, taps, filter.data, C, 0, row, rows, store);
    }
  });
}

}  // namespace
AITC_END
