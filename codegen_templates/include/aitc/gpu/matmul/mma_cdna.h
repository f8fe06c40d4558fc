// mma_cdna.h: the matrix instructions of gfx90a and gfx942 that the kernels use (emulated by
// tests/emulator/mma_cdna.h). A wave has 64 lanes.
//
//   Mfma<T, M>                 products of M x M, M = 32 or 16; T = half_t, bfloat16_t, float, and on gfx942
//                              float8_e4m3fnuz_t and float8_e5m2fnuz_t
//   Mfma<T, M>::Sum            the accumulators of a lane: M * M / 64 floats
//   Mfma<T, M>::step           64 / M * 16 / sizeof(T): the contraction that 16 bytes of each lane cover
//   Mfma<T, M>::run(d, a, b)   D(M,M) += A(M,step) B(step,M) in float, from 16 bytes a lane of each operand: with g =
//                              lane / M and E = 16 / sizeof(T), lane holds A[lane % M][g E .. g E + E) and B[g E ..
//                              g E + E)[lane % M]
//   Mfma<T, M>::run_half(d, a, b)  half the step, from 8 bytes a lane (16 bits only): A[lane % M][4 g .. 4 g + 4), B
//   likewise D: register r of lane l is row mfma_row<M>(l, r), column l % M
// float is exact float32 here, not TF32. gfx90a flushes subnormal half and bfloat16 operands to zero.
#pragma once
#include "aitc/types.h"

#if defined(AITC_EMULATOR)
#include <mma_cdna.h>  // tests/emulator/
#elif !defined(AITC_HIP)
#error "mma_cdna.h is for HIP (and the emulator)"
#endif

AITC_BEGIN

typedef float f32x16 __attribute__((vector_size(64)));
typedef float f32x4 __attribute__((vector_size(16)));
typedef _Float16 f16x4 __attribute__((vector_size(8)));
typedef short i16x4 __attribute__((vector_size(8)));

template <int M> AITC_FN int mfma_row(int lane, int r) { return r / 4 * (256 / M) + lane / M * 4 + r % 4; }

template <class T, int M> struct Mfma {
  static_assert(M == 32 || M == 16, "32x32 or 16x16");
  static constexpr int elements = 16 / int(sizeof(T)), step = 64 / M * elements, registers = M * M / 64;
  using Sum = select_t<M == 32, f32x16, f32x4>;
  struct alignas(16) Operand {
    char bytes[16];
  };
  struct alignas(8) HalfOperand {
    char bytes[8];
  };

  static AITC_FN Sum zeros() { return Sum{}; }

  static AITC_FN void run_half(Sum& d, const HalfOperand& a, const HalfOperand& b) {
    if constexpr (is_same<T, half_t>) {
      f16x4 x, y;
      __builtin_memcpy(&x, &a, 8);
      __builtin_memcpy(&y, &b, 8);
      if constexpr (M == 32) d = __builtin_amdgcn_mfma_f32_32x32x8f16(x, y, d, 0, 0, 0);
      else d = __builtin_amdgcn_mfma_f32_16x16x16f16(x, y, d, 0, 0, 0);
    } else if constexpr (is_same<T, bfloat16_t>) {
      i16x4 x, y;
      __builtin_memcpy(&x, &a, 8);
      __builtin_memcpy(&y, &b, 8);
      if constexpr (M == 32) d = __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(x, y, d, 0, 0, 0);
      else d = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(x, y, d, 0, 0, 0);
    } else {
      static_assert(is_same<T, float8_e4m3fnuz_t> || is_same<T, float8_e5m2fnuz_t>, "half, bfloat16, float or float8");
      long x, y;
      __builtin_memcpy(&x, &a, 8);
      __builtin_memcpy(&y, &b, 8);
      if constexpr (is_same<T, float8_e4m3fnuz_t>) {
        if constexpr (M == 32) d = __builtin_amdgcn_mfma_f32_32x32x16_fp8_fp8(x, y, d, 0, 0, 0);
        else d = __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(x, y, d, 0, 0, 0);
      } else {
        if constexpr (M == 32) d = __builtin_amdgcn_mfma_f32_32x32x16_bf8_bf8(x, y, d, 0, 0, 0);
        else d = __builtin_amdgcn_mfma_f32_16x16x32_bf8_bf8(x, y, d, 0, 0, 0);
      }
    }
  }
  static AITC_FN void run(Sum& d, const Operand& a, const Operand& b) {
    if constexpr (is_same<T, float>) {
      f32x4 x, y;
      __builtin_memcpy(&x, &a, 16);
      __builtin_memcpy(&y, &b, 16);
      AITC_UNROLL
      for (int e = 0; e < 4; ++e) {
        if constexpr (M == 32) d = __builtin_amdgcn_mfma_f32_32x32x2f32(x[e], y[e], d, 0, 0, 0);
        else d = __builtin_amdgcn_mfma_f32_16x16x4f32(x[e], y[e], d, 0, 0, 0);
      }
    } else {
      HalfOperand x[2], y[2];
      __builtin_memcpy(x, &a, 16);
      __builtin_memcpy(y, &b, 16);
      run_half(d, x[0], y[0]);
      run_half(d, x[1], y[1]);
    }
  }
};

AITC_END
