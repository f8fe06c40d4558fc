// depthwise.h: depthwise convolution on GPUs: one filter for each channel, channels last. A thread computes V channels
// of a few output pixels side by side and keeps the input row under them in registers.
//
//   depthwise<DepthwiseTile<V, pixels, threads>>(shape, window, x, filter, store)
//
//   Tile     V channels a thread (a power of two up to 8, divides C, the strides, and width), `pixels` neighbours along
//            the width (4 is good; 1 where Q is small)
//   Shape    batch, D, H, W, O, P, Q as in image.h; C channels. static constexpr int, or members. (Several filters a
//            channel: use conv with groups.)
//   Window   as in image.h; T, R, S, stride_w, dilation_w static constexpr
//   X        using type; const type* data; stride_n, stride_d, stride_h, stride_w (elements; channels are contiguous)
//   Filter   using type; const type* data: (T, R, S, C) contiguous
//   Store    width; operator()<W>(int zero, int64_t row, int64_t col, const Acc (&acc)[W]), W = min(V, width): row =
//            ((n*O + o)*P + p)*Q + q, col = channel
// Threads of the whole grid: batch * O * P * ceil(Q / pixels) * (C / V); blocks: that over `threads`, rounded up, in x.
// No shared memory. Acc: see simt.h.
//
//   #include "aitc/gpu/conv/depthwise.h"
//   using namespace aitc;
//   struct Shape { int batch; static constexpr int D = 1, H = 112, W = 112, O = 1, P = 56, Q = 56, C = 64; };
//   struct Window {
//     static constexpr int T = 1, R = 3, S = 3, stride_d = 1, stride_h = 2, stride_w = 2;
//     static constexpr int dilation_d = 1, dilation_h = 1, dilation_w = 1, pad_d = 0, pad_h = 1, pad_w = 1;
//   };
//   struct X {                                              // (N, D, H, W, C)
//     using type = half_t;
//     static constexpr int64_t stride_n = 802816, stride_d = 802816, stride_h = 7168, stride_w = 64;
//     const half_t* data;
//   };
//   struct Filter { using type = half_t; const half_t* data; };                    // (T, R, S, C)
//   struct Store {
//     static constexpr int width = 8;
//     half_t* out;
//     template <int V> AITC_FN void operator()(int, int64_t row, int64_t col, const float (&acc)[V]) const {
//       Vec<half_t, V> r;
//       AITC_UNROLL for (int j = 0; j < V; ++j) r[j] = convert<half_t>(acc[j]);
//       store<V>(out + row * 64 + col, r);
//     }
//   };
//   AITC_KERNEL(128) void AITC_ENTRY(depthwise_1)(const half_t* x, const half_t* w, half_t* y, int N) {
//     depthwise<DepthwiseTile<8, 4, 128>>(Shape{N}, Window{}, X{x}, Filter{w}, Store{y});
//   }
#pragma once
#include "aitc/gpu/core/simt.h"

AITC_BEGIN

template <int V_, int Pixels, int Threads> struct DepthwiseTile {
  static constexpr int V = V_, pixels = Pixels, threads = Threads;
};

template <class Tile, class Shape, class Window, class X, class Filter, class Store>
AITC_FN void depthwise(const Shape& shape, const Window& window, const X& x, const Filter& filter, const Store& store) {
  using Acc = accumulator_t<typename X::type>;
  constexpr int V = Tile::V, pixels = Tile::pixels, S = Window::S;
  constexpr int span =
      (pixels - 1) * Window::stride_w + (S - 1) * Window::dilation_w + 1;  // input pixels under the output pixels
  const int C = shape.C, Q = shape.Q, P = shape.P, O = shape.O, H = shape.H, W = shape.W, D = shape.D;
  const int packs = C / V, groups = ceil_div(Q, pixels);
  const int64_t index = int64_t(blockIdx.x) * Tile::threads + thread_index();
  grid_dependency_wait();
  if (index >= int64_t(shape.batch) * O * P * groups * packs) return;
  const int c = int(index % packs) * V;
  const int64_t place = index / packs;
  const int q0 = int(place % groups) * pixels;
  const int64_t line = place / groups;  // (n*O + o)*P + p
  const int p = int(line % P), o = int(line / P % O), n = int(line / P / O);
  const int w0 = q0 * Window::stride_w - window.pad_w;
  Acc acc[pixels][V];
  AITC_UNROLL
  for (int i = 0; i < pixels; ++i)
    AITC_UNROLL
    for (int j = 0; j < V; ++j) acc[i][j] = Acc(0);
  AITC_NO_UNROLL
  for (int tr = 0; tr < Window::T * Window::R; ++tr) {
    const int d = o * window.stride_d - window.pad_d + tr / Window::R * window.dilation_d,
              h = p * window.stride_h - window.pad_h + tr % Window::R * window.dilation_h;
    if (unsigned(d) >= unsigned(D) || unsigned(h) >= unsigned(H)) continue;
    const auto* row = x.data + n * int64_t(x.stride_n) + d * int64_t(x.stride_d) + h * int64_t(x.stride_h) + c;
    Vec<typename X::type, V> in[span];  // (span,V)
    AITC_UNROLL
    for (int i = 0; i < span; ++i) {
      const int w = w0 + i;
      if (unsigned(w) < unsigned(W)) in[i] = load<V>(row + w * int64_t(x.stride_w));
      else in[i] = broadcast<V>(convert<typename X::type>(Acc(0)));
    }
    AITC_UNROLL
    for (int s = 0; s < S; ++s) {
      const auto f = load<V>(filter.data + (int64_t(tr) * S + s) * C + c);
      AITC_UNROLL
      for (int i = 0; i < pixels; ++i)
        AITC_UNROLL
      for (int j = 0; j < V; ++j)
        acc[i][j] += convert<Acc>(in[i * Window::stride_w + s * Window::dilation_w][j]) * convert<Acc>(f[j]);
    }
  }
  grid_dependency_launch();
  constexpr int width = min_of(V, Store::width);
  AITC_UNROLL
  for (int i = 0; i < pixels; ++i)
    if (q0 + i < Q)
      AITC_UNROLL
      for (int j = 0; j < V; j += width) {
        Acc part[width];
        AITC_UNROLL
        for (int e = 0; e < width; ++e) part[e] = acc[i][j + e];
        store.template operator()<width>(0, line * Q + q0 + i, c + j, part);
      }
}

AITC_END
