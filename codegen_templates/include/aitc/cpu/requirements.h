// What a processor must have to run the code of this instruction set: `needs`, by the compiler's own words for what it may
// use, so that no list of flags is repeated. Only table.cpp includes it; host/isa.h asks the processor before anything of
// the set is called. The words are those of /proc/cpuinfo.
#pragma once

namespace {

const char* const needs[] = {
#if defined(__SSE4_2__)
    "sse4_2",
#endif
#if defined(__POPCNT__)
    "popcnt",
#endif
#if defined(__LZCNT__)
    "abm",
#endif
#if defined(__MOVBE__)
    "movbe",
#endif
#if defined(__AVX__)
    "avx",
#endif
#if defined(__AVX2__)
    "avx2",
#endif
#if defined(__FMA__)
    "fma",
#endif
#if defined(__F16C__)
    "f16c",
#endif
#if defined(__BMI__)
    "bmi1",
#endif
#if defined(__BMI2__)
    "bmi2",
#endif
#if defined(__FMA4__)
    "fma4",
#endif
#if defined(__XOP__)
    "xop",
#endif
#if defined(__GFNI__)
    "gfni",
#endif
#if defined(__AVXVNNI__)
    "avx_vnni",
#endif
#if defined(__AVX512F__)
    "avx512f",
#endif
#if defined(__AVX512CD__)
    "avx512cd",
#endif
#if defined(__AVX512DQ__)
    "avx512dq",
#endif
#if defined(__AVX512BW__)
    "avx512bw",
#endif
#if defined(__AVX512VL__)
    "avx512vl",
#endif
#if defined(__AVX512IFMA__)
    "avx512ifma",
#endif
#if defined(__AVX512VBMI__)
    "avx512vbmi",
#endif
#if defined(__AVX512VBMI2__)
    "avx512_vbmi2",
#endif
#if defined(__AVX512VNNI__)
    "avx512_vnni",
#endif
#if defined(__AVX512BITALG__)
    "avx512_bitalg",
#endif
#if defined(__AVX512VPOPCNTDQ__)
    "avx512_vpopcntdq",
#endif
#if defined(__AVX512BF16__)
    "avx512_bf16",
#endif
#if defined(__AVX512FP16__)
    "avx512_fp16",
#endif
#if defined(__ARM_FEATURE_ATOMICS)
    "atomics",
#endif
#if defined(__ARM_FEATURE_FP16_VECTOR_ARITHMETIC)
    "asimdhp",
#endif
#if defined(__ARM_FEATURE_DOTPROD)
    "asimddp",
#endif
#if defined(__ARM_FEATURE_SVE)
    "sve",
#endif
#if defined(__ARM_FEATURE_SVE2)
    "sve2",
#endif
#if defined(__ARM_FEATURE_MATMUL_INT8)
    "i8mm",
#endif
#if defined(__ARM_FEATURE_BF16)
    "bf16",
#endif
    nullptr,
};

}  // namespace
