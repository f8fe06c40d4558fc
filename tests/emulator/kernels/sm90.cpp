// The sm_90 instructions; checked by test_sm90.py and test_tma.py.
#include "aitc/gpu/core/gpu.h"
#include "aitc/types.h"
#include <mma_sm80.h>
#include <mma_sm90.h>
using namespace aitc;

static uint32_t smem() { return emu::shared_address(emu::shared_memory()); }
static void dump(uint32_t* out, int words) {
  for (int i = thread_index(); i < words; i += int(blockDim.x))
    out[i] = reinterpret_cast<uint32_t*>(shared_memory())[i];
}
static uint64_t at(uint64_t descriptor) { return descriptor + (smem() >> 4); }

// ---------------------------------------------------------------- wgmma on an image of shared memory
template <class Read, int Bytes, int N> static void multiply(const uint32_t* image, int words, uint64_t a, uint64_t b,
                                                             float* d, int keep, int transposed) {  // d (128, N / 2)
  for (int i = thread_index(); i < words; i += 128) reinterpret_cast<uint32_t*>(shared_memory())[i] = image[i];
  block_barrier();
  float acc[N / 2];
  for (int i = 0; i < N / 2; ++i) acc[i] = d[thread_index() * (N / 2) + i];
  wgmma_fence();
  emu::wgmma<Read, Bytes, N>(acc, at(a), at(b), keep, (transposed & 1) != 0, (transposed & 2) != 0);
  wgmma_commit();
  wgmma_wait<0>();
  for (int i = 0; i < N / 2; ++i) d[thread_index() * (N / 2) + i] = acc[i];
}
#define WGMMA_PARAMETERS const uint32_t *image, int words, uint64_t a, uint64_t b, float *d, int keep, int transposed
#define WGMMA_ARGUMENTS image, words, a, b, d, keep, transposed
AITC_KERNEL(128) void AITC_ENTRY(wgmma_f16_24)(WGMMA_PARAMETERS) { multiply<emu::ReadHalf, 2, 24>(WGMMA_ARGUMENTS); }
AITC_KERNEL(128) void AITC_ENTRY(wgmma_f16_64)(WGMMA_PARAMETERS) { multiply<emu::ReadHalf, 2, 64>(WGMMA_ARGUMENTS); }
AITC_KERNEL(128) void AITC_ENTRY(wgmma_f16_256)(WGMMA_PARAMETERS) { multiply<emu::ReadHalf, 2, 256>(WGMMA_ARGUMENTS); }
AITC_KERNEL(128) void AITC_ENTRY(wgmma_bf16_64)(WGMMA_PARAMETERS) {
  multiply<emu::ReadBfloat16, 2, 64>(WGMMA_ARGUMENTS);
}
AITC_KERNEL(128) void AITC_ENTRY(wgmma_tf32_64)(WGMMA_PARAMETERS) { multiply<emu::ReadTf32, 4, 64>(WGMMA_ARGUMENTS); }

AITC_KERNEL(128)
void AITC_ENTRY(wgmma_registers)(const uint32_t* image, int words, const uint32_t* a, uint64_t b,
                                 float* d) {  // a (128, 4), d (128, 32)
  for (int i = thread_index(); i < words; i += 128) reinterpret_cast<uint32_t*>(shared_memory())[i] = image[i];
  block_barrier();
  float acc[32];
  wgmma_fence();
  wgmma_transposed<half_t, 64>(acc, a + 4 * thread_index(), at(b), 0);
  wgmma_commit();
  wgmma_wait<0>();
  for (int i = 0; i < 32; ++i) d[thread_index() * 32 + i] = acc[i];
}
// Two chained products, and what the registers hold between: out (3, 128, 8).
AITC_KERNEL(128) void AITC_ENTRY(wgmma_chain)(const uint32_t* image, int words, uint64_t a, uint64_t b, float* out) {
  for (int i = thread_index(); i < words; i += 128) reinterpret_cast<uint32_t*>(shared_memory())[i] = image[i];
  block_barrier();
  float acc[8];
  wgmma_fence();
  wgmma<half_t, 16>(acc, at(a), at(b), 0);
  wgmma_commit();
  wgmma<half_t, 16>(acc, at(a), at(b), 1);
  wgmma_commit();
  for (int i = 0; i < 8; ++i) out[thread_index() * 8 + i] = acc[i];
  wgmma_wait<1>();
  for (int i = 0; i < 8; ++i) out[1024 + thread_index() * 8 + i] = acc[i];
  wgmma_wait<0>();
  for (int i = 0; i < 8; ++i) out[2048 + thread_index() * 8 + i] = acc[i];
}

// ---------------------------------------------------------------- TMA
AITC_KERNEL(64) void AITC_ENTRY(load_2d)(AITC_GRID_CONSTANT CUtensorMap map, int x, int y, uint32_t* out, int words) {
  const uint32_t barrier = smem() + uint32_t(words) * 4;
  if (thread_index() == 0) {
    barrier_init(barrier, 1);
    barrier_expect(barrier, uint32_t(words) * 4);
    tma_load(smem(), map, x, y, barrier);
  }
  block_barrier();
  barrier_wait(barrier, 0);
  dump(out, words);
}
AITC_KERNEL(64)
void AITC_ENTRY(load_4d)(AITC_GRID_CONSTANT CUtensorMap map, int x, int y, int z, int u, uint32_t* out, int words) {
  const uint32_t barrier = smem() + uint32_t(words) * 4;
  if (thread_index() == 0) {
    barrier_init(barrier, 1);
    barrier_expect(barrier, uint32_t(words) * 4);
    tma_load(smem(), map, x, y, z, u, barrier);
  }
  block_barrier();
  barrier_wait(barrier, 0);
  dump(out, words);
}
AITC_KERNEL(64)
void AITC_ENTRY(load_im2col)(AITC_GRID_CONSTANT CUtensorMap map, int c, int w, int h, int n, int s, int r,
                             uint32_t* out, int words) {
  const uint32_t barrier = smem() + uint32_t(words) * 4;
  if (thread_index() == 0) {
    barrier_init(barrier, 1);
    barrier_expect(barrier, uint32_t(words) * 4);
    tma_load_im2col(smem(), map, c, w, h, n, uint16_t(s), uint16_t(r), barrier);
  }
  block_barrier();
  barrier_wait(barrier, 0);
  dump(out, words);
}
// Fills shared memory with its word numbers and stores it as a box.
AITC_KERNEL(64) void AITC_ENTRY(store_2d)(AITC_GRID_CONSTANT CUtensorMap map, int x, int y, int words, int wait) {
  for (int i = thread_index(); i < words; i += 64) reinterpret_cast<uint32_t*>(shared_memory())[i] = uint32_t(i);
  fence_async_proxy();
  block_barrier();
  if (thread_index() == 0) {
    tma_store(map, x, y, smem());
    bulk_commit();
    if (wait) bulk_wait_read<0>();
  }
}
// Each block of the cluster loads one part of `parts` rows and sends it to all: out (blocks, words).
AITC_KERNEL(32) void AITC_ENTRY(multicast)(AITC_GRID_CONSTANT CUtensorMap map, uint32_t* out, int words, int mask) {
  const uint32_t barrier = smem() + uint32_t(words) * 4, rank = cluster_rank(), blocks = 2;
  if (thread_index() == 0) {
    barrier_init(barrier, 1);
    fence_barrier_init();
    barrier_expect(barrier, uint32_t(words) * 4);
  }
  cluster_arrive();
  cluster_wait();
  const uint32_t part = uint32_t(words) * 4 / blocks;
  if (thread_index() == 0)
    tma_load_multicast(smem() + rank * part, map, 0, int(rank * part / 128), barrier, uint16_t(mask));
  barrier_wait(barrier, 0);
  dump(out + blockIdx.x * uint32_t(words), words);
  cluster_arrive();
  cluster_wait();
}
// A ring of two stages through plain copies: one thread brings 16-float rows, 31 lanes of another warp add them up.
AITC_KERNEL(64) void AITC_ENTRY(ring)(const float* x, float* out, int rows) {
  const uint32_t full = smem() + 128, empty = full + 16;
  if (thread_index() == 0)
    for (int s = 0; s < 2; ++s) barrier_init(full + 8 * s, 1), barrier_init(empty + 8 * s, 31);
  block_barrier();
  if (warp_index() == 0) {
    if (lane_index() == 0)
      for (int i = 0; i < rows; ++i) {
        const uint32_t s = uint32_t(i) % 2;
        barrier_wait(empty + 8 * s, (uint32_t(i) / 2 & 1) ^ 1);
        barrier_expect(full + 8 * s, 64);
        bulk_load(smem() + 64 * s, x + 16 * i, 64, full + 8 * s);
      }
  } else if (lane_index() < 31) {
    float sum = 0;
    for (int i = 0; i < rows; ++i) {
      const uint32_t s = uint32_t(i) % 2;
      if (i % 3 == 2)
        while (!emu::mbarrier_test(full + 8 * s, uint32_t(i) / 2 & 1)) {
        }
      else barrier_wait(full + 8 * s, uint32_t(i) / 2 & 1);
      sum += reinterpret_cast<float*>(shared_memory())[16 * s + lane_index() % 16];
      barrier_arrive(empty + 8 * s);
    }
    out[lane_index()] = sum;
  }
}

// ---------------------------------------------------------------- clusters, named barriers, registers
// Every block gives its number to its right neighbour's shared memory, by address, by pointer, and tells by an mbarrier
// there.
AITC_KERNEL(32) void AITC_ENTRY(neighbours)(float* out) {
  const uint32_t rank = cluster_rank(), right = (rank + 1) % 4;
  if (thread_index() == 0) barrier_init(smem() + 64, 1);
  cluster_arrive();
  cluster_wait();
  if (thread_index() == 0) {
    store_peer(peer_address(smem(), right), float2{float(rank), float(blockIdx.x)});
    *emu::peer_pointer(reinterpret_cast<float*>(shared_memory()) + 2, right) = float(10 * rank);
    barrier_arrive(smem() + 64, right);
    barrier_wait(smem() + 64, 0);
    for (int i = 0; i < 3; ++i) out[blockIdx.x * 3 + i] = reinterpret_cast<float*>(shared_memory())[i];
  }
  cluster_arrive();
  cluster_wait();
}
// Warps 0 and 1 wait for what warps 2 and 3 only announce.
AITC_KERNEL(128) void AITC_ENTRY(named)(float* out) {
  float* tile = reinterpret_cast<float*>(shared_memory());
  if (warp_index() >= 2) {
    tile[thread_index() - 64] = float(thread_index());
    named_arrive(3, 128);
  } else {
    named_sync(3, 128);
    out[thread_index()] = tile[63 - thread_index()];
  }
}
AITC_KERNEL(384) void AITC_ENTRY(registers)(int* out) {
  if (warp_index() < 4) registers_give<24>();
  else registers_take<240>();
  out[thread_index()] = 1;
}

// ---------------------------------------------------------------- each of these is wrong in one way
AITC_KERNEL(384) void AITC_ENTRY(too_many_registers)(int* out) {
  if (warp_index() < 4) registers_give<40>();
  else registers_take<240>();  // 40 + 2 * 240 are more than there are
  out[thread_index()] = 1;
}
AITC_KERNEL(32) void AITC_ENTRY(never_arrives)(int* out) {
  if (thread_index() == 0) barrier_init(smem(), 2);
  block_barrier();
  if (thread_index() == 0) barrier_arrive(smem());
  barrier_wait(smem(), 0);
  out[thread_index()] = 1;
}
AITC_KERNEL(32) void AITC_ENTRY(arrives_too_often)(int* out) {
  if (thread_index() == 0)
    barrier_init(smem(), 2), barrier_expect(smem(), 64), barrier_arrive(smem()), barrier_arrive(smem());
  out[thread_index()] = 1;
}
AITC_KERNEL(32) void AITC_ENTRY(no_barrier_there)(int* out) {
  barrier_wait(smem(), 1);
  out[thread_index()] = 1;
}
AITC_KERNEL(32) void AITC_ENTRY(reads_in_flight)(const float* x, uint32_t* out) {
  if (thread_index() == 0) {
    barrier_init(smem() + 128, 1);
    barrier_expect(smem() + 128, 128);
    bulk_load(smem(), x, 128, smem() + 128);
  }
  block_barrier();
  out[thread_index()] = load_shared_word(smem() + 4 * thread_index());
}
AITC_KERNEL(32) void AITC_ENTRY(plain_read_in_flight)(const float* x, float* out) {
  if (thread_index() == 0) {
    barrier_init(smem() + 128, 1);
    barrier_expect(smem() + 128, 128);
    bulk_load(smem(), x, 128, smem() + 128);
  }
  block_barrier();
  const float v = reinterpret_cast<float*>(shared_memory())[thread_index()];
  barrier_wait(smem() + 128, 0);
  out[thread_index()] = v;
}
AITC_KERNEL(32) void AITC_ENTRY(ends_in_flight)(const float* x) {
  if (thread_index() == 0) {
    barrier_init(smem() + 128, 1);
    barrier_expect(smem() + 128, 128);
    bulk_load(smem(), x, 128, smem() + 128);
  }
}
AITC_KERNEL(128) void AITC_ENTRY(wgmma_unfenced)(uint64_t a, uint64_t b) {
  float acc[8];
  wgmma<half_t, 16>(acc, at(a), at(b), 0);
  wgmma_commit();
  wgmma_wait<0>();
}
AITC_KERNEL(128) void AITC_ENTRY(wgmma_not_waited)(uint64_t a, uint64_t b, float* out) {
  float acc[8];
  wgmma_fence();
  wgmma<half_t, 16>(acc, at(a), at(b), 0);
  wgmma_commit();
  out[thread_index()] = acc[0];
}
AITC_KERNEL(128) void AITC_ENTRY(wgmma_touched)(uint64_t a, uint64_t b, float* out) {
  float acc[8];
  wgmma_fence();
  wgmma<half_t, 16>(acc, at(a), at(b), 0);
  wgmma_commit();
  acc[3] = 1;
  wgmma_wait<0>();
  out[thread_index()] = acc[0] + acc[3];
}
AITC_KERNEL(128) void AITC_ENTRY(wgmma_disagree)(uint64_t a, uint64_t b) {
  float acc[8];
  wgmma_fence();
  wgmma<half_t, 16>(acc, at(a) + (warp_index() == 2), at(b), 0);
  wgmma_commit();
  wgmma_wait<0>();
}
AITC_KERNEL(32) void AITC_ENTRY(leaves_cluster)(float* out) {
  if (cluster_rank() == 1) return;
  for (int i = 0; i < 3; ++i) block_barrier();
  store_peer(peer_address(smem(), 1), float2{1, 2});
  out[0] = 1;
}
AITC_KERNEL(32) void AITC_ENTRY(waits_without_arriving)(float* out) {
  cluster_wait();
  out[0] = 1;
}
