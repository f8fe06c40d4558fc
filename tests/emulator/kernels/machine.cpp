// What every target has: places, barriers, exchange between lanes, atomics, shared memory. Checked by test_machine.py.
#include "aitc/gpu/core/gpu.h"
#include "aitc/types.h"
using namespace aitc;

AITC_KERNEL(1024) void AITC_ENTRY(places)(int* out) {  // (threads, 5)
  const unsigned t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x,
                 threads = blockDim.x * blockDim.y * blockDim.z;
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  int* row = out + (block * threads + t) * 5;
  row[0] = int(threadIdx.x), row[1] = int(threadIdx.y), row[2] = int(threadIdx.z), row[3] = int(block),
  row[4] = emu::lane();
}

AITC_KERNEL(128)
void AITC_ENTRY(exchange)(const float* x, float* shuffled, float* crossed, uint64_t* ballots, double* sums) {
  const int t = thread_index();
  shuffled[t] = shuffle(x[t], (lane_index() * 7 + 3) % warp_size);
  crossed[t] = shuffle_xor(x[t], 5);
  ballots[t] = ballot(x[t] > 0);
  sums[t] = warp_reduce<16>(double(x[t]), [](double a, double b) { return a + b; });
}

AITC_KERNEL(256) void AITC_ENTRY(block_sum)(const float* x, float* out, int n) {
  float* scratch = reinterpret_cast<float*>(shared_memory());
  float v = 0;
  for (int i = int(blockIdx.x) * 256 + thread_index(); i < n; i += 256 * int(gridDim.x)) v += x[i];
  v = block_reduce<256>(v, [](float a, float b) { return a + b; }, scratch);
  if (thread_index() == 0) atomic_add(out, v);
}

AITC_KERNEL(64) void AITC_ENTRY(atomics)(int* ints, uint64_t* longs, float* floats, double* doubles) {
  const int t = thread_index();
  atomic_add(ints, t);
  atomic_max(ints + 1, t * 5 % 64);
  atomic_min(ints + 2, 100 - t);
  if (atomic_cas(ints + 3, t, t + 1) == t) atomic_add(ints + 4, 1);
  atomic_add(longs, uint64_t(1) << 40);
  atomic_add(floats, 0.5f);
  atomic_add(doubles, 0.25);
}

// Reversed through shared memory; without the barrier the order of the lanes shows.
AITC_KERNEL(128) void AITC_ENTRY(reverse)(const float* x, float* out, int with_barrier) {
  float* tile = reinterpret_cast<float*>(shared_memory());
  tile[thread_index()] = x[thread_index()];
  if (with_barrier) block_barrier();
  out[thread_index()] = tile[127 - thread_index()];
}
AITC_KERNEL(32) void AITC_ENTRY(unwritten)(float* out) {
  const float* tile = reinterpret_cast<const float*>(shared_memory());
  AITC_EMULATOR_SHARED(float, more, 32);
  out[thread_index()] = tile[thread_index()];
  out[32 + thread_index()] = more[thread_index()];
  block_barrier();
  more[thread_index()] = float(thread_index());
  block_barrier();
  out[64 + thread_index()] = more[31 - thread_index()];
}
AITC_KERNEL(1) void AITC_ENTRY(order)(int* next, int* places) { places[blockIdx.x] = atomic_add(next, 1); }

// ---------------------------------------------------------------- each of these is wrong in one way
AITC_KERNEL(64) void AITC_ENTRY(divergent_shuffle)(float* out) {
  float v = float(thread_index());
  if (lane_index() < 16) v = shuffle_xor(v, 1);  // half of a warp
  else v = shuffle_xor(v, 2);
  out[thread_index()] = v;
}
AITC_KERNEL(64) void AITC_ENTRY(divergent_barrier)(float* out) {
  if (lane_index() == 3) block_barrier();
  else warp_barrier();
  out[thread_index()] = 0;
}
AITC_KERNEL(128) void AITC_ENTRY(missing_barrier)(float* out, int n) {
  if (thread_index() < n) block_barrier();
  out[thread_index()] = 0;
  block_barrier();
}
AITC_KERNEL(64) void AITC_ENTRY(absent_lane)(float* out, int live) {
  if (lane_index() >= live) return;
  out[thread_index()] = shuffle(float(thread_index()), warp_size - 1);
}
AITC_KERNEL(32) void AITC_ENTRY(misaligned)(const float* x, float* out, int by) {
  store<4>(out + 4 * thread_index(), load<4>(x + 4 * thread_index() + by));
}
AITC_KERNEL(32) void AITC_ENTRY(misaligned_word)(const char* x, uint64_t* out, int by) {
  out[thread_index()] = *reinterpret_cast<const uint64_t*>(x + 8 * thread_index() + by);
}
AITC_KERNEL(32) void AITC_ENTRY(misaligned_copy)(const char* x, char* out, int by) {
  copy_bytes<8>(out + 8 * thread_index(), x + 8 * thread_index() + by);
}
AITC_KERNEL(32) void AITC_ENTRY(register_bounds)(float* out, int n) {
  float r[4] = {1, 2, 3, 4};
  out[thread_index()] = r[n % 8];
}
AITC_KERNEL(32) void AITC_ENTRY(behind_shared)(int i) { reinterpret_cast<float*>(shared_memory())[i] = 1; }
AITC_KERNEL(32) void AITC_ENTRY(out_of_range)(const float* x, float* out, int i) {
  out[thread_index()] = x[thread_index() + i];
}
