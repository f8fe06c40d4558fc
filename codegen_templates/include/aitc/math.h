// The functions that pointwise expressions call, for every back end. Operands and results are in the compute type: float,
// double, an integer or bool; 16-bit and smaller floats have been widened to float. Elementary functions are the back end's
// (m_exp, m_log ...); what is here is made of them. Numeric parameters come as double literals and are rounded to T.
//
// NaN goes through everything (also min_, max_ and relu). Integers: a division by zero gives 0, everything else wraps.
#pragma once
#include <math.h>

#include "aitc/platform.h"
#include "aitc/types.h"

AITC_BEGIN

template <typename T>
constexpr bool is_real = is_same<T, float> || is_same<T, double>;

// ---- rounding, sign, comparison -------------------------------------------------------------------------------------------
AITC_FN float floor_(float x) { return ::floorf(x); }
AITC_FN double floor_(double x) { return ::floor(x); }
AITC_FN float ceil_(float x) { return ::ceilf(x); }
AITC_FN double ceil_(double x) { return ::ceil(x); }
AITC_FN float round_(float x) { return ::rintf(x); }  // halves to even
AITC_FN double round_(double x) { return ::rint(x); }
AITC_FN float trunc_(float x) { return ::truncf(x); }
AITC_FN double trunc_(double x) { return ::trunc(x); }

template <typename T>
AITC_FN T abs_(T x) {
  if constexpr (is_same<T, float>) return ::fabsf(x);
  else if constexpr (is_same<T, double>) return ::fabs(x);
  else return x < T(0) ? T(T(0) - x) : x;
}
template <typename T>
AITC_FN T sign_(T x) {
  if constexpr (is_real<T>) return x > T(0) ? T(1) : x < T(0) ? T(-1) : x;
  else return T((x > T(0)) - (x < T(0)));
}
template <typename T>
AITC_FN bool is_nan(T x) {
  return x != x;
}
template <typename T>
AITC_FN bool is_inf(T x, bool positive, bool negative) {
  return (positive && x == T(INFINITY)) || (negative && x == -T(INFINITY));
}
template <typename T>
AITC_FN T max_(T a, T b) {
  if constexpr (is_real<T>) return m_max(a, b);
  else return a > b ? a : b;
}
template <typename T>
AITC_FN T min_(T a, T b) {
  if constexpr (is_real<T>) return m_min(a, b);
  else return a < b ? a : b;
}

// ---- arithmetic -------------------------------------------------------------------------------------------------------------
template <typename T>
AITC_FN T reciprocal(T x) {
  return T(1) / x;
}
template <typename T>
AITC_FN T div_(T a, T b) {
  if constexpr (is_real<T>) {
    return a / b;
  } else {
    if (b == T(0)) return T(0);
    if (T(-1) < T(0) && b == T(-1)) return T(T(0) - a);  // the smallest integer by -1 would trap
    return T(a / b);
  }
}
template <typename T>
AITC_FN T fmod_(T a, T b) {  // the sign of a
  if constexpr (is_same<T, float>) return ::fmodf(a, b);
  else if constexpr (is_same<T, double>) return ::fmod(a, b);
  else return b == T(0) || (T(-1) < T(0) && b == T(-1)) ? T(0) : T(a % b);
}
template <typename T>
AITC_FN T mod_(T a, T b) {  // the sign of b
  const T r = fmod_(a, b);
  return r != T(0) && (r < T(0)) != (b < T(0)) ? T(r + b) : r;
}
// Shifts by the width or more, which negative numbers count as, leave nothing but the sign (to the right).
template <typename T>
AITC_FN T shift_left(T a, T b) {
  return b >= T(0) && b < T(sizeof(T) * 8) ? T(a << b) : T(0);
}
template <typename T>
AITC_FN T shift_right(T a, T b) {
  return b >= T(0) && b < T(sizeof(T) * 8) ? T(a >> b) : a < T(0) ? T(-1) : T(0);
}

// ---- elementary functions -------------------------------------------------------------------------------------------------
AITC_FN float sqrt_(float x) { return m_sqrt(x); }
AITC_FN double sqrt_(double x) { return m_sqrt(x); }
AITC_FN float rsqrt_(float x) { return m_rsqrt(x); }
AITC_FN double rsqrt_(double x) { return m_rsqrt(x); }
AITC_FN float exp_(float x) { return m_exp(x); }
AITC_FN double exp_(double x) { return m_exp(x); }
AITC_FN float log_(float x) { return m_log(x); }
AITC_FN double log_(double x) { return m_log(x); }
AITC_FN float sin_(float x) { return m_sin(x); }
AITC_FN double sin_(double x) { return m_sin(x); }
AITC_FN float cos_(float x) { return m_cos(x); }
AITC_FN double cos_(double x) { return m_cos(x); }
AITC_FN float tanh_(float x) { return m_tanh(x); }
AITC_FN double tanh_(double x) { return m_tanh(x); }
AITC_FN float erf_(float x) { return m_erf(x); }
AITC_FN double erf_(double x) { return m_erf(x); }
AITC_FN float tan_(float x) { return ::tanf(x); }
AITC_FN double tan_(double x) { return ::tan(x); }
AITC_FN float asin_(float x) { return ::asinf(x); }
AITC_FN double asin_(double x) { return ::asin(x); }
AITC_FN float acos_(float x) { return ::acosf(x); }
AITC_FN double acos_(double x) { return ::acos(x); }
AITC_FN float atan_(float x) { return ::atanf(x); }
AITC_FN double atan_(double x) { return ::atan(x); }
AITC_FN float sinh_(float x) { return ::sinhf(x); }
AITC_FN double sinh_(double x) { return ::sinh(x); }
AITC_FN float cosh_(float x) { return ::coshf(x); }
AITC_FN double cosh_(double x) { return ::cosh(x); }
AITC_FN float asinh_(float x) { return ::asinhf(x); }
AITC_FN double asinh_(double x) { return ::asinh(x); }
AITC_FN float acosh_(float x) { return ::acoshf(x); }
AITC_FN double acosh_(double x) { return ::acosh(x); }
AITC_FN float atanh_(float x) { return ::atanhf(x); }
AITC_FN double atanh_(double x) { return ::atanh(x); }

template <typename T>
AITC_FN T pow_(T x, T y) {
  if constexpr (is_real<T>) {
    return m_pow(x, y);
  } else {
    if (y < T(0)) return x == T(1) ? T(1) : T(-1) < T(0) && x == T(-1) ? ((y & T(1)) ? T(-1) : T(1)) : T(0);
    uint64_t result = 1, base = uint64_t(x);
    for (uint64_t n = uint64_t(y); n != 0; n >>= 1, base *= base) {
      if (n & 1) result *= base;
    }
    return T(result);
  }
}
// e^x - 1 without cancellation near 0.
template <typename T>
AITC_FN T expm1_(T x) {
  const T far = exp_(x) - T(1), near_zero = tanh_(x * T(0.5)) * (exp_(x) + T(1));
  return abs_(x) < T(0.5) ? near_zero : far;
}
// log(1 + x) for x in [0, 1].
template <typename T>
AITC_FN T log1p_unit(T x) {
  const T u = T(1) + x;
  return u == T(1) ? x : log_(u) * (x / (u - T(1)));
}

// ---- activations ------------------------------------------------------------------------------------------------------------
template <typename T>
AITC_FN T relu(T x) {
  return x < T(0) ? T(0) : x;
}
template <typename T>
AITC_FN T leaky_relu(T x, double alpha) {
  return x < T(0) ? T(alpha) * x : x;
}
template <typename T>
AITC_FN T prelu(T x, T slope) {
  return x < T(0) ? T(slope * x) : x;
}
template <typename T>
AITC_FN T thresholded_relu(T x, double alpha) {
  return x > T(alpha) ? x : T(0);
}
template <typename T>
AITC_FN T elu(T x, double alpha) {
  return x < T(0) ? T(alpha) * expm1_(x) : x;
}
template <typename T>
AITC_FN T celu(T x, double alpha) {
  return x < T(0) ? T(alpha) * expm1_(x / T(alpha)) : x;
}
template <typename T>
AITC_FN T selu(T x, double alpha, double gamma) {
  return T(gamma) * (x <= T(0) ? T(alpha) * expm1_(x) : x);
}
template <typename T>
AITC_FN T shrink(T x, double bias, double lambd) {
  return double(x) < -lambd ? T(x + T(bias)) : double(x) > lambd ? T(x - T(bias)) : T(0);
}
template <typename T>
AITC_FN T sigmoid(T x) {
  return T(1) / (T(1) + exp_(-x));
}
template <typename T>
AITC_FN T silu(T x) {
  return x / (T(1) + exp_(-x));
}
#if defined(AITC_FAST_MATH) && defined(AITC_CUDA)  // two operations of the special function unit in place of a division
AITC_FN float sigmoid(float x) { return m_rcp(1.0f + m_exp(-x)); }
AITC_FN float silu(float x) { return x * sigmoid(x); }
#endif
template <typename T>
AITC_FN T hard_sigmoid(T x, double alpha, double beta) {
  return max_(min_(T(alpha) * x + T(beta), T(1)), T(0));
}
template <typename T>
AITC_FN T hard_swish(T x) {
  return x * hard_sigmoid(x, 1.0 / 6, 0.5);
}
template <typename T>
AITC_FN T softplus(T x) {
  return (x > T(0) ? x : T(0)) + (x != x ? x : log1p_unit(exp_(-abs_(x))));
}
template <typename T>
AITC_FN T softsign(T x) {
  return x / (T(1) + abs_(x));
}
template <typename T>
AITC_FN T mish(T x) {
  return x * tanh_(softplus(x));
}
template <typename T>
AITC_FN T gelu(T x) {
  return T(0.5) * x * (T(1) + erf_(x * T(0.70710678118654752440)));
}
template <typename T>
AITC_FN T gelu_tanh(T x) {
  return T(0.5) * x * (T(1) + tanh_(T(0.79788456080286535588) * (x + T(0.044715) * x * x * x)));
}

// ---- conversions ------------------------------------------------------------------------------------------------------------
// To integers of 4 or 2 bits, kept in a byte: the low bits of the truncated value.
template <typename T>
AITC_FN int32_t low_bits(T x) {
  if constexpr (is_real<T>) return int32_t(int64_t(x));
  else return int32_t(x);
}
template <typename T>
AITC_FN uint8_t cast_u4(T x) {
  return uint8_t(low_bits(x) & 15);
}
template <typename T>
AITC_FN int8_t cast_i4(T x) {
  return int8_t(((low_bits(x) & 15) ^ 8) - 8);
}
template <typename T>
AITC_FN uint8_t cast_u2(T x) {
  return uint8_t(low_bits(x) & 3);
}
template <typename T>
AITC_FN int8_t cast_i2(T x) {
  return int8_t(((low_bits(x) & 3) ^ 2) - 2);
}

// A power of two, as FLOAT8E8M0 would hold it.
template <bool saturate>
AITC_FN float cast_f8e8m0(float x, RoundE8M0 round) {
  return float8_e8m0_to_float(float_to_float8_e8m0<saturate>(x, round));
}

// saturate(round(x / scale) + zero), between the integers low and high of the type To.
template <typename To, typename X, typename S, typename Z>
AITC_FN To quantize(X x, S scale, Z zero, int64_t low, int64_t high) {
  const float y = round_(float(x) / float(scale)) + float(zero);
  return y != y ? To(0) : y <= float(low) ? To(low) : y >= float(high) ? To(high) : To(y);
}
// (x - zero) * scale, with the difference of integers exact.
template <typename X, typename S>
AITC_FN float dequantize(X x, S scale, X zero) {
  if constexpr (is_real<X>) return (float(x) - float(zero)) * float(scale);
  else if constexpr (sizeof(X) < 4) return float(int32_t(x) - int32_t(zero)) * float(scale);
  else return float(int64_t(x) - int64_t(zero)) * float(scale);
}

// The same bits as another type of the same size. From and To are storage types: a small float arrives as float.
template <typename From, typename To, typename X>
AITC_FN compute_t<To> bit_cast_(X x) {
  const From from = convert<From>(x);
  To to;
  static_assert(sizeof(From) == sizeof(To), "a bit cast keeps the size");
  __builtin_memcpy(&to, &from, sizeof(to));
  return convert<compute_t<To>>(to);
}

AITC_END
