// gpu.h: the one file that tells CUDA from HIP from the emulator. Everything else under gpu/ is written in these words.
//
// Which back end: __CUDACC__ (nvcc) -> CUDA; AITC_EMULATOR -> tests/emulator/emulator.h (plain C++17 on the CPU);
// __HIP__ / __HIPCC__ -> HIP. Every word exists on all three.
//
//   AITC_FN                    prefix of an inline device function, member functions included
//   AITC_CONST_FN              prefix of a function that also constant expressions call
//   AITC_KERNEL(threads[, blocks])      prefix of an entry point: AITC_KERNEL(128) void AITC_ENTRY(name)(...) {...};
//                              `threads` is an upper bound, `blocks` what a multiprocessor shall hold
//   AITC_ENTRY(name)           the entry point's symbol: name itself on a GPU
//   AITC_UNROLL AITC_UNROLL_4 AITC_NO_UNROLL      before a loop
//   AITC_GRID_CONSTANT         const __grid_constant__ on CUDA
//   AITC_GPU = 1, AITC_VECTOR_ALIGN = 16          (see platform.h)
//
//   warp_size                  32 or 64, a constant
//   threadIdx blockIdx blockDim gridDim           as in CUDA; blocks are one-dimensional
//   thread_index() lane_index() warp_index()      int, within the block / warp / block
//   block_barrier()            every thread of the block; orders shared memory
//   warp_barrier()             every thread of the warp; orders shared memory between its lanes
//   shuffle(v, lane) shuffle_xor(v, mask)         values of 4 or 8 bytes; the whole warp takes part
//   ballot(p)                  uint64_t, bit l = p of lane l
//   warp_reduce<width>(v, op)  butterfly over groups of `width` lanes (default: the warp), the result in every lane
//   block_reduce<threads>(v, op, scratch)         over the block, the result in every thread
//
//   shared_memory()            char*: the dynamic shared memory of the launch, aligned to 1024 bytes on CUDA, 16 on
//                              HIP. There is no other: static __shared__ arrays are not used, so that smem_bytes of a
//                              kernel is the whole truth and the emulator can check it
//   copy_bytes<n>(to, from)    one load and one store of n bytes, n = 1, 2, 4, 8 or a multiple of 16 (then several);
//                              both pointers aligned to min(n, 16)
//   store_bytes<n>(to, from)   the same, `to` in global memory
//   atomic_add atomic_max atomic_min atomic_cas   on global or shared memory; int, unsigned, int64_t, uint64_t, and
//                              float and double for atomic_add; the old value
//   memory_fence()             device-wide, for arrival counters
//
//   bits_float float_bits bits_double double_bits reinterpretation, uint32_t / uint64_t
//   half_to_float float_to_half bfloat16_to_float float_to_bfloat16      on raw bits (uint16_t), to nearest even
//   floats_to_half2 floats_to_bfloat162           two floats -> uint32_t, the first in the low half
//   m_exp m_log m_tanh m_erf m_pow m_sin m_cos m_rsqrt m_sqrt            on float and double; m_exp2 m_fma m_rcp on
//                              float. 1 to 2 ulp. With AITC_FAST_MATH defined before the first include (for files
//                              all of whose outputs have 16 bits or fewer) exp, log, tanh and erf on float use the
//                              special function unit: absolute error <= 5e-4
//   m_max m_min                NaN if either is (ONNX Max, Relu)
//
//   grid_dependency_wait()     programmatic dependent launch (sm_90 and newer, else nothing): each kernel calls the
//   grid_dependency_launch()   first before it reads what another kernel wrote, and the second when what follows it may
//                              start. Without the launch attribute both do nothing
//   for_each<V>(count, body)   body.template operator()<V>(int64_t i) for i = 0, V, 2V .. while a whole V fits into
//                              count, operator()<1>(i) for the rest; grid-stride, any grid (best: one thread for V)
//
// What tests/emulator/emulator.h provides: AITC_WARP_SIZE (32 or 64), threadIdx blockIdx blockDim gridDim, and in
// namespace emu: block_barrier(), shared_memory(), memory_fence(), atomic_add, atomic_max, atomic_min(T*, T),
// atomic_cas(T*, T, T), and warp_collective(resolve, args, what): parks `args`; when all live lanes of the warp
// have met there, it runs resolve(mask, args of all lanes) once and lets them go on. Shuffles, ballots and barriers are
// built on it here.
#pragma once
#include <stdint.h>

#define AITC_GPU 1
#define AITC_VECTOR_ALIGN 16

#if defined(AITC_EMULATOR)
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "emulator.h"
#ifndef AITC_WARP_SIZE
#define AITC_WARP_SIZE 64
#endif
#define AITC_FN inline
#define AITC_CONST_FN constexpr
#define AITC_KERNEL(...) extern "C"
#define AITC_UNROLL
#define AITC_UNROLL_4
#define AITC_NO_UNROLL
#define AITC_GRID_CONSTANT const
#elif defined(__CUDACC__)
#define AITC_CUDA 1
#define AITC_WARP_SIZE 32
#define AITC_FN __device__ __forceinline__
#define AITC_CONST_FN __host__ __device__ constexpr
#define AITC_KERNEL(...) extern "C" __global__ __launch_bounds__(__VA_ARGS__)
#define AITC_UNROLL _Pragma("unroll")
#define AITC_UNROLL_4 _Pragma("unroll 4")
#define AITC_NO_UNROLL _Pragma("unroll 1")
#define AITC_GRID_CONSTANT const __grid_constant__
#elif defined(__HIP__) || defined(__HIPCC__)
#include <hip/hip_runtime.h>
#define AITC_HIP 1
#define AITC_WARP_SIZE 64
#define AITC_FN __device__ __forceinline__
#define AITC_CONST_FN __host__ __device__ constexpr
#define AITC_KERNEL(...) AITC_KERNEL_PICK(__VA_ARGS__, AITC_KERNEL_BLOCKS, AITC_KERNEL_THREADS, )(__VA_ARGS__)
#define AITC_KERNEL_PICK(threads, blocks, name, ...) name
#define AITC_KERNEL_THREADS(threads) extern "C" __global__ __launch_bounds__(threads)
#define AITC_KERNEL_BLOCKS(threads, blocks) /* HIP counts waves on each of the four SIMDs of a unit */ \
  extern "C" __global__ __launch_bounds__(threads, ((blocks) * ((threads) / 64) + 3) / 4)
#define AITC_UNROLL _Pragma("unroll")
#define AITC_UNROLL_4 _Pragma("unroll 4")
#define AITC_NO_UNROLL _Pragma("nounroll")
#define AITC_GRID_CONSTANT const
#else
#error "gpu/gpu.h needs nvcc, hipcc or -DAITC_EMULATOR"
#endif

#ifndef AITC_ISA
#define AITC_ISA gpu
#endif
#ifndef AITC_ENTRY
#define AITC_ENTRY(name) name
#endif
#ifndef AITC_BEGIN
#define AITC_BEGIN namespace aitc { inline namespace AITC_ISA {
#define AITC_END } }
#endif

AITC_BEGIN

constexpr int warp_size = AITC_WARP_SIZE;

// ---------------------------------------------------------------- places, barriers, shared memory
AITC_FN int thread_index() { return int(threadIdx.x); }
AITC_FN int lane_index() { return int(threadIdx.x) % warp_size; }
AITC_FN int warp_index() { return int(threadIdx.x) / warp_size; }

#if defined(AITC_EMULATOR)
using emu::block_barrier;
using emu::shared_memory;
using emu::memory_fence;
#else
AITC_FN void block_barrier() { __syncthreads(); }
AITC_FN void memory_fence() { __threadfence(); }
#if defined(AITC_CUDA)
AITC_FN char* shared_memory() {
  extern __shared__ __align__(1024) char aitc_shared_memory[];
  return aitc_shared_memory;
}
#else
AITC_FN char* shared_memory() {
  HIP_DYNAMIC_SHARED(char, aitc_shared_memory)
  return aitc_shared_memory;
}
#endif
#endif

// ---------------------------------------------------------------- between the lanes of a warp
#if defined(AITC_EMULATOR)  // functions of the emulator know the line that calls them
using emu::shuffle;
using emu::shuffle_xor;
using emu::ballot;
using emu::warp_barrier;
#elif defined(AITC_CUDA)
template <class T> AITC_FN T shuffle(T v, int lane) { return __shfl_sync(~0u, v, lane); }
template <class T> AITC_FN T shuffle_xor(T v, int mask) { return __shfl_xor_sync(~0u, v, mask); }
AITC_FN uint64_t ballot(bool p) { return __ballot_sync(~0u, p); }
AITC_FN void warp_barrier() { __syncwarp(); }
#else
template <class T> AITC_FN T shuffle(T v, int lane) { return __shfl(v, lane); }
template <class T> AITC_FN T shuffle_xor(T v, int mask) { return __shfl_xor(v, mask); }
AITC_FN uint64_t ballot(bool p) { return __ballot(p); }
AITC_FN void warp_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
  __builtin_amdgcn_wave_barrier();
}
#endif

// ---------------------------------------------------------------- atomics
#if defined(AITC_EMULATOR)
using emu::atomic_add;
using emu::atomic_max;
using emu::atomic_min;
using emu::atomic_cas;
#else
template <class T> struct AtomicWord { using type = T; };
template <> struct AtomicWord<long> { using type = long long; };
template <> struct AtomicWord<unsigned long> { using type = unsigned long long; };
template <class T> AITC_FN T atomic_add(T* p, T v) {
  using U = typename AtomicWord<T>::type;
  if constexpr (sizeof(T) == 8 && T(-1) < T(0) && T(1) / T(2) == T(0))  // int64_t: the unsigned sum has the same bits
    return T(atomicAdd(reinterpret_cast<unsigned long long*>(p), static_cast<unsigned long long>(v)));
  else
    return T(atomicAdd(reinterpret_cast<U*>(p), U(v)));
}
template <class T> AITC_FN T atomic_max(T* p, T v) {
  using U = typename AtomicWord<T>::type;
  return T(atomicMax(reinterpret_cast<U*>(p), U(v)));
}
template <class T> AITC_FN T atomic_min(T* p, T v) {
  using U = typename AtomicWord<T>::type;
  return T(atomicMin(reinterpret_cast<U*>(p), U(v)));
}
template <class T> AITC_FN T atomic_cas(T* p, T expected, T v) {
  if constexpr (sizeof(T) == 8)
    return T(atomicCAS(reinterpret_cast<unsigned long long*>(p), static_cast<unsigned long long>(expected),
                       static_cast<unsigned long long>(v)));
  else
    return T(atomicCAS(reinterpret_cast<unsigned*>(p), unsigned(expected), unsigned(v)));
}
#endif

// ---------------------------------------------------------------- raw copies
template <int Bytes> struct RawWord;
template <> struct RawWord<1> { using type = uint8_t; };
template <> struct RawWord<2> { using type = uint16_t; };
template <> struct RawWord<4> { using type = uint32_t; };
template <> struct RawWord<8> { using type = uint64_t; };
template <int Bytes> using raw_word = typename RawWord<Bytes>::type;

// Through whole machine words, since nvcc breaks a store of sixteen-bit members up into sixteen-bit stores.
template <int Bytes> AITC_FN void copy_bytes(void* to, const void* from) {
  if constexpr (Bytes > 16) {
    static_assert(Bytes % 16 == 0, "whole 16-byte words");
    AITC_UNROLL
    for (int i = 0; i < Bytes; i += 16) copy_bytes<16>(static_cast<char*>(to) + i, static_cast<const char*>(from) + i);
  } else {
#if defined(AITC_EMULATOR)
    emu::copy_bytes<Bytes>(to, from);  // checks both addresses
#elif defined(AITC_CUDA)
    if constexpr (Bytes == 16) *static_cast<uint4*>(to) = *static_cast<const uint4*>(from);
    else if constexpr (Bytes == 8) *static_cast<uint2*>(to) = *static_cast<const uint2*>(from);
    else *static_cast<raw_word<Bytes>*>(to) = *static_cast<const raw_word<Bytes>*>(from);
#else
    if constexpr (Bytes >= 8) {  // clang keeps an array in registers only if it is touched by memcpy
      typedef uint32_t Words __attribute__((ext_vector_type(Bytes / 4)));
      Words w;
      __builtin_memcpy(&w, __builtin_assume_aligned(from, Bytes), Bytes);
      __builtin_memcpy(__builtin_assume_aligned(to, Bytes), &w, Bytes);
    } else {
      __builtin_memcpy(__builtin_assume_aligned(to, Bytes), __builtin_assume_aligned(from, Bytes), Bytes);
    }
#endif
  }
}

// The same to global memory only; never broken up.
template <int Bytes> AITC_FN void store_bytes(void* to, const void* from) {
#if defined(AITC_CUDA)
  if constexpr (Bytes == 16) {
    uint4 w;
    __builtin_memcpy(&w, from, 16);
    asm volatile("{ .reg .u64 p; cvta.to.global.u64 p, %0; st.global.v4.b32 [p], {%1, %2, %3, %4}; }" ::"l"(to),
                 "r"(w.x), "r"(w.y), "r"(w.z), "r"(w.w)
                 : "memory");
    return;
  } else if constexpr (Bytes == 8) {
    uint2 w;
    __builtin_memcpy(&w, from, 8);
    asm volatile("{ .reg .u64 p; cvta.to.global.u64 p, %0; st.global.v2.b32 [p], {%1, %2}; }" ::"l"(to), "r"(w.x),
                 "r"(w.y)
                 : "memory");
    return;
  } else if constexpr (Bytes > 16) {
    AITC_UNROLL
    for (int i = 0; i < Bytes; i += 16) store_bytes<16>(static_cast<char*>(to) + i, static_cast<const char*>(from) + i);
    return;
  }
#endif
  copy_bytes<Bytes>(to, from);
}

AITC_FN float bits_float(uint32_t u) {
  float f;
  __builtin_memcpy(&f, &u, 4);
  return f;
}
AITC_FN uint32_t float_bits(float f) {
  uint32_t u;
  __builtin_memcpy(&u, &f, 4);
  return u;
}
AITC_FN double bits_double(uint64_t u) {
  double f;
  __builtin_memcpy(&f, &u, 8);
  return f;
}
AITC_FN uint64_t double_bits(double f) {
  uint64_t u;
  __builtin_memcpy(&u, &f, 8);
  return u;
}

// ---------------------------------------------------------------- conversions on raw bits, round to nearest even
#if defined(AITC_CUDA)
AITC_FN float half_to_float(uint16_t h) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
  return f;
}
AITC_FN uint16_t float_to_half(float f) {
  uint16_t h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return h;
}
AITC_FN float bfloat16_to_float(uint16_t h) { return __uint_as_float(uint32_t(h) << 16); }
AITC_FN uint32_t round_to_bfloat16(float f) {  // in the low half, by integers (before sm_80)
  const uint32_t u = __float_as_uint(f);
  return f != f ? 0x7fffu : (u + 0x7fffu + (u >> 16 & 1)) >> 16;
}
AITC_FN uint16_t float_to_bfloat16(float f) {
#if __CUDA_ARCH__ >= 800
  uint16_t h;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return h;
#else
  return uint16_t(round_to_bfloat16(f));
#endif
}
AITC_FN uint32_t floats_to_half2(float lo, float hi) {
#if __CUDA_ARCH__ >= 800
  uint32_t r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
#else
  return uint32_t(float_to_half(hi)) << 16 | float_to_half(lo);
#endif
}
AITC_FN uint32_t floats_to_bfloat162(float lo, float hi) {
#if __CUDA_ARCH__ >= 800
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
#else
  return round_to_bfloat16(hi) << 16 | round_to_bfloat16(lo);
#endif
}
#else
AITC_FN float half_to_float(uint16_t h) {
  _Float16 x;
  __builtin_memcpy(&x, &h, 2);
  return float(x);
}
AITC_FN uint16_t float_to_half(float f) {
  const _Float16 x = _Float16(f);
  uint16_t h;
  __builtin_memcpy(&h, &x, 2);
  return h;
}
AITC_FN float bfloat16_to_float(uint16_t h) {
  const uint32_t u = uint32_t(h) << 16;
  float f;
  __builtin_memcpy(&f, &u, 4);
  return f;
}
AITC_FN uint16_t float_to_bfloat16(float f) {
  uint32_t u;
  __builtin_memcpy(&u, &f, 4);
  return f != f ? uint16_t(0x7fff) : uint16_t((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}
AITC_FN uint32_t floats_to_half2(float lo, float hi) { return uint32_t(float_to_half(hi)) << 16 | float_to_half(lo); }
AITC_FN uint32_t floats_to_bfloat162(float lo, float hi) {
  return uint32_t(float_to_bfloat16(hi)) << 16 | float_to_bfloat16(lo);
}
#endif

// ---------------------------------------------------------------- elementary functions on float
AITC_FN float m_fma(float a, float b, float c) { return fmaf(a, b, c); }
AITC_FN float m_sqrt(float x) { return sqrtf(x); }
AITC_FN float m_pow(float x, float y) { return powf(x, y); }
AITC_FN float m_sin(float x) { return sinf(x); }
AITC_FN float m_cos(float x) { return cosf(x); }
#if defined(AITC_CUDA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
AITC_FN float m_max(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
AITC_FN float m_min(float a, float b) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
#else
AITC_FN float m_max(float a, float b) { return a > b || a != a ? a : b; }
AITC_FN float m_min(float a, float b) { return a < b || a != a ? a : b; }
#endif
#if defined(AITC_CUDA)
AITC_FN float m_rsqrt(float x) { return rsqrtf(x); }
AITC_FN float m_rcp(float x) { return __fdividef(1.0f, x); }
AITC_FN float m_exp2(float x) {  // ex2.approx: 2 ulp, subnormal results are kept
  float y;
  asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#else
AITC_FN float m_rsqrt(float x) { return 1.0f / sqrtf(x); }
AITC_FN float m_rcp(float x) { return 1.0f / x; }
AITC_FN float m_exp2(float x) { return exp2f(x); }
#endif
#if defined(AITC_FAST_MATH) && defined(AITC_CUDA)
AITC_FN float m_exp(float x) { return m_exp2(x * 1.4426950408889634f); }
AITC_FN float m_log(float x) { return __logf(x); }
AITC_FN float m_tanh(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
AITC_FN float m_erf(float x) {  // the hardware tanh of an odd polynomial: |error| < 5e-4, most of it tanh.approx
  const float s = fminf(x * x, 18.0f);
  return m_tanh(x * (1.1281043f + s * (0.10389004f + s * (-1.4430575e-3f + s * -9.7330334e-5f))));
}
#else
AITC_FN float m_exp(float x) { return expf(x); }
AITC_FN float m_log(float x) { return logf(x); }
AITC_FN float m_tanh(float x) { return tanhf(x); }
AITC_FN float m_erf(float x) { return erff(x); }
#endif

AITC_FN double m_sqrt(double x) { return sqrt(x); }
AITC_FN double m_rsqrt(double x) { return 1.0 / sqrt(x); }
AITC_FN double m_pow(double x, double y) { return pow(x, y); }
AITC_FN double m_sin(double x) { return sin(x); }
AITC_FN double m_cos(double x) { return cos(x); }
AITC_FN double m_exp(double x) { return exp(x); }
AITC_FN double m_log(double x) { return log(x); }
AITC_FN double m_tanh(double x) { return tanh(x); }
AITC_FN double m_erf(double x) { return erf(x); }
AITC_FN double m_max(double a, double b) { return a > b || a != a ? a : b; }
AITC_FN double m_min(double a, double b) { return a < b || a != a ? a : b; }

// ---------------------------------------------------------------- programmatic dependent launch
#if defined(AITC_CUDA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
AITC_FN void grid_dependency_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
AITC_FN void grid_dependency_launch() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
#elif defined(AITC_EMULATOR)
using emu::grid_dependency_launch;
using emu::grid_dependency_wait;
#else
AITC_FN void grid_dependency_wait() {}
AITC_FN void grid_dependency_launch() {}
#endif

// ---------------------------------------------------------------- small tools of every kernel
template <class T> AITC_CONST_FN T ceil_div(T a, T b) { return (a + b - 1) / b; }
template <class A, class B> AITC_CONST_FN auto min_of(A a, B b) -> decltype(a + b) { return a < b ? a : b; }
template <class A, class B> AITC_CONST_FN auto max_of(A a, B b) -> decltype(a + b) { return a > b ? a : b; }
AITC_CONST_FN int greatest_divisor(int a, int b) { return b == 0 ? a : greatest_divisor(b, a % b); }

// Reduces over groups of `width` neighbouring lanes (a power of two); every lane gets its group's result.
template <int width = warp_size, class T, class Op> AITC_FN T warp_reduce(T v, Op op) {
  AITC_UNROLL
  for (int mask = width / 2; mask > 0; mask /= 2) v = op(v, shuffle_xor(v, mask));
  return v;
}
// Reduces over the block of `threads` threads (a multiple of warp_size); every thread gets the result. `scratch`:
// threads / warp_size elements of shared
// memory, free again after the next block_barrier(); two calls in a row need two scratch areas or a barrier between.
template <int threads, class T, class Op> AITC_FN T block_reduce(T v, Op op, T* scratch) {
  constexpr int warps = threads / warp_size;
  static_assert(threads % warp_size == 0 && warps >= 1, "whole warps");
  v = warp_reduce(v, op);
  if constexpr (warps > 1) {
    if (lane_index() == 0) scratch[warp_index()] = v;
    block_barrier();
    v = scratch[0];
    AITC_UNROLL
    for (int w = 1; w < warps; ++w) v = op(v, scratch[w]);
  }
  return v;
}
template <int V, class Body> AITC_FN void for_each(int64_t count, const Body& body) {
  grid_dependency_wait();
  const int64_t step = int64_t(gridDim.x) * blockDim.x, first = int64_t(blockIdx.x) * blockDim.x + threadIdx.x,
                whole = count / V;
  for (int64_t i = first; i < whole; i += step) body.template operator()<V>(i * V);
  if constexpr (V > 1)
    for (int64_t i = whole * V + first; i < count; i += step) body.template operator()<1>(i);
  grid_dependency_launch();
}

AITC_END
