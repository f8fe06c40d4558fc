// What a reduction computes, for every back end. An operation has
//
//   T first<T>()              the neutral element
//   T add(T sum, T x)         one more element
//   T merge(T a, T b)         two partial results
//   T finish(T sum, int64_t n)   the result of n elements
//
// T is float, double, int32_t or int64_t (the load functor's `type`). LogSumExp, ArgMax and ArgMin keep more than one number:
// kernels treat them apart (`has_maximum`, `has_index`). NaN in any element gives NaN, except in ArgMax and ArgMin, which skip it.
#pragma once
#include "aitc/platform.h"
#include "aitc/types.h"

AITC_BEGIN

template <typename T>
AITC_FN T lowest() {
  if constexpr (is_same<T, float>) return bits_float(0xff800000u);
  else if constexpr (is_same<T, double>) return bits_double(0xfff0000000000000u);
  else if constexpr (T(-1) > T(0)) return T(0);
  else return T(uint64_t(1) << (8 * sizeof(T) - 1));
}
template <typename T>
AITC_FN T highest() {
  if constexpr (is_same<T, float>) return bits_float(0x7f800000u);
  else if constexpr (is_same<T, double>) return bits_double(0x7ff0000000000000u);
  else if constexpr (T(-1) > T(0)) return T(-1);
  else return T((uint64_t(1) << (8 * sizeof(T) - 1)) - 1);
}

struct PlainReduction {
  static constexpr bool has_index = false, has_maximum = false;
};
struct Summation : PlainReduction {
  template <typename T>
  AITC_FN static T first() { return T(0); }
  template <typename T>
  AITC_FN static T add(T sum, T x) { return sum + x; }
  template <typename T>
  AITC_FN static T merge(T a, T b) { return a + b; }
  template <typename T>
  AITC_FN static T finish(T sum, int64_t) { return sum; }
};

struct Sum : Summation {};
struct Mean : Summation {
  template <typename T>
  AITC_FN static T finish(T sum, int64_t n) { return T(sum / T(n)); }
};
struct SumSquare : Summation {
  template <typename T>
  AITC_FN static T add(T sum, T x) { return sum + x * x; }
};
struct L1 : Summation {
  template <typename T>
  AITC_FN static T add(T sum, T x) { return sum + (x < T(0) ? -x : x); }
};
struct L2 : SumSquare {
  template <typename T>
  AITC_FN static T finish(T sum, int64_t) {
    if constexpr (is_floating<T>) return m_sqrt(sum);
    else return T(m_sqrt(double(sum)));
  }
};
struct LogSum : Summation {
  template <typename T>
  AITC_FN static T finish(T sum, int64_t) {
    if constexpr (is_floating<T>) return m_log(sum);
    else return T(m_log(double(sum)));
  }
};
struct Prod : PlainReduction {
  template <typename T>
  AITC_FN static T first() { return T(1); }
  template <typename T>
  AITC_FN static T add(T product, T x) { return product * x; }
  template <typename T>
  AITC_FN static T merge(T a, T b) { return a * b; }
  template <typename T>
  AITC_FN static T finish(T product, int64_t) { return product; }
};
struct Max : PlainReduction {
  template <typename T>
  AITC_FN static T first() { return lowest<T>(); }
  template <typename T>
  AITC_FN static T add(T a, T x) {
    if constexpr (is_floating<T>) return m_max(a, x);
    else return a > x ? a : x;
  }
  template <typename T>
  AITC_FN static T merge(T a, T b) { return add(a, b); }
  template <typename T>
  AITC_FN static T finish(T a, int64_t) { return a; }
};
struct Min : PlainReduction {
  template <typename T>
  AITC_FN static T first() { return highest<T>(); }
  template <typename T>
  AITC_FN static T add(T a, T x) {
    if constexpr (is_floating<T>) return m_min(a, x);
    else return a < x ? a : x;
  }
  template <typename T>
  AITC_FN static T merge(T a, T b) { return add(a, b); }
  template <typename T>
  AITC_FN static T finish(T a, int64_t) { return a; }
};
struct LogSumExp {  // log(sum(exp(x - max))) + max
  static constexpr bool has_index = false, has_maximum = true;
};
template <bool Last = false>  // select_last_index
struct ArgMax {
  static constexpr bool has_index = true, has_maximum = false, last = Last;
  template <typename T>
  AITC_FN static bool better(T x, T best) { return x > best; }
  template <typename T>
  AITC_FN static T first() { return lowest<T>(); }
};
template <bool Last = false>
struct ArgMin {
  static constexpr bool has_index = true, has_maximum = false, last = Last;
  template <typename T>
  AITC_FN static bool better(T x, T best) { return x < best; }
  template <typename T>
  AITC_FN static T first() { return highest<T>(); }
};

// What a row of an Attention is divided by: its sum of exponentials. A row that sees no key has the sum 0 and is not a number, or 0 where
// its Shape has `static constexpr bool zero_rows = true`. A sum that is not a number stays so.
template <class Shape, class = void> struct ZeroRows { static constexpr bool value = false; };
template <class Shape> struct ZeroRows<Shape, decltype(void(Shape::zero_rows))> { static constexpr bool value = Shape::zero_rows; };
template <class Shape, class T> AITC_FN T row_divisor(T total) { return ZeroRows<Shape>::value && total == T(0) ? T(1) : total; }

AITC_END
