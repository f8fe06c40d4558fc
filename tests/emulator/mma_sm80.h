// The emulated twins of aitc/gpu/matmul/mma_sm80.h: the same names, exact layouts, each with its caller's place.
#pragma once
#include "cp_async.h"
#include "mma_sync.h"

AITC_BEGIN

static_assert(warp_size == 32, "the sm_80 kernels have warps of 32: emulate them with -DAITC_EMULATOR_SM=80 or above");
using shared_address = uint32_t;
inline shared_address to_shared(char* p, emu::Site site = emu::Site::here()) { return emu::shared_address(p, site); }

template <int Bytes>
inline void copy_async(shared_address to, const void* from, bool valid, emu::Site site = emu::Site::here()) {
  emu::cp_async(to, from, Bytes, valid ? Bytes : 0, site);
}
inline void copy_async_commit(emu::Site site = emu::Site::here()) { emu::cp_async_commit(site); }
template <int Groups> inline void copy_async_wait(emu::Site site = emu::Site::here()) {
  emu::cp_async_wait(Groups, false, site);
}

inline void load_matrix_x4(uint32_t (&r)[4], shared_address address, emu::Site site = emu::Site::here()) {
  emu::ldmatrix<4>(r, address, site);
}
inline void load_matrix_x4_trans(uint32_t (&r)[4], shared_address address, emu::Site site = emu::Site::here()) {
  emu::ldmatrix<4, true>(r, address, site);
}
inline uint32_t load_shared_u32(shared_address address, emu::Site site = emu::Site::here()) {
  uint32_t v;
  memcpy(&v, emu::shared_bytes(address, 4, 4, site.named("load_shared_u32")), 4);
  return v;
}

template <class T> struct Mma {
  static_assert(is_same<T, half_t> || is_same<T, bfloat16_t> || is_same<T, float>, "mma.sync on f16, bf16 or TF32");
  static constexpr int k = is_same<T, float> ? 8 : 16;
  using Read =
      select_t<is_same<T, float>, emu::ReadTf32, select_t<is_same<T, half_t>, emu::ReadHalf, emu::ReadBfloat16>>;
  static void run(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], emu::Site site = emu::Site::here()) {
    emu::mma_sync<Read, k>(d, a, b, site);
  }
};
// cvt.rna.tf32: to the nearest, ties away from zero.
template <class T> inline void round_operand(uint32_t& r) {
  if constexpr (is_same<T, float>)
    if ((r & 0x7f800000u) != 0x7f800000u) r = (r + 0x1000u) & ~0x1fffu;
}

AITC_END
