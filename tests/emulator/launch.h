// Launching an entry point.
//
//   emu::launch(entry, grid, block, smem_bytes, arguments...)
//   emu::launch_as(emu::Launch(grid, block, cluster, smem_bytes), entry, arguments...)
//   emu::launch_pointers(entry, launch, void** arguments)      as cuLaunchKernel takes them
//   AITC_EMULATOR_ENTRY(entry, threads)     at file scope (`threads`: a block's upper bound, may be left out); makes
//       extern "C" int aitc_emulator_launch_<entry>(const unsigned dims[9], size_t smem_bytes, void** arguments)
//           dims: grid, block, cluster. Not 0 on error; then aitc_emulator_error() tells what happened.
//       extern "C" int aitc_emulator_parameters_<entry>(size_t* bytes, int room)
//           the number of parameters, and their sizes
#pragma once
#include <tuple>

#include "schedule.h"

namespace emu AITC_EMULATOR_HIDDEN {

struct Launch {
  Dim3 grid, block, cluster;
  size_t smem_bytes = 0;
  Dependency* dependency = nullptr;  // the launch that this one may overlap
  Launch(Dim3 grid_, Dim3 block_, Dim3 cluster_ = {}, size_t smem_bytes_ = 0)
      : grid(grid_), block(block_), cluster(cluster_), smem_bytes(smem_bytes_) {}
};

inline void finish_lane(Lane& lane) {
  if (!lane.warp->wgmma.items.empty()) fail("returns with a wgmma in flight", lane.warp->wgmma.items[0].site);
  if (!lane.stores.items.empty())
    fail("returns before its bulk stores have read shared memory", lane.stores.items[0].site);
  for (const Copy& c : lane.copies.items) mark_in_flight(*lane.block, c.to, size_t(c.bytes), -1);
}

inline void check_launch(const Launch& l) {
  const auto refuse = [](const std::string& why) { throw Error("invalid launch: " + why); };
  if (!l.grid.count() || !l.block.count() || !l.cluster.count()) refuse("an empty grid, block or cluster");
  if (l.grid.x > 0x7fffffffu || l.grid.y > 65535 || l.grid.z > 65535) refuse("a grid of " + text_of(l.grid));
  if (l.block.count() > uint64_t(kMaxThreads)) refuse("a block of " + std::to_string(l.block.count()) + " threads");
  if (l.smem_bytes > kSharedLimit)
    refuse(std::to_string(l.smem_bytes) + " bytes of shared memory, the target has " + std::to_string(kSharedLimit));
  if (l.cluster.count() > 1 && (kSm < 90 || kSm >= 120 || l.cluster.count() > 16))
    refuse("a cluster of " + std::to_string(l.cluster.count()) + " blocks");
  if (l.grid.x % l.cluster.x || l.grid.y % l.cluster.y || l.grid.z % l.cluster.z)
    refuse("the grid is no multiple of the cluster");
}

template <class... P>
inline void launch_tuple(void (*entry)(P...), const Launch& l, const std::tuple<std::decay_t<P>...>& arguments) {
  check_launch(l);
  struct Call {
    void (*entry)(P...);
    const std::tuple<std::decay_t<P>...>* arguments;
  } const call{entry, &arguments};
  const auto entry_of = [](const void* c) {
    std::apply(static_cast<const Call*>(c)->entry, *static_cast<const Call*>(c)->arguments);
  };
  schedule::Run({l.grid, l.block, l.cluster, l.smem_bytes, entry_of, &call, l.dependency}).run();
}
template <class... P, class... A> inline void launch_as(const Launch& l, void (*entry)(P...), A&&... arguments) {
  static_assert(sizeof...(P) == sizeof...(A), "the entry point takes another number of arguments");
  launch_tuple(entry, l, std::tuple<std::decay_t<P>...>(std::forward<A>(arguments)...));
}
template <class... P, class... A>
inline void launch(void (*entry)(P...), Dim3 grid, Dim3 block, size_t smem_bytes, A&&... arguments) {
  launch_as(Launch(grid, block, {}, smem_bytes), entry, std::forward<A>(arguments)...);
}
template <class T> inline T read_argument(const void* from) {  // which may lie on any address
  T value;
  memcpy(&value, from, sizeof value);
  return value;
}
template <class... P, size_t... I>
inline void launch_pointers(void (*entry)(P...), const Launch& l, void** arguments, std::index_sequence<I...>) {
  launch_tuple(entry, l, std::tuple<std::decay_t<P>...>(read_argument<std::decay_t<P>>(arguments[I])...));
}
template <class... P> inline void launch_pointers(void (*entry)(P...), const Launch& l, void** arguments) {
  launch_pointers(entry, l, arguments, std::index_sequence_for<P...>());
}

// What AITC_KERNEL says: the most threads of a block, and perhaps how many blocks a multiprocessor is to hold.
constexpr int bound_of(int threads = kMaxThreads, int = 0) { return threads; }

// Of this thread's next launch, set by aitc_emulator_follow.
inline Dependency& next_dependency() {
  static thread_local Dependency d;
  return d;
}
inline std::string& last_error() {
  static thread_local std::string text;
  return text;
}
template <class... P> inline int parameter_bytes(void (*)(P...), size_t* bytes, int room) {
  const size_t all[] = {sizeof(std::decay_t<P>)..., 0};
  for (int i = 0; i < int(sizeof...(P)) && i < room; ++i) bytes[i] = all[i];
  return int(sizeof...(P));
}
template <class Entry> inline int launch_guarded(Entry entry, const unsigned* dims, size_t smem_bytes, void** arguments,
                                                 int bound = kMaxThreads) {
  try {
    Dependency& next = next_dependency();
    Dependency dependency;
    dependency.run = next.run, dependency.data = next.data, next.run = nullptr;
    if (uint64_t(dims[3]) * dims[4] * dims[5] > uint64_t(bound))
      throw Error(format("invalid launch: the kernel was compiled for blocks of at most %d threads", bound));
    Launch launch({dims[0], dims[1], dims[2]}, {dims[3], dims[4], dims[5]}, {dims[6], dims[7], dims[8]}, smem_bytes);
    if (dependency.run) launch.dependency = &dependency;
    launch_pointers(entry, launch, arguments);
    return 0;
  } catch (const std::exception& e) {
    last_error() = e.what();
    return 1;
  }
}

}  // namespace emu

extern "C" inline __attribute__((used, visibility("default"))) const char* aitc_emulator_error() {
  return ::emu::last_error().c_str();
}
// From now on accesses to shared memory are written to the file of that name; "" ends it.
extern "C" inline __attribute__((used, visibility("default"))) void aitc_emulator_log_accesses(const char* path) {
  FILE*& file = ::emu::access_log();
  if (file) fclose(file);
  file = *path ? fopen(path, "w") : nullptr;
}
// This thread's next launch overlaps another, which run(data) runs.
extern "C" inline __attribute__((used, visibility("default"))) void aitc_emulator_follow(void (*run)(void*),
                                                                                         void* data) {
  ::emu::next_dependency().run = run;
  ::emu::next_dependency().data = data;
}
#define AITC_EMULATOR_ENTRY(entry, ...)                                                                             \
  extern "C" __attribute__((visibility("default"))) int aitc_emulator_launch_##entry(                               \
      const unsigned* dims, size_t smem_bytes, void** arguments) {                                                  \
    return ::emu::launch_guarded(&entry, dims, smem_bytes, arguments, ::emu::bound_of(__VA_ARGS__));                \
  }                                                                                                                 \
  extern "C" __attribute__((visibility("default"))) int aitc_emulator_parameters_##entry(size_t* bytes, int room) { \
    return ::emu::parameter_bytes(&entry, bytes, room);                                                             \
  }
