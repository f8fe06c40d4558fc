// What kernels for AMD use beside the matrix instructions, under the compiler's names: DPP, exchange through the LDS
// hardware, scalar reads, waits (which the emulator, where every memory access is done at once, has no use for).
#pragma once
#include "warp.h"

#define AITC_EMULATOR_SITE ::emu::Site site = ::emu::Site::here()

namespace emu AITC_EMULATOR_HIDDEN {
namespace dpp {

// The lane that lane `me` reads, -1: none. gfx9's controls.
inline int source(int me, int control, const Site& site) {
  const int row = me & ~15, i = me & 15, by = control & 15;
  if (control >= 0 && control <= 0xff) return (me & ~3) | (control >> 2 * (me & 3) & 3);  // quad_perm
  switch (control) {
    case 0x130:
      return me < 63 ? me + 1 : -1;  // wave_shl:1
    case 0x134:
      return (me + 1) & 63;  // wave_rol:1
    case 0x138:
      return me - 1;  // wave_shr:1
    case 0x13c:
      return (me - 1) & 63;  // wave_ror:1
    case 0x140:
      return row + 15 - i;  // row_mirror
    case 0x141:
      return (me & ~7) + 7 - (me & 7);  // row_half_mirror
    case 0x142:
      return row ? row - 1 : -1;  // row_bcast:15
    case 0x143:
      return me >= 32 ? 31 : -1;  // row_bcast:31
  }
  if (by == 0) fail(format("DPP control 0x%x", control), site);
  switch (control >> 4) {
    case 0x10:
      return i + by < 16 ? me + by : -1;  // row_shl
    case 0x11:
      return i >= by ? me - by : -1;  // row_shr
    case 0x12:
      return row + ((i - by) & 15);  // row_ror
  }
  fail(format("DPP control 0x%x", control), site);
}

}  // namespace dpp
}  // namespace emu

inline int __builtin_amdgcn_update_dpp(int old, int v, int control, int row_mask, int bank_mask, bool bound_control,
                                       AITC_EMULATOR_SITE) {
  site = site.named("update_dpp");
  const int me = ::emu::self(site).id, from = ::emu::dpp::source(me, control, site);
  const int got = ::emu::warp_ops::shuffle_from(v, from, "update_dpp", ::emu::kAllLanes, site);
  if (!(row_mask >> me / 16 & 1) || !(bank_mask >> me % 16 / 4 & 1)) return old;
  return from >= 0 ? got : bound_control ? 0 : old;
}
inline int __builtin_amdgcn_mov_dpp(int v, int control, int row_mask, int bank_mask, bool bound_control,
                                    AITC_EMULATOR_SITE) {
  return __builtin_amdgcn_update_dpp(0, v, control, row_mask, bank_mask, bound_control, site);
}
inline int __builtin_amdgcn_readlane(int v, int lane, AITC_EMULATOR_SITE) {
  return ::emu::warp_ops::shuffle_from(v, lane & 63, "readlane", ::emu::kAllLanes, site);
}
inline int __builtin_amdgcn_readfirstlane(int v, AITC_EMULATOR_SITE) {  // of the first lane that has not returned
  struct Args {
    int value, result;
  } args{v, v};
  ::emu::warp_collective(
      [](uint64_t mask, void** all) {
        const int first = static_cast<Args*>(all[__builtin_ctzll(mask)])->value;
        for (int l = 0; l < ::emu::kWarp; ++l)
          if (mask >> l & 1) static_cast<Args*>(all[l])->result = first;
      },
      &args, "readfirstlane", ::emu::kAllLanes, site);
  return args.result;
}
inline int __builtin_amdgcn_ds_bpermute(int address, int v, AITC_EMULATOR_SITE) {
  return ::emu::warp_ops::shuffle_from(v, address >> 2 & 63, "ds_bpermute", ::emu::kAllLanes, site);
}
inline int __builtin_amdgcn_ds_swizzle(int v, int pattern, AITC_EMULATOR_SITE) {
  const int me = ::emu::self(site.named("ds_swizzle")).id;
  const int from = pattern & 0x8000
                       ? (me & ~3) | (pattern >> 2 * (me & 3) & 3)
                       : (me & 32) | ((((me & 31) & (pattern & 31)) | (pattern >> 5 & 31)) ^ (pattern >> 10 & 31));
  return ::emu::warp_ops::shuffle_from(v, from, "ds_swizzle", ::emu::kAllLanes, site);
}
inline unsigned __builtin_amdgcn_mbcnt_lo(unsigned mask, unsigned add) {
  const int me = ::emu::lane();
  return add + unsigned(__builtin_popcount(mask & (me >= 32 ? ~0u : (1u << me) - 1)));
}
inline unsigned __builtin_amdgcn_mbcnt_hi(unsigned mask, unsigned add) {
  const int me = ::emu::lane() - 32;
  return me <= 0 ? add : add + unsigned(__builtin_popcount(mask & ((1u << me) - 1)));
}
inline void __builtin_amdgcn_wave_barrier(AITC_EMULATOR_SITE) { ::emu::warp_barrier(site); }
inline void __builtin_amdgcn_s_barrier(AITC_EMULATOR_SITE) { ::emu::block_barrier(site); }
#define __builtin_amdgcn_fence(...) ((void)0)
#define __builtin_amdgcn_s_waitcnt(n) ((void)0)
#define __builtin_amdgcn_s_setprio(n) ((void)0)
#define __builtin_amdgcn_s_sleep(n) ((void)0)
#define __builtin_amdgcn_sched_barrier(mask) ((void)0)
#define __builtin_amdgcn_sched_group_barrier(mask, count, group) ((void)0)
inline float __builtin_amdgcn_rcpf(float x) { return 1.0f / x; }
inline float __builtin_amdgcn_rsqf(float x) { return 1.0f / __builtin_sqrtf(x); }
inline float __builtin_amdgcn_exp2f(float x) { return __builtin_exp2f(x); }
inline float __builtin_amdgcn_logf(float x) { return __builtin_log2f(x); }

#undef AITC_EMULATOR_SITE
