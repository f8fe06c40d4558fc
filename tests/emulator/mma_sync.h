// ldmatrix, stmatrix and mma.sync, with the register layouts of the PTX manual. One warp executes each.
#pragma once
#include "elements.h"
#include "warp.h"

namespace emu AITC_EMULATOR_HIDDEN {
namespace matrix {

struct Rows {
  char* row;  // the 16 bytes that this lane addresses, null if it addresses none
  uint32_t* registers;
};
// Matrix m's row r is addressed by lane 8 m + r. Register m of lane l: row l / 4, elements 2 (l % 4) and + 1;
// transposed: the row and the column exchanged.
template <int Count, bool transposed, bool store> inline void resolve(uint64_t mask, void** args) {
  if (mask != 0xffffffffu) {
    const Lane& lane = running.worker->resolving->lanes[__builtin_ctzll(mask)];
    fail("needs all 32 lanes", lane.site, &lane);
  }
  for (int m = 0; m < Count; ++m)
    for (int l = 0; l < 32; ++l)
      for (int e = 0; e < 2; ++e) {
        const int row = transposed ? l % 4 * 2 + e : l / 4, column = transposed ? l / 4 : l % 4 * 2 + e;
        char* memory = static_cast<Rows*>(args[8 * m + row])->row + 2 * column;
        char* part = reinterpret_cast<char*>(static_cast<Rows*>(args[l])->registers + m) + 2 * e;
        store ? memcpy(memory, part, 2) : memcpy(part, memory, 2);
      }
}
template <int Count> inline void resolve_load(uint64_t mask, void** args) {  // not transposed: 4 bytes at once
  if (mask != 0xffffffffu) return resolve<Count, false, false>(mask, args);
  for (int m = 0; m < Count; ++m)
    for (int l = 0; l < 32; ++l)
      memcpy(static_cast<Rows*>(args[l])->registers + m, static_cast<Rows*>(args[8 * m + l / 4])->row + l % 4 * 4, 4);
}

struct Mma {
  float* d;  // C on the way in
  const uint32_t *a, *b;
};
typedef float Row8 __attribute__((vector_size(32)));

// D(16,8) += A(16,K) B(K,8). A register holds P neighbours along k. With g = lane / 4, t = lane % 4, halves h of K:
// a[2h] = A[g], a[2h+1] = A[g+8], b[h] = B[.][g], each at k = h K/2 + t P ...; d[0,1] = D[g][2t,2t+1], d[2,3] eight
// rows below.
template <class Read, int K> inline void resolve_mma(uint64_t mask, void** args) {
  constexpr int P = K / 8;
  if (mask != 0xffffffffu) {
    const Lane& lane = running.worker->resolving->lanes[__builtin_ctzll(mask)];
    fail("a matrix instruction needs all 32 lanes", lane.site, &lane);
  }
  float A[16][K];
  alignas(32) float B[K][8], D[16][8];
  for (int l = 0; l < 32; ++l) {
    const Mma& x = *static_cast<Mma*>(args[l]);
    const int g = l / 4, t = l % 4;
    float a[4 * P], b[2 * P];
    Read::run(x.a, a, 4 * P);
    Read::run(x.b, b, 2 * P);
    for (int h = 0; h < 2; ++h)
      for (int e = 0; e < P; ++e) {
        const int k = h * K / 2 + t * P + e;
        A[g][k] = a[2 * h * P + e];
        A[g + 8][k] = a[(2 * h + 1) * P + e];
        B[k][g] = b[h * P + e];
      }
    memcpy(&D[g][2 * t], x.d, 8);
    memcpy(&D[g + 8][2 * t], x.d + 2, 8);
  }
  for (int i = 0; i < 16; ++i) {
    Row8 sum = *reinterpret_cast<const Row8*>(D[i]);
    for (int k = 0; k < K; ++k) sum += A[i][k] * *reinterpret_cast<const Row8*>(B[k]);
    memcpy(D[i], &sum, 32);
  }
  for (int l = 0; l < 32; ++l) {
    float* d = static_cast<Mma*>(args[l])->d;
    memcpy(d, &D[l / 4][l % 4 * 2], 8);
    memcpy(d + 2, &D[l / 4 + 8][l % 4 * 2], 8);
  }
}

}  // namespace matrix

// `address`: of the row that this lane names (lanes 8 Count and up: not looked at).
template <int Count, bool transposed = false>
inline void ldmatrix(uint32_t (&r)[Count], uint32_t address, Site site = Site::here()) {
  static_assert(Count == 1 || Count == 2 || Count == 4, "ldmatrix .x1 .x2 .x4");
  site = site.named(transposed ? "ldmatrix.trans" : "ldmatrix");
  matrix::Rows rows{lane() < 8 * Count ? shared_bytes(address, 16, 16, site) : nullptr, r};
  warp_collective(transposed ? matrix::resolve<Count, true, false> : matrix::resolve_load<Count>, &rows, site.what,
                  kAllLanes, site);
}
template <int Count, bool transposed = false>
inline void stmatrix(uint32_t address, const uint32_t (&r)[Count], Site site = Site::here()) {
  static_assert(Count == 1 || Count == 2 || Count == 4, "stmatrix .x1 .x2 .x4");
  site = site.named(transposed ? "stmatrix.trans" : "stmatrix");
  matrix::Rows rows{lane() < 8 * Count ? shared_bytes(address, 16, 16, site) : nullptr, const_cast<uint32_t*>(r)};
  warp_collective(matrix::resolve<Count, transposed, true>, &rows, site.what, kAllLanes, site);
}

// K = 16: Read is ReadHalf or ReadBfloat16; K = 8: ReadTf32 (or K = 8 of 16-bit elements is not offered).
template <class Read, int K>
inline void mma_sync(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], Site site = Site::here()) {
  matrix::Mma x{d, a, b};
  warp_collective(matrix::resolve_mma<Read, K>, &x, "mma.sync", kAllLanes, site);
}

}  // namespace emu
