// conv_patch_sm90.h: convolutions with few filters on Hopper: the weights stay in shared memory, and every pixel is brought there once, not once a tap.
//
// A tile is 8 results wide and 8 * blocks high. The copy engine brings the pixels that it sees, border and all, as one patch; what a tap multiplies is a matrix that begins somewhere
// in the patch: a matrix descriptor gives the way from one line of 8 results to the next. Two warpgroups take turns with tiles.
//
//   conv_patch_sm90<PatchTileSm90<BN, blocks, stages>, T, Window>(images, map_x, map_w, store, map_d)     64 channels, stride 1
//     BN       the number of filters: a width of wgmma up to 128; blocks 1 or 2; stages even
//     Window   static constexpr int R, S, P, Q (height and width of filter and result), pad_h, pad_w (in front)
//     map_x    (64, W, H, images), box (64, 7 + S, 8 * blocks - 1 + R, 1), 128-byte swizzle; map_w of the filters (64, R S, BN), box (64, 1, BN), likewise
//     store    returns its results (see product_sm90.h); coordinates (0, row, col), row = flattened (n, p, q)
//     map_d    (BN, Q, P, images), box (64, 8, 2, 1), 128-byte swizzle
// threads = 384; smem_bytes = stages * (patch rounded up to 1024 + 16) + weights + 8 * 2 * 2048 + 8. Blocks: the smaller of the tiles and the multiprocessors.
#pragma once
#include "aitc/gpu/hopper/product_sm90.h"

AITC_BEGIN

template <int BN_, int Blocks, int Stages> struct PatchTileSm90 {
  static constexpr int BN = BN_, blocks = Blocks, stages = Stages, threads = 384, patch_bytes = 2 * 2048;
  template <class Patch> static AITC_CONST_FN int stage_bytes() { return ceil_div(Patch::bytes, 1024) * 1024; }
  template <class Patch> static AITC_CONST_FN int smem_bytes() { return Stages * (stage_bytes<Patch>() + 16) + Patch::weight_bytes + 8 * patch_bytes + 8; }
  static_assert(Stages % 2 == 0 && BN % 8 == 0 && BN <= 128, "PatchTileSm90");
};

template <class T, class Window_, int BN, int Blocks> struct ChannelPatchSm90 {
  using type = T;
  using Window = Window_;
  static constexpr int wide = 7 + Window::S, lines = 8 * Blocks - 1 + Window::R, taps = Window::R * Window::S;
  static constexpr int bytes = lines * wide * 128, weight_bytes = taps * BN * 128;
  const CUtensorMap *map, *map_w;

  AITC_FN void prefetch() const { tma_prefetch(*map), tma_prefetch(*map_w); }
  AITC_FN void load_weights(uint32_t to, uint32_t barrier) const {
    for (int tap = 0; tap < taps; ++tap) tma_load(to + uint32_t(tap * BN * 128), *map_w, 0, tap, 0, barrier);
  }
  AITC_FN void load(uint32_t to, int q, int p, int n, uint32_t barrier) const { tma_load(to, *map, 0, q - Window::pad_w, p - Window::pad_h, n, barrier); }
  AITC_FN void multiply(float (&acc)[Blocks][BN / 2], uint32_t input, uint32_t filters) const {
    AITC_UNROLL
    for (int tap = 0; tap < taps; ++tap)
      AITC_UNROLL
      for (int k = 0; k < 4; ++k)
        AITC_UNROLL
        for (int b = 0; b < Blocks; ++b)
          wgmma<T, BN>(acc[b], matrix_descriptor(input + uint32_t(((b * 8 + tap / Window::S) * wide + tap % Window::S) * 128 + k * 32), 1, wide * 128, 16),
                       matrix_descriptor(filters + uint32_t(tap * BN * 128 + k * 32)), tap | k);
  }
};

// source: the pixels and the weights.  bytes (of a patch), weight_bytes; prefetch(); load_weights(to, barrier); load(to, q, p, n, barrier): what the tile at (q, p) of image n sees;
// multiply(acc, patch, weights): the products of a tile, not waited for.
template <class Tile, class Patch, class Store> AITC_FN void patch_product_sm90(int images, const Patch& source, const Store& store, const CUtensorMap& map_d) {
  using R = typename StoreResult<Store>::type;
  constexpr int BN = Tile::BN, Blocks = Tile::blocks, Stages = Tile::stages, StageBytes = Tile::template stage_bytes<Patch>(), WeightBytes = Patch::weight_bytes;
  constexpr int P = Patch::Window::P, Q = Patch::Window::Q;
  const uint32_t inputs = to_shared(shared_memory()), patches = inputs + Stages * StageBytes;  // [Stages][a patch of pixels]; [warps][2][16][64]
  const uint32_t filters = patches + 8 * Tile::patch_bytes;                                    // begins on 1024 bytes
  const uint32_t full = filters + WeightBytes, empty = full + 8 * Stages, weights_here = empty + 8 * Stages;
  const int group = shuffle(thread_index() / 128, 0), warp = shuffle(thread_index() / 32 % 4, 0), lane = lane_index();

  if (thread_index() == 0) {
    for (int s = 0; s < Stages; ++s) barrier_init(full + 8 * s, 1), barrier_init(empty + 8 * s, 4);
    barrier_init(weights_here, 1);
    fence_barrier_init();
    source.prefetch(), tma_prefetch(map_d);
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
      source.load_weights(filters, weights_here);
      grid_wait_previous();
      Ring<Stages> ring;
      for (int t = int(blockIdx.x); t < tiles; t += int(gridDim.x), ring.next()) {
        int q, p, n;
        locate(t, q, p, n);
        barrier_wait(empty + 8 * ring.stage, ring.parity ^ 1);
        barrier_expect(full + 8 * ring.stage, Patch::bytes);
        source.load(inputs + ring.stage * StageBytes, q, p, n, full + 8 * ring.stage);
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
      source.multiply(acc, input, filters);
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

template <class Tile, class T, class Window, class Store>
AITC_FN void conv_patch_sm90(int images, const CUtensorMap& map_x, const CUtensorMap& map_w, const Store& store, const CUtensorMap& map_d) {
  patch_product_sm90<Tile>(images, ChannelPatchSm90<T, Window, Tile::BN, Tile::blocks>{&map_x, &map_w}, store, map_d);
}

AITC_END
