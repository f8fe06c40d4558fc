// cp.async: copies from global to shared memory that run beside their lane.
//
// The destination is poisoned at once and marked in flight; the bytes land when the lane that copied waits for the
// group. A reader that comes too early meets NaN, or, through the emulator's own loads, is told so.
#pragma once
#include "shared_memory.h"

namespace emu AITC_EMULATOR_HIDDEN {

// Brings `bytes` (4, 8 or 16) from `from`; zeros in place of those behind the first `valid`. `from` is not read if
// valid == 0.
inline void cp_async(uint32_t to, const void* from, int bytes, int valid, Site site = Site::here()) {
  site = site.named("cp.async");
  Lane& lane = self(site);
  if (bytes != 4 && bytes != 8 && bytes != 16) fail(format("a copy of %d bytes", bytes), site);
  if (to >> 24) fail("cp.async writes the own block's shared memory only", site);
  Copy copy;
  copy.to = shared_bytes(*lane.block, to, size_t(bytes), size_t(bytes), site);
  copy.bytes = bytes;
  copy.group = lane.copies.open;
  memset(copy.data, 0, sizeof copy.data);
  if (valid) {
    check_aligned(from, size_t(bytes), site);
    if (is_shared(*lane.block, from)) fail("cp.async reads global memory only", site);
    memcpy(copy.data, from, size_t(valid));
  }
  memset(copy.to, kPoison, size_t(bytes));
  mark_in_flight(*lane.block, copy.to, size_t(bytes), 1);
  lane.copies.items.push_back(copy);
}

inline void cp_async_commit(Site site = Site::here()) { ++self(site.named("cp.async.commit_group")).copies.open; }

// Waits for all groups but the last `pending`; `everything`: also for copies that are in no group yet.
inline void cp_async_wait(unsigned pending, bool everything = false, Site site = Site::here()) {
  Lane& lane = self(site.named("cp.async.wait_group"));
  CopyQueue& queue = lane.copies;
  size_t done = 0;
  for (; done < queue.items.size(); ++done) {
    const Copy& c = queue.items[done];
    if (!everything && c.group + pending >= queue.open) break;
    mark_in_flight(*lane.block, c.to, size_t(c.bytes), -1);
    memcpy(c.to, c.data, size_t(c.bytes));
  }
  queue.items.erase(queue.items.begin(), queue.items.begin() + long(done));
}

}  // namespace emu
