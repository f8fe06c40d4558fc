// attention_cdna.h: attention by MFMA on gfx90a and gfx942, half_t and bfloat16_t; scores, softmax and sums in float.
// Never run on AMD hardware yet: compiled for it, and run by the emulator.
//
// attention_cdna<Causal, AttentionCdnaTile<BN, warps>>(shape, q, k, v, mask, store)
//   Causal, Shape, Q, K, V, Mask, Store: see attention.h. D and DV up to 256.
//   Tile     32 queries a wave: BM = 32 * warps; BN keys a step, a multiple of 32. threads = 64 * warps
// Blocks   ceil(queries / BM) * heads * batch in x
// Threads  64 * warps
// Shared   AttentionCdna<Tile, Shape, Q>::smem_bytes = BN * (2 * d + 16) + dv * (2 * BN + 16), with
//          d = ceil(D / 16) * 16, dv = ceil(DV / 32) * 32; at most 65536
// Tiles    (guesses) D <= 128 <64, 4>, D <= 256 <32, 4>, few queries <64, 1>
// Example: attention_sm80.h's with AITC_KERNEL(256) and the last line
//     attention_cdna<false, AttentionCdnaTile<64, 4>>(Shape{N}, Q{q}, K{k}, V{v}, Mask{mask}, Store{out});
//
// Both products are computed transposed, keys x queries and d x queries: then a lane has one query, its softmax needs
// one exchange with lane ^ 32, and the scores are where the second product wants its operand.
#pragma once
#include "aitc/gpu/attention.h"
#include "aitc/gpu/mma_cdna.h"

AITC_BEGIN

template <int BN_, int Warps> struct AttentionCdnaTile {
  static constexpr int BM = 32 * Warps, BN = BN_, warps = Warps, threads = 64 * Warps;
  static_assert(BN % 32 == 0, "a multiple of 32 keys");
};

template <class Tile, class Shape, class Q> struct AttentionCdna {
  using T = typename Q::type;
  static_assert(sizeof(T) == 2 && is_floating<T>, "half or bfloat16");
  static constexpr int D = Shape::D, DV = Shape::DV, d = ceil_div(D, 16) * 16, dv = ceil_div(DV, 32) * 32;
  static constexpr int k_row_bytes = 2 * d + 16, v_row_bytes = 2 * Tile::BN + 16;
  static constexpr int threads = Tile::threads, smem_bytes = Tile::BN * k_row_bytes + dv * v_row_bytes;
  static_assert(smem_bytes <= 65536, "64 KiB of LDS");
};

// Rows of K as they are (rows of keys), or of V turned (rows of d); zeros beyond `row_end` and `Cols`.
template <bool Turned, int Rows, int Padded, int Cols, int Threads, class Operand>
AITC_FN void stage_rows(char* shared, int row_bytes, const Operand& operand, const typename Operand::type* base,
                        int row0, int row_end) {
  using T = typename Operand::type;
  constexpr int width = min_of(Operand::width, 8), per_row = Padded / width, pieces = Rows * per_row;
  AITC_UNROLL
  for (int i = 0; i < ceil_div(pieces, Threads); ++i) {
    const int p = thread_index() + i * Threads, row = Turned ? p % Rows : p / per_row,
              col = (Turned ? p / Rows : p % per_row) * width;
    if (pieces % Threads != 0 && p >= pieces) break;
    Vec<T, width> x = broadcast<width>(T{0});
    if (row0 + row < row_end && col < Cols) x = load<width>(base + (row0 + row) * int64_t(operand.stride_row) + col);
    if constexpr (Turned) {
      AITC_UNROLL
      for (int e = 0; e < width; ++e) *reinterpret_cast<T*>(shared + (col + e) * row_bytes + row * 2) = x[e];
    } else {
      copy_bytes<width * 2>(shared + row * row_bytes + col * 2, &x);
    }
  }
}

template <bool Causal, class Tile, class Shape, class Q, class K, class V, class Mask, class Store>
AITC_FN void attention_cdna(const Shape& shape, const Q& q, const K& k, const V& v, const Mask& mask,
                            const Store& store) {
  using A = AttentionCdna<Tile, Shape, Q>;
  using T = typename A::T;
  using M = Mfma<T>;
  using Operand = typename M::Operand;
  using HalfOperand = typename M::HalfOperand;
  constexpr int steps = A::d / 16, key_tiles = Tile::BN / 32, out_tiles = A::dv / 32;
  char* smem_k = shared_memory();                     // (BN,d)
  char* smem_v = smem_k + Tile::BN * A::k_row_bytes;  // (dv,BN)
  const int lane = lane_index(), half = lane / 32;
  const AttentionPlace place = attention_place<Tile::BM, Causal>(shape);
  const int row0 = place.row0, queries = shape.queries, keys = shape.keys, row = row0 + warp_index() * 32 + lane % 32;
  const int seen = visible_keys<Tile::BM, Causal>(shape, row0), tiles = ceil_div(seen, Tile::BN);
  const float scale_log2 = float(shape.scale) * 1.4426950408889634f, rest = remaining_scale<Mask>(shape, scale_log2);
  const T *base_q = q.base(place.batch, place.head), *base_k = k.base(place.batch, place.kv_head),
          *base_v = v.base(place.batch, place.kv_head);

  Operand held_q[steps];  // this lane's query, d from 16 s + 8 half
  AITC_UNROLL
  for (int s = 0; s < steps; ++s) {
    constexpr int width = min_of(Q::width, 8);
    T x[8];
    AITC_UNROLL
    for (int e = 0; e < 8; e += width) {
      const int col = s * 16 + half * 8 + e;
      Vec<T, width> part = broadcast<width>(T{0});
      if (row < queries && col < A::D) part = load<width>(base_q + row * int64_t(q.stride_row) + col);
      AITC_UNROLL
      for (int f = 0; f < width; ++f) x[e + f] = part[f];
    }
    __builtin_memcpy(&held_q[s], x, 16);
  }
  f32x16 out[out_tiles];  // (dv,32 queries)
  AITC_UNROLL
  for (int i = 0; i < out_tiles; ++i) out[i] = zeros16();
  float most = lowest<float>(), sum = 0;

  AITC_NO_UNROLL
  for (int t = 0; t < tiles; ++t) {
    const int col0 = t * Tile::BN;
    block_barrier();
    stage_rows<false, Tile::BN, A::d, A::D, Tile::threads>(smem_k, A::k_row_bytes, k, base_k, col0, seen);
    stage_rows<true, Tile::BN, A::dv, A::DV, Tile::threads>(smem_v, A::v_row_bytes, v, base_v, col0, seen);
    block_barrier();
    f32x16 score[key_tiles];  // (BN keys,32 queries)
    AITC_UNROLL
    for (int i = 0; i < key_tiles; ++i) {
      score[i] = zeros16();
      AITC_UNROLL
      for (int s = 0; s < steps; ++s) {
        Operand a;
        copy_bytes<16>(&a, smem_k + (i * 32 + lane % 32) * A::k_row_bytes + s * 32 + half * 16);
        M::run(score[i], a, held_q[s]);
      }
    }
    const bool all_seen = col0 + Tile::BN <= keys && (!Causal || col0 + Tile::BN - 1 <= row0 + shape.offset);
    float tile_most = most;
    AITC_UNROLL
    for (int i = 0; i < key_tiles; ++i)
      AITC_UNROLL
      for (int r = 0; r < 16; ++r) {
      const float x = masked_score<Causal>(shape, mask, place, score[i][r], scale_log2, row,
                                           col0 + i * 32 + r / 4 * 8 + half * 4 + r % 4, all_seen);
      score[i][r] = x;
      tile_most = m_max(tile_most, x);
      }
    tile_most = m_max(tile_most, shuffle_xor(tile_most, 32));
    const float base = tile_most == lowest<float>() ? 0.0f : tile_most * rest, factor = m_exp2(most * rest - base);
    most = tile_most;
    sum *= factor;
    AITC_UNROLL
    for (int i = 0; i < out_tiles; ++i)
      AITC_UNROLL
      for (int r = 0; r < 16; ++r) out[i][r] *= factor;
    AITC_UNROLL
    for (int i = 0; i < key_tiles; ++i)
      AITC_UNROLL
      for (int c = 0; c < 4; ++c) {  // 8 keys: 4 half .. 4 half + 3 are this lane's
        T p[4];
        AITC_UNROLL
        for (int e = 0; e < 4; ++e) {
          const float x = m_exp2(score[i][c * 4 + e] * rest - base);
          sum += x;
          p[e] = convert<T>(x);
        }
        HalfOperand b;
        __builtin_memcpy(&b, p, 8);
        AITC_UNROLL
        for (int j = 0; j < out_tiles; ++j) {
          HalfOperand a;
          copy_bytes<8>(&a, smem_v + (j * 32 + lane % 32) * A::v_row_bytes + (i * 32 + c * 8 + half * 4) * 2);
          M::run_half(out[j], a, b);
        }
      }
  }
  const float total = sum + shuffle_xor(sum, 32);
  constexpr int W = min_of(Store::width, 4);
  AITC_UNROLL
  for (int j = 0; j < out_tiles; ++j)
    AITC_UNROLL
    for (int r = 0; r < 16; r += W) {
      const int col = j * 32 + r / 4 * 8 + half * 4 + r % 4;
      if (row < queries && col < A::DV) {
        float x[W];
        AITC_UNROLL
        for (int e = 0; e < W; ++e) x[e] = out[j][r + e] / total;  // no key: 0 / 0
        store.template operator()<W>(place.batch, place.head, row, col, x);
      }
    }
}

AITC_END
