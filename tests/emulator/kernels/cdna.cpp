// The matrix instructions of gfx90a and gfx942, one entry point each, registers in and out; and DPP. Checked by
// test_cdna.py.
#include "aitc/gpu/core/gpu.h"
#include <mma_cdna.h>
using namespace aitc;

#define MFMA(name, AB, CD)                                                                                  \
  AITC_KERNEL(64) void AITC_ENTRY(name)(const emu::mfma::AB* a, const emu::mfma::AB* b, emu::mfma::CD* d) { \
    d[thread_index()] =                                                                                     \
        __builtin_amdgcn_mfma_##name(a[thread_index()], b[thread_index()], d[thread_index()], 0, 0, 0);     \
  }                                                                                                         \
  static_assert(true, "")
AITC_MFMA_LIST

AITC_KERNEL(64) void AITC_ENTRY(dpp)(const int* x, int* out) {  // out (forms, 64)
  const int l = lane_index();
#define FORM(i, control, rows, banks, bound) \
  out[64 * i + l] = __builtin_amdgcn_update_dpp(-7, x[l], control, rows, banks, bound);
  FORM(0, 0x1b, 0xf, 0xf, false)   // quad_perm 3 2 1 0
  FORM(1, 0x101, 0xf, 0xf, false)  // row_shl:1
  FORM(2, 0x112, 0xf, 0xf, true)   // row_shr:2, zeros
  FORM(3, 0x124, 0xf, 0xf, false)  // row_ror:4
  FORM(4, 0x138, 0xf, 0xf, false)  // wave_shr:1
  FORM(5, 0x140, 0xf, 0xf, false)  // row_mirror
  FORM(6, 0x141, 0xf, 0xf, false)  // row_half_mirror
  FORM(7, 0x142, 0xa, 0xf, false)  // row_bcast:15 into rows 1 and 3
  FORM(8, 0x143, 0xc, 0xf, false)  // row_bcast:31 into rows 2 and 3
  FORM(9, 0x1b, 0x5, 0x3, false)   // masks
}
AITC_KERNEL(64) void AITC_ENTRY(wave_sum)(const float* x, float* out) {  // the usual reduction; lane 63 has the sum
  float v = x[lane_index()];
  const auto step = [&](int control, int rows) {
    int moved, bits;
    memcpy(&bits, &v, 4);
    moved = __builtin_amdgcn_update_dpp(0, bits, control, rows, 0xf, false);
    float other;
    memcpy(&other, &moved, 4);
    v += other;
  };
  step(0x111, 0xf), step(0x112, 0xf), step(0x114, 0xf), step(0x118, 0xf), step(0x142, 0xa), step(0x143, 0xc);
  int bits;
  memcpy(&bits, &v, 4);
  bits = __builtin_amdgcn_readlane(bits, 63);
  memcpy(&v, &bits, 4);
  out[lane_index()] = v;
}
AITC_KERNEL(64) void AITC_ENTRY(scalars)(const int* x, int* out) {  // out (4, 64)
  const int l = lane_index();
  out[l] = __builtin_amdgcn_readfirstlane(x[l]);
  out[64 + l] = __builtin_amdgcn_ds_bpermute(4 * ((l * 5 + 1) % 64), x[l]);
  out[128 + l] = __builtin_amdgcn_ds_swizzle(x[l], 0x1f | 1 << 10);  // lane ^ 1
  const uint64_t odd = ballot(x[l] % 2 != 0);
  out[192 + l] = int(__builtin_amdgcn_mbcnt_hi(unsigned(odd >> 32), __builtin_amdgcn_mbcnt_lo(unsigned(odd), 0)));
}
AITC_KERNEL(128) void AITC_ENTRY(partial_wave)(float* out) {
  emu::mfma::f4 d = {};
  if (thread_index() != 100) d = __builtin_amdgcn_mfma_f32_16x16x4f32(1.0f, 1.0f, d, 0, 0, 0);
  out[thread_index()] = d[0];
}
