// The elements of matrix operands as the matrix units read them: every format to float.
#pragma once
#include "report.h"
#include <math.h>
#include <stdint.h>
#include <string.h>

namespace emu AITC_EMULATOR_HIDDEN {

inline float float_of_bits(uint32_t u) {
  float f;
  memcpy(&f, &u, 4);
  return f;
}
inline uint32_t bits_of_float(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  return u;
}
#if defined(__F16C__)  // the compiler's own names: <immintrin.h> would cost each kernel half a second
typedef short HalfBits __attribute__((vector_size(16)));
#endif
inline float half_value(uint16_t h) {
#if defined(__F16C__)
  return __builtin_ia32_vcvtph2ps(HalfBits{short(h)})[0];
#else
  const uint32_t sign = uint32_t(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 1023;
  if (exponent == 31) return float_of_bits(sign | 0x7f800000 | mantissa << 13);
  if (exponent) return float_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
  return float_of_bits(sign | bits_of_float(float(mantissa) * 5.9604644775390625e-8f));
#endif
}
inline float bfloat16_value(uint16_t b) { return float_of_bits(uint32_t(b) << 16); }

// f16 or bf16, `count` (a multiple of 4) neighbours at once.
struct ReadHalf {
  static void run(const void* from, float* to, int count) {
    const uint16_t* p = static_cast<const uint16_t*>(from);
    int i = 0;
#if defined(__F16C__)
    for (; i + 8 <= count; i += 8) {
      HalfBits bits;
      memcpy(&bits, p + i, 16);
      const auto values = __builtin_ia32_vcvtph2ps256(bits);
      memcpy(to + i, &values, 32);
    }
    for (; i + 4 <= count; i += 4) {
      HalfBits bits = {};
      memcpy(&bits, p + i, 8);
      const auto values = __builtin_ia32_vcvtph2ps(bits);
      memcpy(to + i, &values, 16);
    }
#endif
    for (; i < count; ++i) to[i] = half_value(p[i]);
  }
};
struct ReadBfloat16 {
  static void run(const void* from, float* to, int count) {
    const uint16_t* p = static_cast<const uint16_t*>(from);
    for (int i = 0; i < count; ++i) to[i] = bfloat16_value(p[i]);
  }
};
// The matrix unit ignores the low 13 bits of a TF32 operand.
struct ReadTf32 {
  static void run(const void* from, float* to, int count) {
    for (int i = 0; i < count; ++i) {
      uint32_t u;
      memcpy(&u, static_cast<const char*>(from) + 4 * i, 4);
      to[i] = float_of_bits(u & ~0x1fffu);
    }
  }
};

// An 8-bit float of E exponent bits. `fnuz` (AMD): 0x80 is the only NaN, no infinities. Otherwise OCP: E4M3 has no
// infinity.
template <int E, int Bias, bool fnuz> inline float float8_value(uint8_t b) {
  constexpr int M = 7 - E;
  const int exponent = b >> M & ((1 << E) - 1), mantissa = b & ((1 << M) - 1);
  if (fnuz && b == 0x80) return NAN;
  if (!fnuz && E == 4 && (b & 0x7f) == 0x7f) return NAN;
  if (!fnuz && E == 5 && exponent == 31) return mantissa ? NAN : b & 0x80 ? -INFINITY : INFINITY;
  const float f =
      exponent ? ldexpf(float((1 << M) | mantissa), exponent - Bias - M) : ldexpf(float(mantissa), 1 - Bias - M);
  return b & 0x80 ? -f : f;
}

// OCP float8.
template <int E, int Bias> struct ReadFloat8 {
  static void run(const void* from, float* to, int count) {
    for (int i = 0; i < count; ++i) to[i] = float8_value<E, Bias, false>(static_cast<const uint8_t*>(from)[i]);
  }
};

}  // namespace emu
