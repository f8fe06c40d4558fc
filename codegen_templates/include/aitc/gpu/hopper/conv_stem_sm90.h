// conv_stem_sm90.h: the first convolution of a network on Hopper: four channels (an image's three and zeros), stride 2, weights resident in shared memory, every input pixel brought
// there once.
//
// A tile is 8 results wide and 8 * blocks high. The copy engine brings the pixels it sees, border and all, as one patch of lines of 8-byte pixels. Neighbouring results lie two pixels
// apart, so a row of A (for filter line r) begins 16 bytes after the one before it: a matrix descriptor without swizzle, whose rows overlap just so, reads it from the patch as it
// lies. A window begins on 16 bytes because filters are widened by a zero in front where the border is odd.
//
//   conv_stem_sm90<StemTileSm90<BN, blocks, stages>, T, Window>(images, map_x, weights, store, map_d)
//     BN       the number of filters: a width of wgmma up to 128; blocks 1 or 2; stages even
//     Window   static constexpr int R, S, P, Q (height and width of filter and result), pad_h, pad_w (in front)
//     map_x    (4 W, H, images), box (4 * wide, lines, 1) of StemShape<Window, blocks>, no swizzle; W is even
//     weights  for each filter line r and step of 16 k: [2][BN / 8][8 filters][8 k], k = 4 * pixel + channel, the pixels of a line counted from `lead` before the window
//     store    returns its results (see product_sm90.h); coordinates (0, row, col), row = flattened (n, p, q)
//     map_d    (BN, Q, P, images), box (64, 8, 2, 1), 128-byte swizzle
// threads = 384; smem_bytes = stages * (patch rounded up to 1024 + 16) + R * steps * BN * 32 + 8 * 2 * 2048 + 8. Blocks: the smaller of the tiles and the multiprocessors.
// A pixel that is infinite makes NaN of results up to one pixel beyond its windows (zeros of the widened filters).
#pragma once
#include "aitc/gpu/hopper/conv_patch_sm90.h"

AITC_BEGIN

template <class Window, int Blocks> struct StemShape {
  static constexpr int lead = Window::pad_w % 2, steps = ceil_div(lead + Window::S, 4);  // pixels before a window, steps of four pixels
  static constexpr int wide = ceil_div(14 + 4 * steps, 4) * 4, lines = 16 * Blocks - 2 + Window::R, pitch = wide * 8;
  static constexpr int bytes = lines * pitch;
};

template <class T, class Window_, int BN, int Blocks> struct StemPatchSm90 {
  using type = T;
  using Window = Window_;
  using Shape = StemShape<Window, Blocks>;
  static constexpr int bytes = Shape::bytes, weight_bytes = Window::R * Shape::steps * BN * 32;
  const CUtensorMap* map;
  const T* weights;

  AITC_FN void prefetch() const { tma_prefetch(*map); }
  AITC_FN void load_weights(uint32_t to, uint32_t barrier) const { bulk_load(to, weights, weight_bytes, barrier); }
  AITC_FN void load(uint32_t to, int q, int p, int n, uint32_t barrier) const {
    tma_load(to, *map, (2 * q - Window::pad_w - Shape::lead) * 4, 2 * p - Window::pad_h, n, barrier);
  }
  AITC_FN void multiply(float (&acc)[Blocks][BN / 2], uint32_t input, uint32_t filters) const {
    AITC_UNROLL
    for (int r = 0; r < Window::R; ++r)
      AITC_UNROLL
      for (int k = 0; k < Shape::steps; ++k)
        AITC_UNROLL
        for (int b = 0; b < Blocks; ++b)
          wgmma<T, BN>(acc[b], matrix_descriptor(input + uint32_t((b * 16 + r) * Shape::pitch + k * 32), 0, 2 * Shape::pitch, 16),
                       matrix_descriptor(filters + uint32_t((r * Shape::steps + k) * BN * 32), 0, 128, BN * 16), r | k);
  }
};

template <int BN, int Blocks, int Stages> using StemTileSm90 = PatchTileSm90<BN, Blocks, Stages>;

template <class Tile, class T, class Window, class Store>
AITC_FN void conv_stem_sm90(int images, const CUtensorMap& map_x, const T* weights, const Store& store, const CUtensorMap& map_d) {
  patch_product_sm90<Tile>(images, StemPatchSm90<T, Window, Tile::BN, Tile::blocks>{&map_x, weights}, store, map_d);
}

AITC_END
