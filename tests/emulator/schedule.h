// Runs the lanes: a warp until its lanes wait for somebody else, the warps of a cluster in turn, the clusters of a
// grid.
#pragma once
#include <pthread.h>

#include <atomic>
#include <exception>
#include <mutex>
#include <utility>

#include "fault.h"
#include "shared_memory.h"

namespace emu AITC_EMULATOR_HIDDEN {

void finish_lane(Lane& lane);  // checks what a returning lane leaves in flight (launch.h)

namespace schedule {

// Fills order[0..n) with the order in which n things run now.
inline void make_order(int* order, int n) {
  Worker& worker = *running.worker;
  for (int i = 0; i < n; ++i) order[i] = worker.config.reverse ? n - 1 - i : i;
  if (worker.config.seed)
    for (int i = n - 1; i > 0; --i) std::swap(order[i], order[worker.next_random(uint32_t(i) + 1)]);
}

[[noreturn]] inline void lane_main() {
  Worker& worker = *running.worker;
#ifdef AITC_EMULATOR_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &worker.scheduler.bottom, &worker.scheduler.size);
#endif
  worker.entry(worker.arguments);
  Lane& lane = *running.lane;
  finish_lane(lane);
  lane.state = State::done;
  --lane.block->alive;
  to_scheduler(lane, true);
  abort();
}

inline void resume(Lane& lane) {
  Worker& worker = *running.worker;
  running.lane = &lane;
  switch_context(worker.scheduler, lane.context);
  running.lane = nullptr;
  if (!worker.error.empty()) {
    const std::string message = std::move(worker.error);
    worker.error.clear();
    throw Error(message);
  }
}

// Where the lanes of a block stand, equal neighbours on one line.
inline std::string standing(const Block& block) {
  std::string text = "  block " + text_of(block.index) + "\n";
  for (const Warp& warp : block.warps) {
    for (int i = 0; i < warp.count;) {
      const Lane& l = warp.lanes[i];
      int j = i;
      while (j + 1 < warp.count && warp.lanes[j + 1].state == l.state &&
             (l.state == State::done || warp.lanes[j + 1].site == l.site))
        ++j;
      text += "    warp " + std::to_string(warp.index) + " lanes " + std::to_string(i) + ".." + std::to_string(j) +
              ": " + (l.state == State::done ? "returned" : text_of(l.site)) + "\n";
      i = j + 1;
    }
  }
  return text;
}

// Two groups of lanes of one warp that wait for each other: nothing that happens elsewhere can free them.
inline void check_divergence(const Warp& warp) {
  const Lane* first = nullptr;
  const Lane* other = nullptr;
  for (int i = 0; i < warp.count; ++i) {
    const Lane& l = warp.lanes[i];
    if (l.state == State::done) continue;
    if (l.state != State::collective && l.state != State::barrier) return;
    if (!first) first = &l;
    else if (l.site != first->site || l.state != first->state) other = &l;
  }
  if (!other || (first->state != State::collective && other->state != State::collective)) return;
  throw Error("the lanes of a warp do not meet at one operation (divergent collective)\n  " + text_of(first->site) +
              "\n  " + text_of(other->site) + "\n" + standing(*warp.block));
}

inline bool resolve_collectives(Warp& warp) {
  uint64_t parked = 0, alive = 0;
  for (int i = 0; i < warp.count; ++i) {
    if (warp.lanes[i].state != State::done) alive |= uint64_t(1) << i;
    if (warp.lanes[i].state == State::collective) parked |= uint64_t(1) << i;
  }
  bool any = false;
  for (uint64_t todo = parked; todo;) {
    const Lane& first = warp.lanes[__builtin_ctzll(todo)];
    uint64_t group = 0;
    void* args[kWarp] = {};
    for (int i = 0; i < warp.count; ++i) {
      const Lane& l = warp.lanes[i];
      if (!(todo >> i & 1) || l.mask != first.mask || l.resolve != first.resolve || l.site != first.site) continue;
      group |= uint64_t(1) << i;
      args[i] = l.args;
    }
    todo &= ~group;
    if (first.mask & alive & ~group) continue;
    Worker& worker = *running.worker;
    worker.resolving = &warp;
    first.resolve(group, args);
    worker.resolving = nullptr;
    for (int i = 0; i < warp.count; ++i)
      if (group >> i & 1) warp.lanes[i].state = State::ready;
    any = true;
  }
  if (parked && !any) check_divergence(warp);
  return any;
}

// Returns whether any lane got on; one that only looks again whether something has happened does not count.
inline bool run_warp(Warp& warp) {
  bool progress = false;
  int order[kWarp];
  make_order(order, warp.count);
  do {
    for (int i = 0; i < warp.count; ++i) {
      Lane& l = warp.lanes[order[i]];
      if (l.state == State::waiting && l.arrived(l)) l.state = State::ready;
      if (l.state != State::ready) continue;
      l.polls ? running.worker->polled = true : progress = true;
      l.polls = false;
      resume(l);
    }
  } while (resolve_collectives(warp));
  return progress;
}

inline bool release_barrier(Block& block) {
  const Lane* first = nullptr;
  for (const Lane& l : block.lanes) {
    if (l.state == State::done) continue;
    if (l.state != State::barrier) return false;
    if (!first) first = &l;
    else if (l.site != first->site)
      throw Error("the threads of a block wait at different barriers (one is missing on some path)\n  " +
                  text_of(first->site) + "\n  " + text_of(l.site) + "\n" + standing(block));
  }
  if (!first) return false;
  for (Lane& l : block.lanes)
    if (l.state == State::barrier) l.state = State::ready;
  return true;
}

inline void run_cluster(Cluster& cluster) {
  Worker& worker = *running.worker;
  int blocks[16], warps[kMaxThreads / kWarp];
  for (int idle = 0;;) {
    bool progress = false;
    worker.polled = false;
    int alive = 0;
    make_order(blocks, cluster.count);
    for (int b = 0; b < cluster.count; ++b) {
      Block& block = cluster.blocks[blocks[b]];
      if (!block.alive) continue;
      const int count = int(block.warps.size());
      make_order(warps, count);
      for (int w = 0; w < count; ++w) progress |= run_warp(block.warps[warps[w]]);
      progress |= release_barrier(block);
      alive += block.alive;
    }
    if (!alive) break;
    // A copy in flight arrives as late as it can; in a shuffled order at any time.
    if (!progress || (worker.config.seed && worker.next_random(3) == 0))
      progress |= cluster.perform_load && cluster.perform_load(cluster);
    if (!progress && worker.wants_dependency) {
      worker.wants_dependency = false;
      worker.dependency->finish();
      progress = true;
    }
    idle = progress ? 0 : idle + 1;
    if (idle > (worker.polled ? 100000 : 0)) {
      std::string text = "no lane can go on (deadlock: a barrier or an arrival is missing)\n";
      for (int b = 0; b < cluster.count; ++b) text += standing(cluster.blocks[b]);
      throw Error(text);
    }
  }
  if (!cluster.loads.empty())
    fail("the block ended with a copy into its shared memory still in flight", cluster.loads[0].site);
}

inline void start_block(Block& block, size_t dynamic_bytes) {
  Worker& worker = *running.worker;
  const int threads = int(block.size.count()), warps = (threads + kWarp - 1) / kWarp;
  start_memory(block, dynamic_bytes);
  block.lanes.resize(threads);
  block.warps.resize(warps);
  block.alive = threads;
  for (int w = 0; w < warps; ++w) {
    Warp& warp = block.warps[w];
    warp.lanes = block.lanes.data() + w * kWarp;
    warp.count = threads - w * kWarp < kWarp ? threads - w * kWarp : kWarp;
    warp.index = w;
    warp.block = &block;
    warp.wgmma = WgmmaQueue();
    warp.registers = 0;
  }
  for (NamedBarrier& n : block.named) n = NamedBarrier();
  block.register_pool = -1;
  for (std::vector<WgmmaRecord>& log : block.wgmma_log) log.clear();
  for (int t = 0; t < threads; ++t) {
    Lane& l = block.lanes[t];
    l.state = State::ready;
    l.id = uint8_t(t % kWarp);
    l.thread = Dim3(t % block.size.x, t / block.size.x % block.size.y, t / (block.size.x * block.size.y));
    l.warp = &block.warps[t / kWarp];
    l.block = &block;
    l.site = Site();
    l.copies.items.clear();
    l.copies.open = 0;
    l.stores.items.clear();
    l.stores.open = 0;
    l.cluster_arrivals = l.cluster_waits = 0;
    l.polls = false;
    l.stack = worker.stacks[size_t(block.rank) * kMaxThreads + t];
    start_context(l.context, l.stack, l.id, reinterpret_cast<void (*)()>(&lane_main));
  }
}

struct Grid {
  Dim3 grid, block, cluster;
  size_t dynamic_bytes = 0;
  void (*entry)(const void* arguments) = nullptr;
  const void* arguments = nullptr;
  Dependency* dependency = nullptr;
};

// Runs the `i`th cluster of the grid.
inline void run_one(Worker& worker, const Grid& g, uint64_t i) {
  const Dim3 clusters(g.grid.x / g.cluster.x, g.grid.y / g.cluster.y, g.grid.z / g.cluster.z);
  const Dim3 at(unsigned(i % clusters.x), unsigned(i / clusters.x % clusters.y),
                unsigned(i / (uint64_t(clusters.x) * clusters.y)));
  Cluster& cluster = worker.cluster;
  cluster.count = int(g.cluster.count());
  if (int(cluster.blocks.size()) < cluster.count) cluster.blocks.resize(cluster.count);
  cluster.barrier_phase = 0;
  cluster.late = nullptr;
  cluster.loads.clear();
  worker.random = worker.config.seed * 2654435761u + uint32_t(i);
  for (int r = 0; r < cluster.count; ++r) {
    Block& block = cluster.blocks[r];
    block.cluster = &cluster;
    block.rank = r;
    block.grid = g.grid;
    block.size = g.block;
    block.index = Dim3(at.x * g.cluster.x + r % g.cluster.x, at.y * g.cluster.y + r / g.cluster.x % g.cluster.y,
                       at.z * g.cluster.z + r / (g.cluster.x * g.cluster.y));
    start_block(block, g.dynamic_bytes);
  }
  run_cluster(cluster);
  for (int r = 0; r < cluster.count; ++r) finish_memory(cluster.blocks[r]);
}

inline uint64_t common_divisor(uint64_t a, uint64_t b) { return b ? common_divisor(b, a % b) : a; }

// A launch: its clusters, which the working threads take one after the other.
class Run {
 public:
  explicit Run(const Grid& grid) : grid_(grid), total_(grid.grid.count() / grid.cluster.count()) {
    if (!config_.seed) return;
    start_ = config_.seed % total_;
    stride_ = (uint64_t(config_.seed) * 2654435761u) % total_ | 1;
    while (common_divisor(stride_, total_) != 1) stride_ += 2;
  }
  void run() {
    std::vector<pthread_t> others;
    for (uint64_t i = 1; i < uint64_t(config_.threads) && i < total_; ++i) {
      pthread_t thread;
      if (!pthread_create(&thread, nullptr, [](void* r) { return static_cast<Run*>(r)->work(), r; }, this))
        others.push_back(thread);
    }
    work();
    for (pthread_t t : others) pthread_join(t, nullptr);
    if (error_) std::rethrow_exception(error_);
    if (grid_.dependency && !grid_.dependency->done)
      throw Error("launched to overlap the launch before it, but no thread waits for that (grid_dependency_wait)");
  }

 private:
  // The `i`th cluster to run; a seeded order walks over all of them.
  uint64_t cluster(uint64_t i) const {
    return config_.seed ? (start_ + i * stride_) % total_ : config_.reverse ? total_ - 1 - i : i;
  }
  void work() {
    static thread_local Worker kept;  // with its stacks and shared memory
    static thread_local int depth = 0;
    const bool nested = depth++ > 0;  // a launch that the running one waits for
    Worker* const fresh = nested ? new Worker : nullptr;
    Worker& worker = nested ? *fresh : kept;
    const Running before = running;
    const FaultGuard faults;
    worker.config = config_;
    worker.entry = grid_.entry;
    worker.arguments = grid_.arguments;
    worker.dependency = grid_.dependency;
    worker.wants_dependency = false;
    running.worker = &worker;
    running.lane = nullptr;
    try {
      for (uint64_t i; (i = next_.fetch_add(1)) < total_;) run_one(worker, grid_, cluster(i));
    } catch (...) {
      next_ = total_;
      const std::lock_guard<std::mutex> lock(guard_);
      if (!error_) error_ = std::current_exception();
    }
    running = before;
    delete fresh;
    if (!nested) kept.stacks.keep(32);
    --depth;
  }

  const Config config_;
  const Grid& grid_;
  const uint64_t total_;
  uint64_t start_ = 0, stride_ = 1;
  std::atomic<uint64_t> next_{0};
  std::exception_ptr error_;
  std::mutex guard_;
};

}  // namespace schedule
}  // namespace emu
