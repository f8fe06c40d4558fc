// attention.h: what the attention kernels (attention_simt.h, attention_sm80.h, attention_cdna.h) share: their operands,
// and the order of their blocks.
//
//   store(batch, head, row, d, sum over j of softmax_j(scale * Q[row] . K[j] + mask) * V[j, d]), without the score
//   matrix ever in memory.
//
//   Causal   bool: query i sees keys j <= i + shape.offset only
//   Shape    D (of Q and K), DV (of V and the result): static constexpr int; batch, heads (of Q), kv_heads (divides
//            heads; head h reads K and V of h / (heads / kv_heads)), queries, keys: static constexpr int, or int
//            members read at run time; float scale; int offset (keys - queries for the bottom-right
//            corner, as decoding with a cache wants; read only if Causal)
//   Q K V    using type (float, half_t, bfloat16_t); const type* base(int batch, int head) const; int64_t stride_row in
//            elements between rows, static constexpr or a member; D is contiguous. `head` is Q's for Q and the shared
//            one for K and V. width: elements of the widest aligned load: D (DV), stride_row and base() are multiples
//            of it
//   Mask     float operator()(int batch, int head, int row, int col) const: added to the scaled score, -infinity
//            excludes the key; or NoMask{}
//   Store    static constexpr int width; operator()<V>(int batch, int head, int64_t row, int64_t d, const float
//            (&acc)[V])
// A query that sees no key gives NaN, as softmax of -infinity everywhere does, or 0 (row_divisor in aitc/reduction.h).
#pragma once
#include "aitc/reduction.h"
#include "aitc/types.h"

AITC_BEGIN

struct NoMask {};

// Which queries of which head this block computes. Blocks: ceil(queries / BM) * heads * batch in x; blocks of one head
// follow each other, and where a mask is causal those with the most keys come first.
struct AttentionPlace {
  int batch, head, kv_head, row0;
};
template <int BM, bool Causal, class Shape> AITC_FN AttentionPlace attention_place(const Shape& shape) {
  const int blocks = ceil_div(int(shape.queries), BM), heads = shape.heads, index = int(blockIdx.x % unsigned(blocks)),
            pair = int(blockIdx.x / unsigned(blocks));
  const int head = pair % heads, share = heads / shape.kv_heads;
  return {pair / heads, head, head / share, (Causal ? blocks - 1 - index : index) * BM};
}
// The keys that any of the rows [row0, row0 + BM) may see.
template <int BM, bool Causal, class Shape> AITC_FN int visible_keys(const Shape& shape, int row0) {
  const int keys = shape.keys;
  if constexpr (Causal) {
    const int last = min_of(row0 + BM, shape.queries) - 1 + shape.offset + 1;
    return last < 0 ? 0 : min_of(last, keys);
  }
  return keys;
}

// Without a mask the factor scale * log2(e) is applied after the maximum is taken, together with its subtraction; that
// needs a positive scale. (The scale is usually static, then this is too.)
template <class Mask, class Shape> AITC_FN bool scaled_late(const Shape& shape) {
  return is_same<Mask, NoMask> && float(shape.scale) > 0.0f;
}
// Finite masks stay finite in units of log 2: a row of float32's least numbers is the mean of its values. NaN stays NaN.
template <class T> AITC_FN T finite_mask(T m) { return m < T(-2e38) && m > lowest<T>() ? T(-2e38) : m; }

// What the softmax sees of a score, before that factor if it is applied late, after it otherwise (a mask is added in
// units of log 2): -infinity where the key is not seen. `all_seen`: no key of the tile is hidden by the end or the
// causal rule.
template <bool Causal, class Shape, class Mask, class T>
AITC_FN T masked_score(const Shape& shape, const Mask& mask, const AttentionPlace& place, T score, T scale_log2,
                       int row, int col, bool all_seen) {
  if constexpr (is_same<Mask, NoMask>) {
    if (!all_seen && (col >= shape.keys || (Causal && col > row + shape.offset))) return lowest<T>();
    return scaled_late<Mask>(shape) ? score : score * scale_log2;
  } else {
    if (col >= shape.keys || row >= shape.queries || (Causal && col > row + shape.offset)) return lowest<T>();
    return score * scale_log2 + finite_mask(T(mask(place.batch, place.head, row, col))) * T(1.4426950408889634);
  }
}
// The factor that is still to be applied to what masked_score returned.
template <class Mask, class Shape, class T> AITC_FN T remaining_scale(const Shape& shape, T scale_log2) {
  return scaled_late<Mask>(shape) ? scale_log2 : T(1);
}

AITC_END
