// Whole matrix products, C (M, N) = A (M, K) B (N, K)^T, that put the emulated instructions together as real kernels
// do: a ring of TMA stages between a producer and two warpgroups of wgmma; and MFMA from LDS. M, N multiples of 128, K
// of 64.
#include "aitc/gpu/core/gpu.h"
#include "aitc/types.h"
#if defined(AITC_EMULATOR_SM)
#include <mma_sm80.h>
#include <mma_sm90.h>
#else
#include <mma_cdna.h>
#endif
using namespace aitc;

#if defined(AITC_EMULATOR_SM)
constexpr int Stages = 3, Tile = 128 * 64 * 2;

// Early: release a stage before its products are waited for (wrong: the next copy may overwrite it).
template <bool Early> static void gemm(const CUtensorMap& map_a, const CUtensorMap& map_b, float* c, int N, int K) {
  const uint32_t tiles = emu::shared_address(shared_memory()), full = tiles + 2 * Stages * Tile,
                 empty = full + 8 * Stages;
  const int group = warp_index() / 4 - 1, blocks = K / 64;
  if (thread_index() == 0) {
    for (int s = 0; s < Stages; ++s) barrier_init(full + 8 * s, 1), barrier_init(empty + 8 * s, 8);
    fence_barrier_init();
  }
  block_barrier();
  const int m = int(blockIdx.y) * 128, n = int(blockIdx.x) * 128;
  if (group < 0) {
    registers_give<40>();
    if (thread_index() == 0)
      for (int k = 0; k < blocks; ++k) {
        const uint32_t s = uint32_t(k % Stages), parity = uint32_t(k / Stages & 1);
        barrier_wait(empty + 8 * s, parity ^ 1);
        barrier_expect(full + 8 * s, 2 * Tile);
        tma_load(tiles + 2 * s * Tile, map_a, k * 64, m, full + 8 * s);
        tma_load(tiles + (2 * s + 1) * Tile, map_b, k * 64, n, full + 8 * s);
      }
    return;
  }
  registers_take<232>();
  const auto release = [&](int k) {
    if (lane_index() == 0) barrier_arrive(empty + 8 * uint32_t(k % Stages));
  };
  float acc[64];
  for (int k = 0; k < blocks; ++k) {
    const uint32_t s = uint32_t(k % Stages);
    barrier_wait(full + 8 * s, uint32_t(k / Stages & 1));
    const uint64_t swizzle = uint64_t(1) << 62 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 16;
    const uint64_t a = swizzle | (tiles + 2 * s * Tile + uint32_t(group) * 64 * 128) >> 4,
                   b = swizzle | (tiles + (2 * s + 1) * Tile) >> 4;
    wgmma_fence();
    for (int kk = 0; kk < 4; ++kk) wgmma<half_t, 128>(acc, a + 2 * kk, b + 2 * kk, k | kk);
    wgmma_commit();
    if (Early) {
      release(k);
      continue;
    }
    wgmma_wait<1>();
    if (k > 0) release(k - 1);
  }
  wgmma_wait<0>();
  for (int i = 0; i < 64; ++i) {
    const int t = thread_index() % 128, row = m + group * 64 + t / 32 * 16 + t % 32 / 4 + i % 4 / 2 * 8;
    c[int64_t(row) * N + n + i / 4 * 8 + t % 4 * 2 + i % 2] = acc[i];
  }
}
AITC_KERNEL(384)
void AITC_ENTRY(gemm_wgmma)(AITC_GRID_CONSTANT CUtensorMap map_a, AITC_GRID_CONSTANT CUtensorMap map_b, float* c, int N,
                            int K) {
  gemm<false>(map_a, map_b, c, N, K);
}
AITC_KERNEL(384)
void AITC_ENTRY(gemm_released_early)(AITC_GRID_CONSTANT CUtensorMap map_a, AITC_GRID_CONSTANT CUtensorMap map_b,
                                     float* c, int N, int K) {
  gemm<true>(map_a, map_b, c, N, K);
}

// The sm_80 way: cp.async, ldmatrix, mma.sync. 128 threads, a tile of 64 x 64. Waits: groups that may be pending when a
// stage is read (1 is right).
template <int Waits> static void gemm_sync(const half_t* a, const half_t* b, float* c, int N, int K) {
  constexpr int Row = 40, Part = 64 * Row * 2;  // bytes of a stage's half, rows padded
  const uint32_t base = to_shared(shared_memory());
  const int t = thread_index(), l = lane_index(), wm = warp_index() / 2 * 32, wn = warp_index() % 2 * 32;
  const int m = int(blockIdx.y) * 64, n = int(blockIdx.x) * 64, blocks = K / 32;
  const auto fetch = [&](int k) {
    if (k < blocks)
      for (int i = t; i < 256; i += 128) {
        const uint32_t to = base + uint32_t(k % 3 * 2 * Part + (i / 4 * Row + i % 4 * 8) * 2);
        copy_async<16>(to, a + int64_t(m + i / 4) * K + k * 32 + i % 4 * 8, true);
        copy_async<16>(to + Part, b + int64_t(n + i / 4) * K + k * 32 + i % 4 * 8, true);
      }
    copy_async_commit();
  };
  float acc[2][4][4] = {};
  fetch(0), fetch(1);
  for (int k = 0; k < blocks; ++k) {
    copy_async_wait<Waits>();
    block_barrier();
    fetch(k + 2);
    const uint32_t sa = base + uint32_t(k % 3 * 2 * Part), sb = sa + Part;
    for (int kk = 0; kk < 32; kk += 16) {
      uint32_t ra[2][4], rb[2][4];
      for (int i = 0; i < 2; ++i) {
        load_matrix_x4(ra[i], sa + uint32_t((wm + i * 16 + l % 16) * Row + kk + l / 16 * 8) * 2);
        load_matrix_x4(rb[i], sb + uint32_t((wn + i * 16 + l % 8 + l / 16 * 8) * Row + kk + l / 8 % 2 * 8) * 2);
      }
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 4; ++j) {
          const uint32_t pair[2] = {rb[j / 2][j % 2 * 2], rb[j / 2][j % 2 * 2 + 1]};
          Mma<half_t>::run(acc[i][j], ra[i], pair);
        }
    }
  }
  for (int i = 0; i < 32; ++i) {
    const int row = m + wm + i / 16 * 16 + l / 4 + i % 4 / 2 * 8, col = n + wn + i / 4 % 4 * 8 + l % 4 * 2 + i % 2;
    c[int64_t(row) * N + col] = acc[i / 16][i / 4 % 4][i % 4];
  }
}
AITC_KERNEL(128) void AITC_ENTRY(gemm_mma)(const half_t* a, const half_t* b, float* c, int N, int K) {
  gemm_sync<1>(a, b, c, N, K);
}
AITC_KERNEL(128) void AITC_ENTRY(gemm_too_early)(const half_t* a, const half_t* b, float* c, int N, int K) {
  gemm_sync<2>(a, b, c, N, K);
}
#else

// 256 threads, a tile of 128 x 128 x 32, 32x32x8 MFMA, one LDS buffer.
AITC_KERNEL(256) void AITC_ENTRY(gemm_mfma)(const half_t* a, const half_t* b, float* c, int N, int K) {
  constexpr int Row = 40;
  half_t* sa = reinterpret_cast<half_t*>(shared_memory());
  half_t* sb = sa + 128 * Row;
  const int t = thread_index(), l = lane_index(), wm = warp_index() / 2 * 64, wn = warp_index() % 2 * 64;
  const int m = int(blockIdx.y) * 128, n = int(blockIdx.x) * 128;
  emu::mfma::f16 acc[2][2] = {};
  for (int k = 0; k < K; k += 32) {
    for (int i = t; i < 512; i += 256) {
      store<8>(sa + i / 4 * Row + i % 4 * 8, load<8>(a + int64_t(m + i / 4) * K + k + i % 4 * 8));
      store<8>(sb + i / 4 * Row + i % 4 * 8, load<8>(b + int64_t(n + i / 4) * K + k + i % 4 * 8));
    }
    block_barrier();
    for (int kk = 0; kk < 32; kk += 8) {
      emu::mfma::h4 ra[2], rb[2];
      for (int i = 0; i < 2; ++i) {
        memcpy(&ra[i], sa + (wm + i * 32 + l % 32) * Row + kk + l / 32 * 4, 8);
        memcpy(&rb[i], sb + (wn + i * 32 + l % 32) * Row + kk + l / 32 * 4, 8);
      }
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j) acc[i][j] = __builtin_amdgcn_mfma_f32_32x32x8f16(ra[i], rb[j], acc[i][j], 0, 0, 0);
    }
    block_barrier();
  }
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j)
      for (int r = 0; r < 16; ++r)
        c[int64_t(m + wm + i * 32 + r / 4 * 8 + l / 32 * 4 + r % 4) * N + n + wn + j * 32 + l % 32] = acc[i][j][r];
}
#endif
