// Where a window's taps lie in an NHWC image: conv.h and depthwise.h read their input through these pointers.
// Shape, Window and X are those of cpu/conv.h.
#pragma once
#include "aitc/cpu/microkernel.h"

AITC_BEGIN
namespace {

AITC_STATIC_MEMBER(batch)
AITC_STATIC_MEMBER(O)
AITC_STATIC_MEMBER(P)
AITC_STATIC_MEMBER(Q)

// Output pixels of all images, or 0 if that is not known at compile time.
template <typename Shape>
constexpr int64_t static_pixels() {
  return int64_t(static_batch<Shape>(0)) * static_O<Shape>(0) * static_P<Shape>(0) * static_Q<Shape>(0);
}

// The top left corner of an output pixel's window, from its row number.
struct Corner {
  int64_t n;
  int d, h, w;
};
template <typename Shape, typename Window>
AITC_FN Corner corner_of(const Shape& shape, const Window& window, int64_t row) {
  const int q = int(row % shape.Q), p = int(row / shape.Q % shape.P), o = int(row / (int64_t(shape.Q) * shape.P) % shape.O);
  return {row / (int64_t(shape.Q) * shape.P * shape.O), o * window.stride_d - window.pad_d, p * window.stride_h - window.pad_h,
          q * window.stride_w - window.pad_w};
}

// table[tap * R] = the pixel's channels under that tap.
template <int R, typename Shape, typename Window, typename X, typename T>
void point_to_taps(const Shape& shape, const Window& window, const X& x, int group, const Corner& corner, const T* zeros, const T** table) {
  const T* image = x.data + corner.n * x.stride_n + int64_t(group) * shape.C;
  for (int t = 0; t < window.T; ++t) {
    const int d = corner.d + t * window.dilation_d;
    for (int r = 0; r < window.R; ++r) {
      const int h = corner.h + r * window.dilation_h;
      const bool line_inside = unsigned(d) < unsigned(shape.D) && unsigned(h) < unsigned(shape.H);
      const T* line = image + d * x.stride_d + h * x.stride_h;
      for (int s = 0; s < window.S; ++s, table += R) {
        const int w = corner.w + s * window.dilation_w;
        *table = line_inside && unsigned(w) < unsigned(shape.W) ? line + w * x.stride_w : zeros;
      }
    }
  }
}

}  // namespace
AITC_END
