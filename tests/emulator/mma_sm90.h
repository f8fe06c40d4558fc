// The emulated twins of aitc/gpu/hopper/mma_sm90.h: the functions that are inline assembly there, under the same names.
#pragma once
#include "cluster.h"
#include "mma_sync.h"
#include "vector_types.h"
#include "wgmma.h"

AITC_BEGIN

static_assert(emu::kSm >= 90, "the sm_90 kernels: emulate them with -DAITC_EMULATOR_SM=90");
#define AITC_EMULATOR_SITE emu::Site site = emu::Site::here()

// ---------------------------------------------------------------- mbarrier
inline void barrier_init(uint32_t barrier, uint32_t count, AITC_EMULATOR_SITE) {
  emu::mbarrier_init(barrier, count, site);
}
inline void fence_barrier_init() {}
inline void barrier_arrive(uint32_t barrier, AITC_EMULATOR_SITE) { emu::mbarrier_arrive(barrier, 0, 1, site); }
inline void barrier_arrive(uint32_t barrier, uint32_t cta, AITC_EMULATOR_SITE) {
  emu::mbarrier_arrive(emu::peer_address(barrier, cta, site), 0, 1, site);
}
inline void barrier_expect(uint32_t barrier, uint32_t bytes, AITC_EMULATOR_SITE) {
  emu::mbarrier_arrive(barrier, bytes, 1, site);
}
inline void barrier_wait(uint32_t barrier, uint32_t parity, AITC_EMULATOR_SITE) {
  emu::mbarrier_wait(barrier, parity, site);
}

// ---------------------------------------------------------------- TMA
inline void prefetch_l2(const void*) {}
inline void tma_prefetch(const CUtensorMap&) {}
inline void tma_load(uint32_t to, const CUtensorMap& map, int x, int y, uint32_t barrier, AITC_EMULATOR_SITE) {
  emu::tma_load_tiled<2>(to, map, {x, y}, barrier, 0, site);
}
inline void tma_load(uint32_t to, const CUtensorMap& map, int x, int y, int z, uint32_t barrier, AITC_EMULATOR_SITE) {
  emu::tma_load_tiled<3>(to, map, {x, y, z}, barrier, 0, site);
}
inline void tma_load(uint32_t to, const CUtensorMap& map, int x, int y, int z, int u, uint32_t barrier,
                     AITC_EMULATOR_SITE) {
  emu::tma_load_tiled<4>(to, map, {x, y, z, u}, barrier, 0, site);
}
inline void tma_load(uint32_t to, const CUtensorMap& map, int x, int y, int z, int u, int v, uint32_t barrier,
                     AITC_EMULATOR_SITE) {
  emu::tma_load_tiled<5>(to, map, {x, y, z, u, v}, barrier, 0, site);
}
inline void tma_load_multicast(uint32_t to, const CUtensorMap& map, int x, int y, uint32_t barrier, uint16_t mask,
                               AITC_EMULATOR_SITE) {
  emu::tma_load_tiled<2>(to, map, {x, y}, barrier, mask, site);
}
inline void tma_load_multicast(uint32_t to, const CUtensorMap& map, int x, int y, int z, uint32_t barrier,
                               uint16_t mask, AITC_EMULATOR_SITE) {
  emu::tma_load_tiled<3>(to, map, {x, y, z}, barrier, mask, site);
}
inline void tma_load_multicast(uint32_t to, const CUtensorMap& map, int x, int y, int z, int u, uint32_t barrier,
                               uint16_t mask, AITC_EMULATOR_SITE) {
  emu::tma_load_tiled<4>(to, map, {x, y, z, u}, barrier, mask, site);
}
inline void tma_load_im2col(uint32_t to, const CUtensorMap& map, int c, int w, int h, int n, uint16_t s, uint16_t r,
                            uint32_t barrier, AITC_EMULATOR_SITE) {
  emu::tma_load_im2col_box<4>(to, map, {c, w, h, n}, {s, r}, barrier, 0, site);
}
inline void tma_load_im2col_multicast(uint32_t to, const CUtensorMap& map, int c, int w, int h, int n, uint16_t s,
                                      uint16_t r, uint32_t barrier, uint16_t mask, AITC_EMULATOR_SITE) {
  emu::tma_load_im2col_box<4>(to, map, {c, w, h, n}, {s, r}, barrier, mask, site);
}
inline void tma_store(const CUtensorMap& map, int x, int y, uint32_t from, AITC_EMULATOR_SITE) {
  emu::tma_store_tiled<2>(map, {x, y}, from, site);
}
inline void tma_store(const CUtensorMap& map, int x, int y, int z, uint32_t from, AITC_EMULATOR_SITE) {
  emu::tma_store_tiled<3>(map, {x, y, z}, from, site);
}
inline void tma_store(const CUtensorMap& map, int x, int y, int z, int u, uint32_t from, AITC_EMULATOR_SITE) {
  emu::tma_store_tiled<4>(map, {x, y, z, u}, from, site);
}
using emu::bulk_commit;
using emu::bulk_load;
using emu::bulk_store;
template <int Pending> inline void bulk_wait_read(AITC_EMULATOR_SITE) { emu::bulk_wait(Pending, site); }
template <int Pending> inline void bulk_wait(AITC_EMULATOR_SITE) { emu::bulk_wait(Pending, site); }
inline void fence_async_proxy() {}

// ---------------------------------------------------------------- wgmma
using emu::wgmma_commit;
using emu::wgmma_fence;
template <int Pending> inline void wgmma_wait(AITC_EMULATOR_SITE) { emu::wgmma_wait(Pending, site); }
template <int Pending, int Count> inline void wgmma_wait(float (&)[Count], AITC_EMULATOR_SITE) {
  emu::wgmma_wait(Pending, site);
}
template <int Rows, int Count> inline void wgmma_wait_all(float (&)[Rows][Count], AITC_EMULATOR_SITE) {
  emu::wgmma_wait(0, site);
}

template <class T> using WgmmaRead = select_t<
    is_same<T, half_t>, emu::ReadHalf,
    select_t<is_same<T, bfloat16_t>, emu::ReadBfloat16,
             select_t<is_same<T, float8_e4m3_t>, emu::ReadFloat8<4, 7>,
                      select_t<is_same<T, float8_e5m2_t>, emu::ReadFloat8<5, 15>, emu::ReadTf32>>>>;
template <class T, int N, bool TransposedA = false, bool TransposedB = false>
inline void wgmma(float (&d)[N / 2], uint64_t a, uint64_t b, int keep, AITC_EMULATOR_SITE) {
  static_assert(sizeof(T) == 2 || !(TransposedA || TransposedB), "only 16-bit operands can be transposed");
  emu::wgmma<WgmmaRead<T>, sizeof(T), N>(d, a, b, keep, TransposedA, TransposedB, site);
}
template <class T, int N>
inline void wgmma_transposed(float (&d)[N / 2], const uint32_t* a, uint64_t b, int keep, AITC_EMULATOR_SITE) {
  static_assert(sizeof(T) == 2, "only 16-bit operands can be transposed");
  emu::wgmma_registers<WgmmaRead<T>, 2, N>(d, a, b, keep, true, site);
}

// ---------------------------------------------------------------- shared memory, barriers, registers, clusters, grids
inline void stmatrix(uint32_t row, uint32_t m0, uint32_t m1, uint32_t m2, uint32_t m3, AITC_EMULATOR_SITE) {
  const uint32_t r[4] = {m0, m1, m2, m3};
  emu::stmatrix<4>(row, r, site);
}
inline uint32_t load_shared_word(uint32_t address, AITC_EMULATOR_SITE) {
  return emu::load_shared<uint32_t>(address, site);
}
inline uint4 load_shared(uint32_t address, AITC_EMULATOR_SITE) { return emu::load_shared<uint4>(address, site); }
inline float4 load_shared_float4(uint32_t address, AITC_EMULATOR_SITE) {
  return emu::load_shared<float4>(address, site);
}
using emu::named_arrive;
using emu::named_sync;
inline void compiler_fence() {}
inline float exp2_fast(float x) { return exp2f(x); }
template <int Count> inline void registers_take(AITC_EMULATOR_SITE) { emu::set_registers(Count, true, site); }
template <int Count> inline void registers_give(AITC_EMULATOR_SITE) { emu::set_registers(Count, false, site); }
using emu::cluster_arrive;
using emu::cluster_rank;
using emu::cluster_wait;
inline void cluster_arrive_relaxed(AITC_EMULATOR_SITE) { emu::cluster_arrive(site); }
using emu::peer_address;
inline void store_peer(uint32_t remote, float2 v, AITC_EMULATOR_SITE) { emu::store_shared(remote, v, site); }
inline void grid_launch_next() {}
inline void grid_wait_previous(AITC_EMULATOR_SITE) { emu::grid_dependency_wait(site); }

#undef AITC_EMULATOR_SITE
AITC_END
