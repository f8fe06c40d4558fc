// attention_split_simt.h: attention of a few query rows over many keys by plain multiply-adds: strict float32, and any
// GPU; limited by reading K and V once while there are few rows.
//
// attention_split_simt<Causal, AttentionSplitSimtTile<MR, V, lanes, unroll, warps, splits>>(shape, q, k, v, mask, store,
//                                                                                          parts, tickets)
//   Causal, Shape, Q, K, V, Mask, Store: see attention.h; float, half_t or bfloat16_t, all computed in float; V divides
//   the widths of Q, K and V
//   Rows, splits, parts, tickets, Blocks: see attention_split.h; BM = MR, dv = ceil(DV / 4) * 4. `lanes` (a power of
//   two, a warp at the most) lanes share a key, V elements each: V * lanes >= D and DV. They walk over tiles of `unroll`
//   keys, and fetch the next while they compute.
//   Tile     threads = warps * warp_size
// Shared   AttentionSplitSimt<Tile, Shape>::smem_bytes = 4 * max(workers * MR * (dv + 4), MR * splits) + 16, with
//          workers = warps * warp_size / lanes
#pragma once
#include "aitc/gpu/attention/attention_split.h"
#include "aitc/gpu/core/simt.h"

AITC_BEGIN

template <int MR_, int V_, int Lanes, int Unroll, int Warps, int Splits> struct AttentionSplitSimtTile {
  static constexpr int MR = MR_, V = V_, lanes = Lanes, unroll = Unroll, splits = Splits, threads = Warps * warp_size,
                       workers = threads / Lanes;
  static_assert((Lanes & (Lanes - 1)) == 0 && Lanes <= warp_size, "lanes of one warp");
};

template <class Tile, class Shape> struct AttentionSplitSimt {
  static constexpr int dv = ceil_div(Shape::DV, 4) * 4, threads = Tile::threads,
                       smem_bytes = 4 * max_of(Tile::workers * Tile::MR * (dv + 4), Tile::MR * Tile::splits) + 16;
};

template <bool Causal, class Tile, class Shape, class Q, class K, class V, class Mask, class Store>
AITC_FN void attention_split_simt(const Shape& shape, const Q& q, const K& k, const V& v, const Mask& mask,
                                  const Store& store, float* parts = nullptr, int* tickets = nullptr) {
  using A = AttentionSplitSimt<Tile, Shape>;
  using T = typename Q::type;
  constexpr int MR = Tile::MR, W = Tile::V, lanes = Tile::lanes, U = Tile::unroll, D = Shape::D, DV = Shape::DV;
  static_assert(W * lanes >= D && W * lanes >= DV && D % W == 0 && DV % W == 0, "the lanes of a key hold it");
  const int lane = lane_index(), worker = thread_index() / lanes, col = lane % lanes * W, keys = shape.keys;
  const SplitPlace<MR, Tile::splits> place(shape);
  grid_dependency_wait();
  if (place.idle()) return;

  float query[MR][W], out[MR][W], most[MR], sum[MR];
  AITC_UNROLL
  for (int r = 0; r < MR; ++r) {
    Vec<T, W> x = broadcast<W>(convert<T>(0.0f));
    if (place.inside(r) && col < D)
      x = load<W>(q.base(place.batch, place.head(r)) + place.query(r) * int64_t(q.stride_row) + col);
    most[r] = lowest<float>(), sum[r] = 0;
    AITC_UNROLL
    for (int e = 0; e < W; ++e) query[r][e] = convert<float>(x[e]), out[r][e] = 0;
  }
  const int seen = place.template seen<Causal>(shape), last = max_of(seen, 1) - 1;
  int first, own;
  place.tiles(ceil_div(seen, U), worker, Tile::workers, first, own);
  const T *base_k = k.base(place.batch, place.kv_head) + (col < D ? col : 0),
          *base_v = v.base(place.batch, place.kv_head) + (col < DV ? col : 0);
  Vec<T, W> key[U], value[U];
  const auto fetch = [&](int i) {  // a key behind the end stands for the last: it is not seen
    AITC_UNROLL
    for (int u = 0; u < U; ++u) {
      const int at = min_of((first + i * Tile::workers) * U + u, last);
      key[u] = load<W>(base_k + at * int64_t(k.stride_row));
      value[u] = load<W>(base_v + at * int64_t(v.stride_row));
    }
  };
  const float scale_log2 = float(shape.scale) * 1.4426950408889634f, rest = remaining_scale<Mask>(shape, scale_log2);
  // The workers of a warp take as many steps as the first of them, which has the most: they exchange sums together.
  const int steps = shuffle(own, 0);
  if (own > 0) fetch(0);
  AITC_NO_UNROLL
  for (int i = 0; i < steps; ++i) {
    float score[MR][U], now[U][W];
    AITC_UNROLL
    for (int u = 0; u < U; ++u) {
      float x[W];
      AITC_UNROLL
      for (int e = 0; e < W; ++e) x[e] = col < D && i < own ? convert<float>(key[u][e]) : 0.0f;
      AITC_UNROLL
      for (int e = 0; e < W; ++e) now[u][e] = i < own ? convert<float>(value[u][e]) : 0.0f;
      AITC_UNROLL
      for (int r = 0; r < MR; ++r) {
        score[r][u] = 0;
        AITC_UNROLL
        for (int e = 0; e < W; ++e) score[r][u] += query[r][e] * x[e];
      }
    }
    const int key0 = (first + i * Tile::workers) * U;
    if (i + 1 < own) fetch(i + 1);
    AITC_UNROLL
    for (int r = 0; r < MR; ++r) {
      const AttentionPlace at = place.place(r);
      float top = most[r];
      AITC_UNROLL
      for (int u = 0; u < U; ++u) {
        float& x = score[r][u];
        x = warp_reduce<lanes>(x, [](float a, float b) { return a + b; });
        x = i < own && place.inside(r) ? masked_score<Causal>(shape, mask, at, x, scale_log2, place.query(r), key0 + u, false) : lowest<float>();
        top = m_max(top, x);
      }
      const float base = top == lowest<float>() ? 0.0f : top * rest, factor = m_exp2(most[r] * rest - base);
      most[r] = top;
      sum[r] *= factor;
      AITC_UNROLL
      for (int e = 0; e < W; ++e) out[r][e] *= factor;
      AITC_UNROLL
      for (int u = 0; u < U; ++u) {
        const float p = m_exp2(score[r][u] * rest - base);
        sum[r] += p;
        AITC_UNROLL
        for (int e = 0; e < W; ++e) out[r][e] += p * now[u][e];
      }
    }
  }
  grid_dependency_launch();
  float* found = reinterpret_cast<float*>(shared_memory());  // (workers,MR,dv+4)
  AITC_UNROLL
  for (int r = 0; r < MR; ++r) {
    float* row = found + (worker * MR + r) * (A::dv + 4);
    AITC_UNROLL
    for (int e = 0; e < W; ++e)
      if (col + e < A::dv) row[col + e] = out[r][e];
    if (col == 0) row[A::dv] = most[r] == lowest<float>() ? most[r] : most[r] * rest, row[A::dv + 1] = sum[r];
  }
  block_barrier();
  finish_parts<Shape, Tile::workers, Tile::threads, DV, A::dv>(place, store, found, reinterpret_cast<int*>(shared_memory() + A::smem_bytes - 16), parts, tickets);
}

AITC_END
