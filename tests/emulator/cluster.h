// Blocks that run together: cluster barriers and each other's shared memory; named barriers and registers inside a
// block.
#pragma once
#include "mbarrier.h"
#include "warp.h"

namespace emu AITC_EMULATOR_HIDDEN {

inline uint32_t cluster_rank(Site site = Site::here()) {
  return uint32_t(self(site.named("cluster_rank")).block->rank);
}

inline void cluster_arrive(Site site = Site::here()) {
  site = site.named("barrier.cluster.arrive");
  Lane& lane = self(site);
  if (lane.cluster_arrivals != lane.cluster_waits) fail("arrives twice at the cluster's barrier without waiting", site);
  ++lane.cluster_arrivals;
}
inline void cluster_wait(Site site = Site::here()) {
  site = site.named("barrier.cluster.wait");
  Lane& lane = self(site);
  if (lane.cluster_arrivals == lane.cluster_waits) fail("waits for the cluster's barrier without having arrived", site);
  ++lane.cluster_waits;
  wait_until(
      [](const Lane& l) {
        Cluster& cluster = *static_cast<Cluster*>(l.awaited);
        if (cluster.barrier_phase >= l.awaited_value) return true;
        const auto missing = [&](const Lane& other) {
          return other.state != State::done && other.cluster_arrivals < l.awaited_value;
        };
        if (cluster.late && missing(*cluster.late)) return false;  // asked by each of thousands of lanes
        for (int r = 0; r < cluster.count; ++r)
          for (const Lane& other : cluster.blocks[r].lanes)
            if (missing(other)) return cluster.late = &other, false;
        cluster.barrier_phase = unsigned(l.awaited_value);
        return true;
      },
      lane.block->cluster, lane.cluster_waits, site);
}

// A pointer into the block's shared memory, to the same place in block `rank` of the cluster.
template <class T> inline T* peer_pointer(T* p, uint32_t rank, Site site = Site::here()) {
  site = site.named("peer_pointer");
  const uint32_t address = peer_address(shared_address(p, site), rank, site);
  return reinterpret_cast<T*>(shared_bytes(address, sizeof(T), alignof(T), site));
}

template <class T> inline T load_shared(uint32_t address, Site site = Site::here()) {
  T v;
  memcpy(&v, shared_bytes(address, sizeof(T), sizeof(T), site.named("ld.shared")), sizeof(T));
  return v;
}
template <class T> inline void store_shared(uint32_t address, const T& v, Site site = Site::here()) {
  memcpy(shared_bytes(address, sizeof(T), sizeof(T), site.named("st.shared")), &v, sizeof(T));
}

// ---------------------------------------------------------------- named barriers 1 to 15
namespace named {
inline NamedBarrier& arrive(int id, int threads, const Site& site) {
  Lane& lane = self(site);
  if (id < 1 || id > 15) fail(format("named barrier %d (1 to 15)", id), site);
  if (threads <= 0 || threads % kWarp || threads > int((lane.block->lanes.size() + kWarp - 1) / kWarp) * kWarp)
    fail(format("a barrier of %d threads: whole warps of the block", threads), site);
  NamedBarrier& barrier = lane.block->named[id];
  if (barrier.arrived && barrier.expected != threads)
    fail(format("barrier %d of %d threads, but %d at ", id, threads, barrier.expected) + text_of(barrier.site), site);
  barrier.expected = threads;
  barrier.site = site;
  if (++barrier.arrived == threads) {
    barrier.arrived = 0;
    ++barrier.phase;
  }
  return barrier;
}
}  // namespace named

inline void named_arrive(int id, int threads, Site site = Site::here()) {
  named::arrive(id, threads, site.named("bar.arrive"));
}
inline void named_sync(int id, int threads, Site site = Site::here()) {
  site = site.named("bar.sync");
  const uint64_t phase = self(site).block->named[id & 15].phase;
  NamedBarrier& barrier = named::arrive(id, threads, site);
  wait_until([](const Lane& l) { return static_cast<NamedBarrier*>(l.awaited)->phase > l.awaited_value; }, &barrier,
             phase, site);
}

// ---------------------------------------------------------------- setmaxnreg
// The pool of a block: 65536 registers. A kernel starts with what its threads may have at most; `take` waits for
// registers that other warps give away.
inline int registers_at_start(const Block& block) {
  const int threads = int((block.lanes.size() + 127) / 128) * 128;
  return threads <= 256 ? 256 : 65536 / threads / 8 * 8;
}
inline void set_registers(int count, bool more, Site site = Site::here()) {
  site = site.named(more ? "setmaxnreg.inc" : "setmaxnreg.dec");
  Lane& lane = self(site);
  if (count % 8 || count < 24 || count > 256) fail(format("%d registers: a multiple of 8 from 24 to 256", count), site);
  warp_collective(warp_ops::resolve_nothing, nullptr, site.what, kAllLanes, site);
  Block& block = *lane.block;
  Warp& warp = *lane.warp;
  if (block.register_pool < 0)
    block.register_pool = 65536 - registers_at_start(block) * int(block.warps.size()) * kWarp;
  const int before = warp.registers ? warp.registers : registers_at_start(block);
  if (lane.id == 0) {
    if (!more && count > before) fail(format("gives registers away to keep %d, but has %d", count, before), site);
    if (more && count < before) fail(format("takes registers to have %d, but has %d", count, before), site);
  }
  if (more)
    wait_until(
        [](const Lane& l) {
          const int has = l.warp->registers ? l.warp->registers : registers_at_start(*l.block);
          return has >= int(l.awaited_value) || l.block->register_pool >= (int(l.awaited_value) - has) * kWarp;
        },
        nullptr, uint64_t(count), site);
  if (warp.registers == count) return;  // another lane of the warp did it
  block.register_pool -= (count - before) * kWarp;
  warp.registers = count;
}

}  // namespace emu
