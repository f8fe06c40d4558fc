// tile_cdna.h: the parts that the MFMA kernels (gemm_cdna.h, conv_cdna.h) share.
//
//   CdnaTile<BM, BN, BK, warps_m, warps_n, mfma = 32, split = 1>
//     BM x BN results a block, BK of the contraction a step (64 or 128 bytes of an operand); warps_m x warps_n waves
//     divide BM x BN, each a multiple of mfma x mfma. The next step's tiles wait in registers while this one is
//     multiplied. `split` teams of waves take the steps in turn and add up at the end: for small grids and long
//     contractions. threads = 64 * warps_m * warps_n * split
//   smem_bytes = max(split * 2 * (BM + BN) * BK * sizeof(T), warps_m * warps_n * mfma * (mfma + 4) * 4,
//     (split - 1) * BM * BN * 4); at most 65536
//
// Shared memory holds rows of BK elements along k, their 16-byte pieces swizzled (CdnaSwizzled): both the reads, of 16
// bytes a lane from 32 or 16 rows, and the writes of either major meet every bank once. Phases of the LDS, from AMD's
// Composable Kernel documentation: eight lanes for 16 bytes, of reads 0-3 with 20-23 and so on.
#pragma once
#include "aitc/gpu/matmul/mma_cdna.h"
#include "aitc/gpu/core/simt.h"

AITC_BEGIN

template <int BM_, int BN_, int BK_, int WarpsM, int WarpsN, int M = 32, int Split = 1> struct CdnaTile {
  static constexpr int BM = BM_, BN = BN_, BK = BK_, warps_m = WarpsM, warps_n = WarpsN, mfma = M, split = Split,
                       WM = BM / WarpsM, WN = BN / WarpsN, team = 64 * WarpsM * WarpsN, threads = team * Split;
  static_assert(BM % (M * WarpsM) == 0 && BN % (M * WarpsN) == 0, "a wave computes a multiple of mfma x mfma");
};

// Layouts of rows in shared memory: where byte `at` of row `row` lies. Adding 16 rows adds 16 * pitch.
template <int row_bytes> struct CdnaSwizzled {
  static constexpr int pitch = row_bytes;
  static_assert(row_bytes == 64 || row_bytes == 128, "rows of 64 or 128 bytes");
  static AITC_CONST_FN int place(int row, int at) {
    const int line = row_bytes == 64 ? row / 2 : row, slot = row_bytes == 64 ? row % 2 * 4 + at / 16 : at / 16,
              turn = row_bytes == 64 ? line % 8 : row % 8 ^ row / 8 % 2 * 4;
    return line * 128 + (slot ^ turn) * 16 + at % 16;
  }
};
template <int pitch_> struct CdnaPadded {
  static constexpr int pitch = pitch_;
  static AITC_CONST_FN int place(int row, int at) { return row * pitch + at; }
};

// The elements of a piece along M / N, so that each thread has at least `runs` pieces.
AITC_CONST_FN int cdna_width(int width, int elements, int threads, int runs) {
  while (width > 1 && elements / width / threads < runs) width /= 2;
  return width;
}

// Extent rows of BK elements. Pieces of `width` elements along k (along_k) or along M / N travel through registers.
// Those along M / N are turned: a thread has `run` of them, one k after another, and writes 4 bytes of each row.
template <class T, int Extent, int BK, int Threads, int Width, bool along_k,
          class Layout = CdnaSwizzled<BK * int(sizeof(T))>>
struct CdnaStage {
  static constexpr int size = int(sizeof(T)), bytes = Extent * Layout::pitch;
  static constexpr int run = along_k ? 1 : 4 / size;
  static constexpr int width = along_k ? Width : cdna_width(Width, Extent * BK, Threads, run);
  static constexpr int ks = along_k ? BK / width : BK / run, others = along_k ? Extent : Extent / width,
                       pieces = ks * others, rounds = ceil_div(pieces, Threads);
  static constexpr int near_ks = min_of(ks, 16), jump = along_k ? 1 : max_of(1, 8 / width);  // rows 8 apart: the other banks
  static_assert((along_k ? BK : Extent) % width == 0 && BK % run == 0, "the width divides the tile");
  T held[rounds][run][width];

  // Piece p: which row (or group of rows), which k (in pieces or runs).
  static AITC_FN void place(int p, int& other, int& k) {
    if constexpr (along_k) {
      other = p / ks;
      k = p % ks;
    } else {
      constexpr int halves = others / jump;
      const int j = p / near_ks % others;
      other = j % halves * jump + j / halves;
      k = p % near_ks + p / (near_ks * others) * near_ks;
    }
  }
  template <class Source> AITC_FN void fetch(const Source& source, int thread, int k0) {
    AITC_UNROLL
    for (int i = 0; i < rounds; ++i) {
      const int p = thread + i * Threads;
      int other, k;
      place(p, other, k);
      if (pieces % Threads == 0 || p < pieces)
        AITC_UNROLL
      for (int q = 0; q < run; ++q)
        source.template piece<width>(along_k ? other : other * width, k0 + (along_k ? k * width : k * run + q),
                                     held[i][q]);
    }
  }
  AITC_FN void put(int thread, char* stage) const {
    AITC_UNROLL
    for (int i = 0; i < rounds; ++i) {
      const int p = thread + i * Threads;
      int other, k;
      place(p, other, k);
      if (pieces % Threads == 0 || p < pieces) {
        if constexpr (along_k) {
          Vec<T, width> v;
          AITC_UNROLL
          for (int e = 0; e < width; ++e) v[e] = held[i][0][e];
          copy_bytes<width * size>(stage + Layout::place(other, k * width * size), &v);
        } else {
          AITC_UNROLL
          for (int e = 0; e < width; ++e) {
            Vec<T, run> v;
            AITC_UNROLL
            for (int q = 0; q < run; ++q) v[q] = held[i][q][e];
            copy_bytes<run * size>(stage + Layout::place(other * width + e, k * run * size), &v);
          }
        }
      }
    }
  }
};

template <class T, class Tile, class SourceA, class SourceB> struct CdnaLoop {
  static constexpr int M = Tile::mfma, split = Tile::split;
  using Matrix = Mfma<T, M>;
  using StageA = CdnaStage<T, Tile::BM, Tile::BK, Tile::team, SourceA::width, SourceA::along_k>;
  using StageB = CdnaStage<T, Tile::BN, Tile::BK, Tile::team, SourceB::width, SourceB::along_k>;
  using Layout = CdnaSwizzled<Tile::BK * int(sizeof(T))>;
  static constexpr int stage_bytes = StageA::bytes + StageB::bytes, patch_stride = M + 4,
                       patch_floats = M * patch_stride;
  static constexpr int smem_bytes = max_of(max_of(split * 2 * stage_bytes, Tile::warps_m * Tile::warps_n * patch_floats * 4),
                                           (split - 1) * Tile::BM * Tile::BN * 4);
  static constexpr int rows = Tile::WM / M, cols = Tile::WN / M, steps = Tile::BK / Matrix::step;
  static_assert(Tile::BK % Matrix::step == 0, "BK is a multiple of the step");
  static_assert(smem_bytes <= 65536, "64 KiB of LDS");
  typename Matrix::Sum acc[rows][cols];  // (WM,WN)
  int team, thread, warp, warp_m, warp_n;

  AITC_FN CdnaLoop() {
    team = split == 1 ? 0 : thread_index() / Tile::team;
    thread = split == 1 ? thread_index() : thread_index() % Tile::team;
    warp = thread / 64;
    warp_m = warp % Tile::warps_m * Tile::WM;
    warp_n = warp / Tile::warps_m * Tile::WN;
    AITC_UNROLL
    for (int i = 0; i < rows; ++i)
      AITC_UNROLL
      for (int j = 0; j < cols; ++j) acc[i][j] = Matrix::zeros();
  }

  AITC_FN void compute(const char* stage) {
    using Operand = typename Matrix::Operand;
    const int lane = lane_index();
    AITC_UNROLL
    for (int s = 0; s < steps; ++s) {
      const int at = s * (64 / M) * 16 + lane / M * 16;
      const char* a_row = stage + Layout::place(warp_m + lane % M, at);
      const char* b_row = stage + StageA::bytes + Layout::place(warp_n + lane % M, at);
      Operand a[rows], b[cols];
      AITC_UNROLL
      for (int i = 0; i < rows; ++i) copy_bytes<16>(&a[i], a_row + i * M * Layout::pitch);
      AITC_UNROLL
      for (int j = 0; j < cols; ++j) copy_bytes<16>(&b[j], b_row + j * M * Layout::pitch);
      AITC_UNROLL
      for (int i = 0; i < rows; ++i)
        AITC_UNROLL
        for (int j = 0; j < cols; ++j) Matrix::run(acc[i][j], a[i], b[j]);
    }
  }

  AITC_FN void run(const SourceA& a, const SourceB& b, int k_tiles) {
    const int turns = ceil_div(k_tiles, split);  // a step beyond the end multiplies zeros
    char* smem = shared_memory() + team * 2 * stage_bytes;
    StageA stage_a;
    StageB stage_b;
    if (turns > 0) {
      stage_a.fetch(a, thread, team * Tile::BK);
      stage_b.fetch(b, thread, team * Tile::BK);
      stage_a.put(thread, smem);
      stage_b.put(thread, smem + StageA::bytes);
    }
    AITC_NO_UNROLL
    for (int t = 0; t < turns; ++t) {
      block_barrier();
      if (t + 1 < turns) {
        stage_a.fetch(a, thread, ((t + 1) * split + team) * Tile::BK);
        stage_b.fetch(b, thread, ((t + 1) * split + team) * Tile::BK);
      }
      compute(smem + t % 2 * stage_bytes);
      if (t + 1 < turns) {
        char* next = smem + (t + 1) % 2 * stage_bytes;
        stage_a.put(thread, next);
        stage_b.put(thread, next + StageA::bytes);
      }
    }
    block_barrier();  // the stages' memory is free for the epilogue
    if constexpr (split > 1) add_partials();
  }

  AITC_FN void add_partials() {
    float* parts = reinterpret_cast<float*>(shared_memory()) + thread;  // (split-1,rows,cols,registers,team)
    AITC_UNROLL
    for (int i = 0; i < rows; ++i)
      AITC_UNROLL
      for (int j = 0; j < cols; ++j)
        AITC_UNROLL
      for (int r = 0; r < Matrix::registers; ++r)
      if (team > 0)
        parts[((((team - 1) * rows + i) * cols + j) * Matrix::registers + r) * Tile::team] = acc[i][j][r];
    block_barrier();
    if (team == 0)
      AITC_UNROLL
      for (int i = 0; i < rows; ++i)
        AITC_UNROLL
        for (int j = 0; j < cols; ++j)
          AITC_UNROLL
        for (int r = 0; r < Matrix::registers; ++r)
        AITC_UNROLL
        for (int s = 0; s < split - 1; ++s)
        acc[i][j][r] += parts[(((s * rows + i) * cols + j) * Matrix::registers + r) * Tile::team];
    block_barrier();
  }

  template <bool ExactCols, class Store> AITC_FN void epilogue(const Store& store, int batch, int64_t row0,
                                                               int64_t row_end, int64_t col0, int64_t col_end) const {
    constexpr int V = min_of(Store::width, 8), per_row = M / V, pieces = M * per_row;
    const int lane = lane_index();
    float* patch = reinterpret_cast<float*>(shared_memory()) + warp * patch_floats;  // (M,M+4)
    if (split > 1 && team > 0) return;
    AITC_UNROLL
    for (int i = 0; i < rows; ++i)
      AITC_UNROLL
      for (int j = 0; j < cols; ++j) {
        warp_barrier();
        AITC_UNROLL
        for (int r = 0; r < Matrix::registers; ++r)
        patch[mfma_row<M>(lane, r) * patch_stride + lane % M] = acc[i][j][r];
        warp_barrier();
        AITC_UNROLL
        for (int p = 0; p < ceil_div(pieces, 64); ++p) {
          const int piece = p * 64 + lane, r = piece / per_row, c = piece % per_row * V;
          const int64_t row = row0 + warp_m + i * M + r, col = col0 + warp_n + j * M + c;
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
