// mbarrier: a phase ends when the expected arrivals and the expected bytes have come. The emulated object fills its 8
// bytes of shared memory, so that one that was never initialised, or was overwritten, is told from a good one.
#pragma once
#include "shared_memory.h"

namespace emu AITC_EMULATOR_HIDDEN {

struct Mbarrier {
  static constexpr uint64_t kMagic = 0xb417;
  int count, pending;  // arrivals a phase; those still missing in this one
  int64_t bytes;       // still missing; negative if they came before they were announced
  bool phase;

  // 16 bits of magic, 1 of phase, 11 + 11 of counts, 25 of bytes
  static Mbarrier load(const char* p, const Site& site, const Lane* blame = nullptr) {
    uint64_t word;
    memcpy(&word, p, 8);
    if (word >> 48 != kMagic) fail("not an mbarrier: never initialised, or overwritten", site, blame);
    return {int(word >> 36 & 2047), int(word >> 25 & 2047), int64_t(word & 0x1ffffff) - (1 << 24),
            (word >> 47 & 1) != 0};
  }
  void store(char* p) const {
    const uint64_t word = kMagic << 48 | uint64_t(phase) << 47 | uint64_t(count) << 36 | uint64_t(pending) << 25 |
                          uint64_t(bytes + (1 << 24));
    memcpy(p, &word, 8);
  }
  void advance() {
    if (pending || bytes) return;
    pending = count;
    phase = !phase;
  }
};

inline void mbarrier_init(uint32_t barrier, uint32_t count, Site site = Site::here()) {
  site = site.named("mbarrier.init");
  if (count < 1 || count > 2047) fail(format("an mbarrier of %u arrivals", count), site);
  if (barrier >> 24) fail("an mbarrier of another block cannot be initialised", site);
  Mbarrier{int(count), int(count), 0, false}.store(shared_bytes(barrier, 8, 8, site));
}

// `announced`: bytes that copies will bring in this phase; `arrivals` may be 0.
inline void mbarrier_arrive(uint32_t barrier, uint32_t announced = 0, int arrivals = 1, Site site = Site::here()) {
  site = site.named(announced ? "mbarrier.arrive.expect_tx" : "mbarrier.arrive");
  char* p = shared_bytes(barrier, 8, 8, site);
  Mbarrier b = Mbarrier::load(p, site);
  if (b.pending < arrivals) fail(format("more arrivals in a phase than the mbarrier's %d", b.count), site);
  if (announced >= 1 << 20) fail(format("%u bytes in one phase, at most 1048575", announced), site);
  b.bytes += announced;
  b.pending -= arrivals;
  b.advance();
  b.store(p);
}

// The phase of this parity is over. A fresh barrier is in phase 0: parity 1 is over.
inline bool mbarrier_test(uint32_t barrier, uint32_t parity, Site site = Site::here()) {
  site = site.named("mbarrier.test_wait");
  const bool over = Mbarrier::load(shared_bytes(barrier, 8, 8, site), site).phase != ((parity & 1) != 0);
  if (!over) {  // lets the others run
    self(site).polls = true;
    wait_until([](const Lane& l) { return l.state == State::waiting; }, nullptr, 0, site);
  }
  return over;
}
inline void mbarrier_wait(uint32_t barrier, uint32_t parity, Site site = Site::here()) {
  site = site.named("mbarrier.try_wait");
  if (barrier >> 24) fail("waits for an mbarrier of another block", site);
  wait_until(
      [](const Lane& l) {
        return Mbarrier::load(static_cast<const char*>(l.awaited), l.site, &l).phase != (l.awaited_value != 0);
      },
      shared_bytes(barrier, 8, 8, site), parity & 1, site);
}

// Bytes of a copy have arrived.
inline void mbarrier_complete(Block& block, uint32_t offset, int64_t bytes, const Site& site) {
  char* p = shared_bytes(block, offset, 8, 8, site);
  Mbarrier b = Mbarrier::load(p, site);
  b.bytes -= bytes;
  b.advance();
  b.store(p);
}

}  // namespace emu
