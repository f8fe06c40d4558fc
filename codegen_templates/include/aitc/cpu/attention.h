// Attention on cpu: store(batch, head, row, d, sum over j of softmax_j(scale * Q[row] . K[j] + mask) * V[j, d]), without the score matrix
// ever in memory: blocks of keys pass by with a running maximum and sum for each query. Sums and softmax in float.
//
//   attention<Causal>(shape, q, k, v, mask, store)
//
//   Causal   bool: query i sees keys j <= i + shape.offset only
//   Shape    batch, heads (of Q), kv_heads (divides heads; head h reads K and V of h / (heads / kv_heads)), queries, keys, D (of Q and K),
//            DV (of V and the result): static constexpr int, or int members read at run time; float scale; int offset (keys - queries for
//            decoding with a cache; read only if Causal)
//   Q K V    using type (float, half_t, bfloat16_t); const type* base(int batch, int head) const; int64_t stride_row in elements between
//            rows, static constexpr or a member; D is contiguous. `head` is Q's for Q and the shared one for K and V
//   Mask     float operator()(int batch, int head, int row, int col) const: added to the scaled score, -infinity excludes the key;
//            or NoMask{}
//   Store    static constexpr int width; operator()<V>(int batch, int head, int64_t row, int64_t d, const float (&acc)[V])
//
// A query that sees no key gives NaN, as softmax of -infinity everywhere does, or 0 (row_divisor in aitc/reduction.h).
//
//   #include "aitc/cpu/attention.h"
//   using namespace aitc;
//   struct Shape {
//     static constexpr int batch = 1, heads = 12, kv_heads = 12, queries = 128, keys = 128, D = 64, DV = 64, offset = 0;
//     static constexpr float scale = 0.125f;
//   };
//   struct Q {                                              // (batch, queries, heads, D)
//     using type = float;
//     static constexpr int64_t stride_row = 768;
//     const float* data;
//     AITC_FN const float* base(int batch, int head) const { return data + batch * 98304 + head * 64; }
//   };
//   struct K { ... };  struct V { ... };                    // likewise
//   struct Mask {                                           // (batch, 1, 1, keys)
//     const float* data;
//     AITC_FN float operator()(int batch, int, int, int col) const { return data[batch * 128 + col]; }
//   };
//   struct Store {
//     static constexpr int width = 16;
//     float* out;
//     template <int V> AITC_FN void operator()(int, int head, int64_t row, int64_t d, const float (&acc)[V]) const {
//       Vec<float, V> r;
//       AITC_UNROLL for (int j = 0; j < V; ++j) r[j] = acc[j];
//       store<V>(out + row * 768 + head * 64 + d, r);
//     }
//   };
//   AITC_KERNEL(0) void AITC_ENTRY(attention_3)(const float* q, const float* k, const float* v, const float* mask, float* out) {
//     attention<false>(Shape{}, Q{q}, K{k}, V{v}, Mask{mask}, Store{out});
//   }
#pragma once
#include "aitc/cpu/block_transpose.h"
#include "aitc/cpu/microkernel.h"
#include "aitc/reduction.h"

AITC_BEGIN
namespace {

struct NoMask {};

AITC_STATIC_MEMBER(queries)

constexpr int64_t key_block = 512;

// Keys [first, first + count) as panels [panel][D][32] (scores multiply by these), columns beyond `count` zero.
template <typename T>
void pack_keys(const T* base, int64_t stride, int64_t first, int64_t count, int64_t D, float* panels, float* line) {
  for (int64_t j = 0; j < count; j += panel_width, panels += D * panel_width) {
    const int64_t cols = min_of(int64_t(panel_width), count - j);
    if (cols < panel_width)
      for (int64_t i = 0; i < D * panel_width; ++i) panels[i] = 0.0f;
    const T* rows = base + (first + j) * stride;
    if constexpr (is_same<T, float>) {
      transpose_block(cols, D, rows, stride, panels, panel_width);
    } else {
      for (int64_t c = 0; c < cols; ++c) {
#pragma omp simd
        for (int64_t d = 0; d < D; ++d) line[c * D + d] = convert<float>(rows[c * stride + d]);
      }
      transpose_block(cols, D, line, D, panels, panel_width);
    }
  }
}

// Values of the same keys as panels [ceil(DV/32)][count][32].
template <typename T>
void pack_values(const T* base, int64_t stride, int64_t first, int64_t count, int64_t DV, float* panels) {
  for (int64_t d = 0; d < DV; d += panel_width) {
    const int64_t cols = min_of(int64_t(panel_width), DV - d);
    for (int64_t j = 0; j < count; ++j, panels += panel_width) {
      const T* row = base + (first + j) * stride + d;
      if (cols == panel_width) {
#pragma omp simd
        for (int c = 0; c < panel_width; ++c) panels[c] = convert<float>(row[c]);
      } else {
        for (int64_t c = 0; c < panel_width; ++c) panels[c] = c < cols ? convert<float>(row[c]) : 0.0f;
      }
    }
  }
}

template <int R, int NV>
AITC_FN void multiply_panels(const float* const* rows, int64_t length, const float* panels, int64_t cols, float* out, int64_t out_stride,
                             int valid) {
  constexpr int L = AITC_VECTOR_BYTES / 4, width = NV * L;
  alignas(64) float tile[R * width];  // (R,width)
  for (int64_t c = 0; c < cols; c += width) {
    multiply_strip<float, R, NV>(rows, 1, length, panels + c / panel_width * length * panel_width + c % panel_width, tile);
    for (int r = 0; r < valid; ++r) __builtin_memcpy(out + r * out_stride + c, tile + r * width, sizeof(float) * width);
  }
}

// What store_row expects, for one head.
template <typename Store>
struct HeadStore {
  const Store& store;
  int head;
  template <int V>
  AITC_FN void operator()(int batch, int64_t row, int64_t d, const float (&acc)[V]) const {
    store.template operator()<V>(batch, head, row, d, acc);
  }
};

// One query's scores of a block become exp(score - maximum); returns by how much what was summed before must shrink.
AITC_FN float softmax_block(float* scores, int64_t count, float& maximum, float& sum) {
  float most = maximum;
#pragma omp simd reduction(max : most)
  for (int64_t j = 0; j < count; ++j) most = scores[j] > most ? scores[j] : most;
  const float centre = most == lowest<float>() ? 0.0f : most;
  const float shrink = exp_not_positive(maximum - centre);
  float added = 0.0f;
#pragma omp simd reduction(+ : added)
  for (int64_t j = 0; j < count; ++j) {
    const float e = exp_not_positive(scores[j] - centre);
    scores[j] = e;
    added += e;
  }
  sum = sum * shrink + added;
  maximum = most;
  return shrink;
}

template <bool Causal, int R, typename Shape, typename Q, typename K, typename V, typename Mask, typename Store>
void attend(const Shape& shape, const Q& q, const K& k, const V& v, const Mask& mask_functor, const Store& store_functor) {
  constexpr int NV = 2, L = AITC_VECTOR_BYTES / 4;
  static_assert(panel_width % (NV * L) == 0, "a panel is a whole number of tiles");
  const int64_t queries = shape.queries, keys = shape.keys, D = shape.D, DV = shape.DV, pairs = int64_t(shape.batch) * shape.heads;
  if (queries <= 0 || pairs <= 0 || DV <= 0) return;
  const int64_t share = shape.heads / shape.kv_heads;
  // Keys and values are packed by each task: tasks of a head are made only as the threads need them.
  const int64_t strips = ceil_div(queries, R);
  int64_t chunks = min_of(max_of(int64_t(1), ceil_div(2 * num_threads(), pairs)), strips);
  if (pairs % num_threads() != 0 && pairs < 4 * num_threads()) chunks = min_of(max_of(chunks, int64_t(2)), strips);
  const int64_t chunk = ceil_div(strips, chunks) * R, block = min_of(key_block, round_up(max_of(keys, int64_t(1)), panel_width));
  const int64_t DP = round_up(DV, panel_width);
  const int64_t out_stride = DP + 16, score_stride = block + 16;

  parallel_for(pairs * chunks, pairs * queries * keys * (D + DV) < (1 << 18) ? pairs * chunks : 1, [&](int64_t begin, int64_t end) {
    const Mask mask = mask_functor;
    const Store store = store_functor;
    const int64_t elems = block * D + block * DP + panel_width * D + chunk * (D + 16) + chunk * out_stride + R * score_stride + R * DP +
                          2 * chunk;
    float* memory = static_cast<float*>(scratch(2, size_t(elems) * sizeof(float)));
    float* key_panels = memory;                              // (block/32,D,32)
    float* value_panels = key_panels + block * D;            // (DP/32,block,32)
    float* line = value_panels + block * DP;                 // (32,D)
    float* query = line + panel_width * D;                   // (chunk,D+16)
    float* out = query + chunk * (D + 16);                   // (chunk,out_stride)
    float* scores = out + chunk * out_stride;                // (R,score_stride)
    float* part = scores + R * score_stride;                 // (R,DP)
    float* maximum = part + R * DP;                          // (chunk)
    float* sum = maximum + chunk;                            // (chunk)
    for (int64_t task = begin; task < end; ++task) {
      const int64_t pair = task / chunks, first = task % chunks * chunk, rows = min_of(chunk, queries - first);
      if (rows <= 0) continue;
      const int batch = int(pair / shape.heads), head = int(pair % shape.heads), kv_head = int(head / share);
      const typename Q::type* q_base = q.base(batch, head);
      for (int64_t i = 0; i < rows; ++i) {
        const typename Q::type* row = q_base + (first + i) * q.stride_row;
#pragma omp simd
        for (int64_t d = 0; d < D; ++d) query[i * (D + 16) + d] = convert<float>(row[d]) * shape.scale;
        for (int64_t d = 0; d < DP; ++d) out[i * out_stride + d] = 0.0f;
        maximum[i] = lowest<float>();
        sum[i] = 0.0f;
      }
      int64_t seen = keys;  // by the chunk's last query
      if constexpr (Causal) seen = max_of(int64_t(0), min_of(keys, first + rows + shape.offset));
      for (int64_t j0 = 0; j0 < seen; j0 += block) {
        const int64_t count = min_of(block, seen - j0);
        pack_keys(k.base(batch, kv_head), k.stride_row, j0, count, D, key_panels, line);
        pack_values(v.base(batch, kv_head), v.stride_row, j0, count, DV, value_panels);
        for (int64_t i = 0; i < rows; i += R) {
          const int valid = int(min_of(int64_t(R), rows - i));
          int64_t width = count;  // of this strip
          if constexpr (Causal) width = min_of(count, first + i + valid + shape.offset - j0);
          if (width <= 0) continue;
          const float* table[R];  // (R)
          for (int r = 0; r < R; ++r) table[r] = query + (i + min_of(r, valid - 1)) * (D + 16);
          multiply_panels<R, NV>(table, D, key_panels, width, scores, score_stride, valid);
          for (int r = 0; r < valid; ++r) {
            float* row = scores + r * score_stride;
            const int64_t position = first + i + r;
            if constexpr (!is_same<Mask, NoMask>) {
#pragma omp simd
              for (int64_t j = 0; j < width; ++j) row[j] += mask(batch, head, int(position), int(j0 + j));
            }
            if constexpr (Causal) {
              for (int64_t j = max_of(int64_t(0), position + shape.offset + 1 - j0); j < width; ++j) row[j] = lowest<float>();
            }
            const float shrink = softmax_block(row, width, maximum[i + r], sum[i + r]);
            float* o = out + (i + r) * out_stride;
#pragma omp simd
            for (int64_t d = 0; d < DP; ++d) o[d] *= shrink;
          }
          for (int r = 0; r < R; ++r) table[r] = scores + min_of(r, valid - 1) * score_stride;
          for (int64_t d = 0; d < DP; d += panel_width)
            multiply_panels<R, NV>(table, width, value_panels + d * count, panel_width, part + d, DP, valid);
          for (int r = 0; r < valid; ++r) {
            float* o = out + (i + r) * out_stride;
#pragma omp simd
            for (int64_t d = 0; d < DP; ++d) o[d] += part[r * DP + d];
          }
        }
      }
      for (int64_t i = 0; i < rows; ++i) {
        float* o = out + i * out_stride;
        const float inverse = 1.0f / row_divisor<Shape>(sum[i]);
#pragma omp simd
        for (int64_t d = 0; d < DP; ++d) o[d] *= inverse;
        store_row<Store::width>(HeadStore<Store>{store, head}, batch, first + i, 0, int(DV), o);
      }
    }
  });
}

template <bool Causal, typename Shape, typename Q, typename K, typename V, typename Mask, typename Store>
inline void attention(const Shape& shape, const Q& q, const K& k, const V& v, const Mask& mask, const Store& store) {
  constexpr int queries = static_queries<Shape>(0), most = Tile<>::rows, low = 2;
  if constexpr (queries > 0) {
    attend<Causal, best_strip(queries, most)>(shape, q, k, v, mask, store);
  } else {
    if (shape.queries > 4) attend<Causal, most>(shape, q, k, v, mask, store);
    else attend<Causal, low>(shape, q, k, v, mask, store);
  }
}

}  // namespace
AITC_END
