// simt.h: the parts that the plain multiply-add kernels (gemm_simt.h, conv_simt.h) share. Any warp size, any arithmetic
// type.
//
//   SimtTile<BM, BN, BK, TM, TN, split = 1>
//     BM x BN results a block, BK of the contraction a step, TM x TN results a thread (powers of two; in groups of
//     min(T, 4) neighbours). `split` teams of threads take the steps in turn and add up at the end: more threads for
//     small grids and long contractions. threads = (BM / TM) * (BN / TN) * split.
//   Accumulator: float for half_t, bfloat16_t, float8 and float; double; int64_t for int64_t and uint64_t; int32_t for
//     the other integers.
//   smem_bytes = max(split * 2 * BK * (BM + 4 + BN + 4), (split - 1) * BM * BN) * sizeof(accumulator)
#pragma once
#include "aitc/gpu/core/block_place.h"
#include "aitc/operand.h"
#include "aitc/types.h"

AITC_BEGIN

template <class T> struct Accumulator {
  using type =
      select_t<is_same<T, double>, double, select_t<is_floating<T>, float, select_t<sizeof(T) == 8, int64_t, int32_t>>>;
};
template <class T> using accumulator_t = typename Accumulator<T>::type;

template <int BM_, int BN_, int BK_, int TM_, int TN_, int Split = 1> struct SimtTile {
  static constexpr int BM = BM_, BN = BN_, BK = BK_, TM = TM_, TN = TN_, split = Split;
  static constexpr int threads_m = BM / TM, threads_n = BN / TN, team = threads_m * threads_n, threads = team * split;
  static constexpr int group_m = min_of(TM, 4), group_n = min_of(TN, 4);
  static_assert(BM % TM == 0 && BN % TN == 0 && TM % group_m == 0 && TN % group_n == 0,
                "TM and TN are powers of two that divide BM and BN");
};

// Shared rows hold one k each: Extent values of M or N. Pieces of `width` values along k (`along_k`) or along M / N
// travel through registers.
template <class Acc, int Extent, int BK, int Threads, int width, bool along_k> struct SimtStage {
  static constexpr int stride = Extent + 4, values = BK * stride;
  static constexpr int per_row = along_k ? BK / width : Extent / width, rows = along_k ? Extent : BK;
  static constexpr int pieces = rows * per_row, rounds = ceil_div(pieces, Threads);
  static_assert((along_k ? BK : Extent) % width == 0, "the width divides the tile");
  Acc held[rounds][width];

  // source.piece<width>(outer, k, x) fills x with values at (outer, k), along k or outer; zeros outside.
  template <class Source> AITC_FN void fetch(const Source& source, int thread, int k0) {
    AITC_UNROLL
    for (int i = 0; i < rounds; ++i) {
      const int p = thread + i * Threads, row = p / per_row, col = p % per_row * width;
      if (pieces % Threads == 0 || p < pieces)
        source.template piece<width>(along_k ? row : col, k0 + (along_k ? col : row), held[i]);
    }
  }
  AITC_FN void put(int thread, Acc* stage) const {
    AITC_UNROLL
    for (int i = 0; i < rounds; ++i) {
      const int p = thread + i * Threads, row = p / per_row, col = p % per_row * width;
      if (pieces % Threads == 0 || p < pieces)
        AITC_UNROLL
      for (int e = 0; e < width; ++e) stage[(along_k ? (col + e) * stride + row : row * stride + col + e)] = held[i][e];
    }
  }
};

// An operand matrix in global memory as a source.
template <class Operand, class Acc, bool IsA, int Widest = 4> struct SimtMatrix {
  using T = typename Operand::type;
  static constexpr bool along_k = Operand::major == Major::K || Operand::major == Major::none;
  static constexpr int width =
      Operand::major == Major::none ? 1 : min_of(Operand::width, min_of(Widest, 16 / int(sizeof(T))));
  Operand operand;
  const T* base;
  int outer0, outer_end, k_end;

  AITC_FN SimtMatrix(const Operand& o, int batch, int first, int end, int k_size)
      : operand(o), base(o.matrix(batch)), outer0(first), outer_end(end), k_end(k_size) {}
  template <int W> AITC_FN void piece(int outer_in_tile, int k, Acc (&x)[W]) const {
    const int outer = outer0 + outer_in_tile;
    const int64_t step_outer = !along_k ? 1 : IsA ? int64_t(operand.stride_row) : int64_t(operand.stride_col);
    const int64_t step_k = Operand::major == Major::K ? 1
                           : IsA                      ? int64_t(operand.stride_col)
                                                      : int64_t(operand.stride_row);
    if (outer < outer_end && k < k_end) {
      const auto v = load<W>(base + outer * step_outer + k * step_k);
      AITC_UNROLL
      for (int e = 0; e < W; ++e) x[e] = convert<Acc>(v[e]);
    } else {
      AITC_UNROLL
      for (int e = 0; e < W; ++e) x[e] = convert<Acc>(0);
    }
  }
};

template <class Acc, class Tile, class SourceA, class SourceB> struct SimtLoop {
  using StageA = SimtStage<Acc, Tile::BM, Tile::BK, Tile::team,
                           min_of(SourceA::width, SourceA::along_k ? Tile::BK : Tile::BM), SourceA::along_k>;
  using StageB = SimtStage<Acc, Tile::BN, Tile::BK, Tile::team,
                           min_of(SourceB::width, SourceB::along_k ? Tile::BK : Tile::BN), SourceB::along_k>;
  static constexpr int stage_values = StageA::values + StageB::values,
                       partial_values = (Tile::split - 1) * Tile::BM * Tile::BN;
  static constexpr int smem_bytes = max_of(Tile::split * 2 * stage_values, partial_values) * int(sizeof(Acc));
  static constexpr int groups_m = Tile::TM / Tile::group_m, groups_n = Tile::TN / Tile::group_n;
  Acc acc[Tile::TM][Tile::TN];

  static AITC_FN int thread() { return Tile::split == 1 ? thread_index() : thread_index() % Tile::team; }
  static AITC_FN int row_of(int i) {
    return i / Tile::group_m * (Tile::BM / groups_m) + thread() / Tile::threads_n * Tile::group_m + i % Tile::group_m;
  }
  static AITC_FN int col_of(int j) {
    return j / Tile::group_n * (Tile::BN / groups_n) + thread() % Tile::threads_n * Tile::group_n + j % Tile::group_n;
  }

  AITC_FN void run(const SourceA& a, const SourceB& b, int k_tiles) {
    const int team = thread_index() / Tile::team,
              steps = ceil_div(k_tiles, Tile::split);  // a step beyond the end multiplies zeros
    Acc* smem = reinterpret_cast<Acc*>(shared_memory()) + team * 2 * stage_values;
    AITC_UNROLL
    for (int i = 0; i < Tile::TM; ++i)
      AITC_UNROLL
      for (int j = 0; j < Tile::TN; ++j) acc[i][j] = Acc(0);
    StageA stage_a;
    StageB stage_b;
    if (steps > 0) {
      stage_a.fetch(a, thread(), team * Tile::BK);
      stage_b.fetch(b, thread(), team * Tile::BK);
      stage_a.put(thread(), smem);
      stage_b.put(thread(), smem + StageA::values);
    }
    AITC_NO_UNROLL
    for (int t = 0; t < steps; ++t) {
      block_barrier();
      if (t + 1 < steps) {
        stage_a.fetch(a, thread(), ((t + 1) * Tile::split + team) * Tile::BK);
        stage_b.fetch(b, thread(), ((t + 1) * Tile::split + team) * Tile::BK);
      }
      const Acc* sa = smem + t % 2 * stage_values;  // (BK,BM+4)
      const Acc* sb = sa + StageA::values;          // (BK,BN+4)
      AITC_UNROLL
      for (int k = 0; k < Tile::BK; ++k) {
        Acc x[Tile::TM], y[Tile::TN];
        AITC_UNROLL
        for (int i = 0; i < Tile::TM; i += Tile::group_m) {
          const auto v = load<Tile::group_m>(sa + k * StageA::stride + row_of(i));
          AITC_UNROLL
          for (int e = 0; e < Tile::group_m; ++e) x[i + e] = v[e];
        }
        AITC_UNROLL
        for (int j = 0; j < Tile::TN; j += Tile::group_n) {
          const auto v = load<Tile::group_n>(sb + k * StageB::stride + col_of(j));
          AITC_UNROLL
          for (int e = 0; e < Tile::group_n; ++e) y[j + e] = v[e];
        }
        AITC_UNROLL
        for (int i = 0; i < Tile::TM; ++i)
          AITC_UNROLL
          for (int j = 0; j < Tile::TN; ++j) acc[i][j] += x[i] * y[j];
      }
      if (t + 1 < steps) {
        Acc* next = smem + (t + 1) % 2 * stage_values;
        stage_a.put(thread(), next);
        stage_b.put(thread(), next + StageA::values);
      }
    }
    if constexpr (Tile::split > 1) add_partials(team);
  }

  AITC_FN void add_partials(int team) {
    Acc* parts = reinterpret_cast<Acc*>(shared_memory());  // (split-1,TM TN,team)
    block_barrier();
    AITC_UNROLL
    for (int i = 0; i < Tile::TM; ++i)
      AITC_UNROLL
      for (int j = 0; j < Tile::TN; ++j)
        if (team > 0) parts[(((team - 1) * Tile::TM + i) * Tile::TN + j) * Tile::team + thread()] = acc[i][j];
    block_barrier();
    if (team == 0)
      AITC_UNROLL
      for (int i = 0; i < Tile::TM; ++i)
        AITC_UNROLL
        for (int j = 0; j < Tile::TN; ++j)
          AITC_UNROLL
        for (int s = 0; s < Tile::split - 1; ++s)
        acc[i][j] += parts[((s * Tile::TM + i) * Tile::TN + j) * Tile::team + thread()];
  }

  template <bool ExactCols, class Store> AITC_FN void epilogue(const Store& store, int batch, int64_t row0,
                                                               int64_t row_end, int64_t col0, int64_t col_end) const {
        constexpr int V = min_of(Store::width, Tile::group_n);
        if (Tile::split > 1 && thread_index() >= Tile::team) return;
        AITC_UNROLL
        for (int i = 0; i < Tile::TM; ++i) {
        const int64_t row = row0 + row_of(i);
        AITC_UNROLL
        for (int j = 0; j < Tile::TN; j += V) {
        const int64_t col = col0 + col_of(j);
        if (row < row_end && col < col_end) {
          if (ExactCols || col + V <= col_end) {
            Acc x[V];
            AITC_UNROLL
            for (int e = 0; e < V; ++e) x[e] = acc[i][j + e];
            store.template operator()<V>(batch, row, col, x);
          } else {
            AITC_UNROLL
            for (int e = 0; e < V; ++e)
              if (col + e < col_end) {
                const Acc one[1] = {acc[i][j + e]};
                store.template operator()<1>(batch, row, col + e, one);
              }
          }
        }
      }
    }
  }
};

AITC_END
