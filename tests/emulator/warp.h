// Operations between the lanes of a warp: shuffles, ballots, votes, barriers.
#pragma once
#include "shared_memory.h"

namespace emu AITC_EMULATOR_HIDDEN {
namespace warp_ops {

inline void resolve_nothing(uint64_t, void**) {}

template <class T> struct Shuffle {
  T value, result;
  int source;
};
template <class T> inline void resolve_shuffle(uint64_t mask, void** args) {
  for (int l = 0; l < kWarp; ++l) {
    if (!(mask >> l & 1)) continue;
    auto* mine = static_cast<Shuffle<T>*>(args[l]);
    if (mine->source < 0) continue;  // keeps what it had
    if (mine->source >= kWarp || !(mask >> mine->source & 1)) {
      const Lane& lane = running.worker->resolving->lanes[l];
      fail(format("reads lane %d, which takes no part", mine->source), lane.site, &lane);
    }
    mine->result = static_cast<Shuffle<T>*>(args[mine->source])->value;
  }
}

struct Ballot {
  bool predicate;
  uint64_t result;
};
inline void resolve_ballot(uint64_t mask, void** args) {
  uint64_t all = 0;
  for (int l = 0; l < kWarp; ++l)
    if (mask >> l & 1) all |= uint64_t(static_cast<Ballot*>(args[l])->predicate) << l;
  for (int l = 0; l < kWarp; ++l)
    if (mask >> l & 1) static_cast<Ballot*>(args[l])->result = all;
}

// The value of lane `source`; a negative source keeps `v`.
template <class T> inline T shuffle_from(T v, int source, const char* what, uint64_t mask, Site site) {
  static_assert(std::is_trivially_copyable<T>::value && (sizeof(T) == 4 || sizeof(T) == 8),
                "lanes exchange 4 or 8 bytes");
  Shuffle<T> a{v, v, source};
  warp_collective(resolve_shuffle<T>, &a, what, mask, site);
  return a.result;
}

}  // namespace warp_ops

constexpr uint64_t kAllLanes = ~uint64_t(0);

inline void warp_barrier(Site site = Site::here()) {
  warp_collective(warp_ops::resolve_nothing, nullptr, "warp_barrier", kAllLanes, site);
}

template <class T> inline T shuffle(T v, int source, Site site = Site::here()) {
  if (source < 0 || source >= kWarp) fail(format("shuffle from lane %d", source), site.named("shuffle"));
  return warp_ops::shuffle_from(v, source, "shuffle", kAllLanes, site);
}
template <class T> inline T shuffle_xor(T v, int mask, Site site = Site::here()) {
  return warp_ops::shuffle_from(v, lane() ^ mask, "shuffle_xor", kAllLanes, site);
}
template <class T> inline T shuffle_down(T v, int by, Site site = Site::here()) {  // the last `by` lanes keep their own
  return warp_ops::shuffle_from(v, lane() + by < kWarp ? lane() + by : -1, "shuffle_down", kAllLanes, site);
}
template <class T> inline T shuffle_up(T v, int by, Site site = Site::here()) {  // the first `by` lanes keep their own
  return warp_ops::shuffle_from(v, lane() - by, "shuffle_up", kAllLanes, site);
}
inline uint64_t ballot(bool p, Site site = Site::here()) {
  warp_ops::Ballot a{p, 0};
  warp_collective(warp_ops::resolve_ballot, &a, "ballot", kAllLanes, site);
  return a.result;
}
inline bool any(bool p, Site site = Site::here()) {
  warp_ops::Ballot a{p, 0};
  warp_collective(warp_ops::resolve_ballot, &a, "any", kAllLanes, site);
  return a.result != 0;
}
inline bool all(bool p, Site site = Site::here()) {
  warp_ops::Ballot a{!p, 0};
  warp_collective(warp_ops::resolve_ballot, &a, "all", kAllLanes, site);
  return a.result == 0;
}

}  // namespace emu
