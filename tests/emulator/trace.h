// The chain of calls that led to an error, as source lines, by addr2line (binutils); empty where that is missing.
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <string>

#include "report.h"

#if defined(__linux__)
#include <dlfcn.h>
#include <execinfo.h>
#endif

namespace emu AITC_EMULATOR_HIDDEN {

// Source lines of code addresses in this program or library, innermost first, inlined calls included, one "function at
// file:line" each; lines of the emulator itself are left out.
inline std::string source_lines(void* const* addresses, int count) {
#if defined(__linux__)
  Dl_info mine, info;
  if (!dladdr(reinterpret_cast<void*>(&source_lines), &mine) || !mine.dli_fname) return "";
  std::string command = "addr2line -Cfpi -e '" + std::string(mine.dli_fname) + "'";
  for (int i = 0; i < count; ++i) {
    if (!dladdr(addresses[i], &info) || info.dli_fbase != mine.dli_fbase) continue;
    const uintptr_t base = reinterpret_cast<uintptr_t>(info.dli_fbase),
                    address = reinterpret_cast<uintptr_t>(addresses[i]);
    char text[32];
    snprintf(text, sizeof text, " 0x%zx", size_t(base == 0x400000 ? address : address - base));
    command += text;
  }
  FILE* pipe = popen((command + " 2>/dev/null").c_str(), "r");
  if (!pipe) return "";
  const std::string own = std::string(__FILE__, strlen(__FILE__) - strlen("trace.h"));
  std::string text;
  char line[1024];
  while (fgets(line, sizeof line, pipe)) {
    std::string l(line);
    while (!l.empty() && (l.back() == '\n' || l.back() == ' ')) l.pop_back();
    if (l.rfind(" (inlined by) ", 0) == 0) l.erase(0, 14);
    const size_t at = l.rfind(" at ");
    if (at == std::string::npos || l.find("?") != std::string::npos) continue;
    const std::string place = l.substr(at + 4);
    if (place.find(own) == 0 && place.find('/', own.size()) == std::string::npos) continue;
    if (place.find("/include/c++/") != std::string::npos) continue;
    const size_t arguments = l.find('(');
    text += "\n    in " + l.substr(0, arguments < at ? arguments : at) + " at " + place;
  }
  pclose(pipe);
  return text;
#else
  (void)addresses, (void)count;
  return "";
#endif
}

// Of the running function.
inline __attribute__((noinline)) std::string call_chain() {
#if defined(__linux__)
  void* frames[24];
  const int count = backtrace(frames, 24);
  for (int i = 0; i < count; ++i) frames[i] = static_cast<char*>(frames[i]) - 1;  // the call, not the line behind it
  return source_lines(frames, count);
#else
  return "";
#endif
}

}  // namespace emu
