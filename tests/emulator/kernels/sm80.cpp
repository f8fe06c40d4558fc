// The sm_80 instructions, one entry point each; checked against the PTX manual's layouts by test_sm80.py.
#include "aitc/gpu/matmul/mma_sm80.h"
using namespace aitc;

// Copies 8x8 matrices of 16-bit elements to shared memory and reads them with ldmatrix: out (4 forms, 32 lanes, 4
// registers).
AITC_KERNEL(32) void AITC_ENTRY(load_matrices)(const uint16_t* x, uint32_t* out) {
  uint16_t* tile = reinterpret_cast<uint16_t*>(shared_memory());  // (4, 8, 8)
  const int l = lane_index();
  for (int i = l; i < 256; i += 32) tile[i] = x[i];
  block_barrier();
  const uint32_t row = to_shared(shared_memory()) + 16 * l;
  uint32_t r[4] = {}, two[2], one[1];
  load_matrix_x4(r, row);
  for (int i = 0; i < 4; ++i) out[l * 4 + i] = r[i];
  load_matrix_x4_trans(r, row);
  for (int i = 0; i < 4; ++i) out[128 + l * 4 + i] = r[i];
  emu::ldmatrix<2>(two, row);
  emu::ldmatrix<1, true>(one, row);
  out[256 + l * 4] = two[0], out[256 + l * 4 + 1] = two[1], out[256 + l * 4 + 2] = one[0];
}
AITC_KERNEL(32) void AITC_ENTRY(store_matrices)(const uint32_t* x, uint16_t* out, int transposed) {
  const int l = lane_index();
  uint32_t r[4];
  for (int i = 0; i < 4; ++i) r[i] = x[l * 4 + i];
  const uint32_t row = to_shared(shared_memory()) + 16 * l;
  transposed ? emu::stmatrix<4, true>(row, r) : emu::stmatrix<4>(row, r);
  block_barrier();
  for (int i = l; i < 256; i += 32) out[i] = reinterpret_cast<uint16_t*>(shared_memory())[i];
}

// Registers in, registers out: a (32, 4), b (32, 2), d (32, 4).
template <class T> void multiply(const uint32_t* a, const uint32_t* b, float* d) {
  const int l = lane_index();
  uint32_t ra[4], rb[2];
  float rd[4];
  for (int i = 0; i < 4; ++i) ra[i] = a[l * 4 + i], rd[i] = d[l * 4 + i];
  for (int i = 0; i < 2; ++i) rb[i] = b[l * 2 + i];
  Mma<T>::run(rd, ra, rb);
  for (int i = 0; i < 4; ++i) d[l * 4 + i] = rd[i];
}
AITC_KERNEL(32) void AITC_ENTRY(mma_f16)(const uint32_t* a, const uint32_t* b, float* d) { multiply<half_t>(a, b, d); }
AITC_KERNEL(32) void AITC_ENTRY(mma_bf16)(const uint32_t* a, const uint32_t* b, float* d) {
  multiply<bfloat16_t>(a, b, d);
}
AITC_KERNEL(32) void AITC_ENTRY(mma_tf32)(const uint32_t* a, const uint32_t* b, float* d) { multiply<float>(a, b, d); }
AITC_KERNEL(32) void AITC_ENTRY(round_tf32)(uint32_t* x) { round_operand<float>(x[thread_index()]); }

// Three groups of one 16-byte copy a lane; after waiting for all but `pending` of them, what is there (3, 32, 4)?
template <int Pending> void copy_groups(const float* x, float* out) {
  const int l = lane_index();
  float* tile = reinterpret_cast<float*>(shared_memory());
  const uint32_t to = to_shared(shared_memory());
  for (int g = 0; g < 3; ++g) {
    copy_async<16>(to + (g * 32 + l) * 16, x + (g * 32 + l) * 4, g != 1 || l % 2 == 0);
    copy_async_commit();
  }
  copy_async_wait<Pending>();
  for (int i = 0; i < 12; ++i) out[(i / 4 * 32 + l) * 4 + i % 4] = tile[(i / 4 * 32 + l) * 4 + i % 4];
  copy_async_wait<0>();
}
AITC_KERNEL(32) void AITC_ENTRY(copy_wait_0)(const float* x, float* out) { copy_groups<0>(x, out); }
AITC_KERNEL(32) void AITC_ENTRY(copy_wait_1)(const float* x, float* out) { copy_groups<1>(x, out); }
AITC_KERNEL(32) void AITC_ENTRY(copy_wait_2)(const float* x, float* out) { copy_groups<2>(x, out); }

// ---------------------------------------------------------------- each of these is wrong in one way
AITC_KERNEL(32) void AITC_ENTRY(load_in_flight)(const char* x, uint32_t* out) {
  const uint32_t at = to_shared(shared_memory()) + 16 * lane_index();
  copy_async<16>(at, x + 16 * lane_index(), true);
  copy_async_commit();
  uint32_t r[4];
  load_matrix_x4(r, at);
  out[lane_index()] = r[0];
}
AITC_KERNEL(32) void AITC_ENTRY(copy_misaligned)(const char* x, int from, int to) {
  copy_async<16>(to_shared(shared_memory()) + uint32_t(to), x + from, true);
}
AITC_KERNEL(32) void AITC_ENTRY(load_outside)(uint32_t* out) {
  uint32_t r[4];
  load_matrix_x4(r, to_shared(shared_memory()) + 16 * lane_index() + 16);
  out[lane_index()] = r[0];
}
AITC_KERNEL(64) void AITC_ENTRY(partial_warp)(float* d) {
  float rd[4] = {};
  const uint32_t a[4] = {}, b[2] = {};
  if (lane_index() != 7) Mma<half_t>::run(rd, a, b);
  d[thread_index()] = rd[0];
}
