// conv_stem_sm90.h: the first convolution of a network on Hopper: four channels (an image's three and zeros), stride 2, weights resident in shared memory, every input pixel brought
// there once.
//
// A tile is 8 results wide and 8 * blocks high. The copy engine brings the pixels it sees, border and all, as one patch of lines of 8-byte pixels. Neighbouring results lie two pixels
// apart, so a row of A (for filter line r) begins 16 bytes after the one before it: a matrix descriptor without swizzle, whose rows overlap just so, reads it from the patch as it
// lies. A window begins on 16 bytes because filters are widened by a zero in front where the border is odd. Two warpgroups take turns with tiles.
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
#include "aitc/gpu/product_sm90.h"

AITC_BEGIN

template <class Window, int Blocks> struct StemShape {
  static constexpr int lead = Window::pad_w % 2, steps = ceil_div(lead + Window::S, 4);  // pixels before a window, steps of four pixels
  static constexpr int wide = ceil_div(14 + 4 * steps, 4) * 4, lines = 16 * Blocks - 2 + Window::R, pitch = wide * 8;
  static constexpr int bytes = lines * pitch;
};

template <int BN_, int Blocks, int Stages> struct StemTileSm90 {
  static constexpr int BN = BN_, blocks = Blocks, stages = Stages, threads = 384, patch_bytes = 2 * 2048;
  template <class Window> static AITC_CONST_FN int stage_bytes() { return ceil_div(StemShape<Window, Blocks>::bytes, 1024) * 1024; }
  template <class Window> static AITC_CONST_FN int weight_bytes() { return Window::R * StemShape<Window, Blocks>::steps * BN * 32; }
  template <class Window> static AITC_CONST_FN int smem_bytes() { return Stages * (stage_bytes<Window>() + 16) + weight_bytes<Window>() + 8 * patch_bytes + 8; }
  static_assert(Stages % 2 == 0 && BN % 8 == 0 && BN <= 128, "StemTileSm90");
};

template <class Tile, class T, class Window, class Store>
AITC_FN void conv_stem_sm90(int images, const CUtensorMap& map_x, const T* weights, const Store& store, const CUtensorMap& map_d) {
  using Patch = StemShape<Window, Tile::blocks>;
  using R = typename StoreResult<Store>::type;
  constexpr int BN = Tile::BN, Blocks = Tile::blocks, Stages = Tile::stages, StageBytes = Tile::template stage_bytes<Window>(), WeightBytes = Tile::template weight_bytes<Window>();
  constexpr int P = Window::P, Q = Window::Q;
  const uint32_t inputs = to_shared(shared_memory()), patches = inputs + Stages * StageBytes;  // [Stages][lines][wide]; [warps][2][16][64]
  const uint32_t filters = patches + 8 * Tile::patch_bytes;                                    // [R][steps][2][BN / 8][8][8]
  const uint32_t full = filters + WeightBytes, empty = full + 8 * Stages, weights_here = empty + 8 * Stages;
  const int group = shuffle(thread_index() / 128, 0), warp = shuffle(thread_index() / 32 % 4, 0), lane = lane_index();

  if (thread_index() == 0) {
    for (int s = 0; s < Stages; ++s) barrier_init(full + 8 * s, 1), barrier_init(empty + 8 * s, 4);
    barrier_init(weights_here, 1);
    fence_barrier_init();
    tma_prefetch(map_x), tma_prefetch(map_d);
  }
  block_barrier();
  grid_launch_next();
  constexpr int across = ceil_div(Q, 8), down = ceil_div(P, 8 * Blocks);
  const int tiles = across * down * images;
  const auto locate = [&](int t, int& q, int& p, int& n) { q = t % across * 8, p = t / across % down * 8 * Blocks, n = t / across / down; };

  if (group == 2) {  // ---- producer ----
    registers_give<40>();
    if (warp == 0 && lane == 0) {
      barrier_expect(weights_here, WeightBytes);
      bulk_load(filters, weights, WeightBytes, weights_here);
      grid_wait_previous();
      Ring<Stages> ring;
      for (int t = int(blockIdx.x); t < tiles; t += int(gridDim.x), ring.next()) {
        int q, p, n;
        locate(t, q, p, n);
        barrier_wait(empty + 8 * ring.stage, ring.parity ^ 1);
        barrier_expect(full + 8 * ring.stage, Patch::bytes);
        tma_load(inputs + ring.stage * StageBytes, map_x, (2 * q - Window::pad_w - Patch::lead) * 4, 2 * p - Window::pad_h, n, full + 8 * ring.stage);
      }
    }
    warp_barrier();
  } else {  // ---- math ----
    registers_take<232>();
    grid_wait_previous();
    const uint32_t patch = patches + uint32_t((group * 4 + warp) * Tile::patch_bytes);
    barrier_wait(weights_here, 0);
    int i = group, slot = 0;  // number of the tile, and so of its stage, in this block
    for (int t = int(blockIdx.x) + group * int(gridDim.x); t < tiles; t += 2 * int(gridDim.x), i += 2) {
      const int stage = i % Stages;
      const uint32_t input = inputs + stage * StageBytes;
      float acc[Blocks][BN / 2];
      barrier_wait(full + 8 * stage, uint32_t(i / Stages) & 1);
      wgmma_fence();
      AITC_UNROLL
      for (int r = 0; r < Window::R; ++r)
        AITC_UNROLL
        for (int k = 0; k < Patch::steps; ++k)
          AITC_UNROLL
          for (int b = 0; b < Blocks; ++b)
            wgmma<T, BN>(acc[b], matrix_descriptor(input + uint32_t((b * 16 + r) * Patch::pitch + k * 32), 0, 2 * Patch::pitch, 16),
                         matrix_descriptor(filters + uint32_t((r * Patch::steps + k) * BN * 32), 0, 128, BN * 16), r | k);
      wgmma_commit();
      wgmma_wait_all(acc);
      if (lane == 0) barrier_arrive(empty + 8 * stage);
      int q0, p0, n;
      locate(t, q0, p0, n);
      const int g = lane / 4, q = min_of(q0 + g, Q - 1);
      AITC_UNROLL
      for (int b = 0; b < Blocks; ++b)
        AITC_UNROLL
        for (int c = 0; c < ceil_div(BN, 64); ++c, slot ^= 1) {  // a warp's 16 rows: two lines of 8 results
          const uint32_t staged = patch + uint32_t(slot * 2048);
          const int top = p0 + b * 8 + warp * 2;
          uint32_t packed[8][2];
          AITC_UNROLL
          for (int j = 0; j < 8; ++j)
            AITC_UNROLL
            for (int h = 0; h < 2; ++h) {
              packed[j][h] = 0;
              if (c * 64 + j * 8 < BN) {
                const int at = min_of((c * 8 + j) * 4 + 2 * h, BN / 2 - 2);
                const float x[2] = {acc[b][at], acc[b][at + 1]};
                float y[2];
                store.template operator()<2>(0, (int64_t(n) * P + min_of(top + h, P - 1)) * Q + q, int64_t(c * 64 + j * 8 + lane % 4 * 2), x, y);
                packed[j][h] = pack<R>(y[0], y[1]);
              }
            }
          if (lane == 0) bulk_wait_read<1>();  // the store before the last has read this half of the patch
          warp_barrier();
          const int target = lane % 16, unit = lane / 16;
          AITC_UNROLL
          for (int j = 0; j < 8; j += 2)
            stmatrix(staged + uint32_t(target * 128 + ((j + unit) ^ (target % 8)) * 16), packed[j][0], packed[j][1], packed[j + 1][0], packed[j + 1][1]);
          fence_async_proxy();
          warp_barrier();
          if (lane == 0) tma_store(map_d, c * 64, q0, top, n, staged), bulk_commit();
        }
    }
    if (lane == 0) bulk_wait_read<0>();
    warp_barrier();
  }
}

AITC_END
