// attention_cdna.h: attention by MFMA on gfx90a and gfx942, half_t and bfloat16_t; scores, softmax and sums in float.
// Never run on AMD hardware yet: compiled for it, and run by the emulator.
//
// attention_cdna<Causal, AttentionCdnaTile<BN, warps, mfma>>(shape, q, k, v, mask, store)
//   Causal, Shape, Q, K, V, Mask, Store: see attention.h. D and DV up to 256.
//   Tile     mfma queries a wave, 32 or 16: BM = mfma * warps; BN keys a step, a multiple of 32. threads = 64 * warps
// Blocks   ceil(queries / BM) * heads * batch in x
// Threads  64 * warps
// Shared   AttentionCdna<Tile, Shape, Q>::smem_bytes = BN * (2 * d + (mfma == 32 ? 16 : 32)) + dv * (2 * BN + 8), with
//          d = ceil(D / step) * step, step = 512 / mfma, dv = ceil(DV / mfma) * mfma; at most 65536
// Tiles    aitc/kernels/attention/attention_gpu.py has them
// Example: attention_sm80.h's with AITC_KERNEL(256) and the last line
//     attention_cdna<false, AttentionCdnaTile<64, 4>>(Shape{N}, Q{q}, K{k}, V{v}, Mask{mask}, Store{out});
//
// Both products are computed transposed, keys x queries and d x queries: then a lane has one query, its softmax needs
// one exchange with lane ^ 32 (and ^ 16), and the scores are where the second product wants its operand. The next keys
// and values wait in registers while these are multiplied. Rows of K, and of V turned, are padded so that the reads meet
// no bank twice.
#pragma once
#include "aitc/gpu/attention/attention.h"
#include "aitc/gpu/matmul/tile_cdna.h"

AITC_BEGIN

template <int BN_, int Warps, int M = 32> struct AttentionCdnaTile {
  static constexpr int BM = M * Warps, BN = BN_, warps = Warps, mfma = M, threads = 64 * Warps;
  static_assert(BN % 32 == 0, "a multiple of 32 keys");
};

template <class Tile, class Shape, class Q> struct AttentionCdna {
  using T = typename Q::type;
  static_assert(sizeof(T) == 2 && is_floating<T>, "half or bfloat16");
  static constexpr int M = Tile::mfma, step = Mfma<T, M>::step;
  static constexpr int D = Shape::D, DV = Shape::DV, d = ceil_div(D, step) * step, dv = ceil_div(DV, M) * M;
  using LayoutK = CdnaPadded<2 * d + (M == 32 ? 16 : 32)>;
  using LayoutV = CdnaPadded<2 * Tile::BN + 8>;
  static constexpr int k_bytes = Tile::BN * LayoutK::pitch;
  static constexpr int threads = Tile::threads, smem_bytes = k_bytes + dv * LayoutV::pitch;
  static_assert(smem_bytes <= 65536, "64 KiB of LDS");
};

// Rows of K (or of V) as a source of CdnaStage: `along_k`: piece(row, col), else piece(col, row); zeros beyond `end` rows
// and `Cols` columns.
template <class Operand, int Cols, bool along_k> struct HeadRows {
  using T = typename Operand::type;
  static constexpr int width = min_of(Operand::width, 8);
  const T* base;
  int64_t stride;
  int end;
  AITC_FN HeadRows from(int row) const { return {base + row * stride, stride, end - row}; }
  template <int W> AITC_FN void piece(int outer, int k, T (&x)[W]) const {
    const int row = along_k ? outer : k, col = along_k ? k : outer;
    Vec<T, W> v = broadcast<W>(T{0});
    if (row < end && col < Cols) v = load<W>(base + row * stride + col);
    AITC_UNROLL
    for (int e = 0; e < W; ++e) x[e] = v[e];
  }
};

// The lanes that hold one query: M apart.
template <int M, class Op> AITC_FN float over_groups(float x, Op op) {
  if constexpr (M == 16) x = op(x, shuffle_xor(x, 16));
  return op(x, shuffle_xor(x, 32));
}

template <bool Causal, class Tile, class Shape, class Q, class K, class V, class Mask, class Store>
AITC_FN void attention_cdna(const Shape& shape, const Q& q, const K& k, const V& v, const Mask& mask,
                            const Store& store) {
  using A = AttentionCdna<Tile, Shape, Q>;
  using T = typename A::T;
  constexpr int M = A::M;
  using Matrix = Mfma<T, M>;
  using Operand = typename Matrix::Operand;
  using HalfOperand = typename Matrix::HalfOperand;
  using SourceK = HeadRows<K, A::D, true>;
  using SourceV = HeadRows<V, A::DV, false>;
  using StageK = CdnaStage<T, Tile::BN, A::d, Tile::threads, SourceK::width, true, typename A::LayoutK>;
  using StageV = CdnaStage<T, A::dv, Tile::BN, Tile::threads, SourceV::width, false, typename A::LayoutV>;
  constexpr int steps = A::d / A::step, key_tiles = Tile::BN / M, out_tiles = A::dv / M, registers = Matrix::registers;
  char* smem_k = shared_memory();     // (BN,d)
  char* smem_v = smem_k + A::k_bytes;  // (dv,BN)
  const int lane = lane_index(), group = lane / M;
  const AttentionPlace place = attention_place<Tile::BM, Causal>(shape);
  const int row0 = place.row0, queries = shape.queries, keys = shape.keys, row = row0 + warp_index() * M + lane % M;
  const int seen = visible_keys<Tile::BM, Causal>(shape, row0), tiles = ceil_div(seen, Tile::BN);
  const float scale_log2 = float(shape.scale) * 1.4426950408889634f, rest = remaining_scale<Mask>(shape, scale_log2);
  const T* base_q = q.base(place.batch, place.head);
  const SourceK source_k{k.base(place.batch, place.kv_head), int64_t(k.stride_row), seen};
  const SourceV source_v{v.base(place.batch, place.kv_head), int64_t(v.stride_row), seen};

  Operand held_q[steps];  // this lane's query, d from step s + 8 group
  AITC_UNROLL
  for (int s = 0; s < steps; ++s) {
    constexpr int width = min_of(Q::width, 8);
    AITC_UNROLL
    for (int e = 0; e < 8; e += width) {
      const int col = s * A::step + group * 8 + e;
      Vec<T, width> part = broadcast<width>(T{0});
      if (row < queries && col < A::D) part = load<width>(base_q + row * int64_t(q.stride_row) + col);
      __builtin_memcpy(held_q[s].bytes + e * 2, &part, width * 2);
    }
  }
  typename Matrix::Sum out[out_tiles];  // (dv,M queries)
  AITC_UNROLL
  for (int i = 0; i < out_tiles; ++i) out[i] = Matrix::zeros();
  float most = lowest<float>(), sum = 0;
  StageK stage_k;
  StageV stage_v;
  if (tiles > 0) {
    stage_k.fetch(source_k, thread_index(), 0);
    stage_v.fetch(source_v, thread_index(), 0);
  }

  AITC_NO_UNROLL
  for (int t = 0; t < tiles; ++t) {
    const int col0 = t * Tile::BN;
    block_barrier();
    stage_k.put(thread_index(), smem_k);
    stage_v.put(thread_index(), smem_v);
    block_barrier();
    if (t + 1 < tiles) {
      stage_k.fetch(source_k.from(col0 + Tile::BN), thread_index(), 0);
      stage_v.fetch(source_v, thread_index(), col0 + Tile::BN);
    }
    typename Matrix::Sum score[key_tiles];  // (BN keys,M queries)
    AITC_UNROLL
    for (int i = 0; i < key_tiles; ++i) {
      score[i] = Matrix::zeros();
      AITC_UNROLL
      for (int s = 0; s < steps; ++s) {
        Operand a;
        copy_bytes<16>(&a, smem_k + A::LayoutK::place(i * M + lane % M, s * A::step * 2 + group * 16));
        Matrix::run(score[i], a, held_q[s]);
      }
    }
    const bool all_seen = col0 + Tile::BN <= keys && (!Causal || col0 + Tile::BN - 1 <= row0 + shape.offset);
    float tile_most = most;
    AITC_UNROLL
    for (int i = 0; i < key_tiles; ++i)
      AITC_UNROLL
      for (int r = 0; r < registers; ++r) {
      const float x = masked_score<Causal>(shape, mask, place, score[i][r], scale_log2, row,
                                           col0 + i * M + mfma_row<M>(lane, r), all_seen);
      score[i][r] = x;
      tile_most = m_max(tile_most, x);
      }
    tile_most = over_groups<M>(tile_most, [](float a, float b) { return m_max(a, b); });
    const float base = tile_most == lowest<float>() ? 0.0f : tile_most * rest, factor = m_exp2(most * rest - base);
    most = tile_most;
    sum *= factor;
    AITC_UNROLL
    for (int i = 0; i < out_tiles; ++i)
      AITC_UNROLL
      for (int r = 0; r < registers; ++r) out[i][r] *= factor;
    AITC_UNROLL
    for (int i = 0; i < key_tiles; ++i)
      AITC_UNROLL
      for (int c = 0; c < registers / 4; ++c) {  // 256 / M keys, four of them this lane's
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
          copy_bytes<8>(&a, smem_v + A::LayoutV::place(j * M + lane % M, (i * M + mfma_row<M>(lane, c * 4)) * 2));
          Matrix::run_half(out[j], a, b);
        }
      }
  }
  const float total = row_divisor<Shape>(over_groups<M>(sum, [](float a, float b) { return a + b; }));
  constexpr int W = min_of(Store::width, 4);
  AITC_UNROLL
  for (int j = 0; j < out_tiles; ++j)
    AITC_UNROLL
    for (int r = 0; r < registers; r += W) {
      const int col = j * M + mfma_row<M>(lane, r);
      if (row < queries && col < A::DV) {
        float x[W];
        AITC_UNROLL
        for (int e = 0; e < W; ++e) x[e] = out[j][r + e] / total;  // no key: 0 / 0
        store.template operator()<W>(place.batch, place.head, row, col, x);
      }
    }
}

AITC_END
