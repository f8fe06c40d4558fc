// Work that a kernel has started and not waited for: what each queue holds. The parts that fill and drain them are
// cp_async.h, tma.h and wgmma.h.
#pragma once
#include <stdint.h>

#include <vector>

#include "report.h"

namespace emu AITC_EMULATOR_HIDDEN {

// cp.async: its bytes are read when it is issued, and land when its lane waits for its group.
struct Copy {
  char* to;
  int bytes;
  unsigned group;
  char data[16];
};
struct CopyQueue {
  std::vector<Copy> items;  // oldest first
  unsigned open = 0;        // number of the group that the next copy joins
};

struct TensorMap;

// A transfer between a box of a tensor and shared memory. Rank 0: a plain run of `bytes`.
struct TmaBox {
  char map[128];  // the tensor map, as it was at the issue
  int coordinate[5];
  uint16_t offset[3];            // im2col
  const char* global = nullptr;  // plain runs
  uint32_t bytes = 0;            // in shared memory
};
struct TmaLoad {
  TmaBox box;
  uint32_t to, barrier;  // offsets in shared memory of every block of `blocks`
  uint16_t blocks = 0;   // ranks in the cluster
  Site site;
  bool plain = false;
};
struct BulkStore {
  TmaBox box;
  uint32_t from;
  unsigned group;
  Site site;
  bool plain = false;
};
struct BulkStoreQueue {
  std::vector<BulkStore> items;
  unsigned open = 0;
};

// wgmma: operands are read, and results written, when the warp waits for the group. All of a warp (16 of the 64 rows).
struct Wgmma {
  uint64_t a_descriptor = 0, b_descriptor = 0;
  uint32_t a[32][4] = {};  // [lane][register], if A comes from registers
  bool a_in_registers = false, transposed_a = false, transposed_b = false, keep = true;
  int n = 0;
  int element_bytes = 0;
  void (*read)(const void* from, float* to, int count) = nullptr;
  uint64_t digest = 0;  // of the operands in shared memory at the issue
  unsigned group = 0;
  float* accumulator = nullptr;  // lane 0's registers: the name of its WgmmaAccumulator
  Site site;
};
struct WgmmaAccumulator {
  float* registers[32] = {};  // of each lane; poisoned while products are in flight
  std::vector<float> value;   // [lane][n / 2]: what they will hold
  int n = 0, pending = 0;
};
struct WgmmaQueue {
  std::vector<Wgmma> items;
  std::vector<WgmmaAccumulator> accumulators;
  unsigned open = 0;
  uint64_t issued = 0;
  bool fenced = false;
};
// What the first warp of a warpgroup issued: the other three have to agree.
struct WgmmaRecord {
  uint64_t a_descriptor, b_descriptor;
  int n;
};

}  // namespace emu
