// Transposes of small blocks in registers, the step from which transposes and packing are made.
//
//   transpose_block<T>(rows, cols, src, src_stride, dst, dst_stride)     dst[j * dst_stride + i] = src[i * src_stride + j]
//
// for 0 <= i < rows, 0 <= j < cols, src contiguous in j, dst contiguous in i. Any sizes: whole blocks of lanes x lanes
// elements go through registers (1, 2, 4 and 8-byte types), the edges one by one.
#pragma once
#include "aitc/cpu/cpu.h"

AITC_BEGIN
namespace {

template <int Bytes>
struct TransposeUnit;
template <>
struct TransposeUnit<1> {
  using type = uint8_t;
  static constexpr int lanes = 16;
};
template <>
struct TransposeUnit<2> {
  using type = uint16_t;
  static constexpr int lanes = AITC_VECTOR_BYTES >= 64 ? 16 : 8;
};
template <>
struct TransposeUnit<4> {
  using type = uint32_t;
  static constexpr int lanes = AITC_VECTOR_BYTES / 4;
};
template <>
struct TransposeUnit<8> {
  using type = uint64_t;
  static constexpr int lanes = AITC_VECTOR_BYTES / 8;
};

// Half of what a stage makes of two rows, a and b: their elements whose number has no bit `Step` (Odd: has it), those of b moved to
// where a's others were.
#if defined(__clang__)
template <int... J>
struct Numbers {};
template <typename, int... J>
struct NumberList {
  using type = Numbers<J...>;
};
template <int L, int Step, bool Odd, typename V, int... J>
AITC_FN V exchange(V a, V b, Numbers<J...>) {
  return __builtin_shufflevector(a, b, (Odd ? (J & Step ? L + J : J + Step) : (J & Step ? L + J - Step : J))...);
}
template <typename U, int L, int Step, bool Odd>
AITC_FN simd_t<U, L> exchange(simd_t<U, L> a, simd_t<U, L> b) {
  return exchange<L, Step, Odd>(a, b, typename __make_integer_seq<NumberList, int, L>::type{});
}
#else
template <typename U, int L, int Step, bool Odd>
AITC_FN simd_t<U, L> exchange(simd_t<U, L> a, simd_t<U, L> b) {
  simd_t<U, L> from;
  AITC_UNROLL_ALL
  for (int j = 0; j < L; ++j) from[j] = U(Odd ? (j & Step ? L + j : j + Step) : (j & Step ? L + j - Step : j));
  return __builtin_shuffle(a, b, from);
}
#endif

// One stage of the transpose: exchanges the off-diagonal Step x Step blocks of each 2 Step x 2 Step block.
template <typename U, int L, int Step>
AITC_FN void transpose_stage(simd_t<U, L> (&r)[L]) {
  AITC_UNROLL_ALL
  for (int i = 0; i < L; ++i) {
    if (i & Step) continue;
    const simd_t<U, L> a = r[i], b = r[i + Step];
    r[i] = exchange<U, L, Step, false>(a, b);
    r[i + Step] = exchange<U, L, Step, true>(a, b);
  }
  if constexpr (2 * Step < L) transpose_stage<U, L, 2 * Step>(r);
}

template <typename U, int L, typename T>
AITC_FN void transpose_square(const T* src, int64_t src_stride, T* dst, int64_t dst_stride) {
  simd_t<U, L> r[L];
  AITC_UNROLL_ALL
  for (int i = 0; i < L; ++i) r[i] = simd_load<simd_t<U, L>>(src + i * src_stride);
  transpose_stage<U, L, 1>(r);
  AITC_UNROLL_ALL
  for (int i = 0; i < L; ++i) simd_store(dst + i * dst_stride, r[i]);
}

template <typename T>
AITC_OPAQUE void transpose_block(int64_t rows, int64_t cols, const T* src, int64_t src_stride, T* dst, int64_t dst_stride) {
  using U = typename TransposeUnit<sizeof(T)>::type;
  constexpr int L = TransposeUnit<sizeof(T)>::lanes;
  int64_t i = 0;
  for (; i + L <= rows; i += L) {
    int64_t j = 0;
    for (; j + L <= cols; j += L) transpose_square<U, L>(src + i * src_stride + j, src_stride, dst + j * dst_stride + i, dst_stride);
    for (; j < cols; ++j)
      for (int k = 0; k < L; ++k) dst[j * dst_stride + i + k] = src[(i + k) * src_stride + j];
  }
  for (; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) dst[j * dst_stride + i] = src[i * src_stride + j];
}

}  // namespace
AITC_END
