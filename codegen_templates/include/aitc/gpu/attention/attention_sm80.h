// attention_sm80.h: attention on the tensor cores by mma.sync (sm_80 and newer), half_t and bfloat16_t; scores, softmax
// and sums in float, the probabilities rounded to the operands' type for the second product.
//
// attention_sm80<Causal, AttentionTile<BM, BN, warps>>(shape, q, k, v, mask, store)
//   Causal, Shape, Q, K, V, Mask, Store: see attention.h. D and DV up to 256; multiples of 8 with width = 8 are fast,
//   others work.
//   Tile     BM queries a block, BN keys a step; each of the `warps` takes BM / warps rows, a multiple of 16; BN a
//            multiple of 16. threads = 32 * warps
// Blocks   ceil(queries / BM) * heads * batch in x
// Threads  32 * warps
// Shared   AttentionSm80<Tile, Shape, Q>::smem_bytes = max(2 * (BM * d + BN * d + BN * dv), warps * 16 * (dv + 8) * 4),
//          with d = ceil(D / 16) * 16, dv = ceil(DV / 16) * 16
// Tiles    D <= 64 <64, 64, 4>, from some hundred keys on <128, 64, 4>; D <= 128 <64, 64, 4>; D <= 256 <64, 32, 4>; few
//          queries <16, 64, 1>
//
//   #include "aitc/gpu/attention/attention_sm80.h"
//   using namespace aitc;
//   struct Shape {
//     int batch;
//     static constexpr int heads = 12, kv_heads = 12, queries = 128, keys = 128, D = 64, DV = 64, offset = 0;
//     static constexpr float scale = 0.125f;
//   };
//   struct Q {                                              // (batch, queries, heads, D)
//     using type = half_t;
//     static constexpr int width = 8;
//     static constexpr int64_t stride_row = 768;
//     const half_t* data;
//     AITC_FN const half_t* base(int batch, int head) const { return data + batch * 98304 + head * 64; }
//   };
//   struct K { ... };  struct V { ... };                    // likewise
//   struct Mask {                                           // (batch, 1, 1, keys)
//     const half_t* data;
//     AITC_FN float operator()(int batch, int, int, int col) const { return convert<float>(data[batch * 128 + col]); }
//   };
//   struct Store {
//     static constexpr int width = 8;
//     half_t* out;
//     template <int V>
//     AITC_FN void operator()(int batch, int head, int64_t row, int64_t d, const float (&acc)[V]) const {
//       Vec<half_t, V> r;
//       AITC_UNROLL for (int j = 0; j < V; ++j) r[j] = convert<half_t>(acc[j]);
//       store<V>(out + (batch * 128 + row) * 768 + head * 64 + d, r);
//     }
//   };
//   AITC_KERNEL(128) void AITC_ENTRY(attention_3)(const half_t* q, const half_t* k, const half_t* v,
//                                                 const half_t* mask, half_t* out, int N) {
//     attention_sm80<false, AttentionTile<64, 64, 4>>(Shape{N}, Q{q}, K{k}, V{v}, Mask{mask}, Store{out});
//   }
#pragma once
#include "aitc/gpu/attention/attention.h"
#include "aitc/gpu/matmul/tile_sm80.h"

AITC_BEGIN

template <int BM_, int BN_, int Warps> struct AttentionTile {
  static constexpr int BM = BM_, BN = BN_, warps = Warps, threads = 32 * Warps, rows = BM / Warps;
  static_assert(BM % (16 * Warps) == 0 && BN % 16 == 0,
                "a warp computes a multiple of 16 rows against a multiple of 16 keys");
};

template <class Tile, class Shape, class Q> struct AttentionSm80 {
  using T = typename Q::type;
  static_assert(sizeof(T) == 2 && is_floating<T>, "half or bfloat16");
  static constexpr int D = Shape::D, DV = Shape::DV, d = ceil_div(D, 16) * 16, dv = ceil_div(DV, 16) * 16;
  using SharedQ = SharedTile<T, Tile::BM, d>;
  using SharedK = SharedTile<T, Tile::BN, d>;
  using SharedV = SharedTile<T, Tile::BN, dv>;
  static constexpr int patch_stride = dv + 8;
  static constexpr int threads = Tile::threads;
  static constexpr int smem_bytes =
      max_of(SharedQ::bytes + SharedK::bytes + SharedV::bytes, Tile::warps * 16 * patch_stride * 4);
};

// Starts the copies of rows [row0, row0 + Shared::rows) of one operand; zeros beyond `row_end` and beyond `cols`.
// `Threads` threads share them: this one is number `thread`.
template <class Shared, int Threads, int Cols, class Operand>
AITC_FN void load_rows(char* shared, const Operand& operand, const typename Operand::type* base, int row0, int row_end,
                       int thread) {
  using T = typename Operand::type;
  constexpr int width = min_of(Operand::width, 16 / int(sizeof(T))), per_row = Shared::cols / width,
                pieces = Shared::rows * per_row;
  AITC_UNROLL_4
  for (int i = 0; i < ceil_div(pieces, Threads); ++i) {
    const int p = thread + i * Threads, row = p / per_row, col = p % per_row * width;
    if (pieces % Threads == 0 || p < pieces)
      copy_piece<T, width>(shared, Shared::element_offset(row, col),
                           base + (row0 + row) * int64_t(operand.stride_row) + col,
                           row0 + row < row_end && col < Cols);
  }
}

// What a warp keeps of 16 * Slabs rows while it walks over keys: the running maximum, the sum, and the output so far.
template <class T, int Slabs, int KeyFrags, int OutFrags> struct AttentionRows {
  using Scores = float[Slabs][KeyFrags][4];  // (16 Slabs,8 KeyFrags) in fragments
  float out[Slabs][OutFrags][4];             // (16 Slabs,8 OutFrags) in fragments
  float most[Slabs][2], sum[Slabs][2];       // of rows lane / 4 and lane / 4 + 8 of a slab; the sum is this lane's part

  AITC_FN AttentionRows() {
    AITC_UNROLL
    for (int i = 0; i < Slabs; ++i) {
      AITC_UNROLL
      for (int j = 0; j < OutFrags; ++j)
        AITC_UNROLL
        for (int e = 0; e < 4; ++e) out[i][j][e] = 0;
      AITC_UNROLL
      for (int h = 0; h < 2; ++h) most[i][h] = lowest<float>(), sum[i][h] = 0;
    }
  }
  // score = Q K^T; fragment_q(slab, step, a) gives a fragment of Q.
  template <class SharedK, int Steps, class FragmentQ>
  AITC_FN void multiply_keys(Scores& score, shared_address tile_k, const FragmentQ& fragment_q) const {
    AITC_UNROLL
    for (int i = 0; i < Slabs; ++i)
      AITC_UNROLL
      for (int j = 0; j < KeyFrags; ++j)
        AITC_UNROLL
        for (int e = 0; e < 4; ++e) score[i][j][e] = 0;
    AITC_UNROLL
    for (int s = 0; s < Steps; ++s) {
      uint32_t a[Slabs][4];
      AITC_UNROLL
      for (int i = 0; i < Slabs; ++i) fragment_q(i, s, a[i]);
      AITC_UNROLL
      for (int j = 0; j < KeyFrags; j += 2) {
        uint32_t b0[2], b1[2];
        load_fragment_b<T, SharedK, true>(b0, b1, tile_k, j * 8, s * 16);
        AITC_UNROLL
        for (int i = 0; i < Slabs; ++i) {
          Mma<T>::run(score[i][j], a[i], b0);
          Mma<T>::run(score[i][j + 1], a[i], b1);
        }
      }
    }
  }
  // Scores become probabilities relative to the new maximum, and what was summed before is scaled to it.
  // seen(score, row, col): the score with its mask (masked_score of attention.h); `rest`: remaining_scale.
  template <class Seen> AITC_FN void softmax(Scores& score, float rest, const Seen& seen) {
    const int lane = lane_index();
    AITC_UNROLL
    for (int i = 0; i < Slabs; ++i) {
      float tile_most[2] = {most[i][0], most[i][1]};
      AITC_UNROLL
      for (int j = 0; j < KeyFrags; ++j)
        AITC_UNROLL
        for (int e = 0; e < 4; ++e) {
          float& x = score[i][j][e];
          x = seen(x, i * 16 + e / 2 * 8 + lane / 4, j * 8 + lane % 4 * 2 + e % 2);
          tile_most[e / 2] = m_max(tile_most[e / 2], x);
        }
      AITC_UNROLL
      for (int h = 0; h < 2; ++h) {
        tile_most[h] = m_max(tile_most[h], shuffle_xor(tile_most[h], 1));
        tile_most[h] = m_max(tile_most[h], shuffle_xor(tile_most[h], 2));
        const float base = tile_most[h] == lowest<float>() ? 0.0f : tile_most[h] * rest;
        const float factor = m_exp2(most[i][h] * rest - base);
        most[i][h] = tile_most[h];
        sum[i][h] *= factor;
        AITC_UNROLL
        for (int j = 0; j < OutFrags; ++j) out[i][j][h * 2] *= factor, out[i][j][h * 2 + 1] *= factor;
        AITC_UNROLL
        for (int j = 0; j < KeyFrags; ++j)
          AITC_UNROLL
          for (int e = 0; e < 2; ++e) {
            float& x = score[i][j][h * 2 + e];
            x = m_exp2(x * rest - base);
            sum[i][h] += x;
          }
      }
    }
  }
  // out += P V
  template <class SharedV> AITC_FN void multiply_values(const Scores& score, shared_address tile_v) {
    AITC_UNROLL
    for (int s = 0; s < KeyFrags / 2; ++s) {
      uint32_t a[Slabs][4];
      AITC_UNROLL
      for (int i = 0; i < Slabs; ++i)
        AITC_UNROLL
        for (int e = 0; e < 4; ++e)
          a[i][e] = pack<T>(score[i][2 * s + e / 2][e % 2 * 2], score[i][2 * s + e / 2][e % 2 * 2 + 1]);
      AITC_UNROLL
      for (int j = 0; j < OutFrags; j += 2) {
        uint32_t b0[2], b1[2];
        load_fragment_b<T, SharedV, false>(b0, b1, tile_v, j * 8, s * 16);
        AITC_UNROLL
        for (int i = 0; i < Slabs; ++i) {
          Mma<T>::run(out[i][j], a[i], b0);
          Mma<T>::run(out[i][j + 1], a[i], b1);
        }
      }
    }
  }
  // The sum over a whole row.
  AITC_FN float total(int slab, int h) const {
    float x = sum[slab][h];
    x += shuffle_xor(x, 1);
    return x + shuffle_xor(x, 2);
  }
};

template <bool Causal, class Tile, class Shape, class Q, class K, class V, class Mask, class Store>
AITC_FN void attention_sm80(const Shape& shape, const Q& q, const K& k, const V& v, const Mask& mask,
                            const Store& store) {
  using A = AttentionSm80<Tile, Shape, Q>;
  using T = typename A::T;
  using SharedQ = typename A::SharedQ;
  using SharedK = typename A::SharedK;
  using SharedV = typename A::SharedV;
  static_assert(is_same<T, typename K::type> && is_same<T, typename V::type>, "Q, K and V have one type");
  constexpr int slabs = Tile::rows / 16, steps = A::d / 16, key_frags = Tile::BN / 8, out_frags = A::dv / 8;
  constexpr bool hold_q = A::d * slabs <= 128;  // Q's fragments stay in registers
  char* smem_q = shared_memory();
  char* smem_k = smem_q + SharedQ::bytes;
  char* smem_v = smem_k + SharedK::bytes;
  const int thread = thread_index(), lane = lane_index(), warp_row = warp_index() * Tile::rows;
  const AttentionPlace place = attention_place<Tile::BM, Causal>(shape);
  const int row0 = place.row0, queries = shape.queries, keys = shape.keys;
  const int seen = visible_keys<Tile::BM, Causal>(shape, row0), tiles = ceil_div(seen, Tile::BN);
  const float scale_log2 = float(shape.scale) * 1.4426950408889634f;
  const float rest = remaining_scale<Mask>(shape, scale_log2);
  grid_dependency_wait();
  const T *base_q = q.base(place.batch, place.head), *base_k = k.base(place.batch, place.kv_head),
          *base_v = v.base(place.batch, place.kv_head);
  load_rows<SharedQ, Tile::threads, A::D>(smem_q, q, base_q, row0, queries, thread);
  load_rows<SharedK, Tile::threads, A::D>(smem_k, k, base_k, 0, seen, thread);
  copy_async_commit();

  using Rows = AttentionRows<T, slabs, key_frags, out_frags>;
  Rows rows;
  uint32_t held_q[hold_q ? slabs : 1][hold_q ? steps : 1][4];

  AITC_NO_UNROLL
  for (int t = 0; t < tiles; ++t) {
    const int col0 = t * Tile::BN;
    copy_async_wait<0>();
    block_barrier();  // K is here, and everyone is through with the last V
    load_rows<SharedV, Tile::threads, A::DV>(smem_v, v, base_v, col0, seen, thread);
    copy_async_commit();
    if constexpr (hold_q) {
      if (t == 0)
        AITC_UNROLL
        for (int i = 0; i < slabs; ++i)
          AITC_UNROLL
        for (int s = 0; s < steps; ++s)
          load_fragment_a<T, SharedQ, true>(held_q[i][s], to_shared(smem_q), warp_row + i * 16, s * 16);
    }
    typename Rows::Scores score;
    rows.template multiply_keys<SharedK, steps>(score, to_shared(smem_k), [&](int i, int s, uint32_t(&a)[4]) {
      if constexpr (hold_q) {
        AITC_UNROLL
        for (int e = 0; e < 4; ++e) a[e] = held_q[i][s][e];
      } else {
        load_fragment_a<T, SharedQ, true>(a, to_shared(smem_q), warp_row + i * 16, s * 16);
      }
    });
    const bool all_seen = col0 + Tile::BN <= keys && (!Causal || col0 + Tile::BN - 1 <= row0 + shape.offset);
    rows.softmax(score, rest, [&](float x, int row, int col) {
      return masked_score<Causal>(shape, mask, place, x, scale_log2, row0 + warp_row + row, col0 + col, all_seen);
    });
    copy_async_wait<0>();
    block_barrier();  // V is here, and everyone is through with K
    if (t + 1 < tiles) load_rows<SharedK, Tile::threads, A::D>(smem_k, k, base_k, col0 + Tile::BN, seen, thread);
    copy_async_commit();
    rows.template multiply_values<SharedV>(score, to_shared(smem_v));
  }
  copy_async_wait<0>();
  block_barrier();  // shared memory is free for the results
  grid_dependency_launch();
  constexpr int W = min_of(Store::width, 8), per_row = A::DV / W, pieces = 16 * per_row;
  static_assert(A::DV % W == 0, "the store's width divides DV");
  float* patch = reinterpret_cast<float*>(shared_memory()) + warp_index() * 16 * A::patch_stride;  // (16,dv+8)
  AITC_UNROLL
  for (int i = 0; i < slabs; ++i) {
    warp_barrier();
    AITC_UNROLL
    for (int h = 0; h < 2; ++h) {
      const float total = row_divisor<Shape>(rows.total(i, h));
      const float factor = 1.0f / total;
      AITC_UNROLL
      for (int j = 0; j < out_frags; ++j) {
        const float empty = total == 0.0f ? factor * 0.0f : 0.0f;  // no key: NaN
        const Vec<float, 2> pair{rows.out[i][j][h * 2] * factor + empty, rows.out[i][j][h * 2 + 1] * factor + empty};
        aitc::store<2>(patch + (h * 8 + lane / 4) * A::patch_stride + j * 8 + lane % 4 * 2, pair);
      }
    }
    warp_barrier();
    AITC_UNROLL
    for (int p = 0; p < ceil_div(pieces, 32); ++p) {
      const int piece = p * 32 + lane, r = piece / per_row, c = piece % per_row * W, row = row0 + warp_row + i * 16 + r;
      if ((pieces % 32 == 0 || piece < pieces) && row < queries) {
        const auto values = load<W>(patch + r * A::patch_stride + c);
        float x[W];
        AITC_UNROLL
        for (int e = 0; e < W; ++e) x[e] = values[e];
        store.template operator()<W>(place.batch, place.head, row, c, x);
      }
    }
  }
}

AITC_END
