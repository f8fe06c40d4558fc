// AMD's matrix instructions (gfx90a, gfx942) under the compiler's own names: __builtin_amdgcn_mfma_*. A wave executes
// each.
//
// M x M x K, `Blocks` independent products. A lane holds KV neighbours along k of a row of A and of a column of B:
//   A[i][k], B[k][j]: lane l has i (j) = l % M, k = l / M % (K / KV) * KV + v, block l / (M K / KV)
//   D[i][j]: with c = block * M / 4 + i / 4 and G = 64 / M: lane c % G * M + j, register c / G * 4 + i % 4
// The f64 forms differ: see Layout. Products are summed in float, k ascending; the hardware's order is not documented.
#pragma once
#include "elements.h"
#include "warp.h"

namespace emu AITC_EMULATOR_HIDDEN {
namespace mfma {

// MI200 flushes f16 and bf16 subnormals of operands and results.
inline float flushed(float x) {
  return kFlushesMatrixSubnormals && fabsf(x) < 1.1754943508e-38f ? copysignf(0.0f, x) : x;
}

struct F16 {
  static constexpr bool flushes = true;
  static float get(const void* p, int i) {
    uint16_t h;
    memcpy(&h, static_cast<const char*>(p) + 2 * i, 2);
    if (kFlushesMatrixSubnormals && !(h & 0x7c00)) h &= 0x8000;
    return half_value(h);
  }
};
struct BF16 {
  static constexpr bool flushes = true;
  static float get(const void* p, int i) {
    uint16_t h;
    memcpy(&h, static_cast<const char*>(p) + 2 * i, 2);
    return flushed(bfloat16_value(h));
  }
};
template <class T> struct Plain {
  static constexpr bool flushes = false;
  static T get(const void* p, int i) {
    T x;
    memcpy(&x, static_cast<const char*>(p) + sizeof(T) * size_t(i), sizeof(T));
    return x;
  }
};
struct XF32 {  // 10 bits of mantissa, rounded to nearest even
  static constexpr bool flushes = false;
  static float get(const void* p, int i) {
    uint32_t u = Plain<uint32_t>::get(p, i);
    if ((u & 0x7f800000) != 0x7f800000) u = (u + 0xfff + (u >> 13 & 1)) & ~0x1fffu;
    return float_of_bits(u);
  }
};
template <int E, int Bias> struct Float8 {  // the FNUZ formats of gfx942
  static constexpr bool flushes = false;
  static float get(const void* p, int i) { return float8_value<E, Bias, true>(Plain<uint8_t>::get(p, i)); }
};
using I8 = Plain<int8_t>;
using F32 = Plain<float>;
using F64 = Plain<double>;
using FP8 = Float8<4, 8>;
using BF8 = Float8<5, 16>;

struct Place {
  int lane, index;
};
template <int M, int K, int Blocks, int KV, class Acc> struct Layout {
  static constexpr bool f64 = std::is_same<Acc, double>::value;
  static constexpr int groups = 64 / M, along_k = K / KV;
  static_assert(M * along_k * Blocks == 64, "the operands fill the wave");
  static Place operand(int block, int row, int k) {
    if (f64 && M == 4) return {k * 16 + block * 4 + row, 0};
    return {(block * along_k + k / KV) * M + row, k % KV};
  }
  static Place result(int block, int i, int j) {
    if (f64 && M == 4) return {i * 16 + block * 4 + j, 0};
    if (f64) return {i % 4 * 16 + j, i / 4};
    const int c = block * (M / 4) + i / 4;
    return {c % groups * M + j, c / groups * 4 + i % 4};
  }
};

struct Registers {
  const void *a, *b;
  void* d;  // C on the way in
};
template <int M, int K, int Blocks, int KV, class A, class B, class Acc>
inline void resolve(uint64_t mask, void** args) {
  using L = Layout<M, K, Blocks, KV, Acc>;
  if (mask != ~uint64_t(0)) {
    const Lane& lane = running.worker->resolving->lanes[__builtin_ctzll(mask)];
    fail("a matrix instruction needs all 64 lanes", lane.site, &lane);
  }
  const auto of = [&](int lane) -> Registers& { return *static_cast<Registers*>(args[lane]); };
  for (int block = 0; block < Blocks; ++block) {
    Acc a[M][K], b[K][M];
    for (int i = 0; i < M; ++i)
      for (int k = 0; k < K; ++k) {
        const Place p = L::operand(block, i, k);
        a[i][k] = Acc(A::get(of(p.lane).a, p.index));
        b[k][i] = Acc(B::get(of(p.lane).b, p.index));
      }
    for (int i = 0; i < M; ++i) {
      Acc row[M];
      const auto place = [&](int j) -> Acc& {
        const Place p = L::result(block, i, j);
        return static_cast<Acc*>(of(p.lane).d)[p.index];
      };
      for (int j = 0; j < M; ++j) row[j] = place(j);
      for (int k = 0; k < K; ++k)
        for (int j = 0; j < M; ++j) row[j] += a[i][k] * b[k][j];
      for (int j = 0; j < M; ++j) place(j) = A::flushes ? Acc(flushed(float(row[j]))) : row[j];
    }
  }
}

typedef float f2 __attribute__((vector_size(8)));
typedef float f4 __attribute__((vector_size(16)));
typedef float f16 __attribute__((vector_size(64)));
typedef float f32 __attribute__((vector_size(128)));
typedef int i4 __attribute__((vector_size(16)));
typedef int i16 __attribute__((vector_size(64)));
typedef double d4 __attribute__((vector_size(32)));
typedef _Float16 h4 __attribute__((vector_size(8)));
typedef short s2 __attribute__((vector_size(4)));
typedef short s4 __attribute__((vector_size(8)));
using f1 = float;
using i1 = int;
using d1 = double;
using l1 = long;

}  // namespace mfma
}  // namespace emu

#define AITC_EMULATOR_MFMA(name, AB, CD, M, K, Blocks, KV, A, B, Acc)                                          \
  inline ::emu::mfma::CD __builtin_amdgcn_mfma_##name(::emu::mfma::AB a, ::emu::mfma::AB b, ::emu::mfma::CD c, \
                                                      int cbsz, int abid, int blgp,                            \
                                                      ::emu::Site site = ::emu::Site::here()) {                \
    if (cbsz | abid | blgp) ::emu::fail("cbsz, abid and blgp are not emulated", site.named("mfma_" #name));    \
    ::emu::mfma::CD d = c;                                                                                     \
    ::emu::mfma::Registers x{&a, &b, &d};                                                                      \
    ::emu::warp_collective(::emu::mfma::resolve<M, K, Blocks, KV, ::emu::mfma::A, ::emu::mfma::B, Acc>, &x,    \
                           "mfma_" #name, ::emu::kAllLanes, site);                                             \
    return d;                                                                                                  \
  }
// gfx90a and gfx942
AITC_EMULATOR_MFMA(f32_32x32x8f16, h4, f16, 32, 8, 1, 4, F16, F16, float)
AITC_EMULATOR_MFMA(f32_16x16x16f16, h4, f4, 16, 16, 1, 4, F16, F16, float)
AITC_EMULATOR_MFMA(f32_32x32x4f16, h4, f32, 32, 4, 2, 4, F16, F16, float)
AITC_EMULATOR_MFMA(f32_16x16x4f16, h4, f16, 16, 4, 4, 4, F16, F16, float)
AITC_EMULATOR_MFMA(f32_4x4x4f16, h4, f4, 4, 4, 16, 4, F16, F16, float)
AITC_EMULATOR_MFMA(f32_32x32x8bf16_1k, s4, f16, 32, 8, 1, 4, BF16, BF16, float)
AITC_EMULATOR_MFMA(f32_16x16x16bf16_1k, s4, f4, 16, 16, 1, 4, BF16, BF16, float)
AITC_EMULATOR_MFMA(f32_32x32x4bf16_1k, s4, f32, 32, 4, 2, 4, BF16, BF16, float)
AITC_EMULATOR_MFMA(f32_16x16x4bf16_1k, s4, f16, 16, 4, 4, 4, BF16, BF16, float)
AITC_EMULATOR_MFMA(f32_4x4x4bf16_1k, s4, f4, 4, 4, 16, 4, BF16, BF16, float)
AITC_EMULATOR_MFMA(f32_32x32x1f32, f1, f32, 32, 1, 2, 1, F32, F32, float)
AITC_EMULATOR_MFMA(f32_16x16x1f32, f1, f16, 16, 1, 4, 1, F32, F32, float)
AITC_EMULATOR_MFMA(f32_4x4x1f32, f1, f4, 4, 1, 16, 1, F32, F32, float)
AITC_EMULATOR_MFMA(f32_32x32x2f32, f1, f16, 32, 2, 1, 1, F32, F32, float)
AITC_EMULATOR_MFMA(f32_16x16x4f32, f1, f4, 16, 4, 1, 1, F32, F32, float)
AITC_EMULATOR_MFMA(f64_16x16x4f64, d1, d4, 16, 4, 1, 1, F64, F64, double)
AITC_EMULATOR_MFMA(f64_4x4x4f64, d1, d1, 4, 4, 4, 1, F64, F64, double)
#if AITC_EMULATOR_GFX == 0x90a
AITC_EMULATOR_MFMA(f32_32x32x4bf16, s2, f16, 32, 4, 1, 2, BF16, BF16, float)
AITC_EMULATOR_MFMA(f32_16x16x8bf16, s2, f4, 16, 8, 1, 2, BF16, BF16, float)
AITC_EMULATOR_MFMA(i32_32x32x8i8, i1, i16, 32, 8, 1, 4, I8, I8, int)
AITC_EMULATOR_MFMA(i32_16x16x16i8, i1, i4, 16, 16, 1, 4, I8, I8, int)
#else
AITC_EMULATOR_MFMA(i32_32x32x16_i8, l1, i16, 32, 16, 1, 8, I8, I8, int)
AITC_EMULATOR_MFMA(i32_16x16x32_i8, l1, i4, 16, 32, 1, 8, I8, I8, int)
AITC_EMULATOR_MFMA(f32_16x16x8_xf32, f2, f4, 16, 8, 1, 2, XF32, XF32, float)
AITC_EMULATOR_MFMA(f32_32x32x4_xf32, f2, f16, 32, 4, 1, 2, XF32, XF32, float)
AITC_EMULATOR_MFMA(f32_16x16x32_fp8_fp8, l1, f4, 16, 32, 1, 8, FP8, FP8, float)
AITC_EMULATOR_MFMA(f32_16x16x32_bf8_bf8, l1, f4, 16, 32, 1, 8, BF8, BF8, float)
AITC_EMULATOR_MFMA(f32_16x16x32_fp8_bf8, l1, f4, 16, 32, 1, 8, FP8, BF8, float)
AITC_EMULATOR_MFMA(f32_16x16x32_bf8_fp8, l1, f4, 16, 32, 1, 8, BF8, FP8, float)
AITC_EMULATOR_MFMA(f32_32x32x16_fp8_fp8, l1, f16, 32, 16, 1, 8, FP8, FP8, float)
AITC_EMULATOR_MFMA(f32_32x32x16_bf8_bf8, l1, f16, 32, 16, 1, 8, BF8, BF8, float)
AITC_EMULATOR_MFMA(f32_32x32x16_fp8_bf8, l1, f16, 32, 16, 1, 8, FP8, BF8, float)
AITC_EMULATOR_MFMA(f32_32x32x16_bf8_fp8, l1, f16, 32, 16, 1, 8, BF8, FP8, float)
#endif
#undef AITC_EMULATOR_MFMA
