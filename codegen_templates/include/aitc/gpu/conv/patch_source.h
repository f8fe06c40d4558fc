// patch_source.h: the patches of a convolution as operand A of the kernels that stage through registers (conv_simt.h,
// conv_cdna.h).
#pragma once
#include "aitc/gpu/conv/image.h"
#include "aitc/gpu/core/simt.h"

AITC_BEGIN

// piece(row, k, values): values at output pixel row0 + row, taps and channels from k on; zeros outside.
template <class X, class Shape, class Window, class Acc, int Widest = 4> struct PatchSource {
  using T = typename X::type;
  static constexpr bool along_k = true;
  static constexpr int width = min_of(X::width, min_of(Widest, 16 / int(sizeof(T))));
  X x;
  Shape shape;
  Window window;
  const T* base;
  int row0;

  AITC_FN PatchSource(const Shape& s, const Window& w, const X& x_, int group, int first)
      : x(x_), shape(s), window(w), base(x_.data + int64_t(group) * s.C), row0(first) {}
  template <int W> AITC_FN void piece(int row, int k, Acc (&values)[W]) const {
    Pixel pixel;
    pixel.set(shape, window, x, row0 + row);
    Tap tap;
    tap.set(shape, window, x, k);
    if (tap.inside(shape, pixel)) {
      const auto v = load<W>(base + pixel.offset + tap.offset);
      AITC_UNROLL
      for (int e = 0; e < W; ++e) values[e] = convert<Acc>(v[e]);
    } else {
      AITC_UNROLL
      for (int e = 0; e < W; ++e) values[e] = convert<Acc>(0);
    }
  }
};

AITC_END
