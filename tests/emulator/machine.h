// The machine's parts: lanes (each on a fiber) in warps in blocks in a cluster, and how a lane waits or stops.
#pragma once
#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "fibers.h"
#include "in_flight.h"
#include "report.h"
#include "trace.h"

namespace emu AITC_EMULATOR_HIDDEN {

struct Warp;
struct Block;
struct Cluster;
struct Lane;

using Resolve = void (*)(uint64_t mask, void** args);  // args[lane], for the lanes in mask

enum class State : uint8_t {
  ready,       // can run
  collective,  // parked at a warp-wide operation until the lanes of its mask are there
  barrier,     // parked at the block's barrier
  waiting,     // until `arrived(lane)`: named barriers, mbarriers, cluster barriers
  done,
};

struct Lane {
  Context context;
  State state = State::done;
  bool polls = false;  // waits for nothing but the others' turn
  uint8_t id = 0;      // within its warp
  Dim3 thread;
  Warp* warp = nullptr;
  Block* block = nullptr;
  Site site;
  Resolve resolve = nullptr;
  void* args = nullptr;
  uint64_t mask = 0;
  bool (*arrived)(const Lane&) = nullptr;
  void* awaited = nullptr;
  uint64_t awaited_value = 0;
  char* stack = nullptr;
  CopyQueue copies;       // cp.async
  BulkStoreQueue stores;  // cp.async.bulk, from shared memory
  unsigned cluster_arrivals = 0, cluster_waits = 0;
};

struct Warp {
  Lane* lanes = nullptr;
  int count = 0;  // lanes that exist
  int index = 0;
  Block* block = nullptr;
  int registers = 0;  // a thread's, by setmaxnreg; 0: as at the start
  WgmmaQueue wgmma;
};

struct StaticArray {
  const void* key;
  size_t offset, bytes;
};
struct NamedBarrier {
  int expected = 0, arrived = 0;
  uint64_t phase = 0;
  Site site;
};

// A block's shared memory, kept from launch to launch.
class SharedMemory {
 public:
  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept : bytes_(other.bytes_) { other.bytes_ = nullptr; }
  SharedMemory& operator=(SharedMemory&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~SharedMemory() { free(bytes_); }
  char* get() const { return bytes_; }
  void allocate(size_t bytes) { bytes_ = static_cast<char*>(aligned_alloc(4096, bytes)); }

 private:
  char* bytes_ = nullptr;
};

struct Block {
  Dim3 index, size, grid;
  Cluster* cluster = nullptr;
  int rank = 0;  // within the cluster
  std::vector<Lane> lanes;
  std::vector<Warp> warps;
  int alive = 0;
  // shared memory: kReserved bytes, the dynamic part, then static arrays; `memory` + offset is a byte's place
  SharedMemory memory;
  size_t dynamic_bytes = 0, end = 0;
  std::vector<StaticArray> statics;
  std::vector<uint8_t> flight;  // copies in flight to each 4-byte word; empty until there was one
  NamedBarrier named[16];
  int register_pool = -1;                                 // of setmaxnreg; not used yet
  std::vector<WgmmaRecord> wgmma_log[kMaxThreads / 128];  // of each warpgroup
};

struct Cluster {
  std::vector<Block> blocks;
  int count = 0;
  unsigned barrier_phase = 0;                // phases of the cluster's barrier that are over
  const Lane* late = nullptr;                // one that the last look at the barrier found missing
  std::vector<TmaLoad> loads;                // in flight, oldest first
  bool (*perform_load)(Cluster&) = nullptr;  // lets one of them arrive, if there is one (tma.h)
};

struct Worker;
// What the running operating-system thread executes. `lane` is null in the scheduler and in resolvers.
struct Running {
  Lane* lane = nullptr;
  Worker* worker = nullptr;
};
inline thread_local Running running;

// What a launch follows: run(data) runs it, once.
struct Dependency {
  void (*run)(void* data) = nullptr;
  void* data = nullptr;
  std::atomic<bool> done{false};
  std::mutex running;
  void finish() {
    const std::lock_guard<std::mutex> lock(running);
    if (!done) run(data);
    done = true;
  }
};

struct Worker {
  Config config;
  Context scheduler;
  Cluster cluster;
  Stacks stacks;
  Warp* resolving = nullptr;  // in a resolver
  uint32_t random = 1;
  Dependency* dependency = nullptr;
  bool wants_dependency = false;  // a lane waits for it
  bool polled = false;            // in this round some lane polled
  std::string error;              // of a lane that failed; the scheduler throws it
  void (*entry)(const void* arguments) = nullptr;
  const void* arguments = nullptr;
  uint32_t next_random(uint32_t below) {
    random = random * 1664525u + 1013904223u;
    return (random >> 8) % below;
  }
};

inline std::string place_of(const Lane& lane) {
  return "block " + text_of(lane.block->index) + ", thread " + text_of(lane.thread) + ", warp " +
         std::to_string(lane.warp->index) + " lane " + std::to_string(lane.id);
}

// Ends the launch with an Error that names `site` and the running lane (or `blame`, in a resolver).
[[noreturn]] inline __attribute__((noinline)) void fail(const std::string& text, const Site& site,
                                                        const Lane* blame = nullptr) {
  Lane* lane = running.lane;
  std::string message = text + "\n  " + text_of(site);
  if (lane || blame) message += "\n  " + place_of(lane ? *lane : *blame);
  if (!lane) throw Error(message);
  message += call_chain();
  Worker& worker = *running.worker;
  worker.error = message;
  running.lane = nullptr;
  switch_context(lane->context, worker.scheduler, true);  // never entered again
  abort();
}

inline Lane& self(const Site& site) {
  Lane* lane = running.lane;
  if (!lane) fail("a device function was called outside a kernel", site);
  lane->site = site;
  return *lane;
}
inline Lane& self() { return *running.lane; }

inline __attribute__((noinline)) void to_scheduler(Lane& lane, bool last = false) {
  Worker& worker = *running.worker;
  running.lane = nullptr;
  switch_context(lane.context, worker.scheduler, last);
}

// Parks the calling lane until the lanes of its warp that are in `mask` (those that have not returned) stand at the
// same place, and `resolve` has run once on what they parked.
inline void warp_collective(Resolve resolve, void* args, const char* what, uint64_t mask = ~uint64_t(0),
                            Site site = Site::here()) {
  site = site.named(what);
  Lane& lane = self(site);
  if (!(mask >> lane.id & 1)) fail("a lane is not in the mask that it gives", site);
  lane.resolve = resolve;
  lane.args = args;
  lane.mask = mask;
  lane.site = site;
  lane.state = State::collective;
  to_scheduler(lane);
  asm volatile("" ::: "memory");
}

inline void block_barrier(Site site = Site::here()) {
  site = site.named("block_barrier");
  Lane& lane = self(site);
  lane.site = site;
  lane.state = State::barrier;
  asm volatile("" ::: "memory");
  to_scheduler(lane);
  asm volatile("" ::: "memory");
}

// Parks the calling lane until arrived(lane).
inline void wait_until(bool (*arrived)(const Lane&), void* awaited, uint64_t value, const Site& site) {
  Lane& lane = self(site);
  lane.site = site;
  lane.arrived = arrived;
  lane.awaited = awaited;
  lane.awaited_value = value;
  asm volatile("" ::: "memory");
  if (!arrived(lane)) {
    lane.state = State::waiting;
    to_scheduler(lane);
  }
  asm volatile("" ::: "memory");
}

inline int lane() { return running.lane->id; }

}  // namespace emu

#define threadIdx (::emu::running.lane->thread)
#define blockIdx (::emu::running.lane->block->index)
#define blockDim (::emu::running.lane->block->size)
#define gridDim (::emu::running.lane->block->grid)
