// attention_split_sm80.h: attention of a few query rows over many keys (a decoding step of a language model), limited
// by reading K and V once: by mma.sync (sm_80 and newer), half_t and bfloat16_t, all else in float.
//
// attention_split_sm80<Causal, AttentionSplitTile<BN, warps, stages, slabs, splits>>(shape, q, k, v, mask, store,
//                                                                                   parts, tickets)
//   Causal, Shape, Q, K, V, Mask, Store: see attention.h. D and DV up to 256; multiples of 8 with width = 8 are fast,
//   others work.
//   Rows, splits, parts, tickets, Blocks: see attention_split.h; BM = 16 * slabs, dv = ceil(DV / 16) * 16. In a block
//   the tiles of BN keys (a multiple of 16) are divided among the warps, each of which streams its own through a ring of
//   `stages` tiles and never waits for another warp.
//   Tile     threads = 32 * warps
// Shared   AttentionSplitSm80<Tile, Shape, Q>::smem_bytes = 2 * 16 slabs * d + max(2 * warps * stages * BN * (d + dv),
//          4 * warps * 16 slabs * (dv + 4), 4 * 16 slabs * splits), d = ceil(D / 16) * 16
#pragma once
#include "aitc/gpu/attention/attention_sm80.h"
#include "aitc/gpu/attention/attention_split.h"

AITC_BEGIN

template <int BN_, int Warps, int Stages, int Slabs, int Splits> struct AttentionSplitTile {
  static constexpr int BN = BN_, warps = Warps, stages = Stages, slabs = Slabs, splits = Splits, threads = 32 * Warps,
                       rows = 16 * Slabs;
  static_assert(BN % 16 == 0 && Stages >= 2, "tiles of a multiple of 16 keys, at least two of them");
};

template <class Tile, class Shape, class Q> struct AttentionSplitSm80 {
  using T = typename Q::type;
  static_assert(sizeof(T) == 2 && is_floating<T>, "half or bfloat16");
  static constexpr int D = Shape::D, DV = Shape::DV, d = ceil_div(D, 16) * 16, dv = ceil_div(DV, 16) * 16;
  using SharedQ = SharedTile<T, Tile::rows, d>;
  using SharedK = SharedTile<T, Tile::BN, d>;
  using SharedV = SharedTile<T, Tile::BN, dv>;
  static constexpr int stage_bytes = SharedK::bytes + SharedV::bytes;
  static constexpr int part_stride = dv + 4;  // of a row on its way from warp to block: output, maximum, sum
  static constexpr int threads = Tile::threads,
                       smem_bytes = SharedQ::bytes + max_of(max_of(Tile::warps * Tile::stages * stage_bytes,
                                                                   Tile::warps * Tile::rows * part_stride * 4),
                                                            Tile::rows * Tile::splits * 4);
};

template <bool Causal, class Tile, class Shape, class Q, class K, class V, class Mask, class Store>
AITC_FN void attention_split_sm80(const Shape& shape, const Q& q, const K& k, const V& v, const Mask& mask,
                                  const Store& store, float* parts = nullptr, int* tickets = nullptr) {
  using A = AttentionSplitSm80<Tile, Shape, Q>;
  using T = typename A::T;
  using SharedQ = typename A::SharedQ;
  using SharedK = typename A::SharedK;
  using SharedV = typename A::SharedV;
  static_assert(is_same<T, typename K::type> && is_same<T, typename V::type>, "Q, K and V have one type");
  constexpr int slabs = Tile::slabs, steps = A::d / 16, key_frags = Tile::BN / 8, out_frags = A::dv / 8, BM = Tile::rows;
  constexpr bool hold_q = A::d * slabs <= 128;  // Q's fragments stay in registers
  const int thread = thread_index(), lane = lane_index(), warp = warp_index();
  const int keys = shape.keys;
  const SplitPlace<BM, Tile::splits> place(shape);
  grid_dependency_wait();
  if (place.idle()) return;

  char* smem_q = shared_memory();
  char* ring = smem_q + SharedQ::bytes;
  char* mine = ring + warp * Tile::stages * A::stage_bytes;
  // Q's rows are those of several heads: each has its own start.
  constexpr int width = min_of(Q::width, 8), per_row = A::d / width, pieces = BM * per_row;
  AITC_UNROLL
  for (int i = 0; i < ceil_div(pieces, Tile::threads); ++i) {
    const int p = thread + i * Tile::threads, row = p / per_row, col = p % per_row * width;
    const bool inside = place.inside(row) && col < A::D;
    if (pieces % Tile::threads == 0 || p < pieces)
      copy_piece<T, width>(smem_q, SharedQ::element_offset(row, col),
                           inside ? q.base(place.batch, place.head(row)) + place.query(row) * int64_t(q.stride_row) + col
                                  : q.base(0, 0),
                           inside);
  }
  copy_async_commit();

  const int seen = place.template seen<Causal>(shape);
  int first, own;
  place.tiles(ceil_div(seen, Tile::BN), warp, Tile::warps, first, own);
  const T *base_k = k.base(place.batch, place.kv_head), *base_v = v.base(place.batch, place.kv_head);
  const auto load = [&](int i, int slot) {
    const int key = (first + i * Tile::warps) * Tile::BN;
    char* stage = mine + slot * A::stage_bytes;
    load_rows<SharedK, 32, A::D>(stage, k, base_k, key, seen, lane);
    load_rows<SharedV, 32, A::DV>(stage + SharedK::bytes, v, base_v, key, seen, lane);
  };
  AITC_UNROLL
  for (int s = 0; s < Tile::stages - 1; ++s) {
    if (s < own) load(s, s);
    copy_async_commit();
  }
  copy_async_wait<Tile::stages - 1>();
  block_barrier();  // Q is here
  uint32_t held_q[hold_q ? slabs : 1][hold_q ? steps : 1][4];
  if constexpr (hold_q)
    AITC_UNROLL
    for (int i = 0; i < slabs; ++i)
      AITC_UNROLL
      for (int s = 0; s < steps; ++s) load_fragment_a<T, SharedQ, true>(held_q[i][s], to_shared(smem_q), i * 16, s * 16);

  const float scale_log2 = float(shape.scale) * 1.4426950408889634f, rest = remaining_scale<Mask>(shape, scale_log2);
  using Rows = AttentionRows<T, slabs, key_frags, out_frags>;
  Rows rows;
  int slot = 0, slot_in = Tile::stages - 1;
  AITC_NO_UNROLL
  for (int i = 0; i < own; ++i) {
    copy_async_wait<Tile::stages - 2>();
    warp_barrier();  // the tile is here, and every lane is through with the one before
    if (i + Tile::stages - 1 < own) load(i + Tile::stages - 1, slot_in);
    copy_async_commit();
    slot_in = slot_in + 1 == Tile::stages ? 0 : slot_in + 1;
    const shared_address tile_k = to_shared(mine + slot * A::stage_bytes);
    slot = slot + 1 == Tile::stages ? 0 : slot + 1;
    typename Rows::Scores score;
    rows.template multiply_keys<SharedK, steps>(score, tile_k, [&](int slab, int s, uint32_t(&a)[4]) {
      if constexpr (hold_q) {
        AITC_UNROLL
        for (int e = 0; e < 4; ++e) a[e] = held_q[slab][s][e];
      } else {
        load_fragment_a<T, SharedQ, true>(a, to_shared(smem_q), slab * 16, s * 16);
      }
    });
    const int key = (first + i * Tile::warps) * Tile::BN;
    const bool all_seen = key + Tile::BN <= keys && (!Causal || key + Tile::BN - 1 <= place.query(0) + int(shape.offset));
    rows.softmax(score, rest, [&](float x, int row, int col) {
      return masked_score<Causal>(shape, mask, place.place(row), x, scale_log2, place.query(row), key + col, all_seen);
    });
    rows.template multiply_values<SharedV>(score, tile_k + SharedK::bytes);
  }
  copy_async_wait<0>();
  block_barrier();  // the rings are free for the results
  grid_dependency_launch();

  float* found = reinterpret_cast<float*>(ring);  // (warps,BM,dv+4)
  AITC_UNROLL
  for (int i = 0; i < slabs; ++i)
    AITC_UNROLL
    for (int h = 0; h < 2; ++h) {
      float* row = found + (warp * BM + i * 16 + h * 8 + lane / 4) * A::part_stride;
      const float total = rows.total(i, h), most = rows.most[i][h];
      AITC_UNROLL
      for (int j = 0; j < out_frags; ++j) {
        const Vec<float, 2> pair{rows.out[i][j][h * 2], rows.out[i][j][h * 2 + 1]};
        aitc::store<2>(row + j * 8 + lane % 4 * 2, pair);
      }
      if (lane % 4 == 0) row[A::dv] = most == lowest<float>() ? most : most * rest, row[A::dv + 1] = total;
    }
  block_barrier();
  finish_parts<Shape, Tile::warps, Tile::threads, A::DV, A::dv>(place, store, found, reinterpret_cast<int*>(smem_q), parts,
                                                                tickets);
}

AITC_END
