// attention_simt.h: attention by plain multiply-adds: strict float32 (and double), any head size, any type of operand,
// any GPU.
//
// attention_simt<Causal, AttentionSimtTile<BM, BN, TM>>(shape, q, k, v, mask, store)
//   Causal, Shape, Q, K, V, Mask, Store: see attention.h; everything is computed in float, or double for double
//   operands (Mask and acc too).
//   Tile     BM queries a block, BN keys a step (a multiple of 16), TM queries a thread. Sixteen threads share TM rows:
//            threads = BM / TM * 16, a multiple of the warp
// Blocks   ceil(queries / BM) * heads * batch in x
// Threads  BM / TM * 16
// Shared   AttentionSimt<Tile, Shape, Q>::smem_bytes = (BM * (d + 4) + BN * (max(d, dv) + 4) + BM * (BN + 4)) *
//          sizeof(float or double), with d = ceil(D / 4) * 4, dv = ceil(DV / 4) * 4
// Tiles    <64, 64, 4> (many blocks), <32, 32, 2> (few); D > 128 <16, 32, 1> or <32, 32, 2>; few queries <16, 64, 1>
// Example: attention_sm80.h with the last line
//     attention_simt<false, AttentionSimtTile<64, 32, 4>>(Shape{N}, Q{q}, K{k}, V{v}, Mask{mask}, Store{out});
#pragma once
#include "aitc/gpu/attention/attention.h"
#include "aitc/gpu/core/simt.h"

AITC_BEGIN

template <int BM_, int BN_, int TM_> struct AttentionSimtTile {
  static constexpr int BM = BM_, BN = BN_, TM = TM_, across = 16, threads = BM / TM * across, TN = BN / across;
  static_assert(BN % across == 0 && threads % warp_size == 0, "whole warps, sixteen threads a row");
};

template <class Tile, class Shape, class Q> struct AttentionSimt {
  using Acc = accumulator_t<typename Q::type>;
  static constexpr int D = Shape::D, DV = Shape::DV, d = ceil_div(D, 4) * 4, dv = ceil_div(DV, 4) * 4;
  static constexpr int stride_q = d + 4, stride_kv = max_of(d, dv) + 4, stride_p = Tile::BN + 4;
  static constexpr int threads = Tile::threads;
  static constexpr int smem_bytes =
      (Tile::BM * stride_q + Tile::BN * stride_kv + Tile::BM * stride_p) * int(sizeof(Acc));
};

template <int Rows, int Cols, int Threads, class Acc, class Operand>
AITC_FN void convert_rows(Acc* shared, int stride, const Operand& operand, const typename Operand::type* base, int row0,
                          int row_end) {
  constexpr int width = min_of(Operand::width, 4), padded = ceil_div(Cols, 4) * 4, per_row = padded / width,
                pieces = Rows * per_row;
  AITC_NO_UNROLL
  for (int p = thread_index(); p < pieces; p += Threads) {
    const int row = p / per_row, col = p % per_row * width;
    Acc x[width];
    if (row0 + row < row_end && col < Cols) {
      const auto v = load<width>(base + (row0 + row) * int64_t(operand.stride_row) + col);
      AITC_UNROLL
      for (int e = 0; e < width; ++e) x[e] = convert<Acc>(v[e]);
    } else {
      AITC_UNROLL
      for (int e = 0; e < width; ++e) x[e] = Acc(0);
    }
    AITC_UNROLL
    for (int e = 0; e < width; ++e) shared[row * stride + col + e] = x[e];
  }
}
AITC_FN float power_of_two(float x) { return m_exp2(x); }
AITC_FN double power_of_two(double x) { return m_exp(x * 0.6931471805599453); }

template <bool Causal, class Tile, class Shape, class Q, class K, class V, class Mask, class Store>
AITC_FN void attention_simt(const Shape& shape, const Q& q, const K& k, const V& v, const Mask& mask,
                            const Store& store) {
  using A = AttentionSimt<Tile, Shape, Q>;
  using Acc = typename A::Acc;
  constexpr int TM = Tile::TM, TN = Tile::TN, across = Tile::across, TD = ceil_div(A::DV, across);
  Acc* shared_q = reinterpret_cast<Acc*>(shared_memory());   // (BM,d+4)
  Acc* shared_kv = shared_q + Tile::BM * A::stride_q;         // (BN,max(d,dv)+4)
  Acc* shared_p = shared_kv + Tile::BN * A::stride_kv;        // (BM,BN+4)
  const int x_index = thread_index() % across, row_in_block = thread_index() / across * TM;
  const AttentionPlace place = attention_place<Tile::BM, Causal>(shape);
  const int row0 = place.row0, queries = shape.queries, keys = shape.keys;
  const int seen = visible_keys<Tile::BM, Causal>(shape, row0), tiles = ceil_div(seen, Tile::BN);
  const Acc scale_log2 = Acc(shape.scale) * Acc(1.4426950408889634);
  const Acc rest = remaining_scale<Mask>(shape, scale_log2);
  grid_dependency_wait();
  convert_rows<Tile::BM, A::D, Tile::threads>(shared_q, A::stride_q, q, q.base(place.batch, place.head), row0, queries);

  Acc out[TM][TD], most[TM], sum[TM];
  AITC_UNROLL
  for (int i = 0; i < TM; ++i) {
    most[i] = lowest<Acc>(), sum[i] = 0;
    AITC_UNROLL
    for (int j = 0; j < TD; ++j) out[i][j] = 0;
  }
  AITC_NO_UNROLL
  for (int t = 0; t < tiles; ++t) {
    const int col0 = t * Tile::BN;
    block_barrier();
    convert_rows<Tile::BN, A::D, Tile::threads>(shared_kv, A::stride_kv, k, k.base(place.batch, place.kv_head), col0,
                                                seen);
    block_barrier();
    Acc score[TM][TN];  // columns x_index, x_index + 16 ..
    AITC_UNROLL
    for (int i = 0; i < TM; ++i)
      AITC_UNROLL
      for (int j = 0; j < TN; ++j) score[i][j] = 0;
    AITC_NO_UNROLL
    for (int e = 0; e < A::d; e += 4) {
      Vec<Acc, 4> a[TM], b[TN];
      AITC_UNROLL
      for (int i = 0; i < TM; ++i) a[i] = load<4>(shared_q + (row_in_block + i) * A::stride_q + e);
      AITC_UNROLL
      for (int j = 0; j < TN; ++j) b[j] = load<4>(shared_kv + (x_index + j * across) * A::stride_kv + e);
      AITC_UNROLL
      for (int i = 0; i < TM; ++i)
        AITC_UNROLL
        for (int j = 0; j < TN; ++j)
          AITC_UNROLL
          for (int f = 0; f < 4; ++f) score[i][j] += a[i][f] * b[j][f];
    }
    const bool all_seen = col0 + Tile::BN <= keys && (!Causal || col0 + Tile::BN - 1 <= row0 + shape.offset);
    AITC_UNROLL
    for (int i = 0; i < TM; ++i) {
      Acc tile_most = most[i];
      AITC_UNROLL
      for (int j = 0; j < TN; ++j) {
        score[i][j] = masked_score<Causal>(shape, mask, place, score[i][j], scale_log2, row0 + row_in_block + i,
                                           col0 + x_index + j * across, all_seen);
        tile_most = m_max(tile_most, score[i][j]);
      }
      tile_most = warp_reduce<across>(tile_most, [](Acc a, Acc b) { return m_max(a, b); });
      const Acc base = tile_most == lowest<Acc>() ? Acc(0) : tile_most * rest;
      const Acc factor = power_of_two(most[i] * rest - base);
      most[i] = tile_most;
      sum[i] *= factor;
      AITC_UNROLL
      for (int j = 0; j < TD; ++j) out[i][j] *= factor;
      AITC_UNROLL
      for (int j = 0; j < TN; ++j) {
        const Acc p = power_of_two(score[i][j] * rest - base);
        sum[i] += p;
        shared_p[(row_in_block + i) * A::stride_p + x_index + j * across] = p;
      }
    }
    block_barrier();  // everyone is through with K
    convert_rows<Tile::BN, A::DV, Tile::threads>(shared_kv, A::stride_kv, v, v.base(place.batch, place.kv_head), col0,
                                                 seen);
    block_barrier();
    AITC_NO_UNROLL
    for (int n = 0; n < Tile::BN; n += 4) {
      Vec<Acc, 4> p[TM];
      AITC_UNROLL
      for (int i = 0; i < TM; ++i) p[i] = load<4>(shared_p + (row_in_block + i) * A::stride_p + n);
      AITC_UNROLL
      for (int f = 0; f < 4; ++f) {
        Acc b[TD];
        AITC_UNROLL
        for (int j = 0; j < TD; ++j)
          b[j] = x_index + j * across < A::DV ? shared_kv[(n + f) * A::stride_kv + x_index + j * across] : Acc(0);
        AITC_UNROLL
        for (int i = 0; i < TM; ++i)
          AITC_UNROLL
          for (int j = 0; j < TD; ++j) out[i][j] += p[i][f] * b[j];
      }
    }
  }
  grid_dependency_launch();
  AITC_UNROLL
  for (int i = 0; i < TM; ++i) {
    const Acc total = row_divisor<Shape>(warp_reduce<across>(sum[i], [](Acc a, Acc b) { return a + b; }));
    const int row = row0 + row_in_block + i;
    AITC_UNROLL
    for (int j = 0; j < TD; ++j)
      if (row < queries && x_index + j * across < A::DV) {
        const Acc one[1] = {out[i][j] / total};  // no key: 0 / 0
        store.template operator()<1>(place.batch, place.head, row, x_index + j * across, one);
      }
  }
}

AITC_END
