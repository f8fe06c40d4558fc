// The door to the back end. Everything else in aitc/ includes this file and never asks which compiler it is in.
//
// A back end (`cpu/cpu.h`, `gpu/gpu.h`) defines, before `types.h` may be used:
//
//   AITC_BEGIN / AITC_END      open and close `namespace aitc` (on cpu with the instruction set as inline namespace)
//   AITC_FN                    prefix of a function that kernels call: always inlined, on GPUs `__device__`
//   AITC_KERNEL(threads)       prefix of an entry point, AITC_ENTRY(name) its symbol
//   AITC_UNROLL                before a short loop of independent iterations: GPUs unroll it, cpus turn it into vectors
//   AITC_GPU                   1 or 0
//   AITC_VECTOR_ALIGN          bytes that the widest single load may demand (GPUs 16, cpus 1: unaligned loads are free)
//   bits_float float_bits bits_double double_bits                          reinterpretation
//   half_to_float float_to_half bfloat16_to_float float_to_bfloat16        uint16_t <-> float, round to nearest even
//   m_exp m_log m_tanh m_erf m_pow m_sin m_cos m_rsqrt m_sqrt              float (and double) elementary functions
//   copy_elements<V>(to, from) V elements of any alignment, only where AITC_VECTOR_ALIGN is 1
//   for_each<V>(count, body)   the loop of a map kernel, see generic/map.h
#pragma once

#if defined(__CUDACC__) || defined(__HIPCC__) || defined(AITC_EMULATOR)
#include "aitc/gpu/core/gpu.h"
#else
#include "aitc/cpu/cpu.h"
#endif
