// attention_sm90.h: attention on Hopper: Q, K and V of half_t or bfloat16_t by the copy engine (TMA), wgmma, softmax and sums in float.
//
// Persistent blocks. A producer thread streams Q tiles, and K and V tiles through a ring of stages; each math warpgroup owns 64 query rows and keeps scores, probabilities and
// output in registers: in one iteration it starts S = Q K_j and O += P V_(j-1) together and takes the softmax of S while the second runs; warpgroups start their products in turn,
// so that one takes its softmax while another multiplies. Key tiles go from the last to the first: those that need a mask (the diagonal, the ragged end) come first.
//
//   attention_sm90<Causal, AttentionTileSm90<D, DV, BN, groups, stages, blocks, single, band>>(shape, map_q, map_k, map_v, mask, store, map_o)
//     Causal, Shape: see attention.h; D a multiple of 8, DV one of wgmma_transposed's widths (8 16 24 32 40 48 64 72 80 96 112 128 160 192 256); scale > 0
//     BN      keys a tile, a multiple of 16; groups 1 to 3 warpgroups of 64 rows; `single`: all keys are in one tile; band: heads whose K and V stay in L2 together
//     maps    4-D, (d, row, head, batch), boxes of (64, 64 * groups) for Q and (64, BN) for K and V, 128-byte swizzle; of the results, boxes of (64, 16)
//     Mask    NoMask, or: width 1 or 2 (2: keys is even); by_row: whether it differs between rows; operator()<V>(int batch, int head, int row, int col, float (&x)[V]): what is
//             added to V neighbouring scores, -infinity excludes
//     Store   as in attention.h, or one that returns results (`using result`, see product_sm90.h): these are stored through map_o
// threads = 128 * groups + (groups == 1 ? 32 : 128); with steps of 64 columns d = ceil(D / 64), dv = ceil(DV / 64):
// smem_bytes = 128 * (64 * groups * d + stages * BN * (d + dv)) + groups * 8192 + 16 + 32 * stages. Blocks: the smaller of the tiles and blocks * multiprocessors.
// A query that sees no key gives NaN, or 0 (row_divisor in aitc/reduction.h).
#pragma once
#include "aitc/gpu/attention/attention.h"
#include "aitc/gpu/hopper/product_sm90.h"

AITC_BEGIN

template <int D_, int DV_, int BN_, int Groups, int Stages, int Blocks = 1, bool Single = false, int Band = 1> struct AttentionTileSm90 {
  static constexpr int D = D_, DV = DV_, BM = 64 * Groups, BN = BN_, groups = Groups, stages = Stages, blocks = Blocks, band = Band;
  static constexpr bool single = Single, turns = Groups > 1 && !Single;
  static constexpr int steps = ceil_div(D, 16), boxes = ceil_div(D, 64), boxes_v = ceil_div(DV, 64);  // of 16 and of 64 columns
  static constexpr int threads = 128 * Groups + (Groups == 1 ? 32 : 128);                              // a whole warpgroup, to hand over its registers
  static constexpr int bytes_q = boxes * BM * 128, bytes_k = boxes * BN * 128, bytes_v = boxes_v * BN * 128, patch_bytes = 2048;
  static constexpr int smem_bytes = bytes_q + Stages * (bytes_k + bytes_v) + Groups * 4 * patch_bytes + (2 + 4 * Stages) * 8;
  static_assert(BN % 16 == 0 && BN <= 256 && D % 8 == 0 && DV % 8 == 0 && Groups <= 3, "AttentionTileSm90");
};

// Row tiles of one band of heads after another; in a band the last (causal: the longest) rows first, each for all its heads.
template <int Band> struct AttentionOrder {
  int rows, heads;
  AITC_FN int count() const { return rows * heads; }
  AITC_FN void locate(int i, int& row, int& head) const {
    const int first = i / (Band * rows) * Band, height = min_of(Band, heads - first), r = i - first * rows;
    row = rows - 1 - r / height, head = first + r % height;
  }
  // The round-th tile of this block; every second round in reverse, which evens out the sums.
  AITC_FN int at(int round) const {
    const int blocks = int(gridDim.x), block = int(blockIdx.x);
    return round * blocks + (round & 1 ? blocks - 1 - block : block);
  }
};

// Running maximum (in units of log 2) and sum of the two rows that a thread holds a part of; a row's four threads are neighbours.
struct OnlineSoftmax {
  float top[2] = {lowest<float>(), lowest<float>()}, sum[2] = {0, 0};

  // Turns scores, `scale` times which are units of log 2, into probabilities relative to the new maximum; `factor`: by what to multiply what came before.
  template <int Count> AITC_FN void step(float (&s)[Count], float scale, float (&factor)[2]) {
    AITC_UNROLL
    for (int h = 0; h < 2; ++h) {
      float best = fmaxf(s[2 * h], s[2 * h + 1]);
      AITC_UNROLL
      for (int j = 4; j < Count; j += 4) best = fmaxf(best, fmaxf(s[j + 2 * h], s[j + 2 * h + 1]));
      best = fmaxf(best, shuffle_xor(best, 1));
      best = fmaxf(best, shuffle_xor(best, 2));
      best = best == lowest<float>() ? top[h] : fmaxf(best * scale, top[h]);  // no key yet: the scale would make one of it
      const float base = best == lowest<float>() ? 0.0f : best;
      factor[h] = exp2_fast(top[h] - base);
      top[h] = best;
      float total[2] = {0, 0};
      AITC_UNROLL
      for (int j = 0; j < Count; j += 4)
        AITC_UNROLL
        for (int e = 0; e < 2; ++e) {
          float& x = s[j + 2 * h + e];
          x = exp2_fast(fmaf(x, scale, -base));
          total[e] += x;
        }
      sum[h] = fmaf(sum[h], factor[h], total[0] + total[1]);
    }
  }
  template <class Shape> AITC_FN void finish(float (&inverse)[2]) const {  // 1 / sum over the row; NaN for a row without keys, or 1 where those are 0
    AITC_UNROLL
    for (int h = 0; h < 2; ++h) {
      float x = sum[h];
      x += shuffle_xor(x, 1);
      x += shuffle_xor(x, 2);
      x = row_divisor<Shape>(x);
      inverse[h] = x == 0.0f ? bits_float(0x7fc00000u) : 1.0f / x;
    }
  }
};

template <int Count> AITC_FN void scale_rows(float (&o)[Count], const float (&by)[2]) {
  AITC_UNROLL
  for (int j = 0; j < Count; j += 4) o[j] *= by[0], o[j + 1] *= by[0], o[j + 2] *= by[1], o[j + 3] *= by[1];
}

// The mask on a thread's scores of one tile: rows row and row + 8, keys key, key + 1, key + 8, ... Leaves units of log2.
template <int BN, class Shape, class Mask> AITC_FN void add_mask(float (&s)[BN / 2], const Shape& shape, const Mask& mask, int batch, int head, int row, int key, float scale_log2) {
  constexpr int V = Mask::width;
  const int queries = shape.queries, keys = shape.keys, rows[2] = {min_of(row, queries - 1), min_of(row + 8, queries - 1)};
  AITC_UNROLL
  for (int j = 0; j < BN / 8; ++j) {
    if (j % 4 == 0) compiler_fence();  // not the masks of a whole tile at once
    AITC_UNROLL
    for (int h = 0; h < (Mask::by_row ? 2 : 1); ++h)
      AITC_UNROLL
      for (int e = 0; e < 2; e += V) {
        float m[V];
        mask.template operator()<V>(batch, head, rows[h], min_of(key + 8 * j + e, keys - V), m);
        AITC_UNROLL
        for (int i = 0; i < V; ++i) {
          float& x = s[4 * j + 2 * h + e + i];
          x = fmaf(x, scale_log2, m[i] * 1.4426950408889634f);
          if (!Mask::by_row) {
            float& below = s[4 * j + 2 + e + i];
            below = fmaf(below, scale_log2, m[i] * 1.4426950408889634f);
          }
        }
      }
  }
}

// Whether a mask that is the same for all rows changes anything in the keys from `key` on: padding rarely does.
template <int BN, class Shape, class Mask> AITC_FN bool mask_changes(const Shape& shape, const Mask& mask, int batch, int head, int key) {
  constexpr int V = Mask::width;
  const int keys = shape.keys;
  bool any = false;
  AITC_UNROLL
  for (int e = 0; e < BN; e += warp_size * V) {
    float m[V];
    mask.template operator()<V>(batch, head, 0, min_of(key + min_of(e + lane_index() * V, BN - V), keys - V), m);
    AITC_UNROLL
    for (int i = 0; i < V; ++i) any |= !(m[i] == 0.0f);
  }
  return ballot(any) != 0;
}

// Leaves out the keys from `limit` of each row on (columns counted from this thread's first).
template <int Count> AITC_FN void cut_keys(float (&s)[Count], int limit_upper, int limit_lower) {
  AITC_UNROLL
  for (int j = 0; j < Count; j += 4)
    AITC_UNROLL
    for (int e = 0; e < 2; ++e) {
      if (2 * j + e >= limit_upper) s[j + e] = lowest<float>();
      if (2 * j + e >= limit_lower) s[j + 2 + e] = lowest<float>();
    }
}

// A warp's 16 rows of results to memory through its patch, 64 columns (returned results) or 32 at a time.
template <class Tile, class Store>
AITC_FN void store_heads(const float* o, int batch, int head, int row, int queries, uint32_t patch, char* patch_pointer, const Store& store, const CUtensorMap& map_o) {
  constexpr int DV = Tile::DV;
  const int lane = lane_index(), r = lane / 4, t = lane % 4;
  if constexpr (StoreResult<Store>::returns) {
    using R = typename StoreResult<Store>::type;
    AITC_UNROLL
    for (int c = 0; c < Tile::boxes_v; ++c) {
      uint32_t packed[8][2];
      AITC_UNROLL
      for (int g = 0; g < 8; ++g)
        AITC_UNROLL
        for (int h = 0; h < 2; ++h) {
          packed[g][h] = 0;
          if (c * 64 + g * 8 < DV) {
            const int i = min_of((c * 8 + g) * 4 + 2 * h, DV / 2 - 2);
            const float x[2] = {o[i], o[i + 1]};
            float y[2];
            store.template operator()<2>(batch, head, int64_t(min_of(row + r + 8 * h, queries - 1)), int64_t(c * 64 + g * 8 + t * 2), x, y);
            packed[g][h] = pack<R>(y[0], y[1]);
          }
        }
      if (lane == 0) bulk_wait_read<0>();
      warp_barrier();
      const int target = lane % 16, unit = lane / 16;
      AITC_UNROLL
      for (int g = 0; g < 8 && c * 64 + g * 8 < DV; g += 2)
        stmatrix(patch + uint32_t(target * 128 + ((g + unit) ^ (target % 8)) * 16), packed[g][0], packed[g][1], packed[g + 1][0], packed[g + 1][1]);
      fence_async_proxy();
      warp_barrier();
      if (lane == 0 && row < queries) tma_store(map_o, c * 64, row, head, batch, patch), bulk_commit();
    }
  } else {
    // (16,32) floats: 16-byte unit u of row r lies at (u % 2 * 4 + u / 2) ^ (r % 2 * 4 + r / 2 % 4), so that neither side meets a bank twice.
    constexpr int W = min_of(Store::width, 8);
    static_assert(DV % W == 0, "the store's width divides DV");
    float* floats = reinterpret_cast<float*>(patch_pointer);
    const auto place = [](int row, int unit) { return row * 32 + ((unit % 2 * 4 + unit / 2) ^ (row % 2 * 4 + row / 2 % 4)) * 4; };
    AITC_UNROLL
    for (int c = 0; c < ceil_div(DV, 32); ++c) {
      warp_barrier();
      AITC_UNROLL
      for (int g = 0; g < 4 && c * 32 + g * 8 < DV; ++g)
        AITC_UNROLL
        for (int h = 0; h < 2; ++h) {
          const int i = (c * 4 + g) * 4 + 2 * h;
          const Vec<float, 2> pair{o[i], o[i + 1]};
          aitc::store<2>(floats + place(r + 8 * h, 2 * g + t / 2) + t % 2 * 2, pair);
        }
      warp_barrier();
      AITC_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int target = i * 8 + r, column = c * 32 + t * 8;
        if (row + target >= queries || column >= DV) continue;
        const auto low = load<4>(floats + place(target, 2 * t)), high = load<4>(floats + place(target, 2 * t + 1));
        const float x[8] = {low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]};
        AITC_UNROLL
        for (int j = 0; j < 8; j += W) {
          float part[W];
          AITC_UNROLL
          for (int e = 0; e < W; ++e) part[e] = x[j + e];
          store.template operator()<W>(batch, head, int64_t(row + target), int64_t(column + j), part);
        }
      }
    }
  }
}

template <bool Causal, class Tile, class T, class Shape, class Mask, class Store>
AITC_FN void attention_sm90(const Shape& shape, const CUtensorMap& map_q, const CUtensorMap& map_k, const CUtensorMap& map_v, const Mask& mask, const Store& store,
                            const CUtensorMap& map_o) {
  constexpr int BM = Tile::BM, BN = Tile::BN, Stages = Tile::stages, Groups = Tile::groups, DV = Tile::DV;
  constexpr bool returns = StoreResult<Store>::returns, masked = !is_same<Mask, NoMask>;
  const uint32_t q = to_shared(shared_memory());           // [boxes][BM][64], swizzled
  const uint32_t tiles_k = q + Tile::bytes_q;              // [Stages][boxes][BN][64]
  const uint32_t tiles_v = tiles_k + Stages * Tile::bytes_k;
  const uint32_t patches = tiles_v + Stages * Tile::bytes_v;  // [warps][16][64]
  const uint32_t full_q = patches + Groups * 4 * Tile::patch_bytes, empty_q = full_q + 8;
  const uint32_t full_k = empty_q + 8, empty_k = full_k + 8 * Stages, full_v = empty_k + 8 * Stages, empty_v = full_v + 8 * Stages;
  const int group = shuffle(thread_index() / 128, 0), warp = shuffle(thread_index() / 32 % 4, 0), lane = lane_index();

  if (thread_index() == 0) {
    barrier_init(full_q, 1), barrier_init(empty_q, 4 * Groups);
    for (int s = 0; s < Stages; ++s) {
      barrier_init(full_k + 8 * s, 1), barrier_init(empty_k + 8 * s, 4 * Groups);
      barrier_init(full_v + 8 * s, 1), barrier_init(empty_v + 8 * s, 4 * Groups);
    }
    fence_barrier_init();
    tma_prefetch(map_q), tma_prefetch(map_k), tma_prefetch(map_v);
    if (returns) tma_prefetch(map_o);
  }
  block_barrier();
  grid_launch_next();

  const int queries = shape.queries, keys = shape.keys, heads = shape.heads, share = heads / int(shape.kv_heads);
  const AttentionOrder<Tile::band> tiles{ceil_div(queries, BM), int(shape.batch) * heads};
  int diagonal = 0;  // row i sees keys up to i + diagonal
  if constexpr (Causal) diagonal = int(shape.offset);
  struct Work {
    int row, batch, head, last;  // key tiles 0 ..= last, one at least
  };
  const auto work = [&](int i) {
    int row, pair;
    tiles.locate(i, row, pair);
    row *= BM;
    const int seen = Causal ? min_of(keys, row + BM + diagonal) : keys;
    return Work{row, pair / heads, pair % heads, max_of(0, ceil_div(seen, BN) - 1)};
  };
  int stage = 0;
  uint32_t parity = 0;
  const auto advance = [&] {
    if (++stage == Stages) stage = 0, parity ^= 1;
  };

  if (group == Groups) {  // ---- producer ----
    if constexpr (Groups > 1) registers_give<Groups == 2 ? 24 : 32>();
    if (warp == 0 && lane == 0) {
      grid_wait_previous();
      for (int round = 0, t; (t = tiles.at(round)) < tiles.count(); ++round) {
        const Work w = work(t);
        const int kv = w.head / share;
        for (int j = w.last; j >= 0; --j, advance()) {
          barrier_wait(empty_k + 8 * stage, parity ^ 1);
          barrier_expect(full_k + 8 * stage, Tile::bytes_k);
          AITC_UNROLL
          for (int c = 0; c < Tile::boxes; ++c) tma_load(tiles_k + stage * Tile::bytes_k + c * BN * 128, map_k, c * 64, j * BN, kv, w.batch, full_k + 8 * stage);
          if (j == w.last) {
            barrier_wait(empty_q, uint32_t(round & 1 ^ 1));
            barrier_expect(full_q, Tile::bytes_q);
            AITC_UNROLL
            for (int c = 0; c < Tile::boxes; ++c) tma_load(q + c * BM * 128, map_q, c * 64, w.row, w.head, w.batch, full_q);
          }
          barrier_wait(empty_v + 8 * stage, parity ^ 1);
          barrier_expect(full_v + 8 * stage, Tile::bytes_v);
          AITC_UNROLL
          for (int c = 0; c < Tile::boxes_v; ++c) tma_load(tiles_v + stage * Tile::bytes_v + c * BN * 128, map_v, c * 64, j * BN, kv, w.batch, full_v + 8 * stage);
        }
      }
    }
    warp_barrier();
  } else {  // ---- math ----
    if constexpr (Groups > 1) registers_take<Groups == 2 ? 240 : 160>();
    grid_wait_previous();
    const uint32_t patch = patches + uint32_t((group * 4 + warp) * Tile::patch_bytes);
    char* patch_pointer = shared_memory() + Tile::bytes_q + Stages * (Tile::bytes_k + Tile::bytes_v) + (group * 4 + warp) * Tile::patch_bytes;
    const float scale_log2 = float(shape.scale) * 1.4426950408889634f;
    const auto release = [&](uint32_t barrier) {
      if (lane == 0) barrier_arrive(barrier);
    };
    float s[BN / 2], o[DV / 2];
    uint32_t p[BN / 4];
    const auto start_scores = [&] {  // S = Q K^T for the K tile of this stage
      const uint64_t a = matrix_descriptor(q + group * 64 * 128), b = matrix_descriptor(tiles_k + stage * Tile::bytes_k);
      AITC_UNROLL
      for (int k = 0; k < Tile::steps; ++k) wgmma<T, BN>(s, a + k / 4 * (BM * 8) + k % 4 * 2, b + k / 4 * (BN * 8) + k % 4 * 2, k);
      wgmma_commit();
    };
    const auto start_output = [&](int stage, int keep) {  // O (+)= P V
      const uint64_t b = matrix_descriptor_transposed(tiles_v + stage * Tile::bytes_v, BN * 128);
      AITC_UNROLL
      for (int k = 0; k < BN / 16; ++k) wgmma_transposed<T, DV>(o, p + 4 * k, b + 128 * k, keep | k);
      wgmma_commit();
    };
    const auto pack_probabilities = [&] {
      AITC_UNROLL
      for (int i = 0; i < BN / 4; ++i) p[i] = pack<T>(s[2 * i], s[2 * i + 1]);
    };
    if (Tile::turns && group == 0) named_arrive(1, 256);  // the first turn is group 0's

    for (int round = 0, t; (t = tiles.at(round)) < tiles.count(); ++round) {
      const Work w = work(t);
      const int top = w.row + group * 64 + warp * 16, row = top + lane / 4;                         // first row of the warp, of this thread
      const int common = Causal ? min_of(keys, w.row + group * 64 + 1 + diagonal) : keys;           // what all rows of the group see
      const auto look_at_mask = [&](int j) {  // while the scores are computed
        if constexpr (!masked) return false;
        else if constexpr (Mask::by_row) return true;
        else return mask_changes<BN>(shape, mask, w.batch, w.head, j * BN);
      };
      const auto mask_scores = [&](int j, bool changes) {  // returns the scale of what is left in s
        const int key = j * BN + lane % 4 * 2;
        if constexpr (masked)
          if (changes) add_mask<BN>(s, shape, mask, w.batch, w.head, row, key, scale_log2);
        if ((j + 1) * BN > common) {
          const int upper = Causal ? min_of(keys, row + 1 + diagonal) : keys, lower = Causal ? min_of(keys, row + 9 + diagonal) : keys;
          cut_keys(s, upper - key, lower - key);
        }
        return changes ? 1.0f : scale_log2;
      };
      OnlineSoftmax softmax;
      float factor[2];
      int j = w.last;

      barrier_wait(full_q, uint32_t(round & 1));
      barrier_wait(full_k + 8 * stage, parity);
      wgmma_fence();
      start_scores();
      bool changes = look_at_mask(j);
      wgmma_wait<0>(s);
      release(empty_k + 8 * stage);
      if (j == 0) release(empty_q);
      softmax.step(s, mask_scores(j, changes), factor);
      pack_probabilities();
      int keep = 0, before = stage;
      uint32_t before_parity = parity;
      advance();

      if constexpr (!Tile::single)
        for (--j; j >= 0; --j) {
          barrier_wait(full_k + 8 * stage, parity);
          if constexpr (Tile::turns) named_sync(1 + group, 256);
          wgmma_fence();
          start_scores();
          barrier_wait(full_v + 8 * before, before_parity);
          start_output(before, keep);
          if constexpr (Tile::turns) named_arrive(1 + (group + 1) % Groups, 256);
          changes = look_at_mask(j);
          wgmma_wait<1>(s);
          release(empty_k + 8 * stage);
          if (j == 0) release(empty_q);
          softmax.step(s, mask_scores(j, changes), factor);
          wgmma_wait<0>(o);
          release(empty_v + 8 * before);
          scale_rows(o, factor);
          pack_probabilities();
          keep = 1, before = stage, before_parity = parity;
          advance();
        }
      barrier_wait(full_v + 8 * before, before_parity);
      wgmma_fence();
      start_output(before, keep);
      float inverse[2];
      softmax.template finish<Shape>(inverse);
      wgmma_wait<0>(o);
      release(empty_v + 8 * before);
      scale_rows(o, inverse);
      store_heads<Tile>(o, w.batch, w.head, top, queries, patch, patch_pointer, store, map_o);
    }
    if (returns && lane == 0) bulk_wait_read<0>();
    warp_barrier();
  }
}

AITC_END
