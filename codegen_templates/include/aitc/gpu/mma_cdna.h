// mma_cdna.h: the matrix instructions of gfx90a and gfx942 that the kernels use (emulated by
// tests/emulator/mma_cdna.h). A wave has 64 lanes.
//
//   f32x16                     16 accumulators of a lane
//   Mfma<T>::step              2 * 16 / sizeof(T): the contraction that 16 bytes of each lane cover: 16 for half_t and
//                              bfloat16_t, 8 for float
//   Mfma<T>::run(d, a, b)      D(32,32) += A(32,step) B(step,32) in float, from 16 bytes a lane of each operand: with g
//                              = lane / 32 and E = 16 / sizeof(T), lane holds A[lane % 32][g E .. g E + E) and B[g E ..
//                              g E + E)[lane % 32]
//   Mfma<T>::run_half(d, a, b) half the step, from 8 bytes a lane (16 bits only): A[lane % 32][4 g .. 4 g + 4), B
//   likewise D: register r of lane l is row 8 (r / 4) + 4 (l / 32) + r % 4, column l % 32
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

AITC_FN f32x16 zeros16() { return f32x16{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}; }

template <class T> struct Mfma {
  static_assert(is_same<T, half_t> || is_same<T, bfloat16_t> || is_same<T, float>, "half, bfloat16 or float");
  static constexpr int elements = 16 / int(sizeof(T)), step = 2 * elements;
  struct alignas(16) Operand {
    char bytes[16];
  };
  struct alignas(8) HalfOperand {
    char bytes[8];
  };

  static AITC_FN void run_half(f32x16& d, const HalfOperand& a, const HalfOperand& b) {
    static_assert(sizeof(T) == 2, "16 bits");
    if constexpr (is_same<T, half_t>) {
      f16x4 x, y;
      __builtin_memcpy(&x, &a, 8);
      __builtin_memcpy(&y, &b, 8);
      d = __builtin_amdgcn_mfma_f32_32x32x8f16(x, y, d, 0, 0, 0);
    } else {
      i16x4 x, y;
      __builtin_memcpy(&x, &a, 8);
      __builtin_memcpy(&y, &b, 8);
      d = __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(x, y, d, 0, 0, 0);
    }
  }
  static AITC_FN void run(f32x16& d, const Operand& a, const Operand& b) {
    if constexpr (sizeof(T) == 2) {
      HalfOperand x[2], y[2];
      __builtin_memcpy(x, &a, 16);
      __builtin_memcpy(y, &b, 16);
      run_half(d, x[0], y[0]);
      run_half(d, x[1], y[1]);
    } else {
      f32x4 x, y;
      __builtin_memcpy(&x, &a, 16);
      __builtin_memcpy(&y, &b, 16);
      AITC_UNROLL
      for (int e = 0; e < 4; ++e) d = __builtin_amdgcn_mfma_f32_32x32x2f32(x[e], y[e], d, 0, 0, 0);
    }
  }
};

AITC_END
