// image.h: how the convolution kernels address an image, a window and a filter; shared by conv_simt.h, conv_sm80.h,
// conv_cdna.h and depthwise.h.
//
// A convolution is a matrix product: row = flattened (n, o, p, q), col = filter within the group, k = flattened (t, r,
// s, c).
//   Shape    batch; D, H, W (input extents); O, P, Q (output depth, height, width); C and K (channels of a group, in
//            and out); groups: static constexpr int, or int members read at run time. 2-D: D = O = 1; 1-D: H = P = 1
//            too. batch * O * P * Q < 2^31.
//   Window   int members likewise (static constexpr is faster): T, R, S (extent in depth, height, width; 1 where
//            unused), stride_d, stride_h, stride_w, dilation_d, dilation_h, dilation_w, pad_d, pad_h, pad_w (before the
//            first element; what lies behind the last is given by O, P, Q)
//   X        NHWC: using type; const type* data; stride_n, stride_d, stride_h, stride_w (elements, static constexpr or
//            members; channels are contiguous, group g begins at channel g * C); width: elements of the widest aligned
//            load along C (C, all strides and data are multiples of it)
//   Filter   operand B of the product, as in gemm_sm80.h: (group, k, col) with major = Major::K, that is (groups, K, T,
//            R, S, C) in memory: stride_row = 1, stride_col = T * R * S * C; width divides C; matrix(group)
//   Store    width; operator()<V>(int group, int64_t row, int64_t col, const float (&acc)[V])
#pragma once
#include "aitc/operand.h"
#include "aitc/types.h"

AITC_BEGIN

template <class Shape> AITC_FN int conv_rows(const Shape& s) { return s.batch * s.O * s.P * s.Q; }
template <class Shape, class Window> AITC_FN int conv_depth(const Shape& s, const Window& w) {
  return w.T * w.R * w.S * s.C;
}

// The input pixel under a window's first tap, for one output pixel. Coordinates may lie outside; a row beyond the last
// lies far outside.
struct Pixel {
  int d, h, w;
  int64_t offset;

  template <class Shape, class Window, class X>
  AITC_FN void set(const Shape& shape, const Window& window, const X& x, int row) {
    const int Q = shape.Q, P = shape.P, O = shape.O;
    const bool inside = row < conv_rows(shape);
    const int q = row % Q, p = row / Q % P, o = row / (Q * P) % O, n = row / (Q * P * O);
    d = o * window.stride_d - window.pad_d;
    h = p * window.stride_h - window.pad_h;
    w = inside ? q * window.stride_w - window.pad_w : -(1 << 29);
    offset = n * int64_t(x.stride_n) + d * int64_t(x.stride_d) + h * int64_t(x.stride_h) + w * int64_t(x.stride_w);
  }
};

// One k: a tap of the window and a channel.
struct Tap {
  int d, h, w;
  int64_t offset;
  bool valid;

  template <class Shape, class Window, class X>
  AITC_FN void set(const Shape& shape, const Window& window, const X& x, int k) {
    const int C = shape.C, S = window.S, R = window.R;
    const int tap = k / C, c = k - tap * C;
    d = tap / (S * R) * window.dilation_d;
    h = tap / S % R * window.dilation_h;
    w = tap % S * window.dilation_w;
    offset = d * int64_t(x.stride_d) + h * int64_t(x.stride_h) + w * int64_t(x.stride_w) + c;
    valid = k < conv_depth(shape, window);
  }
  template <class Shape> AITC_FN bool inside(const Shape& shape, const Pixel& p) const {
    return valid && unsigned(p.w + w) < unsigned(shape.W) && unsigned(p.h + h) < unsigned(shape.H) &&
           unsigned(p.d + d) < unsigned(shape.D);
  }
};

// Whether Shape::K is known when compiling and a multiple of V.
template <class Shape, int V, bool is_static> struct StaticFilters {
  static constexpr bool value = V == 1;
};
template <class Shape, int V> struct StaticFilters<Shape, V, true> {
  static constexpr bool value = Shape::K % V == 0;
};
template <class Shape, int V> constexpr bool static_filters =
    StaticFilters<Shape, V, is_static_member<decltype(&Shape::K)>>::value;

AITC_END
