// Helpers of generated element code: limits, index maps that depend on data, accumulation.
#pragma once
#include "aitc/generic/moments.h"
#include "aitc/math.h"
#include "aitc/platform.h"
#include "aitc/types.h"

AITC_BEGIN

template <class T> AITC_FN T inf_of() {
  if constexpr (is_same<T, double>) return bits_double(0x7ff0000000000000ull);
  else return T(bits_float(0x7f800000u));
}
template <class T> AITC_FN T nan_of() {
  if constexpr (is_same<T, double>) return bits_double(0x7ff8000000000000ull);
  else return T(bits_float(0x7fc00000u));
}
// The value below (not above) every other: what a maximum starts from.
template <class T> AITC_FN T lowest_of() {
  if constexpr (is_floating<T>) return -inf_of<T>();
  else if constexpr (T(-1) > T(0)) return T(0);
  else return T(T(1) << (sizeof(T) * 8 - 1));
}
template <> AITC_FN bool lowest_of<bool>() { return false; }

// The larger one, or NaN if either is.
template <class T> AITC_FN T max_nan(T a, T b) {
  if constexpr (is_floating<T>) return m_max(a, b);
  else return b > a ? b : a;
}

// Division that rounds to minus infinity, b > 0.
template <class A, class B> AITC_FN auto floor_div(A a, B b) -> decltype(a / b) { return a / b - (a % b < 0 ? 1 : 0); }
template <class A, class B> AITC_FN auto floor_mod(A a, B b) -> decltype(a % b) { return a % b < 0 ? a % b + b : a % b; }

// ---- index maps; `n` is the size of the axis --------------------------------------------------------------------------------
// ONNX's negative indices count from the end. What still lies outside is brought inside, so that a wrong index in the data
// reads a wrong element and never foreign memory.
template <class I, class N> AITC_FN N wrap_index(I i, N n) {
  const I j = i < 0 ? I(i + I(n)) : i;
  return j < 0 ? N(0) : j >= I(n) ? N(n - 1) : N(j);
}
template <class I, class N> AITC_FN I clamp_index(I i, N n) { return i < 0 ? I(0) : i >= I(n) ? I(n - 1) : i; }
template <class I, class N> AITC_FN I reflect_index(I i, N n) {
  if (n == 1) return 0;
  const I period = 2 * (I(n) - 1);
  I j = i % period;
  j = j < 0 ? j + period : j;
  return j < I(n) ? j : period - j;
}
template <class I, class N> AITC_FN I wrap_around_index(I i, N n) {
  const I j = i % I(n);
  return j < 0 ? j + I(n) : j;
}

// Rounds half to even and clamps to the integers of T.
template <class T> AITC_FN T round_saturate(float x) {
  const float r = round_(x);
  constexpr bool is_signed = T(-1) < T(0);
  const float low = is_signed ? -float(1ull << (sizeof(T) * 8 - 1)) : 0.0f;
  const float high = is_signed ? float((1ull << (sizeof(T) * 8 - 1)) - 1) : float(~0ull >> (64 - sizeof(T) * 8));
  return r <= low ? T(low) : r >= high ? T(is_signed ? (1ull << (sizeof(T) * 8 - 1)) - 1 : ~0ull >> (64 - sizeof(T) * 8)) : T(r);
}

AITC_END
