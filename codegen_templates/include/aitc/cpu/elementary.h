// Elementary functions on float without branches or tables, so that gcc turns a loop over them into vector code.
// Largest errors, measured over all of float's range against float64 (tests/kernels/test_cpu_headers.py holds them):
//
//   m_exp m_exp2 2 ulp    m_log 1 ulp    m_tanh 2 ulp    m_erf 2 ulp    m_pow 1 ulp    m_sin m_cos 2 ulp for |x| < 1e15 (1e6 without FMA)
//   m_rsqrt 2 ulp  m_sqrt correctly rounded. Infinities, NaN, subnormals and signed zeros as in C.
//
// The overloads on double call libm.
#pragma once
#include "aitc/cpu/cpu.h"

AITC_BEGIN

AITC_FN float fused(float a, float b, float c) { return a * b + c; }  // -ffp-contract=fast makes it one instruction

AITC_FN float copy_sign(float magnitude, float sign) {
  return bits_float((float_bits(magnitude) & 0x7fffffffu) | (float_bits(sign) & 0x80000000u));
}

// NaN if either is NaN, as ONNX's Max, Min and Relu want it.
AITC_FN float m_max(float a, float b) { return ((a > b) | (a != a)) ? a : b; }
AITC_FN float m_min(float a, float b) { return ((a < b) | (a != a)) ? a : b; }
AITC_FN double m_max(double a, double b) { return ((a > b) | (a != a)) ? a : b; }
AITC_FN double m_min(double a, double b) { return ((a < b) | (a != a)) ? a : b; }
AITC_FN float m_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
AITC_FN float m_rcp(float x) { return 1.0f / x; }

AITC_FN float m_sqrt(float x) { return __builtin_sqrtf(x); }
AITC_FN float m_rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }

AITC_FN float m_exp(float x) {
  // e^x = 2^n e^r with |r| <= ln(2) / 2. Clamped where the result is 0 or infinite anyway; NaN passes both comparisons.
  float c = x > 89.0f ? 89.0f : x;
  c = c < -104.0f ? -104.0f : c;
  const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, kept in the low bits
  const float shifted = c * 1.44269504f + magic;
  const float n = shifted - magic;
  float r = fused(n, -0.693145752f, c);
  r = fused(n, -1.42860677e-6f, r);
  float p = 0.00139504764f;
  p = fused(p, r, 0.00836888235f);
  p = fused(p, r, 0.041666206f);
  p = fused(p, r, 0.166665182f);
  p = fused(p, r, 0.5f);
  p = fused(p * r, r, r) + 1.0f;
  const int32_t exponent = int32_t(float_bits(shifted) - float_bits(magic));
  const int32_t half = exponent >> 1;  // in two factors: 2^n alone leaves float's range at both ends
  return p * bits_float(uint32_t(127 + half) << 23) * bits_float(uint32_t(127 + exponent - half) << 23);
}

// e^x for x <= 0, at two thirds of the price: what would be subnormal becomes 0. For softmax, where 1 is the largest term.
AITC_FN float exp_not_positive(float x) {
  const float magic = 12582912.0f;
  const float shifted = x * 1.44269504f + magic;
  const float n = shifted - magic;
  float r = fused(n, -0.693145752f, x);
  r = fused(n, -1.42860677e-6f, r);
  float p = 0.00139504764f;
  p = fused(p, r, 0.00836888235f);
  p = fused(p, r, 0.041666206f);
  p = fused(p, r, 0.166665182f);
  p = fused(p, r, 0.5f);
  p = fused(p * r, r, r) + 1.0f;
  p *= bits_float((float_bits(shifted) - float_bits(magic) + 127u) << 23);
  return x < -87.3365402f ? 0.0f : p;
}
AITC_FN double exp_not_positive(double x) { return __builtin_exp(x); }

AITC_FN float m_exp2(float x) {
  float c = x > 129.0f ? 129.0f : x;
  c = c < -151.0f ? -151.0f : c;
  const float magic = 12582912.0f;
  const float shifted = c + magic;
  const float r = (c - (shifted - magic)) * 0.693147181f;
  float p = 0.00139504764f;
  p = fused(p, r, 0.00836888235f);
  p = fused(p, r, 0.041666206f);
  p = fused(p, r, 0.166665182f);
  p = fused(p, r, 0.5f);
  p = fused(p * r, r, r) + 1.0f;
  const int32_t exponent = int32_t(float_bits(shifted) - float_bits(magic));
  const int32_t half = exponent >> 1;
  return p * bits_float(uint32_t(127 + half) << 23) * bits_float(uint32_t(127 + exponent - half) << 23);
}

AITC_FN float m_log(float x) {
  const bool tiny = x < 1.17549435e-38f;
  const float scaled = tiny ? x * 8388608.0f : x;
  const int32_t bits = int32_t(float_bits(scaled) - 0x3f3504f3u);  // exponent such that the mantissa is in [sqrt(1/2), sqrt(2))
  const int32_t exponent = bits >> 23;
  const float f = bits_float(float_bits(scaled) - (uint32_t(exponent) << 23)) - 1.0f;
  const float e = float(exponent) - (tiny ? 23.0f : 0.0f);
  float p = 0.0674660131f;
  p = fused(p, f, -0.116756409f);
  p = fused(p, f, 0.118881747f);
  p = fused(p, f, -0.124055915f);
  p = fused(p, f, 0.142195508f);
  p = fused(p, f, -0.166679963f);
  p = fused(p, f, 0.200021192f);
  p = fused(p, f, -0.250000089f);
  p = fused(p, f, 0.333333135f);
  const float square = f * f;
  float r = fused(e, 1.42860677e-6f, p * square * f);
  r = fused(-0.5f, square, r);
  r = fused(e, 0.693145752f, f + r);
  r = x > 3.40282347e38f ? x : r;  // infinity
  r = x < 0.0f ? bits_float(0x7fc00000u) : r;
  r = x == 0.0f ? -bits_float(0x7f800000u) : r;
  return x != x ? x : r;
}

AITC_FN float m_tanh(float x) {
  const float a = __builtin_fabsf(x), z = x * x;
  float p = -0.00571703678f;
  p = fused(p, z, 0.0206505787f);
  p = fused(p, z, -0.0537434965f);
  p = fused(p, z, 0.133314908f);
  p = fused(p, z, -0.333332837f);
  const float near_zero = fused(p * z, x, x);
  const float rest = copy_sign(1.0f - 2.0f / (m_exp(2.0f * a) + 1.0f), x);
  return a < 0.625f ? near_zero : rest;
}

AITC_FN float m_erf(float x) {
  const float a = __builtin_fabsf(x), z = x * x;
  float p = 7.8891193e-05f;
  p = fused(p, z, -0.000802084105f);
  p = fused(p, z, 0.00518953521f);
  p = fused(p, z, -0.0268544443f);
  p = fused(p, z, 0.112836003f);
  p = fused(p, z, -0.37612626f);
  p = fused(p, z, 0.128379166f);
  const float near_zero = fused(p, x, x);
  const float t = a > 4.0f ? 4.0f : a;  // erf(4) rounds to 1; q is log(erfc(t))
  float q = -2.16868139e-05f;
  q = fused(q, t, 0.000441335898f);
  q = fused(q, t, -0.00420455914f);
  q = fused(q, t, 0.0252082478f);
  q = fused(q, t, -0.108418562f);
  q = fused(q, t, -0.633219898f);
  q = fused(q, t, -1.12957847f);
  q = fused(q, t, 0.000188038175f);
  const float rest = copy_sign(1.0f - m_exp(q), x);
  return a > 1.0f ? rest : near_zero;  // NaN takes the second
}

// log2(x) for finite x > 0 and 2^x for |x| < 1022, to 1e-10: enough for powers that are then rounded to float.
AITC_FN double log2_double(double x) {
  const int64_t bits = int64_t(double_bits(x) - 0x3fe6a09e667f3bcdu);
  const int64_t exponent = bits >> 52;
  const double m = bits_double(double_bits(x) - (uint64_t(exponent) << 52));
  const double s = (m - 1.0) / (m + 1.0), z = s * s;
  double p = 0.28291172343290255;
  p = p * z + 0.3199048687939694;
  p = p * z + 0.41220927312980621;
  p = p * z + 0.57707794215259489;
  p = p * z + 0.96179669411410373;
  p = p * z + 2.8853900817779268;
  // int64 to double without the instruction that only AVX-512 has
  const double e = bits_double(uint64_t(exponent) + double_bits(6755399441055744.0)) - 6755399441055744.0;
  return p * s + e;
}
AITC_FN double exp2_double(double x) {
  const double magic = 6755399441055744.0;  // 1.5 * 2^52
  const double shifted = x + magic;
  const double r = x - (shifted - magic);
  double p = 1.5316457289329887e-05;
  p = p * r + 0.00015469731688993844;
  p = p * r + 0.0013333422664426047;
  p = p * r + 0.0096180256040256686;
  p = p * r + 0.055504109760858678;
  p = p * r + 0.24022651213585292;
  p = p * r + 0.6931471805350351;
  p = p * r + 0.99999999995954914;
  return p * bits_double((double_bits(shifted) - double_bits(magic) + 1023) << 52);
}

AITC_FN float m_pow(float x, float y) {
  const float a = __builtin_fabsf(x), infinity = bits_float(0x7f800000u);
  const float truncated = __builtin_truncf(y), half = y * 0.5f;
  const bool integer = truncated == y, odd = integer && __builtin_truncf(half) != half;
  double t = double(y) * log2_double(double(a));
  t = t > 200.0 ? 200.0 : t < -200.0 ? -200.0 : t;
  float r = float(exp2_double(t));
  const bool y_infinite = __builtin_fabsf(y) == infinity;
  r = y_infinite ? (a == 1.0f ? 1.0f : (a > 1.0f) == (y > 0.0f) ? infinity : 0.0f) : r;
  r = a == 0.0f || a == infinity ? ((a == 0.0f) == (y < 0.0f) ? infinity : 0.0f) : r;
  r = x < 0.0f && !integer && a != infinity ? bits_float(0x7fc00000u) : r;
  r = odd ? copy_sign(r, x) : r;
  r = x != x || y != y ? x + y : r;
  return x == 1.0f || y == 0.0f ? 1.0f : r;
}

// sin and cos of the reduced argument; `quadrant` is added to the multiple of pi / 2 that was taken off.
AITC_FN float sin_quadrant(float x, uint32_t quadrant) {
  const double magic = 6755399441055744.0;
  const double shifted = double(x) * 0.63661977236758138 + magic;
  const double n = shifted - magic;
  double reduced = double(x) - n * 1.5707963267948966;
  reduced = reduced - n * 6.123233995736766e-17;
  const float r = float(reduced), z = r * r;
  const uint32_t k = uint32_t(double_bits(shifted)) + quadrant;
  float s = 2.71831163e-06f;
  s = fused(s, z, -0.000198393347f);
  s = fused(s, z, 0.00833332911f);
  s = fused(s, z, -0.166666672f);
  s = fused(s * z, r, r);
  float c = 2.47995195e-05f;
  c = fused(c, z, -0.00138888834f);
  c = fused(c, z, 0.0416666679f);
  c = fused(c, z, -0.5f);
  c = fused(c, z, 1.0f);
  const float value = (k & 1u) ? c : s;
  return bits_float(float_bits(value) ^ ((k & 2u) << 30));
}
AITC_FN float m_sin(float x) { return sin_quadrant(x, 0); }
AITC_FN float m_cos(float x) { return sin_quadrant(x, 1); }

AITC_FN double m_sqrt(double x) { return __builtin_sqrt(x); }
AITC_FN double m_rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
AITC_FN double m_exp(double x) { return __builtin_exp(x); }
AITC_FN double m_log(double x) { return __builtin_log(x); }
AITC_FN double m_tanh(double x) { return __builtin_tanh(x); }
AITC_FN double m_erf(double x) { return __builtin_erf(x); }
AITC_FN double m_pow(double x, double y) { return __builtin_pow(x, y); }
AITC_FN double m_sin(double x) { return __builtin_sin(x); }
AITC_FN double m_cos(double x) { return __builtin_cos(x); }

AITC_END
