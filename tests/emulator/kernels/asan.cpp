// A program for AddressSanitizer: each argument is one access that must be reported, `good` none. Run by test_asan.py.
#include <vector>

#include "aitc/gpu/matmul/mma_sm80.h"
using namespace aitc;

AITC_KERNEL(64) void AITC_ENTRY(good)(const float* x, float* out) {
  float* tile = reinterpret_cast<float*>(shared_memory());
  copy_async<16>(to_shared(shared_memory()) + 16 * thread_index(), x + 4 * thread_index(), true);
  copy_async_commit();
  copy_async_wait<0>();
  block_barrier();
  out[thread_index()] = warp_reduce(tile[255 - thread_index()], [](float a, float b) { return a + b; });
}
AITC_KERNEL(64) void AITC_ENTRY(shared_overrun)(float* out) {
  float* tile = reinterpret_cast<float*>(shared_memory());
  out[thread_index()] = tile[thread_index() + 1];
}
AITC_KERNEL(64) void AITC_ENTRY(in_flight)(const float* x, float* out) {
  float* tile = reinterpret_cast<float*>(shared_memory());
  copy_async<16>(to_shared(shared_memory()) + 16 * thread_index(), x + 4 * thread_index(), true);
  copy_async_commit();
  out[thread_index()] = tile[4 * thread_index()];
  copy_async_wait<0>();
}
AITC_KERNEL(64) void AITC_ENTRY(global_overrun)(const float* x, float* out) {
  out[thread_index()] = x[thread_index() + 193];
}

int main(int, char** argv) {
  std::vector<float> x(256, 1.0f), out(64);
  const std::string what = argv[1];
  try {
    if (what == "good")
      for (int i = 0; i < 3; ++i) emu::launch(good, 2, 64, 1024, x.data(), out.data());
    if (what == "shared_overrun") emu::launch(shared_overrun, 1, 64, 256, out.data());
    if (what == "in_flight") emu::launch(in_flight, 1, 64, 1024, x.data(), out.data());
    if (what == "global_overrun") emu::launch(global_overrun, 1, 64, 0, x.data(), out.data());
    if (what == "error") emu::launch(good, 1, 64, 512, x.data(), out.data());
  } catch (const emu::Error& e) {
    puts(e.what());
    return 3;
  }
  return out[0] == 32 ? 0 : 1;
}
