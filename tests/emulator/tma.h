// TMA: boxes of tensors between global and shared memory.
//
// A load poisons its destination at once, is marked in flight, and arrives when no lane of the cluster can go on
// without it (in a seeded order: at any time, and loads overtake each other). A store reads shared memory when its
// thread waits for it.
#pragma once
#include "mbarrier.h"
#include "tensor_map.h"

namespace emu AITC_EMULATOR_HIDDEN {
namespace tma {

// A byte's place under a swizzle of 128, 64 or 32 bytes: 16-byte units exchanged by address bits 7 and up.
inline uint32_t swizzled(uint32_t offset, int swizzle_bytes) {
  return swizzle_bytes ? offset ^ ((offset >> 7 & uint32_t(swizzle_bytes / 16 - 1)) << 4) : offset;
}

// Calls row(i, element), once for each run along dimension 0 of the box: i counts the runs, element is the run's first
// place in the tensor, or null where it lies outside.
template <class Row> inline void for_each_run(const TensorMap& map, const TmaBox& box, Row row) {
  if (map.im2col) {
    int at[3] = {box.coordinate[1], map.rank > 3 ? box.coordinate[2] : 0,
                 map.rank > 4 ? box.coordinate[3] : 0};  // W, H, D
    const int dims = map.rank - 2;
    int64_t n = box.coordinate[map.rank - 1];
    for (int p = 0; p < map.pixels; ++p) {
      const char* element = map.base + n * int64_t(map.pitch[map.rank - 1]);
      bool inside = n >= 0 && n < int64_t(map.size[map.rank - 1]);
      for (int i = 0; i < dims; ++i) {
        const int64_t x = at[i] + int64_t(box.offset[i]);
        inside = inside && x >= 0 && x < int64_t(map.size[i + 1]);
        element += x * int64_t(map.pitch[i + 1]);
      }
      row(p, inside ? element : nullptr);
      int i = 0;
      for (; i < dims; ++i) {
        at[i] += map.step[i + 1];
        if (at[i] <= int(map.size[i + 1]) - 1 + map.upper[i]) break;
        at[i] = map.lower[i];
      }
      if (i == dims) ++n;
    }
    return;
  }
  int runs = 1;
  for (int i = 1; i < map.rank; ++i) runs *= map.box_elements(i);
  for (int r = 0; r < runs; ++r) {
    const char* element = map.base;
    bool inside = true;
    int rest = r;
    for (int i = 1; i < map.rank; ++i) {
      const int64_t x = box.coordinate[i] + int64_t(rest % map.box_elements(i)) * map.step[i];
      rest /= map.box_elements(i);
      inside = inside && x >= 0 && x < int64_t(map.size[i]);
      element += x * int64_t(map.pitch[i]);
    }
    row(r, inside ? element : nullptr);
  }
}

// The float at `place` as TF32, to nearest, ties to even (cvt.rna of mma_sm80.h takes them away from zero).
inline void round_tf32(char* place) {
  uint32_t u;
  memcpy(&u, place, 4);
  if ((u & 0x7f800000u) != 0x7f800000u) u = (u + 0xfffu + (u >> 13 & 1)) & ~0x1fffu;
  memcpy(place, &u, 4);
}

// Between the box and the bytes from `memory` + offset on; `memory` is a block's shared memory (swizzles act on its
// addresses).
inline void transfer(const TmaBox& box, char* memory, uint32_t offset, bool load) {
  TensorMap map;
  memcpy(&map, box.map, sizeof map);
  const int elements = map.im2col ? map.channels : map.box_elements(0), bytes = map.element_bytes,
            step = map.im2col ? 1 : map.step[0];
  const uint32_t run_bytes = uint32_t(elements * bytes);
  for_each_run(map, box, [&](int run, const char* line) {
    for (int e = 0; e < elements; ++e) {
      const int64_t x = box.coordinate[0] + int64_t(e) * step;
      char* place = memory + swizzled(offset + uint32_t(run) * run_bytes + uint32_t(e * bytes), map.swizzle_bytes);
      const bool inside = line && x >= 0 && x < int64_t(map.size[0]);
      // Whole 16-byte units inside at once: a swizzle moves nothing smaller.
      if (inside && step == 1 && e * bytes % 16 == 0 && x + 16 / bytes <= int64_t(map.size[0])) {
        char* global = const_cast<char*>(line) + x * bytes;
        load ? memcpy(place, global, 16) : memcpy(global, place, 16);
        if (load && map.tf32)
          for (int i = 0; i < 16; i += 4) round_tf32(place + i);
        e += 16 / bytes - 1;
      } else if (inside) {
        char* global = const_cast<char*>(line) + x * bytes;
        load ? memcpy(place, global, size_t(bytes)) : memcpy(global, place, size_t(bytes));
        if (load && map.tf32) round_tf32(place);
      } else if (load) {
        memset(place, map.fill_nan ? 0xff : 0, size_t(bytes));
      }
    }
  });
}

inline bool perform_one(Cluster& cluster) {
  std::vector<TmaLoad>& loads = cluster.loads;
  if (loads.empty()) return false;
  Worker& worker = *running.worker;
  const size_t i = worker.config.seed      ? worker.next_random(uint32_t(loads.size()))
                   : worker.config.reverse ? loads.size() - 1
                                           : 0;
  const TmaLoad load = loads[i];
  loads.erase(loads.begin() + long(i));
  for (int r = 0; r < cluster.count; ++r) {
    if (!(load.blocks >> r & 1)) continue;
    Block& block = cluster.blocks[r];
    if (!block.alive)
      fail(format("block %d of the cluster ended with a copy into its shared memory in flight", r), load.site);
    char* memory = block.memory.get();
    mark_in_flight(block, memory + load.to, load.box.bytes, -1);
    load.plain ? void(memcpy(memory + load.to, load.box.global, load.box.bytes))
               : transfer(load.box, memory, load.to, true);
    mbarrier_complete(block, load.barrier, load.box.bytes, load.site);
  }
  return true;
}

inline TensorMap read_map(const CUtensorMap& map, bool im2col, int rank, const Site& site) {
  TensorMap m;
  memcpy(&m, &map, sizeof m);
  if (reinterpret_cast<uintptr_t>(&map) % 64) fail("a tensor map is aligned to 64 bytes", site);
  if (m.magic != TensorMap::kMagic) fail("not a tensor map", site);
  if (m.im2col != im2col || m.rank != rank)
    fail(format("the tensor map is %s of rank %d, the copy %s of rank %d", m.im2col ? "im2col" : "tiled", m.rank,
                im2col ? "im2col" : "tiled", rank),
         site);
  return m;
}

inline TmaBox make_box(const CUtensorMap& map, bool im2col, int rank, const int* coordinate, const uint16_t* offset,
                       const Site& site) {
  const TensorMap m = read_map(map, im2col, rank, site);
  TmaBox box = {};
  memcpy(box.map, &m, sizeof m);
  for (int i = 0; i < rank; ++i) box.coordinate[i] = coordinate[i];
  for (int i = 0; im2col && i < rank - 2; ++i) box.offset[i] = offset[i];
  box.bytes = m.box_bytes();
  if (int64_t(coordinate[0]) * m.element_bytes % 16)
    fail(format("the innermost coordinate %d is not on 16 bytes", coordinate[0]), site);
  return box;
}

// blocks: ranks in the cluster, 0: this one.
inline void issue(TmaLoad load, uint32_t to, uint32_t barrier, uint16_t blocks, uint32_t align, const Site& site) {
  Lane& lane = self(site);
  Block& mine = *lane.block;
  Cluster& cluster = *mine.cluster;
  if ((to | barrier) >> 24) fail("the destination and the mbarrier are named by addresses of the own block", site);
  load.site = site;
  load.to = to;
  load.barrier = barrier;
  load.blocks = blocks ? blocks : uint16_t(1 << mine.rank);
  if (load.blocks >> cluster.count) fail("multicast to a block that the cluster does not have", site);
  for (int r = 0; r < cluster.count; ++r) {
    if (!(load.blocks >> r & 1)) continue;
    Block& block = cluster.blocks[r];
    if (!block.alive) fail(format("multicast to block %d of the cluster, which has ended", r), site);
    char* p = shared_bytes(block, to, load.box.bytes, align, site);
    Mbarrier::load(shared_bytes(block, barrier, 8, 8, site), site);
    memset(p, kPoison, load.box.bytes);
    mark_in_flight(block, p, load.box.bytes, 1);
  }
  cluster.loads.push_back(load);
  cluster.perform_load = perform_one;
}

inline void enqueue_store(BulkStore store, uint32_t from, uint32_t align, const Site& site) {
  Lane& lane = self(site);
  store.from = uint32_t(shared_bytes(from, store.box.bytes, align, site) - lane.block->memory.get());
  store.group = lane.stores.open;
  store.site = site;
  lane.stores.items.push_back(store);
}

}  // namespace tma

template <int Rank> inline void tma_load_tiled(uint32_t to, const CUtensorMap& map, const int (&coordinate)[Rank],
                                               uint32_t barrier, uint16_t blocks = 0, Site site = Site::here()) {
  site = site.named("cp.async.bulk.tensor (load)");
  TmaLoad load = {};
  load.box = tma::make_box(map, false, Rank, coordinate, nullptr, site);
  tma::issue(load, to, barrier, blocks, 128, site);
}
// coordinate: c, w, (h, (d,)) n of the first pixel's window; offset: the tap along w, (h, (d)).
template <int Rank> inline void tma_load_im2col_box(uint32_t to, const CUtensorMap& map, const int (&coordinate)[Rank],
                                                    const uint16_t (&offset)[Rank - 2], uint32_t barrier,
                                                    uint16_t blocks = 0, Site site = Site::here()) {
  site = site.named("cp.async.bulk.tensor.im2col (load)");
  TmaLoad load = {};
  load.box = tma::make_box(map, true, Rank, coordinate, offset, site);
  tma::issue(load, to, barrier, blocks, 128, site);
}
template <int Rank> inline void tma_store_tiled(const CUtensorMap& map, const int (&coordinate)[Rank], uint32_t from,
                                                Site site = Site::here()) {
  site = site.named("cp.async.bulk.tensor (store)");
  BulkStore store = {};
  store.box = tma::make_box(map, false, Rank, coordinate, nullptr, site);
  tma::enqueue_store(store, from, 128, site);
}

// Runs of bytes, without a map.
inline void bulk_load(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier, Site site = Site::here()) {
  site = site.named("cp.async.bulk (load)");
  if (bytes % 16 || !bytes) fail(format("%u bytes: a multiple of 16", bytes), site);
  check_aligned(from, 16, site);
  TmaLoad load = {};
  load.plain = true;
  load.box.global = static_cast<const char*>(from);
  load.box.bytes = bytes;
  tma::issue(load, to, barrier, 0, 16, site);
}
inline void bulk_store(void* to, uint32_t from, uint32_t bytes, Site site = Site::here()) {
  site = site.named("cp.async.bulk (store)");
  if (bytes % 16 || !bytes) fail(format("%u bytes: a multiple of 16", bytes), site);
  check_aligned(to, 16, site);
  BulkStore store = {};
  store.plain = true;
  store.box.global = static_cast<const char*>(to);
  store.box.bytes = bytes;
  tma::enqueue_store(store, from, 16, site);
}
inline void bulk_commit(Site site = Site::here()) { ++self(site.named("cp.async.bulk.commit_group")).stores.open; }
// All groups but the last `pending` have read shared memory (and, here, written).
inline void bulk_wait(unsigned pending, Site site = Site::here()) {
  site = site.named("cp.async.bulk.wait_group");
  Lane& lane = self(site);
  BulkStoreQueue& queue = lane.stores;
  size_t done = 0;
  for (; done < queue.items.size(); ++done) {
    const BulkStore& s = queue.items[done];
    if (s.group + pending >= queue.open) break;
    char* memory = lane.block->memory.get();
    s.plain ? void(memcpy(const_cast<char*>(s.box.global), memory + s.from, s.box.bytes))
            : tma::transfer(s.box, memory, s.from, false);
  }
  queue.items.erase(queue.items.begin(), queue.items.begin() + long(done));
}

}  // namespace emu
