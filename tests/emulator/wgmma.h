// wgmma.mma_async: D(64,N) += A(64,K) B(K,N) by a warpgroup, B (and A) in shared memory behind 64-bit descriptors.
//
// Each of the four warps computes its 16 rows. Issuing saves and poisons the accumulators; the products are computed
// when the warp waits for their group, from what shared memory holds then: a stage that is overwritten, or an
// accumulator that is read, too early shows.
#pragma once
#include "elements.h"
#include "tma.h"
#include "warp.h"

namespace emu AITC_EMULATOR_HIDDEN {
namespace wgmma_ops {

// ---------------------------------------------------------------- operands in shared memory
// Bits of a descriptor: 0-13 address / 16, 16-29 leading offset / 16, 32-45 stride offset / 16, 49-51 base offset,
// 62-63 swizzle (0 none, 1 128 bytes, 2 64, 3 32). A swizzle acts on the bits of the final address.
struct Operand {
  uint32_t address, leading, stride;
  int swizzle_bytes;
  explicit Operand(uint64_t d)
      : address(uint32_t(d & 0x3fff) << 4),
        leading(uint32_t(d >> 16 & 0x3fff) << 4),
        stride(uint32_t(d >> 32 & 0x3fff) << 4),
        swizzle_bytes(d >> 62 ? 256 >> (d >> 62) : 0) {}

  // K-major: the 16 bytes of row r (of M or N) at unit u of K.
  uint32_t k_major(int r, int u) const {
    if (!swizzle_bytes) return address + uint32_t(r / 8) * stride + uint32_t(r % 8) * 16 + uint32_t(u) * leading;
    return tma::swizzled(address + uint32_t(r / 8) * stride + uint32_t(r % 8 * swizzle_bytes) + uint32_t(u) * 16,
                         swizzle_bytes);
  }
  // M- or N-major, 16-bit elements: the 16 bytes of rows 8 u .. 8 u + 7 at k.
  uint32_t transposed(int u, int k) const {
    if (!swizzle_bytes) return address + uint32_t(u) * stride + uint32_t(k / 8) * leading + uint32_t(k % 8) * 16;
    const int units = swizzle_bytes / 16;  // in a row of the swizzle atom
    return tma::swizzled(address + uint32_t(u / units) * leading + uint32_t(k / 8) * stride +
                             uint32_t(k % 8 * swizzle_bytes) + uint32_t(u % units) * 16,
                         swizzle_bytes);
  }
};

// Calls unit(first row, first k, address) for each 16 bytes of `rows` rows from `row` on.
template <class Unit>
inline void for_each_unit(uint64_t descriptor, bool transposed, int row, int rows, int element_bytes, Unit unit) {
  const Operand operand(descriptor);
  const int per_unit = 16 / element_bytes;
  if (transposed)
    for (int k = 0; k < 32 / element_bytes; ++k)
      for (int r = row; r < row + rows; r += 8) unit(r - row, k, operand.transposed(r / 8, k));
  else
    for (int r = row; r < row + rows; ++r)
      for (int u = 0; u < 2; ++u) unit(r - row, u * per_unit, operand.k_major(r, u));
}

[[noreturn]] inline void blame(const Warp& warp, const std::string& text, const Site& site) {
  fail(text, site, &warp.lanes[0]);
}

inline const char* unit_at(const Warp& warp, uint32_t address, const Site& site) {
  return shared_bytes(*warp.block, address, 16, 16, site, &warp.lanes[0]);
}

// Of what the warp reads; fails if some of it is in flight.
inline uint64_t digest_of(const Warp& warp, const Wgmma& w) {
  uint64_t digest = 0;
  const auto add = [&](int, int, uint32_t address) {
    uint64_t half[2];
    memcpy(half, unit_at(warp, address, w.site), 16);
    digest = (digest ^ half[0]) * 0x9e3779b97f4a7c15u + half[1];
  };
  if (!w.a_in_registers) for_each_unit(w.a_descriptor, w.transposed_a, warp.index % 4 * 16, 16, w.element_bytes, add);
  for_each_unit(w.b_descriptor, w.transposed_b, 0, w.n, w.element_bytes, add);
  return digest;
}

// A(16,K) and B(K,N) as floats, K = 32 / element_bytes.
typedef float Row8 __attribute__((vector_size(32)));
struct Floats {
  float a[16][32];
  alignas(32) float b[32][256];
};

inline void read_operands(const Warp& warp, const Wgmma& w, Floats& to) {
  const int per_unit = 16 / w.element_bytes;
  float unit[16];
  if (w.a_in_registers) {
    const int per_register = 4 / w.element_bytes;  // a[2h]: row g, a[2h + 1]: row g + 8; columns h K/2 + t P ...
    for (int l = 0; l < 32; ++l) {
      w.read(w.a[l], unit, 4 * per_register);
      for (int i = 0; i < 4; ++i)
        for (int e = 0; e < per_register; ++e)
          to.a[l / 4 + i % 2 * 8][i / 2 * 4 * per_register + l % 4 * per_register + e] = unit[i * per_register + e];
    }
  } else {
    for_each_unit(w.a_descriptor, w.transposed_a, warp.index % 4 * 16, 16, w.element_bytes,
                  [&](int r, int k, uint32_t address) {
                    w.read(unit_at(warp, address, w.site), unit, per_unit);
                    for (int e = 0; e < per_unit; ++e) (w.transposed_a ? to.a[r + e][k] : to.a[r][k + e]) = unit[e];
                  });
  }
  for_each_unit(w.b_descriptor, w.transposed_b, 0, w.n, w.element_bytes, [&](int r, int k, uint32_t address) {
    const char* from = unit_at(warp, address, w.site);
    if (w.transposed_b) {
      w.read(from, &to.b[k][r], per_unit);
      return;
    }
    w.read(from, unit, per_unit);
    for (int e = 0; e < per_unit; ++e) to.b[k + e][r] = unit[e];
  });
}

inline WgmmaAccumulator& accumulator_of(WgmmaQueue& queue, const float* name) {
  for (WgmmaAccumulator& a : queue.accumulators)
    if (a.registers[0] == name) return a;
  queue.accumulators.emplace_back();
  return queue.accumulators.back();
}

// How sm_90 adds up the products of float8: one instruction's and the accumulator are aligned to the greatest exponent
// (of a product, the sum of its operands'), lose what lies more than 13 bits below it, and are added exactly; then the
// sum loses what lies 13 bits below its own exponent.
struct Exponents {
  static constexpr int none = -1000;  // of zero
  int a[32], b[32][256];
  static int of(float x) { return x == 0 || !std::isfinite(x) ? none : ilogbf(x); }
};
inline float add_float8(float sum, const Floats& x, const Exponents& e, int row, int column) {
  int top = Exponents::of(sum);
  float plain = sum;
  for (int k = 0; k < 32; ++k) {
    plain += x.a[row][k] * x.b[k][column];
    top = std::max(top, e.a[k] + e.b[k][column]);
  }
  if (!std::isfinite(plain) || top < Exponents::none / 2) return plain;
  const double scale = ldexp(1.0, 13 - top);
  int64_t total = int64_t(double(sum) * scale);
  for (int k = 0; k < 32; ++k) total += int64_t(double(x.a[row][k] * x.b[k][column]) * scale);
  const int bits = total == 0 ? 0 : ilogb(double(total)) - 13;
  if (bits > 0) total = total / (int64_t(1) << bits) * (int64_t(1) << bits);
  return float(double(total) / scale);
}

inline void perform(Warp& warp, const Wgmma& w) {
  static thread_local std::vector<Floats> floats(1);  // not itself: a library's thread-local memory is scarce
  Floats& x = floats[0];
  if (digest_of(warp, w) != w.digest)
    blame(warp, "shared memory was overwritten while a wgmma in flight reads it", w.site);
  read_operands(warp, w, x);
  WgmmaAccumulator& acc = accumulator_of(warp.wgmma, w.accumulator);
  const int depth = 32 / w.element_bytes, half = w.n / 2;
  static thread_local std::vector<Exponents> exponents(1);
  Exponents& e = exponents[0];
  const bool float8 = w.element_bytes == 1;
  if (float8)
    for (int k = 0; k < 32; ++k)
      for (int n = 0; n < w.n; ++n) e.b[k][n] = Exponents::of(x.b[k][n]);
  for (int i = 0; i < 16; ++i) {
    alignas(32) float row[256];
    // Column 8 j + 2 t + e of row i: lane 4 (i % 8) + t, register 4 j + 2 (i / 8) + e.
    const auto place = [&](int n) -> float& {
      return acc.value[size_t((i % 8 * 4 + n % 8 / 2) * half + n / 8 * 4 + i / 8 * 2 + n % 2)];
    };
    for (int n = 0; n < w.n; ++n) row[n] = w.keep ? place(n) : 0.0f;
    if (float8)
      for (int k = 0; k < 32; ++k) e.a[k] = Exponents::of(x.a[i][k]);
    for (int n = 0; float8 && n < w.n; ++n) row[n] = add_float8(row[n], x, e, i, n);
    for (int n = 0; !float8 && n < w.n; n += 8) {
      Row8 sum = *reinterpret_cast<const Row8*>(row + n);
      for (int k = 0; k < depth; ++k) sum += x.a[i][k] * *reinterpret_cast<const Row8*>(&x.b[k][n]);
      memcpy(row + n, &sum, sizeof sum);
    }
    for (int n = 0; n < w.n; ++n) place(n) = row[n];
  }
  --acc.pending;
}

// Accumulators that no product is on its way to get their values.
inline void deliver(Warp& warp, const Site& site) {
  std::vector<WgmmaAccumulator>& all = warp.wgmma.accumulators;
  for (size_t i = 0; i < all.size();) {
    WgmmaAccumulator& acc = all[i];
    if (acc.pending) {
      ++i;
      continue;
    }
    for (int l = 0; l < 32; ++l) {
      for (int r = 0; r < acc.n / 2; ++r)
        if (bits_of_float(acc.registers[l][r]) != 0xffffffffu)
          fail("accumulators were written while a wgmma was in flight to them", site, &warp.lanes[l]);
      memcpy(acc.registers[l], acc.value.data() + size_t(l) * acc.n / 2, size_t(acc.n / 2) * 4);
    }
    all.erase(all.begin() + long(i));
  }
}

// ---------------------------------------------------------------- what a lane parks
struct Issue {
  Wgmma* what;
  float* d;
};

inline void resolve_issue(uint64_t mask, void** args) {
  Warp& warp = *running.worker->resolving;
  Issue& first = *static_cast<Issue*>(args[0]);
  Wgmma& w = *first.what;
  if (mask != 0xffffffffu) blame(warp, "needs all 32 lanes", w.site);
  if (!warp.wgmma.fenced) blame(warp, "no wgmma.fence before the first wgmma", w.site);
  WgmmaAccumulator& acc = accumulator_of(warp.wgmma, first.d);
  const bool fresh = !acc.pending;
  if (!fresh && acc.n != w.n) blame(warp, "two shapes in flight to the same accumulators", w.site);
  if (fresh) {
    acc.n = w.n;
    acc.value.resize(size_t(32) * w.n / 2);
  }
  for (int l = 0; l < 32; ++l) {
    const Issue& x = *static_cast<Issue*>(args[l]);
    if (x.what->b_descriptor != w.b_descriptor || x.what->a_descriptor != w.a_descriptor || x.what->keep != w.keep)
      fail("the lanes of a warp give different descriptors", w.site, &warp.lanes[l]);
    memcpy(w.a[l], x.what->a[l], sizeof w.a[l]);
    if (fresh) {
      acc.registers[l] = x.d;
      memcpy(acc.value.data() + size_t(l) * w.n / 2, x.d, size_t(w.n / 2) * 4);
      memset(x.d, kPoison, size_t(w.n / 2) * 4);
    }
  }
  ++acc.pending;
  std::vector<WgmmaRecord>& log = warp.block->wgmma_log[warp.index / 4];
  const uint64_t a = w.a_in_registers ? 0 : w.a_descriptor;
  if (warp.wgmma.issued == log.size()) log.push_back({a, w.b_descriptor, w.n});
  const WgmmaRecord& record = log[size_t(warp.wgmma.issued++)];
  if (record.a_descriptor != a || record.b_descriptor != w.b_descriptor || record.n != w.n)
    blame(warp, "the warps of a warpgroup do not issue the same wgmma", w.site);
  w.digest = digest_of(warp, w);  // what will be read has to be there already
  w.group = warp.wgmma.open;
  w.accumulator = first.d;
  warp.wgmma.items.push_back(w);
}

inline void resolve_wait(uint64_t, void** args) {
  Warp& warp = *running.worker->resolving;
  WgmmaQueue& queue = warp.wgmma;
  const unsigned pending = *static_cast<unsigned*>(args[0]);
  size_t done = 0;
  for (; done < queue.items.size() && queue.items[done].group + pending < queue.open; ++done)
    perform(warp, queue.items[done]);
  queue.items.erase(queue.items.begin(), queue.items.begin() + long(done));
  deliver(warp, warp.lanes[0].site);
}
inline void resolve_fence(uint64_t, void**) { running.worker->resolving->wgmma.fenced = true; }
inline void resolve_commit(uint64_t, void**) { ++running.worker->resolving->wgmma.open; }

inline void issue(float* d, Wgmma& w, const Site& site) {
  const Lane& lane = self(site);
  w.site = site;
  if (lane.block->lanes.size() < size_t(lane.warp->index / 4 + 1) * 128)
    fail("needs a whole warpgroup of 128 threads", site);
  Issue x{&w, d};
  warp_collective(resolve_issue, &x, site.what, kAllLanes, site);
}

}  // namespace wgmma_ops

inline void wgmma_fence(Site site = Site::here()) {
  warp_collective(wgmma_ops::resolve_fence, nullptr, "wgmma.fence", kAllLanes, site);
}
inline void wgmma_commit(Site site = Site::here()) {
  warp_collective(wgmma_ops::resolve_commit, nullptr, "wgmma.commit_group", kAllLanes, site);
}
inline void wgmma_wait(unsigned pending, Site site = Site::here()) {
  warp_collective(wgmma_ops::resolve_wait, &pending, "wgmma.wait_group", kAllLanes, site);
}

// Read: ReadHalf, ReadBfloat16, ReadTf32 ...; ElementBytes: of A and B. keep = 0 starts from zero.
template <class Read, int ElementBytes, int N> inline void wgmma(float (&d)[N / 2], uint64_t a, uint64_t b, int keep,
                                                                 bool transposed_a = false, bool transposed_b = false,
                                                                 Site site = Site::here()) {
  static_assert(N % 8 == 0 && N >= 8 && N <= 256, "wgmma of 8 to 256 columns");
  Wgmma w;
  w.a_descriptor = a, w.b_descriptor = b, w.keep = keep != 0, w.n = N, w.element_bytes = ElementBytes,
  w.read = Read::run;
  w.transposed_a = transposed_a, w.transposed_b = transposed_b;
  wgmma_ops::issue(d, w, site.named("wgmma"));
}
template <class Read, int ElementBytes, int N> inline void wgmma_registers(float (&d)[N / 2], const uint32_t* a,
                                                                           uint64_t b, int keep, bool transposed_b,
                                                                           Site site = Site::here()) {
  static_assert(N % 8 == 0 && N >= 8 && N <= 256, "wgmma of 8 to 256 columns");
  Wgmma w;
  w.a_in_registers = true, w.b_descriptor = b, w.keep = keep != 0, w.n = N, w.element_bytes = ElementBytes,
  w.read = Read::run;
  w.transposed_b = transposed_b;
  memcpy(w.a[lane()], a, 16);
  wgmma_ops::issue(d, w, site.named("wgmma"));
}

}  // namespace emu
