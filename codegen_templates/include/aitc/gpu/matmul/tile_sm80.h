// tile_sm80.h: the parts that the mma.sync kernels (gemm_sm80.h, conv_sm80.h) share: swizzled tiles in shared memory,
// the multistage main loop over them, the epilogue that hands a store functor contiguous columns.
//
//   Tile<BM, BN, BK, warps_m, warps_n, stages, warps_k = 1>
//     BM x BN results a block, BK of the contraction a stage; `stages` >= 2 tiles of A and of B are in flight.
//     warps_m x warps_n warps divide BM x BN, each part a multiple of 16 x 16. warps_k > 1: that many warps share a
//     part and divide the k-steps of each stage (BK / Mma<T>::k is a multiple of warps_k); their sums meet in shared
//     memory at the end: more warps for small grids. threads = 32 * warps_m * warps_n * warps_k.
//   With wm = BM / warps_m, wn = BN / warps_n:
//   smem_bytes = max(stages * (BM + BN) * BK * sizeof(T),
//                    warps_m * warps_n * 4 * max(16 * (wn + 8), (warps_k - 1) * wm * wn))
#pragma once
#include "aitc/gpu/core/block_place.h"
#include "aitc/gpu/matmul/mma_sm80.h"
#include "aitc/operand.h"

AITC_BEGIN

template <int BM_, int BN_, int BK_, int WarpsM, int WarpsN, int Stages, int WarpsK = 1> struct Tile {
  static constexpr int BM = BM_, BN = BN_, BK = BK_, warps_m = WarpsM, warps_n = WarpsN, warps_k = WarpsK,
                       stages = Stages;
  static constexpr int WM = BM / warps_m, WN = BN / warps_n, threads = 32 * warps_m * warps_n * warps_k;
  static_assert(BM % (16 * warps_m) == 0 && BN % (16 * warps_n) == 0, "a warp computes a multiple of 16 x 16");
  static_assert(stages >= 2, "at least two stages");
};

// A tile of Rows x Cols elements, Cols contiguous, in shared memory. 16-byte chunks are permuted within a row so that
// eight rows of one column of chunks (what ldmatrix reads) lie in different banks. `scattered`: instead, four rows x
// eight 4-byte columns (what reading TF32 across the rows needs).
template <class T, int Rows_, int Cols_, bool scattered = false> struct SharedTile {
  static constexpr int rows = Rows_, cols = Cols_, row_bytes = Cols_ * int(sizeof(T)), bytes = Rows_ * row_bytes,
                       chunks = row_bytes / 16;
  static_assert(row_bytes % 16 == 0, "rows of whole 16-byte chunks");
  static AITC_FN int offset(int row, int chunk) {
    if constexpr (scattered && chunks % 8 == 0) return row * row_bytes + ((chunk ^ ((row & 3) << 1)) << 4);
    else if constexpr (chunks % 8 == 0) return row * row_bytes + ((chunk ^ (row & 7)) << 4);
    else if constexpr (chunks % 4 == 0) return row * row_bytes + ((chunk ^ (row >> 1 & 3)) << 4);
    else if constexpr (chunks % 2 == 0) return row * row_bytes + ((chunk ^ (row >> 2 & 1)) << 4);
    else return row * row_bytes + (chunk << 4);
  }
  static AITC_FN int element_offset(int row, int col) {
    return offset(row, col * int(sizeof(T)) / 16) + col * int(sizeof(T)) % 16;
  }
};

// Moves `Width` elements from global to shared memory: asynchronously from 4 bytes on, through a register below. Zeros
// if !valid; `from` is not read then.
template <class T, int Width> AITC_FN void copy_piece(char* shared, int offset, const T* from, bool valid) {
  constexpr int bytes = Width * int(sizeof(T));
  if constexpr (bytes >= 4) {
    copy_async<bytes>(to_shared(shared) + offset, from, valid);
  } else {
    raw_word<bytes> v = 0;
    if (valid) v = *reinterpret_cast<const raw_word<bytes>*>(from);
    *reinterpret_cast<raw_word<bytes>*>(shared + offset) = v;
  }
}

// Fragments of A (16 x k a step) out of shared memory. KMajor: rows are M, columns K; otherwise rows are K, columns M.
template <class T, class Shared, bool KMajor>
AITC_FN void load_fragment_a(uint32_t (&a)[4], shared_address tile, int m, int k) {
  const int lane = lane_index();
  constexpr int per_chunk = 16 / int(sizeof(T));
  if constexpr (KMajor) {
    load_matrix_x4(a, tile + Shared::offset(m + lane % 16, k / per_chunk + lane / 16));
  } else if constexpr (sizeof(T) == 2) {
    load_matrix_x4_trans(a, tile + Shared::offset(k + lane / 16 * 8 + lane % 8, m / 8 + lane / 8 % 2));
  } else {
    AITC_UNROLL
    for (int i = 0; i < 4; ++i)
      a[i] = load_shared_u32(tile + Shared::element_offset(k + i / 2 * 4 + lane % 4, m + i % 2 * 8 + lane / 4));
  }
}
// Two neighbouring fragments of B (k x 16 a step). KMajor: rows are N, columns K; otherwise rows are K, columns N.
template <class T, class Shared, bool KMajor>
AITC_FN void load_fragment_b(uint32_t (&b0)[2], uint32_t (&b1)[2], shared_address tile, int n, int k) {
  const int lane = lane_index();
  constexpr int per_chunk = 16 / int(sizeof(T));
  uint32_t r[4];
  if constexpr (KMajor) {
    load_matrix_x4(r, tile + Shared::offset(n + lane / 16 * 8 + lane % 8, k / per_chunk + lane / 8 % 2));
  } else if constexpr (sizeof(T) == 2) {
    load_matrix_x4_trans(r, tile + Shared::offset(k + lane % 16, n / 8 + lane / 16));
  } else {
    AITC_UNROLL
    for (int i = 0; i < 4; ++i)
      r[i] = load_shared_u32(tile + Shared::element_offset(k + i % 2 * 4 + lane % 4, n + i / 2 * 8 + lane / 4));
  }
  b0[0] = r[0], b0[1] = r[1], b1[0] = r[2], b1[1] = r[3];
}

// Just before they are used: the instruction after a load of fragments should not wait for it.
template <class T, int N> AITC_FN void round_operands(uint32_t (&r)[N]) {
  AITC_UNROLL
  for (int i = 0; i < N; ++i) round_operand<T>(r[i]);
}

// The contraction of one block's tile. LoaderA and LoaderB: `Shared` (a SharedTile), `k_major`, and load(char* stage,
// int k_tile), which starts the copies of one stage of this thread.
template <class T, class Tile, class LoaderA, class LoaderB> struct MainLoop {
  using SharedA = typename LoaderA::Shared;
  using SharedB = typename LoaderB::Shared;
  static constexpr int stage_bytes = SharedA::bytes + SharedB::bytes;
  static constexpr int rows = Tile::WM / 16, cols = Tile::WN / 8, steps = Tile::BK / Mma<T>::k,
                       own_steps = steps / Tile::warps_k;
  static constexpr int loop_bytes = Tile::stages * stage_bytes;
  static constexpr int patch_stride = Tile::WN + 8,
                       patch_floats = 16 * patch_stride;  // a warp's 16 rows on their way to the store functor
  static constexpr int partial_floats = (Tile::warps_k - 1) * Tile::WM * Tile::WN;
  static constexpr int epilogue_bytes = Tile::warps_m * Tile::warps_n * 4 * max_of(patch_floats, partial_floats);
  static constexpr int smem_bytes = max_of(loop_bytes, epilogue_bytes);
  static_assert(Tile::BK % Mma<T>::k == 0 && steps % Tile::warps_k == 0,
                "BK is a multiple of the instruction's k times warps_k");

  float acc[rows][cols][4];  // (WM,WN) in fragments
  int warp_m, warp_n, warp_k;

  AITC_FN MainLoop() {
    const int warp = warp_index();
    warp_m = warp % Tile::warps_m * Tile::WM;
    warp_n = warp / Tile::warps_m % Tile::warps_n * Tile::WN;
    warp_k = warp / (Tile::warps_m * Tile::warps_n);
    AITC_UNROLL
    for (int i = 0; i < rows; ++i)
      AITC_UNROLL
      for (int j = 0; j < cols; ++j)
        AITC_UNROLL
        for (int e = 0; e < 4; ++e) acc[i][j][e] = 0;
  }

  AITC_FN void fragments(uint32_t (&a)[rows][4], uint32_t (&b)[cols][2], shared_address stage, int k) const {
    AITC_UNROLL
    for (int i = 0; i < rows; ++i) load_fragment_a<T, SharedA, LoaderA::k_major>(a[i], stage, warp_m + i * 16, k);
    AITC_UNROLL
    for (int j = 0; j < cols; j += 2)
      load_fragment_b<T, SharedB, LoaderB::k_major>(b[j], b[j + 1], stage + SharedA::bytes, warp_n + j * 8, k);
  }

  // Fragments are read one step ahead of the multiplications, over the border between two stages too.
  AITC_FN void run(LoaderA& load_a, LoaderB& load_b, int k_tiles) {
    char* smem = shared_memory();
    AITC_UNROLL
    for (int s = 0; s < Tile::stages - 1; ++s) {
      if (s < k_tiles) {
        load_a.load(smem + s * stage_bytes, s);
        load_b.load(smem + s * stage_bytes + SharedA::bytes, s);
      }
      copy_async_commit();
    }
    copy_async_wait<Tile::stages - 2>();
    block_barrier();
    uint32_t a[2][rows][4], b[2][cols][2];
    const int first = warp_k * own_steps * Mma<T>::k;
    if (k_tiles > 0) fragments(a[0], b[0], to_shared(smem), first);
    int slot_in = Tile::stages - 1, slot_out = 0;
    constexpr int unroll = own_steps % 2 == 0 ? 1 : 2;  // the two sets of fragments take turns
    AITC_NO_UNROLL
    for (int k = 0; k < k_tiles; k += unroll) {
      AITC_UNROLL
      for (int u = 0; u < unroll; ++u) {
        if (unroll > 1 && k + u >= k_tiles) break;
        AITC_UNROLL
        for (int s = 0; s < own_steps; ++s) {
          const int now = (u * own_steps + s) % 2, then = 1 - now;
          if (s == 0) {  // the stage that was read last is free since the barrier before
            const int next = k + u + Tile::stages - 1;
            if (next < k_tiles) {
              load_a.load(smem + slot_in * stage_bytes, next);
              load_b.load(smem + slot_in * stage_bytes + SharedA::bytes, next);
            }
            copy_async_commit();
            slot_in = slot_in + 1 == Tile::stages ? 0 : slot_in + 1;
          }
          if (s + 1 < own_steps) {
            fragments(a[then], b[then], to_shared(smem + slot_out * stage_bytes), first + (s + 1) * Mma<T>::k);
          } else {
            copy_async_wait<Tile::stages - 2>();
            block_barrier();
            slot_out = slot_out + 1 == Tile::stages ? 0 : slot_out + 1;
            if (k + u + 1 < k_tiles) fragments(a[then], b[then], to_shared(smem + slot_out * stage_bytes), first);
          }
          AITC_UNROLL
          for (int j = 0; j < cols; ++j) round_operands<T>(b[now][j]);
          AITC_UNROLL
          for (int i = 0; i < rows; ++i) {
            round_operands<T>(a[now][i]);
            AITC_UNROLL
            for (int j = 0; j < cols; ++j) Mma<T>::run(acc[i][j], a[now][i], b[now][j]);
          }
        }
      }
    }
    copy_async_wait<0>();
    block_barrier();  // the stages' memory is free for the epilogue
    if constexpr (Tile::warps_k > 1) add_partials();
  }

  AITC_FN void add_partials() {
    constexpr int parts = Tile::warps_m * Tile::warps_n;
    const int part = warp_index() % parts, lane = lane_index();
    float* mine = reinterpret_cast<float*>(shared_memory()) + part * partial_floats;
    AITC_UNROLL
    for (int i = 0; i < rows; ++i)
      AITC_UNROLL
      for (int j = 0; j < cols; ++j)
        AITC_UNROLL
        for (int e = 0; e < 4; ++e)
          if (warp_k > 0) mine[((((warp_k - 1) * rows + i) * cols + j) * 4 + e) * 32 + lane] = acc[i][j][e];
    block_barrier();
    if (warp_k == 0)
      AITC_UNROLL
      for (int w = 0; w < Tile::warps_k - 1; ++w)
        AITC_UNROLL
        for (int i = 0; i < rows; ++i)
          AITC_UNROLL
          for (int j = 0; j < cols; ++j)
            AITC_UNROLL
            for (int e = 0; e < 4; ++e) acc[i][j][e] += mine[(((w * rows + i) * cols + j) * 4 + e) * 32 + lane];
    block_barrier();
  }

  // Calls store.template operator()<V>(batch, row, col, acc) for each result inside row_end x col_end; `row0`, `col0`:
  // the block's first. ExactCols: col_end is a multiple of V, known when compiling.
  template <bool ExactCols, class Store, class Row>
  AITC_FN void epilogue(const Store& store, int batch, Row row0, Row row_end, int64_t col0, int64_t col_end) {
    constexpr int V = min_of(Store::width, min_of(8, greatest_divisor(Tile::WN, 8)));
    constexpr int per_row = Tile::WN / V, pieces = 16 * per_row;
    if (warp_k > 0) return;
    const int lane = lane_index();
    float* patch = reinterpret_cast<float*>(shared_memory()) + warp_index() * patch_floats;  // (16,WN+8)
    AITC_UNROLL
    for (int i = 0; i < rows; ++i) {
      warp_barrier();
      AITC_UNROLL
      for (int j = 0; j < cols; ++j)
        AITC_UNROLL
        for (int half = 0; half < 2; ++half) {
          const Vec<float, 2> pair{acc[i][j][half * 2], acc[i][j][half * 2 + 1]};
          aitc::store<2>(patch + (half * 8 + lane / 4) * patch_stride + j * 8 + lane % 4 * 2, pair);
        }
      warp_barrier();
      AITC_UNROLL
      for (int p = 0; p < ceil_div(pieces, 32); ++p) {
        const int piece = p * 32 + lane, r = piece / per_row, c = piece % per_row * V;
        const Row row = row0 + Row(warp_m + i * 16 + r);
        const int64_t col = col0 + warp_n + c;
        if ((pieces % 32 == 0 || piece < pieces) && row < row_end && col < col_end) {
          float x[V];
          const auto v = load<V>(patch + r * patch_stride + c);
          AITC_UNROLL
          for (int e = 0; e < V; ++e) x[e] = v[e];
          if (ExactCols || col + V <= col_end) {
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
