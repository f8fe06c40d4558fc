// Instruction sets: each kernel of a library for cpus exists once for each that it was built for; one is chosen at load.
#pragma once
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <string>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#include "aitc/host/errors.h"

namespace aitc::host {

// What a processor may have, and where it says so. x86: a bit of CPUID's answer (registers eax, ebx, ecx, edx are 0 to 3),
// and the registers that the operating system must save for it (bits of XCR0). aarch64: a bit of AT_HWCAP, or AT_HWCAP2.
struct Feature {
  const char* word;
  unsigned leaf, subleaf;
  int reg, bit;
  uint32_t state;
};
inline constexpr uint32_t ymm_state = 0x6, zmm_state = 0xe6;
inline constexpr Feature features[] = {
#if defined(__x86_64__)
    {"sse4_2", 1, 0, 2, 20, 0},
    {"popcnt", 1, 0, 2, 23, 0},
    {"abm", 0x80000001, 0, 2, 5, 0},
    {"movbe", 1, 0, 2, 22, 0},
    {"avx", 1, 0, 2, 28, ymm_state},
    {"avx2", 7, 0, 1, 5, ymm_state},
    {"fma", 1, 0, 2, 12, ymm_state},
    {"f16c", 1, 0, 2, 29, ymm_state},
    {"bmi1", 7, 0, 1, 3, 0},
    {"bmi2", 7, 0, 1, 8, 0},
    {"fma4", 0x80000001, 0, 2, 16, ymm_state},
    {"xop", 0x80000001, 0, 2, 11, ymm_state},
    {"gfni", 7, 0, 2, 8, 0},
    {"avx_vnni", 7, 1, 0, 4, ymm_state},
    {"avx512f", 7, 0, 1, 16, zmm_state},
    {"avx512cd", 7, 0, 1, 28, zmm_state},
    {"avx512dq", 7, 0, 1, 17, zmm_state},
    {"avx512bw", 7, 0, 1, 30, zmm_state},
    {"avx512vl", 7, 0, 1, 31, zmm_state},
    {"avx512ifma", 7, 0, 1, 21, zmm_state},
    {"avx512vbmi", 7, 0, 2, 1, zmm_state},
    {"avx512_vbmi2", 7, 0, 2, 6, zmm_state},
    {"avx512_vnni", 7, 0, 2, 11, zmm_state},
    {"avx512_bitalg", 7, 0, 2, 12, zmm_state},
    {"avx512_vpopcntdq", 7, 0, 2, 14, zmm_state},
    {"avx512_bf16", 7, 1, 0, 5, zmm_state},
    {"avx512_fp16", 7, 0, 3, 23, zmm_state},
#elif defined(__aarch64__)
    {"atomics", 1, 0, 0, 8, 0},
    {"asimdhp", 1, 0, 0, 10, 0},
    {"asimddp", 1, 0, 0, 20, 0},
    {"sve", 1, 0, 0, 22, 0},
    {"sve2", 2, 0, 0, 1, 0},
    {"i8mm", 2, 0, 0, 13, 0},
    {"bf16", 2, 0, 0, 14, 0},
#else
    {"", 0, 0, 0, 0, 0},
#endif
};

inline bool processor_has(const Feature& f) {
#if defined(__x86_64__)
  unsigned r[4] = {};
  const auto ask = [&r](unsigned leaf, unsigned subleaf) {
    return __get_cpuid_count(leaf, subleaf, &r[0], &r[1], &r[2], &r[3]) != 0;
  };
  if (f.state != 0) {
    if (!ask(1, 0) || (r[2] >> 27 & 1) == 0) return false;  // OSXSAVE: xgetbv may be used
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & f.state) != f.state) return false;
  }
  if (f.subleaf > 0 && (!ask(f.leaf, 0) || r[0] < f.subleaf)) return false;
  return ask(f.leaf, f.subleaf) && (r[f.reg] >> f.bit & 1) != 0;
#elif defined(__aarch64__) && defined(__linux__)
  return (getauxval(f.leaf == 1 ? AT_HWCAP : AT_HWCAP2) >> f.bit & 1) != 0;
#else
  return f.word[0] != 0;
#endif
}

// The words among `needs` (up to null) that this processor, or its operating system, has not.
inline std::string missing(const char* const* needs) {
  std::string words;
  for (; *needs != nullptr; ++needs) {
    bool found = false;
    for (const Feature& f : features) found = found || (strcmp(f.word, *needs) == 0 && processor_has(f));
    if (!found) words += (words.empty() ? "" : ", ") + std::string(*needs);
  }
  return words;
}

inline constexpr const char* isa_names[] = {"avx512", "avx2", "native"};  // the widest first

// One instruction set of a library: its kernels, and what they need.
template <typename Kernels>
struct Built {
  const char* name;
  const Kernels* kernels;
  const char* const* needs;
};

// The first of `built` that the processor runs and that `wanted` names (AITC_ISA: names with commas between; null or
// empty: all). Throws BAD_ARGUMENT for a name that there is not, NO_DEVICE if none is left.
template <typename Kernels>
const Kernels& choose_isa(const std::vector<Built<Kernels>>& built, const char* wanted) {
  const std::string list = wanted != nullptr ? wanted : "";
  std::vector<std::string> names;
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = list.find(',', begin) == std::string::npos ? list.size() : list.find(',', begin);
    if (end > begin) names.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  for (const std::string& name : names) {
    bool known = false;
    for (const char* one : isa_names) known = known || name == one;
    if (!known)
      throw Error(AITC_BAD_ARGUMENT, format("AITC_ISA=%s: no instruction set is called '%s', but avx2, avx512 and native",
                                            list.c_str(), name.c_str()));
  }
  std::string held, lacks;
  for (const Built<Kernels>& b : built) {
    held += (held.empty() ? "" : ", ") + std::string(b.name);
    bool asked = names.empty();
    for (const std::string& name : names) asked = asked || name == b.name;
    if (!asked) continue;
    const std::string words = missing(b.needs);
    if (words.empty()) return *b.kernels;
    lacks += format("; this processor lacks %s for %s", words.c_str(), b.name);
  }
  const std::string none = ", and AITC_ISA=" + list + " names none of them";
  throw Error(AITC_NO_DEVICE, format("this library holds code for %s%s%s", held.c_str(), lacks.empty() ? none.c_str() : "",
                                     lacks.c_str()));
}

}  // namespace aitc::host
