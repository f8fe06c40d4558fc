// Shared memory: poisoned with NaN, checked against its limit, its ends and copies in flight; addresses; atomics.
#pragma once
#include <atomic>
#include <type_traits>

#include "machine.h"

namespace emu AITC_EMULATOR_HIDDEN {

constexpr unsigned char kPoison = 0xff;  // a NaN in every floating type, -1 in every integer
constexpr unsigned char kCanary = 0xc5;
constexpr size_t kGap = 64;  // canary bytes behind the dynamic part and behind each static array
constexpr size_t kMemory = 256 * 1024;

inline void mark_inaccessible(char* p, size_t bytes, bool inaccessible) {
#ifdef AITC_EMULATOR_ASAN
  inaccessible ? __asan_poison_memory_region(p, bytes) : __asan_unpoison_memory_region(p, bytes);
#else
  (void)p, (void)bytes, (void)inaccessible;
#endif
}

inline void start_memory(Block& block, size_t dynamic_bytes) {
  if (!block.memory.get()) {
    block.memory.allocate(kMemory);
    memset(block.memory.get(), kCanary, kMemory);
  }
  char* memory = block.memory.get();
  mark_inaccessible(memory, kMemory, false);
  block.dynamic_bytes = dynamic_bytes;
  block.end = kReserved + dynamic_bytes;
  memset(memory + kReserved, kPoison, dynamic_bytes);
  memset(memory + block.end, kCanary, kGap);
  mark_inaccessible(memory, kReserved, true);
  mark_inaccessible(memory + block.end, kMemory - block.end, true);
  block.statics.clear();
  if (!block.flight.empty()) block.flight.assign(block.flight.size(), 0);
}

// After the block: did anybody write behind the end?
inline void finish_memory(Block& block) {
  char* memory = block.memory.get();
  mark_inaccessible(memory, kMemory, false);
  const auto check = [&](size_t end, const char* which) {
    for (size_t i = 0; i < kGap; ++i)
      if (static_cast<unsigned char>(memory[end + i]) != kCanary) {
        memset(memory + end, kCanary, kGap);
        throw Error(format("a write behind the end of %s shared memory, %zu bytes behind its %zu bytes", which, i,
                           end - kReserved) +
                    "\n  block " + text_of(block.index));
      }
  };
  check(kReserved + block.dynamic_bytes, "dynamic");
  for (const StaticArray& s : block.statics) check(s.offset + s.bytes, "static");
  memset(memory + kReserved, kCanary, block.end - kReserved);
}

inline char* shared_memory(Site site = Site::here()) {
  Block& block = *self(site.named("shared_memory")).block;
  return block.memory.get() + kReserved;
}

// The static array that `key` names in this block; made on first use.
inline char* static_array(size_t bytes, size_t align, const void* key, Site site = Site::here()) {
  site = site.named("static shared memory");
  Block& block = *self(site).block;
  for (const StaticArray& s : block.statics)
    if (s.key == key) return block.memory.get() + s.offset;
  if (align < 16) align = 16;
  const size_t offset = (block.end + kGap + align - 1) / align * align;
  size_t total = bytes;
  for (const StaticArray& s : block.statics) total += s.bytes;
  if (total > kStaticSharedLimit || total + block.dynamic_bytes > kSharedLimit)
    fail(format("%zu bytes of static and %zu of dynamic shared memory: the target has %zu", total, block.dynamic_bytes,
                kSharedLimit),
         site);
  if (offset + bytes + kGap > kMemory) fail("too many static arrays for the emulator", site);
  char* p = block.memory.get() + offset;
  mark_inaccessible(p, bytes + kGap, false);
  memset(p, kPoison, bytes);
  memset(p + bytes, kCanary, kGap);
  mark_inaccessible(p + bytes, kGap, true);
  block.statics.push_back({key, offset, bytes});
  block.end = offset + bytes;
  return p;
}

// ---------------------------------------------------------------- 32-bit addresses of shared memory
// Bits 0-23: the offset in a block's shared memory. Bits 24-31: 0 this block, 1 + rank another one of the cluster.

inline bool is_shared(const Block& block, const void* p) {
  const char* c = static_cast<const char*>(p);
  return c >= block.memory.get() + kReserved && c <= block.memory.get() + block.end;
}

inline uint32_t shared_address(const void* p, Site site = Site::here()) {
  site = site.named("shared_address");
  const Block& block = *self(site).block;
  if (!is_shared(block, p)) fail("not a pointer into the block's shared memory", site);
  return uint32_t(static_cast<const char*>(p) - block.memory.get());
}

inline uint32_t peer_address(uint32_t address, uint32_t rank, Site site = Site::here()) {
  site = site.named("peer_address");
  if (int(rank) >= self(site).block->cluster->count) fail(format("the cluster has no block %u", rank), site);
  return (address & 0xffffff) | (rank + 1) << 24;
}

inline Block& block_of(Block& mine, uint32_t address, const Site& site) {
  if (address >> 24 == 0) return mine;
  const int rank = int(address >> 24) - 1;
  if (rank >= mine.cluster->count) fail("an address outside the cluster", site);
  Block& block = mine.cluster->blocks[rank];
  if (!block.alive) fail(format("block %d of the cluster has ended, its shared memory is gone", rank), site);
  return block;
}

// Copies in flight to the bytes from `p` on; `change` is added to each word's count.
inline void mark_in_flight(Block& block, const char* p, size_t bytes, int change) {
  if (block.flight.empty()) block.flight.assign(kMemory / 4, 0);
  const size_t offset = size_t(p - block.memory.get());
  for (size_t w = offset / 4; w < (offset + bytes + 3) / 4; ++w) block.flight[w] = uint8_t(block.flight[w] + change);
#ifdef AITC_EMULATOR_ASAN
  if (change > 0) mark_inaccessible(block.memory.get() + offset, bytes, true);
  if (change < 0) mark_inaccessible(block.memory.get() + offset, bytes, false);
#endif
}
inline bool is_in_flight(const Block& block, const char* p, size_t bytes) {
  if (block.flight.empty()) return false;
  const size_t offset = size_t(p - block.memory.get());
  for (size_t w = offset / 4; w < (offset + bytes + 3) / 4; ++w)
    if (block.flight[w]) return true;
  return false;
}

// The bytes at a shared address, checked: inside, aligned, and not in flight.
inline char* shared_bytes(Block& mine, uint32_t address, size_t bytes, size_t align, const Site& site,
                          const Lane* blame = nullptr) {
  Block& block = block_of(mine, address, site);
  const size_t offset = address & 0xffffff;
  if (offset < kReserved || offset + bytes > block.end)
    fail(format("%zu bytes at shared address %zu, outside the %zu bytes of shared memory", bytes, offset - kReserved,
                block.end - kReserved),
         site, blame);
  if (offset % align) fail(format("shared address %zu is not aligned to %zu bytes", offset, align), site, blame);
  char* p = block.memory.get() + offset;
  if (is_in_flight(block, p, bytes)) fail("access to shared memory that a copy in flight is writing", site, blame);
  return p;
}
inline char* shared_bytes(uint32_t address, size_t bytes, size_t align, const Site& site) {
  return shared_bytes(*self(site).block, address, bytes, align, site);
}

// ---------------------------------------------------------------- plain memory

inline void check_aligned(const void* p, size_t align, const Site& site) {
  if (reinterpret_cast<uintptr_t>(p) % align) fail(format("address %p is not aligned to %zu bytes", p, align), site);
}
inline void check_not_in_flight(const void* p, size_t bytes, const Site& site) {
  const Block& block = *self(site).block;
  if (is_shared(block, p) && is_in_flight(block, static_cast<const char*>(p), bytes))
    fail("access to shared memory that a copy in flight is writing", site);
}

// Accesses of the first block to shared memory go into this file, where there is one: banks.py counts bank conflicts.
inline FILE*& access_log() {
  static FILE* file = nullptr;
  return file;
}
inline void note_access(const void* p, size_t bytes, char kind, const Site& site) {
  if (!access_log()) return;
  const Lane& lane = self(site);
  if (lane.block->index.x == 0 && is_shared(*lane.block, p))
    fprintf(access_log(), "%u %s:%d %c %zu %zu\n", lane.thread.x, site.file, site.line, kind,
            size_t(static_cast<const char*>(p) - lane.block->memory.get()) - kReserved, bytes);
}

template <int Bytes> inline void copy_bytes(void* to, const void* from, Site site = Site::here()) {
  site = site.named("copy_bytes");
  check_aligned(to, Bytes, site);
  check_aligned(from, Bytes, site);
  check_not_in_flight(from, Bytes, site);
  check_not_in_flight(to, Bytes, site);
  note_access(from, Bytes, 'r', site);
  note_access(to, Bytes, 'w', site);
  memcpy(to, from, Bytes);
}

inline void memory_fence() { std::atomic_thread_fence(std::memory_order_seq_cst); }

namespace atomics {
template <class T, class F> inline T change(T* p, F f, const char* what, Site site) {
  site = site.named(what);
  check_aligned(p, sizeof(T), site);
  check_not_in_flight(p, sizeof(T), site);
  T before, after;
  __atomic_load(p, &before, __ATOMIC_RELAXED);
  do after = f(before);
  while (!__atomic_compare_exchange(p, &before, &after, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
  return before;
}
}  // namespace atomics
template <class T> inline T atomic_add(T* p, std::common_type_t<T> v, Site site = Site::here()) {
  return atomics::change(p, [=](T x) { return T(x + v); }, "atomic_add", site);
}
template <class T> inline T atomic_max(T* p, std::common_type_t<T> v, Site site = Site::here()) {
  return atomics::change(p, [=](T x) { return x > v ? x : v; }, "atomic_max", site);
}
template <class T> inline T atomic_min(T* p, std::common_type_t<T> v, Site site = Site::here()) {
  return atomics::change(p, [=](T x) { return x < v ? x : v; }, "atomic_min", site);
}
template <class T> inline T atomic_exchange(T* p, std::common_type_t<T> v, Site site = Site::here()) {
  return atomics::change(p, [=](T) { return v; }, "atomic_exchange", site);
}
template <class T>
inline T atomic_cas(T* p, std::common_type_t<T> expected, std::common_type_t<T> v, Site site = Site::here()) {
  return atomics::change(p, [=](T x) { return x == expected ? v : x; }, "atomic_cas", site);
}

}  // namespace emu

// A static shared array of this block: AITC_EMULATOR_SHARED(float, tile, 128 * 40);
#define AITC_EMULATOR_SHARED(T, name, count) \
  static const char name##_key = 0;          \
  T* name = reinterpret_cast<T*>(::emu::static_array(sizeof(T) * (count), alignof(T), &name##_key))
