// Storage types, short vectors of them, and conversions. Used by every back end.
//
//   half_t bfloat16_t                             16-bit floats; storage only, arithmetic happens in compute_t
//   float8_e4m3_t float8_e5m2_t                   ONNX FLOAT8E4M3FN, FLOAT8E5M2
//   float8_e4m3fnuz_t float8_e5m2fnuz_t           ONNX FLOAT8E4M3FNUZ, FLOAT8E5M2FNUZ
//   float8_e8m0_t                                 ONNX FLOAT8E8M0: a power of two, or NaN
//   float4_e2m1_t                                 ONNX FLOAT4E2M1, one in a byte, in its low bits
//   bool int8_t .. uint64_t float double          as in C++; ONNX BOOL is `bool`, one byte that is 0 or 1
//
//   compute_t<T>                 float for the types above that are smaller than float, otherwise T
//   convert<To>(x)               any of them to any other. Rounds to nearest even (floats), truncates (float to integer),
//                                compares with 0 (to bool). To float8 it saturates; `convert<To, false>(x)` gives NaN or
//                                infinity instead, as ONNX Cast with saturate = 0 does.
//   Vec<T, V>                    V elements, indexable, aligned for one load
//   load<V>(const T* p)          Vec<T, V>; p aligned to min(V * sizeof(T), 16) bytes on GPUs, to sizeof(T) on cpus
//   store<V>(T* p, Vec<T, V>)
#pragma once
#include <stdint.h>

#include "aitc/platform.h"

AITC_BEGIN

struct half_t {
  uint16_t bits;
};
struct bfloat16_t {
  uint16_t bits;
};
struct float8_e4m3_t {
  uint8_t bits;
};
struct float8_e5m2_t {
  uint8_t bits;
};
struct float8_e4m3fnuz_t {
  uint8_t bits;
};
struct float8_e5m2fnuz_t {
  uint8_t bits;
};
struct float8_e8m0_t {
  uint8_t bits;
};
struct float4_e2m1_t {
  uint8_t bits;
};

template <typename A, typename B>
constexpr bool is_same = false;
template <typename A>
constexpr bool is_same<A, A> = true;

// Floating types that have no arithmetic of their own.
template <typename T>
constexpr bool is_small_float = is_same<T, half_t> || is_same<T, bfloat16_t> || is_same<T, float8_e4m3_t> ||
                                is_same<T, float8_e5m2_t> || is_same<T, float8_e4m3fnuz_t> ||
                                is_same<T, float8_e5m2fnuz_t> || is_same<T, float8_e8m0_t> || is_same<T, float4_e2m1_t>;
template <typename T>
constexpr bool is_floating = is_small_float<T> || is_same<T, float> || is_same<T, double>;

template <bool Condition, typename A, typename B>
struct select_type {
  using type = A;
};
template <typename A, typename B>
struct select_type<false, A, B> {
  using type = B;
};
template <bool Condition, typename A, typename B>
using select_t = typename select_type<Condition, A, B>::type;

template <typename T>
using compute_t = select_t<is_small_float<T>, float, T>;

// A float8 format: M bits of mantissa, the code of its largest finite number, and where NaN is.
template <typename T>
struct Float8 {};
template <>
struct Float8<float8_e4m3_t> {
  static constexpr int mantissa = 3, bias = 7, max_code = 0x7e, overflow_code = 0x7f, nan_code = 0x7f;
  static constexpr bool fnuz = false, infinity = false;
};
template <>
struct Float8<float8_e5m2_t> {
  static constexpr int mantissa = 2, bias = 15, max_code = 0x7b, overflow_code = 0x7c, nan_code = 0x7f;
  static constexpr bool fnuz = false, infinity = true;
};
template <>
struct Float8<float8_e4m3fnuz_t> {
  static constexpr int mantissa = 3, bias = 8, max_code = 0x7f, overflow_code = 0x80, nan_code = 0x80;
  static constexpr bool fnuz = true, infinity = false;
};
template <>
struct Float8<float8_e5m2fnuz_t> {
  static constexpr int mantissa = 2, bias = 16, max_code = 0x7f, overflow_code = 0x80, nan_code = 0x80;
  static constexpr bool fnuz = true, infinity = false;
};

template <typename F>
AITC_FN float float8_to_float(uint8_t bits) {
  const uint32_t sign = uint32_t(bits & 0x80) << 24, code = bits & 0x7f;
  const uint32_t normal = (code << (23 - F::mantissa)) + (uint32_t(127 - F::bias) << 23);
  // The smallest subnormal is 2^(1 - bias - mantissa).
  const float tiny = bits_float(uint32_t(127 + 1 - F::bias - F::mantissa) << 23);
  uint32_t magnitude = code < (1u << F::mantissa) ? float_bits(float(int(code)) * tiny) : normal;
  if (F::fnuz) return bits_float(bits == 0x80 ? 0x7fc00000u : sign | magnitude);
  if (F::infinity) {
    magnitude = code == uint32_t(F::overflow_code) ? 0x7f800000u : code > uint32_t(F::overflow_code) ? 0x7fc00000u : magnitude;
  } else {
    magnitude = code == uint32_t(F::nan_code) ? 0x7fc00000u : magnitude;
  }
  return bits_float(sign | magnitude);
}

template <typename F, bool saturate>
AITC_FN uint8_t float_to_float8(float x) {
  const uint32_t bits = float_bits(x), sign = (bits >> 24) & 0x80, magnitude = bits & 0x7fffffff;
  constexpr int shift = 23 - F::mantissa;
  const uint32_t rounded = magnitude + ((1u << (shift - 1)) - 1) + ((magnitude >> shift) & 1);
  const uint32_t normal = (rounded >> shift) - (uint32_t(127 - F::bias) << F::mantissa);
  // Adding a power of two whose unit in the last place is the smallest subnormal rounds to a multiple of it.
  const uint32_t magic = uint32_t(127 + 1 - F::bias - F::mantissa + 23) << 23;
  const uint32_t subnormal = float_bits(bits_float(magnitude) + bits_float(magic)) - magic;
  uint32_t code = magnitude < (uint32_t(127 + 1 - F::bias) << 23) ? subnormal : normal;
  const bool over = magnitude >= (uint32_t(127 + 1 - F::bias) << 23) && code > uint32_t(F::max_code);
  code = over ? (saturate ? uint32_t(F::max_code) : uint32_t(F::overflow_code)) : code;
  code = magnitude > 0x7f800000u ? uint32_t(F::nan_code) : code;
  if (F::fnuz) return uint8_t(code == 0 || code == 0x80 ? code : sign | code);  // no negative zero: 0x80 is NaN
  return uint8_t(sign | code);
}

// The exponent alone: code - 127, 255 is NaN. Rounds to the nearest power of two, halves up; signs are dropped.
AITC_FN float float8_e8m0_to_float(uint8_t code) {
  return bits_float(code == 255 ? 0x7fc00000u : code == 0 ? 0x00400000u : uint32_t(code) << 23);
}
enum class RoundE8M0 { up, down, nearest };
template <bool saturate>
AITC_FN uint8_t float_to_float8_e8m0(float x, RoundE8M0 round) {
  const uint32_t bits = float_bits(x) & 0x7fffffffu, exponent = bits >> 23, mantissa = bits & 0x7fffffu;
  // A subnormal of 2^-127 or less is code 0 already.
  const bool above = round == RoundE8M0::up ? mantissa > 0 : round == RoundE8M0::nearest && mantissa >= 0x400000u;
  const bool up = above && !(exponent == 0 && mantissa <= 0x400000u);
  const uint32_t code = exponent + (up ? 1u : 0u);
  if (bits > 0x7f800000u) return 255;
  return uint8_t(code < 255 ? code : saturate ? 254u : 255u);
}

// One sign, two exponent bits (bias 1), one mantissa bit: 0 0.5 1 1.5 2 3 4 6. Beyond 6 it saturates; NaN, which it lacks, becomes -0.
AITC_FN float float4_e2m1_to_float(uint8_t bits) {
  const uint32_t code = bits & 7, sign = uint32_t(bits & 8) << 28;
  const uint32_t magnitude = code < 2 ? float_bits(0.5f * float(int(code))) : (code << 22) + (126u << 23);
  return bits_float(sign | magnitude);
}
AITC_FN uint8_t float_to_float4_e2m1(float x) {
  const uint32_t sign = float_bits(x) >> 28 & 8u;
  const float a = bits_float(float_bits(x) & 0x7fffffffu);
  if (a != a) return 8;
  // Halfway points, each to the even neighbour.
  const uint32_t code = a <= 0.25f ? 0 : a < 0.75f ? 1 : a <= 1.25f ? 2 : a < 1.75f ? 3 : a <= 2.5f ? 4 : a < 3.5f ? 5 : a <= 5.0f ? 6 : 7;
  return uint8_t(sign | code);
}

// Rounds to float so that a second rounding to a shorter type gives the same as one rounding would ("round to odd").
AITC_FN float double_to_float_odd(double x) {
  const float nearest = float(x);
  const double back = double(nearest);
  if (back == x || x != x) return nearest;
  const uint32_t bits = float_bits(nearest);
  const double magnitude = x < 0 ? -x : x, back_magnitude = back < 0 ? -back : back;
  return bits_float((bits - (back_magnitude > magnitude ? 1u : 0u)) | 1u);
}

template <typename T>
AITC_FN float small_to_float(T x) {
  if constexpr (is_same<T, half_t>) return half_to_float(x.bits);
  else if constexpr (is_same<T, bfloat16_t>) return bfloat16_to_float(x.bits);
  else if constexpr (is_same<T, float8_e8m0_t>) return float8_e8m0_to_float(x.bits);
  else if constexpr (is_same<T, float4_e2m1_t>) return float4_e2m1_to_float(x.bits);
  else return float8_to_float<Float8<T>>(x.bits);
}

template <typename T, bool saturate>
AITC_FN T float_to_small(float x) {
  if constexpr (is_same<T, half_t>) return T{float_to_half(x)};
  else if constexpr (is_same<T, bfloat16_t>) return T{float_to_bfloat16(x)};
  else if constexpr (is_same<T, float8_e8m0_t>) return T{float_to_float8_e8m0<saturate>(x, RoundE8M0::nearest)};
  else if constexpr (is_same<T, float4_e2m1_t>) return T{float_to_float4_e2m1(x)};
  else return T{float_to_float8<Float8<T>, saturate>(x)};
}

template <typename To, bool saturate = true, typename From>
AITC_FN To convert(From x) {
  if constexpr (is_same<To, From>) return x;
  else if constexpr (is_small_float<From>) return convert<To, saturate>(small_to_float(x));
  else if constexpr (is_small_float<To>) {
    if constexpr (is_same<From, double>) return float_to_small<To, saturate>(double_to_float_odd(x));
    else return float_to_small<To, saturate>(float(x));
  } else if constexpr (is_same<To, bool>) return x != From(0);
  else return static_cast<To>(x);
}

constexpr int vector_align(int bytes, int element_bytes) {
  return bytes < AITC_VECTOR_ALIGN ? bytes : AITC_VECTOR_ALIGN > element_bytes ? AITC_VECTOR_ALIGN : element_bytes;
}

template <typename T, int V>
struct alignas(vector_align(int(sizeof(T)) * V, int(sizeof(T)))) Vec {
  static_assert(V > 0 && (V & (V - 1)) == 0, "a vector has a power of two of elements");
  using type = T;
  static constexpr int size = V;
  T data[V];
  AITC_FN T& operator[](int i) { return data[i]; }
  AITC_FN const T& operator[](int i) const { return data[i]; }
};

template <int V, typename T>
AITC_FN Vec<T, V> load(const T* p) {
  Vec<T, V> v;
#if AITC_VECTOR_ALIGN > 1
  copy_bytes<int(sizeof(v))>(&v, p);
  return v;
#else
  copy_elements<V>(v.data, p);  // any alignment
  return v;
#endif
}

template <int V, typename T>
AITC_FN void store(T* p, const Vec<T, V>& v) {
#if AITC_VECTOR_ALIGN > 1
  if constexpr (sizeof(T) < 4) store_bytes<int(sizeof(v))>(p, &v);
  else copy_bytes<int(sizeof(v))>(p, &v);
#else
  copy_elements<V>(p, v.data);
#endif
}

// All of a vector at once.
template <typename To, bool saturate = true, typename From, int V>
AITC_FN Vec<To, V> convert(const Vec<From, V>& x) {
  Vec<To, V> r;
  AITC_UNROLL
  for (int i = 0; i < V; ++i) r[i] = convert<To, saturate>(x[i]);
  return r;
}

template <int V, typename T>
AITC_FN Vec<T, V> broadcast(T x) {
  Vec<T, V> r;
  AITC_UNROLL
  for (int i = 0; i < V; ++i) r[i] = x;
  return r;
}

AITC_END
