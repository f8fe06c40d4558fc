// attention_split_sm80.h: attention of a few query rows over many keys (a decoding step of a language model), limited
// by reading K and V once: by mma.sync (sm_80 and newer), half_t and bfloat16_t, all else in float.
//
// attention_split_sm80<Causal, AttentionSplitTile<BN, warps, stages, slabs, splits>>(shape, q, k, v, mask, store,
//                                                                                   parts, tickets)
//   Causal, Shape, Q, K, V, Mask, Store: see attention.h. D and DV up to 256; multiples of 8 with width = 8 are fast,
//   others work.
//   The query heads that share K and V, and the queries, are rows of one product: row r is query r / share of head
//   r % share, share = heads / kv_heads; a block takes 16 * slabs of them. The tiles of BN keys (a multiple of 16) are
//   divided among `splits` blocks, and among the warps of a block, each of which streams its own through a ring of
//   `stages` tiles and never waits for another warp. What the blocks of a split found goes to `parts`; the one that
//   comes last (a ticket says so) adds up and stores. One launch, and the order of addition is fixed.
//   Tile     threads = 32 * warps
//   parts    float[groups * splits * 16 slabs * (dv + 2)], groups = batch * kv_heads * ceil(queries * share / (16
//            slabs)), dv = ceil(DV / 16) * 16; nullptr if splits is 1
//   tickets  int[split_groups], 0 before and after; nullptr if splits is 1. With more groups than split_groups nothing
//            is split: they fill the device
// Blocks   groups * splits in x
// Shared   AttentionSplitSm80<Tile, Shape, Q>::smem_bytes = 2 * 16 slabs * d + max(2 * warps * stages * BN * (d + dv),
//          4 * warps * 16 slabs * (dv + 4), 4 * 16 slabs * splits), d = ceil(D / 16) * 16
#pragma once
#include "aitc/gpu/attention_sm80.h"

AITC_BEGIN

constexpr int split_groups = 1024;

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

// A maximum is kept in units of log 2; that of no key is the lowest number.
AITC_FN float part_weight(float most, float top) { return most == lowest<float>() ? 0.0f : m_exp2(most - top); }

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
  const int keys = shape.keys, share = int(shape.heads) / int(shape.kv_heads), rows_end = int(shape.queries) * share,
            row_tiles = ceil_div(rows_end, BM);
  const int split = int(blockIdx.x % unsigned(Tile::splits)), group = int(blockIdx.x / unsigned(Tile::splits)),
            row0 = group % row_tiles * BM, kv_head = group / row_tiles % int(shape.kv_heads),
            batch = group / row_tiles / int(shape.kv_heads);
  const bool divided = Tile::splits > 1 && int(gridDim.x) <= split_groups * Tile::splits;
  grid_dependency_wait();
  if (!divided && split > 0) return;

  char* smem_q = shared_memory();
  char* ring = smem_q + SharedQ::bytes;
  char* mine = ring + warp * Tile::stages * A::stage_bytes;
  // Q's rows are those of several heads: each has its own start.
  constexpr int width = min_of(Q::width, 8), per_row = A::d / width, pieces = BM * per_row;
  AITC_UNROLL
  for (int i = 0; i < ceil_div(pieces, Tile::threads); ++i) {
    const int p = thread + i * Tile::threads, row = p / per_row, col = p % per_row * width, r = row0 + row;
    const bool inside = r < rows_end && col < A::D;
    if (pieces % Tile::threads == 0 || p < pieces)
      copy_piece<T, width>(smem_q, SharedQ::element_offset(row, col),
                           inside ? q.base(batch, kv_head * share + r % share) + r / share * int64_t(q.stride_row) + col
                                  : q.base(0, 0),
                           inside);
  }
  copy_async_commit();

  int seen = keys;  // by any of the rows
  if constexpr (Causal) {
    const int last = (min_of(row0 + BM, rows_end) - 1) / share + int(shape.offset) + 1;
    seen = last < 0 ? 0 : min_of(last, keys);
  }
  const int tiles = ceil_div(seen, Tile::BN), parted = divided ? Tile::splits : 1;
  const int first = int(int64_t(tiles) * split / parted), count = int(int64_t(tiles) * (split + 1) / parted) - first,
            own = (count - warp + Tile::warps - 1) / Tile::warps;  // tiles first + warp, first + warp + warps, ...
  const T *base_k = k.base(batch, kv_head), *base_v = v.base(batch, kv_head);
  const auto load = [&](int i, int slot) {
    const int key = (first + warp + i * Tile::warps) * Tile::BN;
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
    const int key = (first + warp + i * Tile::warps) * Tile::BN;
    const bool all_seen = key + Tile::BN <= keys && (!Causal || key + Tile::BN - 1 <= row0 / share + int(shape.offset));
    rows.softmax(score, rest, [&](float x, int row, int col) {
      const int r = row0 + row;
      const AttentionPlace place{batch, kv_head * share + r % share, kv_head, row0};
      return masked_score<Causal>(shape, mask, place, x, scale_log2, r / share, key + col, all_seen);
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
  constexpr int W = min_of(Store::width, 4), items = BM * (A::dv / 4), part_floats = BM * (A::dv + 2);
  static_assert(A::DV % W == 0, "the store's width divides DV");
  const auto finish = [&](int row, int col, const Vec<float, 4>& x, float total) {
    const int r = row0 + row;
    if (r >= rows_end) return;
    AITC_UNROLL
    for (int e = 0; e < 4; e += W) {
      float y[W];
      AITC_UNROLL
      for (int f = 0; f < W; ++f) y[f] = x[e + f] / total;  // no key: 0 / 0
      if (col + e < A::DV) store.template operator()<W>(batch, kv_head * share + r % share, int64_t(r / share), int64_t(col + e), y);
    }
  };
  float* part = Tile::splits > 1 ? parts + (int64_t(group) * Tile::splits + split) * part_floats : nullptr;
  AITC_NO_UNROLL
  for (int item = thread; item < items; item += Tile::threads) {
    const int row = item / (A::dv / 4), col = item % (A::dv / 4) * 4;
    const float* at = found + row * A::part_stride;
    float top = lowest<float>(), total = 0;
    AITC_UNROLL
    for (int w = 0; w < Tile::warps; ++w) top = m_max(top, at[w * BM * A::part_stride + A::dv]);
    Vec<float, 4> x{0, 0, 0, 0};
    AITC_UNROLL
    for (int w = 0; w < Tile::warps; ++w) {
      const float* of = at + w * BM * A::part_stride;
      const float weight = part_weight(of[A::dv], top);
      const auto y = aitc::load<4>(of + col);
      total += weight * of[A::dv + 1];
      AITC_UNROLL
      for (int e = 0; e < 4; ++e) x[e] += weight * y[e];
    }
    if (!divided) {
      finish(row, col, x, total);
    } else {
      aitc::store<4>(part + row * A::dv + col, x);
      if (col == 0) part[BM * A::dv + row * 2] = top, part[BM * A::dv + row * 2 + 1] = total;
    }
  }
  if constexpr (Tile::splits > 1) {
    if (!divided) return;
    int* last = reinterpret_cast<int*>(smem_q);
    memory_fence();
    block_barrier();
    if (thread == 0) {
      const int before = atomic_add(tickets + group, 1);
      *last = before == Tile::splits - 1;
      if (*last) tickets[group] = 0;
    }
    block_barrier();
    if (!*last) return;
    memory_fence();
    const float* all = parts + int64_t(group) * Tile::splits * part_floats;
    float* weights = found;  // (BM,splits): what a part counts in the result
    AITC_NO_UNROLL
    for (int row = warp; row < BM; row += Tile::warps) {
      float top = lowest<float>();
      for (int s = lane; s < Tile::splits; s += 32) top = m_max(top, all[s * part_floats + BM * A::dv + row * 2]);
      AITC_UNROLL
      for (int m = 16; m > 0; m /= 2) top = m_max(top, shuffle_xor(top, m));
      float total = 0;
      for (int s = lane; s < Tile::splits; s += 32) {
        const float* stat = all + s * part_floats + BM * A::dv + row * 2;
        const float weight = part_weight(stat[0], top);
        weights[row * Tile::splits + s] = weight;
        total += weight * stat[1];
      }
      AITC_UNROLL
      for (int m = 16; m > 0; m /= 2) total += shuffle_xor(total, m);
      for (int s = lane; s < Tile::splits; s += 32) weights[row * Tile::splits + s] /= total;  // no key: 0 / 0
    }
    block_barrier();
    AITC_NO_UNROLL
    for (int item = thread; item < items; item += Tile::threads) {
      const int row = item / (A::dv / 4), col = item % (A::dv / 4) * 4;
      if (row0 + row >= rows_end) break;
      Vec<float, 4> x{0, 0, 0, 0};
      AITC_UNROLL_4
      for (int s = 0; s < Tile::splits; ++s) {
        const float weight = weights[row * Tile::splits + s];
        const auto y = aitc::load<4>(all + s * part_floats + row * A::dv + col);
        AITC_UNROLL
        for (int e = 0; e < 4; ++e) x[e] += weight * y[e];
      }
      finish(row, col, x, 1.0f);
    }
  }
}

AITC_END
