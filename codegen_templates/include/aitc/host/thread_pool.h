// Defines parallel_for_raw, num_threads and scratch of cpu/cpu.h. Include it in exactly one source file of a library.
//
// A persistent pool, started by the first parallel_for that needs it. Workers spin for `spin_us` after their last job and
// then sleep, so that the kernels of one inference reach warm workers (about 1 us) and an idle model costs nothing.
// One job runs at a time; a caller that finds the pool busy (another model, another thread) runs its own work inline, and
// so does a nested call. The caller never waits for a worker that has not begun: if the machine is too busy to schedule
// them, or after fork(), it does all the work itself.
//
// AITC_NUM_THREADS sets the number of threads; otherwise it is the smaller of the CPU affinity mask and the cgroup's quota.
#pragma once
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace aitc {
void parallel_for_raw(int64_t count, int64_t grain, void (*body)(void*, int64_t, int64_t), void* context);
int num_threads();
void* scratch(int slot, size_t bytes);

namespace host {

inline void cpu_pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

inline int available_cpus() {
  if (const char* text = getenv("AITC_NUM_THREADS")) {
    const long n = strtol(text, nullptr, 10);
    if (n >= 1 && n <= 1024) return int(n);
  }
  int cpus = 1;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) cpus = CPU_COUNT(&set);
  else if (const long n = sysconf(_SC_NPROCESSORS_ONLN); n > 0) cpus = int(n);
  if (FILE* file = fopen("/sys/fs/cgroup/cpu.max", "r")) {  // "<quota> <period>", or "max <period>"
    long quota = 0, period = 0;
    if (fscanf(file, "%ld %ld", &quota, &period) == 2 && quota > 0 && period > 0) {
      const int limit = int((quota + period - 1) / period);
      if (limit < cpus) cpus = limit;
    }
    fclose(file);
  }
  return cpus < 1 ? 1 : cpus;
}

class Pool {
 public:
  Pool() : threads_(available_cpus()), owner_(getpid()) {}

  ~Pool() {
    {
      std::lock_guard<std::mutex> lock(sleep_mutex_);
      stop_.store(true);
    }
    wake_.notify_all();
    for (auto& worker : workers_) {
      if (getpid() == owner_) worker.join();
      else worker.detach();  // a forked child has no such thread
    }
  }

  int threads() const { return threads_; }

  void run(int64_t count, int64_t grain, void (*body)(void*, int64_t, int64_t), void* context) {
    if (grain < 1) grain = 1;
    if (count <= 0) return;
    if (count <= grain || threads_ == 1 || inside() || !job_mutex_.try_lock()) {
      body(context, 0, count);
      return;
    }
    if (workers_.empty()) start();
    // Several chunks a thread let an uneven or interrupted thread be helped by the others.
    const int64_t even = count / (int64_t(threads_) * 4);
    chunk_ = even > grain ? even : grain;
    count_ = count;
    body_ = body;
    context_ = context;
    next_.store(0, std::memory_order_relaxed);
    const uint64_t generation = (state_.load(std::memory_order_relaxed) >> 32) + 1;
    state_.store(generation << 32 | open_bit, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0) {
      { std::lock_guard<std::mutex> lock(sleep_mutex_); }
      wake_.notify_all();
    }
    inside() = true;
    work();
    inside() = false;
    state_.fetch_and(~open_bit, std::memory_order_acq_rel);  // nobody enters any more: wait for those who are in
    for (int spins = 0; (state_.load(std::memory_order_acquire) & count_mask) != 0; ++spins) {
      if (spins < 2000) cpu_pause();
      else sched_yield();
    }
    job_mutex_.unlock();
  }

 private:
  static constexpr uint64_t open_bit = 1u << 31, count_mask = open_bit - 1;  // state: generation, open, workers inside
  static constexpr int64_t spin_us = 100;

  static bool& inside() {
    static thread_local bool flag = false;
    return flag;
  }

  void start() {
    workers_.reserve(threads_ - 1);
    for (int i = 1; i < threads_; ++i) {
      try {
        workers_.emplace_back([this] { loop(); });
      } catch (const std::system_error&) {  // the process may have no more threads: go on with fewer
        if (workers_.empty()) threads_ = 1;
        break;
      }
    }
  }

  void work() {
    for (;;) {
      const int64_t begin = next_.fetch_add(chunk_, std::memory_order_relaxed);
      if (begin >= count_) return;
      body_(context_, begin, begin + chunk_ < count_ ? begin + chunk_ : count_);
    }
  }

  bool ready(uint64_t seen) const {
    const uint64_t state = state_.load(std::memory_order_seq_cst);
    return stop_.load(std::memory_order_relaxed) || ((state & open_bit) != 0 && state >> 32 != seen);
  }

  static int64_t now_us() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return int64_t(t.tv_sec) * 1000000 + t.tv_nsec / 1000;
  }

  void wait(uint64_t seen) {
    const int64_t until = now_us() + spin_us;
    while (now_us() < until) {
      for (int i = 0; i < 32; ++i) {
        if (ready(seen)) return;
        cpu_pause();
      }
    }
    std::unique_lock<std::mutex> lock(sleep_mutex_);
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    wake_.wait(lock, [&] { return ready(seen); });
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }

  void loop() {
    inside() = true;  // what a body runs in parallel, it runs inline
    uint64_t seen = 0;
    for (;;) {
      wait(seen);
      if (stop_.load(std::memory_order_relaxed)) return;
      uint64_t state = state_.load(std::memory_order_relaxed);
      bool entered = false;
      while ((state & open_bit) != 0 && state >> 32 != seen && !entered)
        entered = state_.compare_exchange_weak(state, state + 1, std::memory_order_acquire);
      if (!entered) continue;  // closed meanwhile
      seen = state >> 32;
      work();
      state_.fetch_sub(1, std::memory_order_release);
    }
  }

  int threads_;
  const pid_t owner_;
  std::mutex job_mutex_, sleep_mutex_;
  std::condition_variable wake_;
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
  alignas(64) std::atomic<uint64_t> state_{0};
  alignas(64) std::atomic<int64_t> next_{0};
  alignas(64) int64_t count_ = 0;
  int64_t chunk_ = 1;
  void (*body_)(void*, int64_t, int64_t) = nullptr;
  void* context_ = nullptr;
};

inline Pool& pool() {
  static Pool instance;
  return instance;
}

// Out of memory here has no caller that could handle it.
struct Scratch {
  void* data = nullptr;
  size_t bytes = 0;
  ~Scratch() { free(data); }
  void* get(size_t wanted) {
    if (wanted > bytes) {
      free(data);
      bytes = (wanted + wanted / 4 + 4095) & ~size_t(4095);
      data = aligned_alloc(64, bytes);
      if (data == nullptr) {
        fprintf(stderr, "aitc: out of memory (%zu bytes of scratch)\n", bytes);
        abort();
      }
    }
    return data;
  }
};

}  // namespace host

__attribute__((visibility("hidden"))) void parallel_for_raw(int64_t count, int64_t grain, void (*body)(void*, int64_t, int64_t),
                                                            void* context) {
  host::pool().run(count, grain, body, context);
}

__attribute__((visibility("hidden"))) int num_threads() { return host::pool().threads(); }

__attribute__((visibility("hidden"))) void* scratch(int slot, size_t bytes) {
  static thread_local host::Scratch slots[4];
  return slots[slot].get(bytes);
}

}  // namespace aitc
