// The cpu back end: what `platform.h` asks for, plus vectors, threads and scratch memory for the headers in cpu/.
//
// A kernel file is compiled once per instruction set, by gcc >= 9 (or clang, whose code is slower), with the flags that the
// generated CMakeLists.txt sets: -DAITC_ISA=avx2, avx512, or native (vectors are then as wide as the compiler says). No
// -ffast-math: infinities, NaN and the sign of zero keep their meaning.
//
// Everything an instruction set compiles sits in its own inline namespace, and the algorithms besides in an unnamed one:
// two kernel files may both define `struct Store` and instantiate the same algorithm with it without ever sharing a symbol.
#pragma once
#include <stddef.h>
#include <stdint.h>

#if defined(__clang__)
#define AITC_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#define AITC_OPAQUE __attribute__((noinline))
#pragma clang diagnostic ignored "-Wpass-failed"   // a loop that may become vectors, but did not
#else
#define AITC_INDEPENDENT _Pragma("GCC ivdep")      // before a long loop of independent iterations
#define AITC_OPAQUE __attribute__((noipa))         // a function compiled for itself, whatever its callers know
// Loops for what is left over stay in the code where a size is known to leave nothing over; gcc warns of their impossible ends.
#pragma GCC diagnostic ignored "-Waggressive-loop-optimizations"
#endif

#define AITC_GPU 0
#define AITC_VECTOR_ALIGN 1

#ifndef AITC_ISA
#define AITC_ISA native
#endif
#define AITC_BEGIN \
  namespace aitc { \
  inline namespace AITC_ISA {
#define AITC_END \
  } \
  }

#define AITC_PASTE_(a, b) a##_##b
#define AITC_PASTE(a, b) AITC_PASTE_(a, b)
#define AITC_FN inline __attribute__((always_inline))
#define AITC_CONST_FN constexpr
#define AITC_KERNEL(threads) extern "C" __attribute__((visibility("hidden")))
#define AITC_ENTRY(name) AITC_PASTE(name, AITC_ISA)
#define AITC_UNROLL _Pragma("omp simd")          // iterations are independent: one vector instruction each, not V scalars
#define AITC_NO_UNROLL
#define AITC_UNROLL_ALL _Pragma("GCC unroll 64")  // register arrays of the micro-kernels: must disappear entirely
#define AITC_RESTRICT __restrict__

// Wider than the processor's own, they are split by the compiler: AVX-512's code can be tested where there is AVX2 alone.
#if defined(AITC_VECTOR_BYTES)
#elif defined(__AVX512F__)
#define AITC_VECTOR_BYTES 64
#elif defined(__AVX__)
#define AITC_VECTOR_BYTES 32
#else
#define AITC_VECTOR_BYTES 16
#endif

// ---- threads and memory, defined once per library by host/thread_pool.h -------------------------------------------------
namespace aitc {
// Calls body(context, begin, end) on disjoint ranges that cover [0, count), each of at least `grain` (but the last), on
// the pool's threads and the calling one; returns when all are done. Runs inline when count <= grain, when called from
// inside another parallel_for, or when the pool is busy with another caller's work.
void parallel_for_raw(int64_t count, int64_t grain, void (*body)(void*, int64_t, int64_t), void* context);
// Threads that parallel_for may use, the caller's included.
int num_threads();
// Memory of the calling thread: at least `bytes`, 64-byte aligned, valid until this thread asks for the same slot again.
// Slots: 0 and 1 belong to the caller of parallel_for (shared by its workers), 2 and 3 to the body.
void* scratch(int slot, size_t bytes);
}  // namespace aitc

AITC_BEGIN

template <typename Body>
inline void parallel_for(int64_t count, int64_t grain, const Body& body) {
  const auto call = [](void* context, int64_t begin, int64_t end) { (*static_cast<const Body*>(context))(begin, end); };
  parallel_for_raw(count, grain, call, const_cast<void*>(static_cast<const void*>(&body)));
}

template <typename A, typename B>
AITC_FN constexpr auto min_of(A a, B b) -> decltype(a + b) {
  return a < b ? a : b;
}
template <typename A, typename B>
AITC_FN constexpr auto max_of(A a, B b) -> decltype(a + b) {
  return a < b ? b : a;
}
AITC_FN constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
AITC_FN constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

// A register of N elements, and unaligned access to it.
template <typename T, int N>
struct Simd {
  typedef T type __attribute__((vector_size(N * sizeof(T))));
  typedef T unaligned __attribute__((vector_size(N * sizeof(T)), aligned(1), may_alias));
};
template <typename T, int N>
using simd_t = typename Simd<T, N>::type;
template <typename S, typename T>
AITC_FN S simd_load(const T* p) {
  S v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}
template <typename S, typename T>
AITC_FN void simd_store(T* p, S v) {
  __builtin_memcpy(p, &v, sizeof(v));
}

// What elements of a type are moved as.
template <int Bytes>
struct Carrier {
  using type = uint8_t;
};
template <>
struct Carrier<2> {
  using type = uint16_t;
};
template <>
struct Carrier<4> {
  using type = float;
};
template <>
struct Carrier<8> {
  using type = double;
};

// Copies V elements register by register. (As one memcpy, gcc moves 16 bytes at a time through memory, and the vector
// instructions behind it wait for that; as registers, they never reach memory at all.)
template <int V, typename T>
AITC_FN void copy_elements(T* to, const T* from) {
  using C = typename Carrier<int(sizeof(T))>::type;
  constexpr int lanes = AITC_VECTOR_BYTES / int(sizeof(C)), total = V * int(sizeof(T)) / int(sizeof(C));
  if constexpr (total == 1) {
    __builtin_memcpy(to, from, sizeof(T));
  } else {
    constexpr int N = total < lanes ? total : lanes;
    using S = typename Simd<C, N>::unaligned;
    AITC_UNROLL_ALL
    for (int i = 0; i < total / N; ++i) reinterpret_cast<S*>(to)[i] = reinterpret_cast<const S*>(from)[i];
  }
}

// merge(... merge(lanes[0], lanes[N / 2]) ...): all lanes as one, by halves. `lanes` is overwritten.
template <int N, typename T, typename Merge>
AITC_FN T fold_lanes(T* lanes, const Merge& merge) {
  if constexpr (N > 1) {
    AITC_UNROLL
    for (int i = 0; i < N / 2; ++i) lanes[i] = merge(lanes[i], lanes[i + N / 2]);
    return fold_lanes<N / 2>(lanes, merge);
  } else {
    return lanes[0];
  }
}

// ---- reinterpretation and 16-bit floats ---------------------------------------------------------------------------------
AITC_FN float bits_float(uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, sizeof(x));
  return x;
}
AITC_FN uint32_t float_bits(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  return bits;
}
AITC_FN double bits_double(uint64_t bits) {
  double x;
  __builtin_memcpy(&x, &bits, sizeof(x));
  return x;
}
AITC_FN uint64_t double_bits(double x) {
  uint64_t bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  return bits;
}

// Plain integer arithmetic without branches: a loop over these becomes vector code, which F16C's scalar form would not.
AITC_FN float half_to_float(uint16_t bits) {
  const uint32_t sign = uint32_t(bits & 0x8000u) << 16, magnitude = uint32_t(bits & 0x7fffu) << 13;
  const float scaled = bits_float(magnitude) * bits_float((127 + 112) << 23);  // exact, subnormals too
  const uint32_t result = magnitude >= (0x7c00u << 13) ? magnitude | 0x7f800000u : float_bits(scaled);
  return bits_float(sign | result);
}
AITC_FN uint16_t float_to_half(float x) {
  const uint32_t bits = float_bits(x), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  const uint32_t rounded = (magnitude + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const uint32_t normal = rounded - (112u << 10);
  const uint32_t magic = (127 - 14 + 13) << 23;  // its last place is 2^-24, the smallest half
  const uint32_t subnormal = float_bits(bits_float(magnitude) + bits_float(magic)) - magic;
  uint32_t code = magnitude < ((127 - 14) << 23) ? subnormal : normal;
  code = magnitude >= (143u << 23) || code > 0x7c00u ? 0x7c00u : code;
  code = magnitude > 0x7f800000u ? 0x7e00u : code;
  return uint16_t(sign | code);
}
AITC_FN float bfloat16_to_float(uint16_t bits) { return bits_float(uint32_t(bits) << 16); }
AITC_FN uint16_t float_to_bfloat16(float x) {
  const uint32_t bits = float_bits(x);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return uint16_t((bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16) | 0x40u : rounded);
}

// ---- the loop of a map kernel -------------------------------------------------------------------------------------------
template <int V, typename Body>
inline void for_each(int64_t count, const Body& body) {
  constexpr int64_t grain = 16384 / V;  // about 5 us of simple arithmetic
  const int64_t vectors = count / V;
  parallel_for(vectors, grain, [&](int64_t begin, int64_t end) {
    const Body local = body;  // a copy that no store can alias: its members stay in registers
    AITC_INDEPENDENT
    for (int64_t i = begin; i < end; ++i) local.template operator()<V>(i * V);
  });
  if constexpr (V > 1) {
    for (int64_t i = vectors * V; i < count; ++i) body.template operator()<1>(i);
  }
}

AITC_END

#include "aitc/cpu/elementary.h"
