// attention_split.h: what the attention kernels with divided keys share (attention_split_sm80.h, attention_split_simt.h):
// which rows and keys a block takes, and how what was found for parts of the keys becomes results.
//
//   The query heads that share K and V, and the queries, are rows of one product: row r is query r / share of head
//   r % share, share = heads / kv_heads; a block takes BM of them: a group of rows. The tiles of keys are divided among
//   `Splits` blocks, and in a block among its workers (warps, or parts of warps). What the blocks of a split found goes
//   to `parts`; the one that comes last (a ticket says so) adds up and stores. One launch, a fixed order of addition.
//   parts    float[groups * Splits * BM * (dv + 4)], groups = batch * kv_heads * ceil(queries * share / BM); dv: DV
//            rounded up; nullptr if Splits is 1
//   tickets  int[min(groups, split_groups)], 0 before and after; nullptr if Splits is 1. With more groups than that
//            nothing is split: they fill the device
// Blocks   groups * Splits in x
#pragma once
#include "aitc/gpu/attention/attention.h"

AITC_BEGIN

constexpr int split_groups = 1024;

// The rows of this block, and its part of the keys.
template <int BM, int Splits> struct SplitPlace {
  int batch, kv_head, row0, rows_end, share, group, split;
  bool divided;

  template <class Shape> AITC_FN explicit SplitPlace(const Shape& shape) {
    share = int(shape.heads) / int(shape.kv_heads), rows_end = int(shape.queries) * share;
    const int row_tiles = ceil_div(rows_end, BM);
    split = int(blockIdx.x % unsigned(Splits)), group = int(blockIdx.x / unsigned(Splits));
    row0 = group % row_tiles * BM, kv_head = group / row_tiles % int(shape.kv_heads),
    batch = group / row_tiles / int(shape.kv_heads);
    divided = Splits > 1 && int(gridDim.x) <= split_groups * Splits;
  }
  AITC_FN bool idle() const { return !divided && split > 0; }
  AITC_FN int query(int row) const { return (row0 + row) / share; }
  AITC_FN int head(int row) const { return kv_head * share + (row0 + row) % share; }
  AITC_FN bool inside(int row) const { return row0 + row < rows_end; }
  AITC_FN AttentionPlace place(int row) const { return {batch, head(row), kv_head, row0}; }
  // Keys that any of the rows may see.
  template <bool Causal, class Shape> AITC_FN int seen(const Shape& shape) const {
    const int keys = shape.keys;
    if constexpr (Causal) {
      const int last = (min_of(row0 + BM, rows_end) - 1) / share + int(shape.offset) + 1;
      return last < 0 ? 0 : min_of(last, keys);
    }
    return keys;
  }
  // Worker w of W takes tiles first + w, first + w + W, ...: `count` of them.
  AITC_FN void tiles(int all, int worker, int workers, int& first, int& count) const {
    const int parted = divided ? Splits : 1, begin = int(int64_t(all) * split / parted),
              end = int(int64_t(all) * (split + 1) / parted);
    first = begin + worker, count = (end - begin - worker + workers - 1) / workers;
  }
};

// A maximum is kept in units of log 2; that of no key is the lowest number.
AITC_FN float part_weight(float most, float top) { return most == lowest<float>() ? 0.0f : m_exp2(most - top); }

// Adds up what the workers found, (Workers,BM,dv+4) in shared memory: of each row the output, its maximum, its sum; then
// what the blocks of the split did, and stores. `flag`: another word of shared memory. All threads, after a barrier.
template <class Shape, int Workers, int Threads, int DV, int dv, int BM, int Splits, class Store>
AITC_FN void finish_parts(const SplitPlace<BM, Splits>& place, const Store& store, float* found, int* flag,
                          float* parts, int* tickets) {
  constexpr int W = min_of(Store::width, 4), stride = dv + 4, items = BM * (dv / 4), part_floats = BM * (dv + 4);
  static_assert(DV % W == 0 && dv % 4 == 0, "the store's width divides DV");
  const int thread = thread_index(), lane = lane_index(), warp = warp_index();
  const auto finish = [&](int row, int col, const Vec<float, 4>& x, float total) {
    if (!place.inside(row)) return;
    total = row_divisor<Shape>(total);
    AITC_UNROLL
    for (int e = 0; e < 4; e += W) {
      float y[W];
      AITC_UNROLL
      for (int f = 0; f < W; ++f) y[f] = x[e + f] / total;  // no key: 0 / 0
      if (col + e < DV)
        store.template operator()<W>(place.batch, place.head(row), int64_t(place.query(row)), int64_t(col + e), y);
    }
  };
  float* part = Splits > 1 ? parts + (int64_t(place.group) * Splits + place.split) * part_floats : nullptr;
  AITC_NO_UNROLL
  for (int item = thread; item < items; item += Threads) {
    const int row = item / (dv / 4), col = item % (dv / 4) * 4;
    const float* at = found + row * stride;
    float top = lowest<float>(), total = 0;
    AITC_UNROLL
    for (int w = 0; w < Workers; ++w) top = m_max(top, at[w * BM * stride + dv]);
    Vec<float, 4> x{0, 0, 0, 0};
    AITC_UNROLL_4
    for (int w = 0; w < Workers; ++w) {
      const float* of = at + w * BM * stride;
      const float weight = part_weight(of[dv], top);
      const auto y = aitc::load<4>(of + col);
      total += weight * of[dv + 1];
      AITC_UNROLL
      for (int e = 0; e < 4; ++e) x[e] += weight * y[e];
    }
    if (!place.divided) {
      finish(row, col, x, total);
    } else {
      aitc::store<4>(part + row * dv + col, x);
      if (col == 0) part[BM * dv + row * 2] = top, part[BM * dv + row * 2 + 1] = total;
    }
  }
  if constexpr (Splits > 1) {
    if (!place.divided) return;
    memory_fence();
    block_barrier();
    if (thread == 0) {
      const int before = atomic_add(tickets + place.group, 1);
      *flag = before == Splits - 1;
      if (*flag) tickets[place.group] = 0;
    }
    block_barrier();
    if (!*flag) return;
    memory_fence();
    const float* all = parts + int64_t(place.group) * Splits * part_floats;
    float* weights = found;  // (BM,Splits): what a part counts in the result
    AITC_NO_UNROLL
    for (int row = warp; row < BM; row += Threads / warp_size) {
      const float* stats = all + BM * dv + row * 2;
      float top = lowest<float>(), total = 0;
      for (int s = lane; s < Splits; s += warp_size) top = m_max(top, stats[s * part_floats]);
      top = warp_reduce(top, [](float a, float b) { return m_max(a, b); });
      for (int s = lane; s < Splits; s += warp_size) {
        const float weight = part_weight(stats[s * part_floats], top);
        weights[row * Splits + s] = weight;
        total += weight * stats[s * part_floats + 1];
      }
      total = warp_reduce(total, [](float a, float b) { return a + b; });
      for (int s = lane; s < Splits; s += warp_size) weights[row * Splits + s] /= total;  // no key: 0 / 0
    }
    block_barrier();
    AITC_NO_UNROLL
    for (int item = thread; item < items; item += Threads) {
      const int row = item / (dv / 4), col = item % (dv / 4) * 4;
      if (!place.inside(row)) break;
      Vec<float, 4> x{0, 0, 0, 0};
      AITC_UNROLL_4
      for (int s = 0; s < Splits; ++s) {
        const float weight = weights[row * Splits + s];
        const auto y = aitc::load<4>(all + s * part_floats + row * dv + col);
        AITC_UNROLL
        for (int e = 0; e < 4; ++e) x[e] += weight * y[e];
      }
      finish(row, col, x, 1.0f);
    }
  }
}

AITC_END
