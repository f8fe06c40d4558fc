// What aitc/gpu/matmul/mma_cdna.h needs from the emulator: the compiler's builtins for gfx90a and gfx942 as functions.
#pragma once
#include "amdgcn.h"
#include "mfma.h"

static_assert(emu::kWarp == 64,
              "kernels for AMD have waves of 64: emulate them with -DAITC_EMULATOR_GFX=0x90a or 0x942");
