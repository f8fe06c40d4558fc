// With -fsanitize=alignment,bounds,shift g++ calls these functions; here they end the launch with file, line and lane.
// They replace libubsan's (weak, one copy a program).
#pragma once
#include "machine.h"

namespace emu AITC_EMULATOR_HIDDEN {
struct UbsanLocation {
  const char* file;
  uint32_t line, column;
};
struct UbsanType {
  uint16_t kind, info;
  char name[1];
};
struct UbsanMismatch {
  UbsanLocation location;
  UbsanType* type;
  unsigned char log_alignment, kind;
};
struct UbsanBounds {
  UbsanLocation location;
  UbsanType *array, *index;
};
inline Site site_of(const UbsanLocation& l, const char* what) { return {l.file, int(l.line), what}; }
// Host code shares the handlers; it is compiled in the belief that they do not throw.
[[noreturn]] inline void report_access(const std::string& text, const Site& site) {
  if (running.lane) fail(text, site);
  fprintf(stderr, "%s\n  %s\n", text.c_str(), text_of(site).c_str());
  abort();
}
inline void report_mismatch(void* data, uintptr_t p) {
  const auto* d = static_cast<UbsanMismatch*>(data);
  report_access(format("misaligned access: address %p, %s needs %u bytes", reinterpret_cast<void*>(p), d->type->name,
                       1u << d->log_alignment),
                site_of(d->location, "memory access"));
}
inline void report_bounds(void* data, uintptr_t index) {
  const auto* d = static_cast<UbsanBounds*>(data);
  report_access(format("index %zd outside an array of type %s", ssize_t(index), d->array->name),
                site_of(d->location, "array access"));
}
}  // namespace emu

#define AITC_EMULATOR_HANDLER(name, report)                                                                        \
  extern "C" __attribute__((weak, used)) void __ubsan_handle_##name(void* d, uintptr_t v) { ::emu::report(d, v); } \
  extern "C" __attribute__((weak, used)) void __ubsan_handle_##name##_abort(void* d, uintptr_t v) {                \
    ::emu::report(d, v);                                                                                           \
  }
AITC_EMULATOR_HANDLER(type_mismatch_v1, report_mismatch)
AITC_EMULATOR_HANDLER(out_of_bounds, report_bounds)
