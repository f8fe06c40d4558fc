// mma_sm90.h: the Hopper instructions that the tensor-core kernels use, an inline function each, with an emulated twin (tests/emulator/mma_sm90.h).
//
//   Shared memory is named by its 32-bit address (to_shared of mma_sm80.h). A tile row is 128 bytes (64 elements of 2 bytes): one row of the 128-byte swizzle, in which 16-byte
//   unit u of row r lies at unit u ^ (r % 8); tiles start on 1024 bytes. TMA loads and stores, wgmma and stmatrix agree on that.
//
//   barrier_*       mbarrier: a phase ends when `count` arrivals and all expected bytes have come; phases alternate in parity. barrier_wait(b, p) returns once the phase
//                   of parity p is over: a fresh barrier is in phase 0, so parity 1 returns at once. A wait tells a phase only from the one before it.
//   tma_load, tma_load_multicast, tma_load_im2col, tma_store, bulk_*     the copy engine; x is the contiguous coordinate. What lies outside the tensor reads as zero (and
//                   still counts its bytes) and is not written. multicast: the same offsets, and barrier, in every block of the cluster whose mask bit is set
//   wgmma_*         D(64,N) += A(64,k) B(k,N) by a warpgroup, k = 32 bytes: 16 halves or bfloat16s, 8 floats (as TF32: the low 13 bits do not count, so operands should be
//                   rounded: a map of AITC_TF32 does, to nearest, ties to even), 32 float8 (products and sum so far are aligned to the greatest exponent and cut off 13 bits below
//                   it). Fence before the first, commit, wait<n>: all but the last n groups are done
//   Accumulators    thread t of the warpgroup: d[4j], d[4j+1] = row t / 32 * 16 + t % 32 / 4, columns 8j + t % 4 * 2, + 1; d[4j+2], d[4j+3] = eight rows below
//   stmatrix        four 8x8 matrices in that layout, packed in pairs, to the 16-byte rows that lanes 0-31 address
#pragma once
#include "aitc/gpu/matmul/mma_sm80.h"

#if defined(AITC_EMULATOR)
#include <mma_sm90.h>  // tests/emulator/: the twins
#elif !defined(AITC_CUDA)
#error "mma_sm90.h is for CUDA (and the emulator)"
#elif !defined(CUDA_VERSION)  // cuda.h costs a kernel file half a second
struct alignas(64) CUtensorMap {
  unsigned long long opaque[16];
};
#endif

AITC_BEGIN

// ---------------------------------------------------------------- matrix descriptors
// Bits 0-13 address / 16; 16-29 leading offset / 16; 32-45 stride offset / 16; 62-63 swizzle: 0 none, 1 128 bytes, 2 64.
//
// A K-major tile, rows of RowBytes (128 or 64) swizzled over as much: stride offset = from one group of 8 rows to the next, no leading offset. Next 16 k: + 2.
template <int RowBytes = 128> AITC_FN uint64_t matrix_descriptor(uint32_t address) {
  return uint64_t(RowBytes == 128 ? 1 : 2) << 62 | uint64_t(8 * RowBytes >> 4) << 32 | uint64_t(1) << 16 | (address & 0x3ffff) >> 4;
}
// An M- or N-major tile: a row for each k, of 64 m or n. Leading offset = from one 64-column block to the next (`block` bytes), stride offset = from one group of 8 k to the
// next. Next 16 k: + 128.
AITC_FN uint64_t matrix_descriptor_transposed(uint32_t address, uint32_t block) {
  return uint64_t(1) << 62 | uint64_t(1024 >> 4) << 32 | uint64_t(block >> 4) << 16 | (address & 0x3ffff) >> 4;
}
// In general: `groups` bytes from one 8-row group to the next; without swizzle `units` bytes from one 16-byte unit to the next along k. The swizzle acts on the bits of the
// final address, so a matrix may begin at any row of a swizzled tile, and its groups may lie any number of rows apart.
AITC_FN uint64_t matrix_descriptor(uint32_t address, int swizzle, int groups, int units) {
  return uint64_t(swizzle) << 62 | uint64_t(groups >> 4) << 32 | uint64_t(units >> 4) << 16 | (address & 0x3ffff) >> 4;
}

// ---------------------------------------------------------------- the ring of stages between the copy engine and wgmma
template <int Stages> struct Ring {  // the stage in use and the parity of its phase
  int stage = 0;
  uint32_t parity = 0;
  AITC_FN void next() {
    if (++stage == Stages) stage = 0, parity ^= 1;
  }
  AITC_FN void skip(int n) {
    const int s = stage + n;
    parity ^= uint32_t(s / Stages) & 1, stage = s % Stages;
  }
};

#if defined(AITC_CUDA)
// ---------------------------------------------------------------- mbarrier
AITC_FN void barrier_init(uint32_t barrier, uint32_t count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory"); }
// After the inits, before the block (or cluster) synchronises: shows them to the copy engine and to the peers.
AITC_FN void fence_barrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
AITC_FN void barrier_arrive(uint32_t barrier) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory"); }
// The same barrier in another block of the cluster. Enough after wgmma or TMA have read a stage; handing over ordinary writes would need .release.cluster, which costs a
// MEMBAR.GPU.
AITC_FN void barrier_arrive(uint32_t barrier, uint32_t cta) {
  asm volatile("{ .reg .b32 remote; mapa.shared::cluster.u32 remote, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [remote]; }" ::"r"(barrier), "r"(cta) : "memory");
}
AITC_FN void barrier_expect(uint32_t barrier, uint32_t bytes) {  // arrives, and announces bytes that the copy engine will bring
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
AITC_FN void barrier_wait(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  do {
    asm volatile("{ .reg .pred done; mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2; selp.u32 %0, 1, 0, done; }" : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
  } while (!done);
}

// ---------------------------------------------------------------- TMA
AITC_FN void prefetch_l2(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
AITC_FN void tma_prefetch(const CUtensorMap& map) { asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory"); }
AITC_FN void tma_load(uint32_t to, const CUtensorMap& map, int x, int y, uint32_t barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(&map), "r"(x), "r"(y), "r"(barrier)
               : "memory");
}
AITC_FN void tma_load(uint32_t to, const CUtensorMap& map, int x, int y, int z, uint32_t barrier) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to), "l"(&map), "r"(x), "r"(y), "r"(z),
               "r"(barrier)
               : "memory");
}
AITC_FN void tma_load(uint32_t to, const CUtensorMap& map, int x, int y, int z, int u, uint32_t barrier) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(to), "l"(&map), "r"(x), "r"(y),
               "r"(z), "r"(u), "r"(barrier)
               : "memory");
}
AITC_FN void tma_load_multicast(uint32_t to, const CUtensorMap& map, int x, int y, int z, uint32_t barrier, uint16_t mask) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to), "l"(&map), "r"(x),
      "r"(y), "r"(z), "r"(barrier), "h"(mask)
      : "memory");
}
// A column of pixels from (w, h, n) on, by the strides and rows of the map's box; of each the channels from c, at tap (s, r).
AITC_FN void tma_load_im2col(uint32_t to, const CUtensorMap& map, int c, int w, int h, int n, uint16_t s, uint16_t r, uint32_t barrier) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6], {%7, %8};" ::"r"(to), "l"(&map), "r"(c),
               "r"(w), "r"(h), "r"(n), "r"(barrier), "h"(s), "h"(r)
               : "memory");
}
AITC_FN void tma_load_im2col_multicast(uint32_t to, const CUtensorMap& map, int c, int w, int h, int n, uint16_t s, uint16_t r, uint32_t barrier, uint16_t mask) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3, %4, %5}], [%6], {%7, %8}, %9;" ::"r"(to),
      "l"(&map), "r"(c), "r"(w), "r"(h), "r"(n), "r"(barrier), "h"(s), "h"(r), "h"(mask)
      : "memory");
}
AITC_FN void tma_store(const CUtensorMap& map, int x, int y, int z, uint32_t from) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(&map), "r"(x), "r"(y), "r"(z), "r"(from) : "memory");
}
AITC_FN void tma_store(const CUtensorMap& map, int x, int y, int z, int u, uint32_t from) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(&map), "r"(x), "r"(y), "r"(z), "r"(u), "r"(from) : "memory");
}
// A run of bytes (a multiple of 16, both ends aligned to 16), without a map.
AITC_FN void bulk_load(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}
AITC_FN void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int Pending> AITC_FN void bulk_wait_read() {  // all but the last `Pending` stores have read their shared memory
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}
// Between ordinary writes of shared memory and its use by TMA or wgmma.
AITC_FN void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---------------------------------------------------------------- wgmma
AITC_FN void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
AITC_FN void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int Pending> AITC_FN void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory"); }
template <int Pending, int Count> AITC_FN void wgmma_wait(float (&d)[Count]) {  // and ties d to the wait, or reads of it might move above
  wgmma_wait<Pending>();
  AITC_UNROLL
  for (int i = 0; i < Count; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
template <int Rows, int Count> AITC_FN void wgmma_wait_all(float (&d)[Rows][Count]) {
  wgmma_wait<0>();
  AITC_UNROLL
  for (int r = 0; r < Rows; ++r)
    AITC_UNROLL
    for (int i = 0; i < Count; ++i) asm volatile("" : "+f"(d[r][i])::"memory");
}

#define AITC_LIST4 "%0,%1,%2,%3"
#define AITC_LIST8 AITC_LIST4 ",%4,%5,%6,%7"
#define AITC_LIST12 AITC_LIST8 ",%8,%9,%10,%11"
#define AITC_LIST16 AITC_LIST12 ",%12,%13,%14,%15"
#define AITC_LIST20 AITC_LIST16 ",%16,%17,%18,%19"
#define AITC_LIST24 AITC_LIST20 ",%20,%21,%22,%23"
#define AITC_LIST32 AITC_LIST24 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define AITC_LIST36 AITC_LIST32 ",%32,%33,%34,%35"
#define AITC_LIST40 AITC_LIST36 ",%36,%37,%38,%39"
#define AITC_LIST48 AITC_LIST40 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define AITC_LIST56 AITC_LIST48 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define AITC_LIST64 AITC_LIST56 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define AITC_LIST72 AITC_LIST64 ",%64,%65,%66,%67,%68,%69,%70,%71"
#define AITC_LIST80 AITC_LIST72 ",%72,%73,%74,%75,%76,%77,%78,%79"
#define AITC_LIST84 AITC_LIST80 ",%80,%81,%82,%83"
#define AITC_LIST88 AITC_LIST84 ",%84,%85,%86,%87"
#define AITC_LIST96 AITC_LIST88 ",%88,%89,%90,%91,%92,%93,%94,%95"
#define AITC_LIST104 AITC_LIST96 ",%96,%97,%98,%99,%100,%101,%102,%103"
#define AITC_LIST112 AITC_LIST104 ",%104,%105,%106,%107,%108,%109,%110,%111"
#define AITC_LIST120 AITC_LIST112 ",%112,%113,%114,%115,%116,%117,%118,%119"
#define AITC_LIST128 AITC_LIST120 ",%120,%121,%122,%123,%124,%125,%126,%127"
#define AITC_ACC4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define AITC_ACC8(i) AITC_ACC4(i), AITC_ACC4(i + 4)
#define AITC_ACC16(i) AITC_ACC8(i), AITC_ACC8(i + 8)
#define AITC_ACC32(i) AITC_ACC16(i), AITC_ACC16(i + 16)
#define AITC_ACC64(i) AITC_ACC32(i), AITC_ACC32(i + 32)
#define AITC_WGMMA_OF(n, type, list, pa, pb, pk, pta, ptb, ...)                                                                                                        \
  asm volatile("{ .reg .pred keep; setp.ne.b32 keep, %" #pk ", 0; wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" list "}, %" #pa ", %" #pb       \
               ", keep, 1, 1, %" #pta ", %" #ptb "; }"                                                                                                                 \
               : __VA_ARGS__                                                                                                                                          \
               : "l"(a), "l"(b), "r"(keep), "n"(TransposedA), "n"(TransposedB))
// Elements of 1 or 4 bytes: both operands are K-major, the instruction has no other form.
#define AITC_WGMMA_K_MAJOR_OF(n, kind, list, pa, pb, pk, pta, ptb, ...)                                                                                                \
  asm volatile("{ .reg .pred keep; setp.ne.b32 keep, %" #pk ", 0; wgmma.mma_async.sync.aligned.m64n" #n kind " {" list "}, %" #pa ", %" #pb ", keep, 1, 1; }"          \
               : __VA_ARGS__                                                                                                                                          \
               : "l"(a), "l"(b), "r"(keep))
#define AITC_WGMMA(n, list, ...)                                                                                              \
  if constexpr (N == n && is_same<T, half_t>) AITC_WGMMA_OF(n, "f16", list, __VA_ARGS__);                                     \
  else if constexpr (N == n && is_same<T, bfloat16_t>) AITC_WGMMA_OF(n, "bf16", list, __VA_ARGS__);                           \
  else if constexpr (N == n && is_same<T, float>) AITC_WGMMA_K_MAJOR_OF(n, "k8.f32.tf32.tf32", list, __VA_ARGS__);            \
  else if constexpr (N == n && is_same<T, float8_e4m3_t>) AITC_WGMMA_K_MAJOR_OF(n, "k32.f32.e4m3.e4m3", list, __VA_ARGS__);    \
  else if constexpr (N == n) AITC_WGMMA_K_MAJOR_OF(n, "k32.f32.e5m2.e5m2", list, __VA_ARGS__)
#define AITC_WGMMA_REGISTERS_OF(n, type, list, p0, p1, p2, p3, pb, pk, ...)                                                                                            \
  asm volatile("{ .reg .pred keep; setp.ne.b32 keep, %" #pk ", 0; wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" list "}, {%" #p0 ",%" #p1 ",%" #p2 \
               ",%" #p3 "}, %" #pb ", keep, 1, 1, 1; }"                                                                                                                \
               : __VA_ARGS__                                                                                                                                          \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep))
#define AITC_WGMMA_REGISTERS(n, list, ...)                                                         \
  if constexpr (N == n && is_same<T, half_t>) AITC_WGMMA_REGISTERS_OF(n, "f16", list, __VA_ARGS__); \
  else if constexpr (N == n) AITC_WGMMA_REGISTERS_OF(n, "bf16", list, __VA_ARGS__)

// A and B behind descriptors; keep = 0 starts from zero. Transposed: M- or N-major.
template <class T, int N, bool TransposedA = false, bool TransposedB = false> AITC_FN void wgmma(float (&d)[N / 2], uint64_t a, uint64_t b, int keep) {
  static_assert(is_same<T, half_t> || is_same<T, bfloat16_t> || is_same<T, float> || is_same<T, float8_e4m3_t> || is_same<T, float8_e5m2_t>, "an operand of wgmma");
  static_assert(sizeof(T) == 2 || !(TransposedA || TransposedB), "only elements of 16 bits may be M- or N-major");
  AITC_WGMMA(8, AITC_LIST4, 4, 5, 6, 7, 8, AITC_ACC4(0));
  AITC_WGMMA(16, AITC_LIST8, 8, 9, 10, 11, 12, AITC_ACC8(0));
  AITC_WGMMA(24, AITC_LIST12, 12, 13, 14, 15, 16, AITC_ACC8(0), AITC_ACC4(8));
  AITC_WGMMA(32, AITC_LIST16, 16, 17, 18, 19, 20, AITC_ACC16(0));
  AITC_WGMMA(40, AITC_LIST20, 20, 21, 22, 23, 24, AITC_ACC16(0), AITC_ACC4(16));
  AITC_WGMMA(48, AITC_LIST24, 24, 25, 26, 27, 28, AITC_ACC16(0), AITC_ACC8(16));
  AITC_WGMMA(64, AITC_LIST32, 32, 33, 34, 35, 36, AITC_ACC32(0));
  AITC_WGMMA(80, AITC_LIST40, 40, 41, 42, 43, 44, AITC_ACC32(0), AITC_ACC8(32));
  AITC_WGMMA(96, AITC_LIST48, 48, 49, 50, 51, 52, AITC_ACC32(0), AITC_ACC16(32));
  AITC_WGMMA(112, AITC_LIST56, 56, 57, 58, 59, 60, AITC_ACC32(0), AITC_ACC16(32), AITC_ACC8(48));
  AITC_WGMMA(128, AITC_LIST64, 64, 65, 66, 67, 68, AITC_ACC64(0));
  AITC_WGMMA(144, AITC_LIST72, 72, 73, 74, 75, 76, AITC_ACC64(0), AITC_ACC8(64));
  AITC_WGMMA(160, AITC_LIST80, 80, 81, 82, 83, 84, AITC_ACC64(0), AITC_ACC16(64));
  AITC_WGMMA(168, AITC_LIST84, 84, 85, 86, 87, 88, AITC_ACC64(0), AITC_ACC16(64), AITC_ACC4(80));
  AITC_WGMMA(176, AITC_LIST88, 88, 89, 90, 91, 92, AITC_ACC64(0), AITC_ACC16(64), AITC_ACC8(80));
  AITC_WGMMA(192, AITC_LIST96, 96, 97, 98, 99, 100, AITC_ACC64(0), AITC_ACC32(64));
  AITC_WGMMA(208, AITC_LIST104, 104, 105, 106, 107, 108, AITC_ACC64(0), AITC_ACC32(64), AITC_ACC8(96));
  AITC_WGMMA(224, AITC_LIST112, 112, 113, 114, 115, 116, AITC_ACC64(0), AITC_ACC32(64), AITC_ACC16(96));
  AITC_WGMMA(240, AITC_LIST120, 120, 121, 122, 123, 124, AITC_ACC64(0), AITC_ACC32(64), AITC_ACC16(96), AITC_ACC8(112));
  AITC_WGMMA(256, AITC_LIST128, 128, 129, 130, 131, 132, AITC_ACC64(0), AITC_ACC64(64));
}
// A from registers, B N-major. A's 16 columns are two 8-column groups of the accumulators' layout, packed in pairs: a[0], a[1] = upper, lower row of group 0; a[2], a[3] = of
// group 1. So a packed accumulator is an A operand as it stands.
template <class T, int N> AITC_FN void wgmma_transposed(float (&d)[N / 2], const uint32_t* a, uint64_t b, int keep) {
  static_assert(is_same<T, half_t> || is_same<T, bfloat16_t>, "half or bfloat16");
  AITC_WGMMA_REGISTERS(8, AITC_LIST4, 4, 5, 6, 7, 8, 9, AITC_ACC4(0));
  AITC_WGMMA_REGISTERS(16, AITC_LIST8, 8, 9, 10, 11, 12, 13, AITC_ACC8(0));
  AITC_WGMMA_REGISTERS(24, AITC_LIST12, 12, 13, 14, 15, 16, 17, AITC_ACC8(0), AITC_ACC4(8));
  AITC_WGMMA_REGISTERS(32, AITC_LIST16, 16, 17, 18, 19, 20, 21, AITC_ACC16(0));
  AITC_WGMMA_REGISTERS(40, AITC_LIST20, 20, 21, 22, 23, 24, 25, AITC_ACC16(0), AITC_ACC4(16));
  AITC_WGMMA_REGISTERS(48, AITC_LIST24, 24, 25, 26, 27, 28, 29, AITC_ACC16(0), AITC_ACC8(16));
  AITC_WGMMA_REGISTERS(64, AITC_LIST32, 32, 33, 34, 35, 36, 37, AITC_ACC32(0));
  AITC_WGMMA_REGISTERS(72, AITC_LIST36, 36, 37, 38, 39, 40, 41, AITC_ACC32(0), AITC_ACC4(32));
  AITC_WGMMA_REGISTERS(80, AITC_LIST40, 40, 41, 42, 43, 44, 45, AITC_ACC32(0), AITC_ACC8(32));
  AITC_WGMMA_REGISTERS(96, AITC_LIST48, 48, 49, 50, 51, 52, 53, AITC_ACC32(0), AITC_ACC16(32));
  AITC_WGMMA_REGISTERS(112, AITC_LIST56, 56, 57, 58, 59, 60, 61, AITC_ACC32(0), AITC_ACC16(32), AITC_ACC8(48));
  AITC_WGMMA_REGISTERS(128, AITC_LIST64, 64, 65, 66, 67, 68, 69, AITC_ACC64(0));
  AITC_WGMMA_REGISTERS(160, AITC_LIST80, 80, 81, 82, 83, 84, 85, AITC_ACC64(0), AITC_ACC16(64));
  AITC_WGMMA_REGISTERS(192, AITC_LIST96, 96, 97, 98, 99, 100, 101, AITC_ACC64(0), AITC_ACC32(64));
  AITC_WGMMA_REGISTERS(256, AITC_LIST128, 128, 129, 130, 131, 132, 133, AITC_ACC64(0), AITC_ACC64(64));
}

// ---------------------------------------------------------------- shared memory, barriers, registers, clusters
AITC_FN void stmatrix(uint32_t row, uint32_t m0, uint32_t m1, uint32_t m2, uint32_t m3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(m0), "r"(m1), "r"(m2), "r"(m3) : "memory");
}
AITC_FN float4 load_shared_float4(uint32_t address) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(address) : "memory");
  return v;
}
// Named barriers 1 to 15: `threads` in all, those that wait and those that only arrive.
AITC_FN void named_sync(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
AITC_FN void named_arrive(int id, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
AITC_FN void compiler_fence() { asm volatile("" ::: "memory"); }  // loads behind it stay behind it
AITC_FN float exp2_fast(float x) {  // subnormal results are 0
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
template <int Count> AITC_FN void registers_take() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count)); }
template <int Count> AITC_FN void registers_give() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count)); }
AITC_FN uint32_t cluster_rank() {
  uint32_t r;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}
AITC_FN void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
AITC_FN void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }  // no ordinary writes are handed over
AITC_FN void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
AITC_FN uint32_t peer_address(uint32_t address, uint32_t cta) {
  uint32_t remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(cta));
  return remote;
}
AITC_FN void store_peer(uint32_t remote, float2 v) { asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(remote), "f"(v.x), "f"(v.y) : "memory"); }
AITC_FN void grid_launch_next() { grid_dependency_launch(); }
AITC_FN void grid_wait_previous() { grid_dependency_wait(); }
#endif

AITC_END
