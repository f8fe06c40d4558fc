// What is emulated (macros, fixed when the kernel is compiled) and how it is run (environment, read at the first
// launch).
//
//   -DAITC_EMULATOR                    selects the emulator in gpu/gpu.h
//   -DAITC_EMULATOR_SM=80|86|89|90|100|120     an NVIDIA target: 32 lanes a warp, its shared memory
//   -DAITC_EMULATOR_GFX=0x90a|0x942            an AMD target: 64 lanes a wave, 64 KiB of LDS
//   AITC_EMULATOR_ORDER=forward|reverse|SEED   the order of lanes, warps and blocks, and of copies in flight
//   AITC_EMULATOR_THREADS=n                    operating-system threads that share the blocks of a launch (default 1)
#pragma once
#include "report.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#if !defined(AITC_EMULATOR_SM) && !defined(AITC_EMULATOR_GFX)
#if defined(AITC_WARP_SIZE) && AITC_WARP_SIZE == 32
#define AITC_EMULATOR_SM 90
#else
#define AITC_EMULATOR_GFX 0x90a
#endif
#endif
#if defined(AITC_EMULATOR_SM)
#define AITC_EMULATOR_WARP 32
#else
#define AITC_EMULATOR_WARP 64
#endif
#if !defined(AITC_WARP_SIZE)
#define AITC_WARP_SIZE AITC_EMULATOR_WARP
#elif AITC_WARP_SIZE != AITC_EMULATOR_WARP
#error "AITC_WARP_SIZE contradicts the emulated target"
#endif

#if defined(__SANITIZE_ADDRESS__)
#define AITC_EMULATOR_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define AITC_EMULATOR_ASAN 1
#endif
#endif

namespace emu AITC_EMULATOR_HIDDEN {

constexpr int kWarp = AITC_EMULATOR_WARP;
constexpr int kMaxThreads = 1024;
constexpr size_t kReserved = 1024;  // the addresses before the first byte of shared memory, as on sm_90

#if defined(AITC_EMULATOR_SM)
constexpr int kSm = AITC_EMULATOR_SM;
constexpr bool kFlushesMatrixSubnormals = false;
constexpr size_t kSharedLimit = kSm == 80 || kSm == 87    ? 163 * 1024
                                : kSm == 90 || kSm == 100 ? 227 * 1024
                                : kSm >= 86               ? 99 * 1024
                                                          : 48 * 1024;
constexpr size_t kStaticSharedLimit = 48 * 1024;
#else
constexpr int kSm = 0;
constexpr bool kFlushesMatrixSubnormals =
    AITC_EMULATOR_GFX == 0x90a;  // MI200 matrix cores flush f16 and bf16 subnormals
constexpr size_t kSharedLimit = 64 * 1024, kStaticSharedLimit = 64 * 1024;
#endif

#ifdef AITC_EMULATOR_ASAN
constexpr size_t kStack = 256 * 1024;
#else
constexpr size_t kStack = 64 * 1024;
#endif

struct Config {
  unsigned seed = 0;  // 0: not shuffled
  bool reverse = false;
  int threads = 1;
  Config() {
    const char* order = getenv("AITC_EMULATOR_ORDER");
    if (order && !strcmp(order, "reverse")) reverse = true;
    else if (order && *order && strcmp(order, "forward")) seed = unsigned(strtoul(order, nullptr, 10)) + 1;
    const char* count = getenv("AITC_EMULATOR_THREADS");
    if (count && atoi(count) > 0) threads = atoi(count);
  }
};

}  // namespace emu
