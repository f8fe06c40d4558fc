// What the edges of a CUDA graph cost, what it costs the host to make, update and launch one, and what pinning weights in
// the L2 cache would gain: the numbers behind aitc/schedule/launch/lanes.py and host/device_gpu.h.
//   nvcc -O2 -std=c++17 -arch=sm_90a -o graph_edges bench/graph_edges.cu && ./graph_edges
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#define CHECK(call)                                                        \
  do {                                                                     \
    const cudaError_t status_ = (call);                                    \
    if (status_) printf("%s: %s\n", #call, cudaGetErrorString(status_)), exit(1); \
  } while (0)

// Runs for so many cycles, and counts its launches.
__global__ void spin(int cycles, int* launches) {
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
  const long long begin = clock64();
  while (clock64() - begin < cycles) {}
  if (threadIdx.x == 0 && blockIdx.x == 0) atomicAdd(launches, 1);
}
// Reads `count` vectors once, as a product at batch 1 reads its weights.
__global__ void read_once(const uint4* from, size_t count, unsigned* sum) {
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
  unsigned x = 0;
#pragma unroll 8
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += size_t(gridDim.x) * blockDim.x) {
    const uint4 v = from[i];
    x ^= v.x ^ v.y ^ v.z ^ v.w;
  }
  if (x == 0x12345678) *sum = x;
}

static cudaStream_t main_, sides[3];
static cudaEvent_t forked, joined[3], begin_, end_;
static int* launches;

static void launch(cudaStream_t stream, bool overlap, int cycles) {
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(20), config.blockDim = dim3(128), config.stream = stream;
  config.attrs = &attribute, config.numAttrs = overlap ? 1 : 0;
  CHECK(cudaLaunchKernelEx(&config, spin, cycles, launches));
}
static cudaGraph_t record(const std::function<void()>& body) {
  cudaGraph_t graph;
  CHECK(cudaStreamBeginCapture(main_, cudaStreamCaptureModeRelaxed));
  body();
  CHECK(cudaStreamEndCapture(main_, &graph));
  return graph;
}
// Median microseconds of replays.
static double replay_us(const std::function<void()>& body) {
  cudaGraphExec_t exec;
  const cudaGraph_t graph = record(body);
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  std::vector<float> times;
  for (int i = 0; i < 60; ++i) {
    float ms;
    CHECK(cudaEventRecord(begin_, main_));
    CHECK(cudaGraphLaunch(exec, main_));
    CHECK(cudaEventRecord(end_, main_));
    CHECK(cudaEventSynchronize(end_));
    CHECK(cudaEventElapsedTime(&ms, begin_, end_));
    if (i >= 10) times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  return times[times.size() / 2] * 1e3;
}

// ---- edges: segments of one launch, then lanes side by side, against chains
static void edges(int us) {
  const int segments = 40, cycles = us * 1800;
  const auto row = [&](const char* name, int kernels, const std::function<void()>& segment) {
    const double time = replay_us([&] { for (int i = 0; i < segments; ++i) segment(); });
    printf("| %d us | %s | %d | %.2f |\n", us, name, kernels, time / segments);
  };
  const auto chain = [&](int count, bool overlap) {
    return [=] { for (int i = 0; i < count; ++i) launch(main_, overlap, cycles); };
  };
  const auto fork = [&](int lanes, int deep) {
    return [=] {
      launch(main_, false, cycles);
      CHECK(cudaEventRecord(forked, main_));
      for (int side = 0; side + 1 < lanes; ++side) CHECK(cudaStreamWaitEvent(sides[side], forked, 0));
      for (int i = 0; i < deep; ++i) launch(main_, true, cycles);
      for (int side = 0; side + 1 < lanes; ++side) {
        for (int i = 0; i < deep; ++i) launch(sides[side], i > 0, cycles);
        CHECK(cudaEventRecord(joined[side], sides[side]));
        CHECK(cudaStreamWaitEvent(main_, joined[side], 0));
      }
    };
  };
  row("chain, dependent launch", 3, chain(3, true));
  row("chain", 3, chain(3, false));
  row("one, then two lanes of one", 3, fork(2, 1));
  row("one, then two lanes of two", 5, fork(2, 2));
  row("one, then four lanes of one", 5, fork(4, 1));
  row("one, then four lanes of two", 9, fork(4, 2));
}

// ---- the host: a chain of `count` launches, one by one, recorded, made executable, updated, replayed
static void host(int count) {
  const auto body = [&] { for (int i = 0; i < count; ++i) launch(main_, true, 0); };
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr, other;
  const auto row = [&](const char* name, const std::function<void()>& step) {
    std::vector<double> times;
    for (int i = 0; i < 30; ++i) {
      CHECK(cudaStreamSynchronize(main_));
      const auto start = std::chrono::steady_clock::now();
      step();
      times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
    }
    std::sort(times.begin(), times.end());
    printf("| %d | %s | %.1f |\n", count, name, times[times.size() / 2]);
  };
  graph = record(body);
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  row("launched one by one", body);
  row("recorded", [&] { CHECK(cudaGraphDestroy(graph)); graph = record(body); });
  row("made executable", [&] { CHECK(cudaGraphInstantiate(&other, graph, 0)); CHECK(cudaGraphExecDestroy(other)); });
  row("brought up to date", [&] { cudaGraphExecUpdateResultInfo info; CHECK(cudaGraphExecUpdate(exec, graph, &info)); });
  row("replayed", [&] { CHECK(cudaGraphLaunch(exec, main_)); });
  row("up to date, then replayed", [&] {
    cudaGraphExecUpdateResultInfo info;
    CHECK(cudaGraphDestroy(graph));
    graph = record(body);
    CHECK(cudaGraphExecUpdate(exec, graph, &info));
    CHECK(cudaGraphLaunch(exec, main_));
  });
  CHECK(cudaStreamSynchronize(main_));
}

// ---- the L2 cache: runs that read `total` bytes of weights once each, by launches of 2 MiB, with and without the first
// `pinned` bytes in the part that is set aside for persisting accesses
static void cache(size_t total, size_t pinned) {
  const size_t part = size_t(2) << 20;
  char* weights;
  CHECK(cudaMalloc(&weights, total));
  CHECK(cudaMemset(weights, 0, total));
  CHECK(cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, pinned));
  const double us = replay_us([&] {
    for (size_t at = 0; at < total; at += part) {
      cudaLaunchAttribute attributes[2];
      attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attributes[0].val.programmaticStreamSerializationAllowed = 1;
      attributes[1].id = cudaLaunchAttributeAccessPolicyWindow;
      attributes[1].val.accessPolicyWindow = {weights + at, part, 1.0f, cudaAccessPropertyPersisting, cudaAccessPropertyStreaming};
      cudaLaunchConfig_t config = {};
      config.gridDim = dim3(132), config.blockDim = dim3(256), config.stream = main_;
      config.attrs = attributes, config.numAttrs = at < pinned ? 2 : 1;
      CHECK(cudaLaunchKernelEx(&config, read_once, reinterpret_cast<const uint4*>(weights + at), part / 16,
                               reinterpret_cast<unsigned*>(launches)));
    }
  });
  printf("| %zu | %zu | %.1f | %.0f |\n", total >> 20, pinned >> 20, us, double(total) / us * 1e-3);
  CHECK(cudaCtxResetPersistingL2Cache());
  CHECK(cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, 0));
  CHECK(cudaFree(weights));
}

int main() {
  CHECK(cudaMalloc(&launches, 4));
  CHECK(cudaStreamCreateWithFlags(&main_, cudaStreamNonBlocking));
  CHECK(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
  for (int i = 0; i < 3; ++i) {
    CHECK(cudaStreamCreateWithFlags(&sides[i], cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&joined[i], cudaEventDisableTiming));
  }
  CHECK(cudaEventCreate(&begin_));
  CHECK(cudaEventCreate(&end_));
  cudaDeviceProp device;
  CHECK(cudaGetDeviceProperties(&device, 0));
  printf("# Edges of graphs on %s\n\n", device.name);
  printf("`bench/graph_edges.cu`; medians of 50 replays. L2 cache %d MiB, of which %d MiB can be set aside.\n\n", device.l2CacheSize >> 20,
         device.persistingL2CacheMaxSize >> 20);
  printf("| each launch | segment | launches | us a segment |\n| --- | --- | --- | --- |\n");
  for (int us : {0, 3}) edges(us);
  printf("\n| launches | on the host | us |\n| --- | --- | --- |\n");
  for (int count : {20, 57, 150}) host(count);
  printf("\n| MiB of weights, read once a run | MiB pinned | us a run | GB/s |\n| --- | --- | --- | --- |\n");
  const size_t most = size_t(device.persistingL2CacheMaxSize);
  for (size_t mib : {24, 48, 96, 192})
    for (size_t pinned : {size_t(0), std::min(most, mib << 20)}) cache(mib << 20, pinned);
}
