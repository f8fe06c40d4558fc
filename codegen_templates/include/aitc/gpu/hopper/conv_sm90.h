// conv_sm90.h: two-dimensional convolution on Hopper as a matrix product of gathered pixels and filters: half_t, bfloat16_t or float (as TF32) by the copy engine (TMA
// im2col), wgmma, sums in float. A convolution of one tap, stride 1 and no border is gemm_sm90.h on its pixels.
//
//   conv_sm90<TileSm90<...>>(shape, pixels, filter, store, map_d, map_s)      see product_sm90.h for tiles, stores, their maps and the grid
//   conv_split_sm90<SplitTileSm90<...>>(shape, pixels, filter, store)  few tiles: see split_sm90.h
//
//   Shape    M (pixels of the result, flattened), N (filters): as in gemm_sm90.h
//   Window   static constexpr int C, R, S, P, Q (the result's height and width), stride_h, stride_w, dilation_h, dilation_w, pad_h, pad_w (in front)
//   pixels   PixelsSm90<T, Window>{&map}: an im2col map of X (C, W, H, N) with 64 channels (float: 32, of type AITC_TF32) and slice_a pixels; lower corner -pad, upper corner so that P x Q windows begin inside
//   filter   FilterSm90<T, Window>{&map}: (C, R S, N), box (64, 1, slice_b), likewise
//   store    coordinates (0, row, col): row = flattened (n, p, q), col = filter
// Pixels begin on 16 bytes; what lies beyond C reads as zero on both sides.
#pragma once
#include "aitc/gpu/hopper/split_sm90.h"

AITC_BEGIN

// Walks the depth block by block: `depth` channels at one tap.
template <class T, class Window> struct TapStep {
  static constexpr int depth = block_elems<T>, blocks = ceil_div(int(Window::C), depth);  // of a tap
  int c = 0, s = 0, r = 0;
  template <class Source> AITC_FN explicit TapStep(const Source&, int first = 0) : c(first % blocks * depth), s(first / blocks % Window::S), r(first / blocks / Window::S) {}
  template <class Source> AITC_FN void next(const Source&) {
    if ((c += depth) < Window::C) return;
    c = 0;
    if (++s == Window::S) s = 0, ++r;
  }
};

template <class T, class Window> struct PixelsSm90 {
  using type = T;
  using Step = TapStep<T, Window>;
  static constexpr bool transposed = false, constant = false;
  const CUtensorMap* map;

  struct Place {
    int w, h, n;
  };
  AITC_FN void prefetch() const { tma_prefetch(*map); }
  AITC_FN Place place(int, int row) const {
    const int line = row / Window::Q;
    return {row % Window::Q * Window::stride_w - Window::pad_w, line % Window::P * Window::stride_h - Window::pad_h, line / Window::P};
  }
  template <int Rows> AITC_FN void load(uint32_t to, Place at, const Step& step, uint32_t barrier, uint16_t mask) const {
    const uint16_t s = uint16_t(step.s * Window::dilation_w), r = uint16_t(step.r * Window::dilation_h);
    if (mask) tma_load_im2col_multicast(to, *map, step.c, at.w, at.h, at.n, s, r, barrier, mask);
    else tma_load_im2col(to, *map, step.c, at.w, at.h, at.n, s, r, barrier);
  }
};

template <class T, class Window> struct FilterSm90 {
  using type = T;
  static constexpr bool transposed = false, constant = true;
  const CUtensorMap* map;

  AITC_FN void prefetch() const { tma_prefetch(*map); }
  AITC_FN int place(int, int row) const { return row; }
  template <int Rows> AITC_FN void load(uint32_t to, int row, const TapStep<T, Window>& step, uint32_t barrier, uint16_t mask) const {
    if (mask) tma_load_multicast(to, *map, step.c, step.r * Window::S + step.s, row, barrier, mask);
    else tma_load(to, *map, step.c, step.r * Window::S + step.s, row, barrier);
  }
};

template <class Tile, class Shape, class T, class Window, class Store, class Blocks = AllBlocks>
AITC_FN void conv_sm90(const Shape& shape, const PixelsSm90<T, Window>& pixels, const FilterSm90<T, Window>& filter, const Store& store, const CUtensorMap& map_d, const CUtensorMap& map_s,
                       const Blocks& blocks = {}) {
  product_sm90<Tile, Shape>(pixels, filter, store, map_d, map_s, 1, int(shape.M), int(shape.N), int(Window::R) * Window::S * TapStep<T, Window>::blocks, blocks);
}
template <class Tile, class Shape, class T, class Window, class Store, class Blocks = AllBlocks>
AITC_FN void conv_split_sm90(const Shape& shape, const PixelsSm90<T, Window>& pixels, const FilterSm90<T, Window>& filter, const Store& store, const Blocks& blocks = {}) {
  split_sm90<Tile, Shape>(pixels, filter, store, int(shape.M), int(shape.N), int(Window::R) * Window::S * TapStep<T, Window>::blocks, blocks);
}

AITC_END
