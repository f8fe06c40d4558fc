// tile_cdna.h: the parts that the MFMA kernels (gemm_cdna.h, conv_cdna.h) share.
//
//   CdnaTile<BM, BN, BK, warps_m, warps_n>
//     BM x BN results a block, BK of the contraction a step (a multiple of Mfma<T>::step: 16 for 16 bits, 8 for float);
//     warps_m x warps_n waves divide BM x BN, each a multiple of 32 x 32. threads = 64 * warps_m * warps_n. The next
//     step's tiles wait in registers while this one is multiplied.
//   smem_bytes = max(2 * (BM + BN) * (BK * sizeof(T) + 16), warps_m * warps_n * 32 * 36 * 4); at most 65536
#pragma once
#include "aitc/gpu/mma_cdna.h"
#include "aitc/gpu/simt.h"

AITC_BEGIN

template <int BM_, int BN_, int BK_, int WarpsM, int WarpsN> struct CdnaTile {
  static constexpr int BM = BM_, BN = BN_, BK = BK_, warps_m = WarpsM, warps_n = WarpsN, WM = BM / WarpsM,
                       WN = BN / WarpsN, threads = 64 * WarpsM * WarpsN;
  static_assert(BM % (32 * WarpsM) == 0 && BN % (32 * WarpsN) == 0, "a wave computes a multiple of 32 x 32");
};

// Extent rows of BK elements, contiguous along k, and 16 bytes between rows against bank conflicts. Pieces of `width`
// elements along k (along_k) or along M / N travel through registers.
template <class T, int Extent, int BK, int Threads, int width, bool along_k> struct CdnaStage {
  static constexpr int row_bytes = BK * int(sizeof(T)) + 16, bytes = Extent * row_bytes;
  static constexpr int per_row = along_k ? BK / width : Extent / width, rows = along_k ? Extent : BK;
  static constexpr int pieces = rows * per_row, rounds = ceil_div(pieces, Threads);
  static_assert((along_k ? BK : Extent) % width == 0, "the width divides the tile");
  T held[rounds][width];

  template <class Source> AITC_FN void fetch(const Source& source, int k0) {
    AITC_UNROLL
    for (int i = 0; i < rounds; ++i) {
      const int p = thread_index() + i * Threads, row = p / per_row, col = p % per_row * width;
      if (pieces % Threads == 0 || p < pieces)
        source.template piece<width>(along_k ? row : col, k0 + (along_k ? col : row), held[i]);
    }
  }
  AITC_FN void put(char* stage) const {
    AITC_UNROLL
    for (int i = 0; i < rounds; ++i) {
      const int p = thread_index() + i * Threads, row = p / per_row, col = p % per_row * width;
      if (pieces % Threads == 0 || p < pieces) {
        if constexpr (along_k) {
          Vec<T, width> v;
          AITC_UNROLL
          for (int e = 0; e < width; ++e) v[e] = held[i][e];
          copy_bytes<width * int(sizeof(T))>(stage + row * row_bytes + col * int(sizeof(T)), &v);
        } else {
          AITC_UNROLL
          for (int e = 0; e < width; ++e)
            *reinterpret_cast<T*>(stage + (col + e) * row_bytes + row * int(sizeof(T))) = held[i][e];
        }
      }
    }
  }
};

template <class T, class Tile, class SourceA, class SourceB> struct CdnaLoop {
  using StageA = CdnaStage<T, Tile::BM, Tile::BK, Tile::threads, SourceA::width, SourceA::along_k>;
  using StageB = CdnaStage<T, Tile::BN, Tile::BK, Tile::threads, SourceB::width, SourceB::along_k>;
  static constexpr int stage_bytes = StageA::bytes + StageB::bytes, patch_stride = 36, patch_floats = 32 * patch_stride;
  static constexpr int smem_bytes = max_of(2 * stage_bytes, Tile::warps_m * Tile::warps_n * patch_floats * 4);
  static constexpr int rows = Tile::WM / 32, cols = Tile::WN / 32, steps = Tile::BK / Mfma<T>::step;
  static_assert(Tile::BK % Mfma<T>::step == 0, "BK is a multiple of the step");
  static_assert(smem_bytes <= 65536, "64 KiB of LDS");
  f32x16 acc[rows][cols];  // (WM,WN)
  int warp_m, warp_n;

  AITC_FN CdnaLoop() {
    warp_m = warp_index() % Tile::warps_m * Tile::WM;
    warp_n = warp_index() / Tile::warps_m * Tile::WN;
    AITC_UNROLL
    for (int i = 0; i < rows; ++i)
      AITC_UNROLL
      for (int j = 0; j < cols; ++j) acc[i][j] = zeros16();
  }

  AITC_FN void compute(const char* stage) {
    using Operand = typename Mfma<T>::Operand;
    const int lane = lane_index();
    const char* a_row = stage + (warp_m + lane % 32) * StageA::row_bytes + lane / 32 * 16;
    const char* b_row = stage + StageA::bytes + (warp_n + lane % 32) * StageB::row_bytes + lane / 32 * 16;
    AITC_UNROLL
    for (int s = 0; s < steps; ++s) {
      Operand a[rows], b[cols];
      AITC_UNROLL
      for (int i = 0; i < rows; ++i) copy_bytes<16>(&a[i], a_row + i * 32 * StageA::row_bytes + s * 32);
      AITC_UNROLL
      for (int j = 0; j < cols; ++j) copy_bytes<16>(&b[j], b_row + j * 32 * StageB::row_bytes + s * 32);
      AITC_UNROLL
      for (int i = 0; i < rows; ++i)
        AITC_UNROLL
        for (int j = 0; j < cols; ++j) Mfma<T>::run(acc[i][j], a[i], b[j]);
    }
  }

  AITC_FN void run(const SourceA& a, const SourceB& b, int k_tiles) {
    char* smem = shared_memory();
    StageA stage_a;
    StageB stage_b;
    if (k_tiles > 0) {
      stage_a.fetch(a, 0);
      stage_b.fetch(b, 0);
      stage_a.put(smem);
      stage_b.put(smem + StageA::bytes);
    }
    AITC_NO_UNROLL
    for (int t = 0; t < k_tiles; ++t) {
      block_barrier();
      if (t + 1 < k_tiles) {
        stage_a.fetch(a, (t + 1) * Tile::BK);
        stage_b.fetch(b, (t + 1) * Tile::BK);
      }
      compute(smem + t % 2 * stage_bytes);
      if (t + 1 < k_tiles) {
        char* next = smem + (t + 1) % 2 * stage_bytes;
        stage_a.put(next);
        stage_b.put(next + StageA::bytes);
      }
    }
    block_barrier();  // the stages' memory is free for the epilogue
  }

  template <bool ExactCols, class Store> AITC_FN void epilogue(const Store& store, int batch, int64_t row0,
                                                               int64_t row_end, int64_t col0, int64_t col_end) const {
    constexpr int V = min_of(Store::width, 8), per_row = 32 / V, pieces = 32 * per_row;
    const int lane = lane_index();
    float* patch = reinterpret_cast<float*>(shared_memory()) + warp_index() * patch_floats;  // (32,36)
    AITC_UNROLL
    for (int i = 0; i < rows; ++i)
      AITC_UNROLL
      for (int j = 0; j < cols; ++j) {
        warp_barrier();
        AITC_UNROLL
        for (int r = 0; r < 16; ++r)
        patch[(r / 4 * 8 + lane / 32 * 4 + r % 4) * patch_stride + lane % 32] = acc[i][j][r];
        warp_barrier();
        AITC_UNROLL
        for (int p = 0; p < ceil_div(pieces, 64); ++p) {
          const int piece = p * 64 + lane, r = piece / per_row, c = piece % per_row * V;
          const int64_t row = row0 + warp_m + i * 32 + r, col = col0 + warp_n + j * 32 + c;
          if ((pieces % 64 == 0 || piece < pieces) && row < row_end && col < col_end) {
            if (ExactCols || col + V <= col_end) {
              const auto v = load<V>(patch + r * patch_stride + c);
              float x[V];
              AITC_UNROLL
              for (int e = 0; e < V; ++e) x[e] = v[e];
              store.template operator()<V>(batch, row, col, x);
            } else {
              AITC_NO_UNROLL
              for (int e = 0; col + e < col_end; ++e) {
                const float one[1] = {patch[r * patch_stride + c + e]};
                store.template operator()<1>(batch, row, col + e, one);
              }
            }
          }
        }
      }
  }
};

AITC_END
