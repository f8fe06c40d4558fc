// What went wrong and where: source places, and the one way in which the emulator stops.
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <stdexcept>
#include <string>

// Several emulated libraries live in one process, for different targets: none may use another's functions or variables.
#define AITC_EMULATOR_HIDDEN __attribute__((visibility("hidden")))

namespace emu AITC_EMULATOR_HIDDEN {

// A place in the kernel's source. A primitive takes it as its last, defaulted parameter, so that it names its caller.
struct Site {
  const char* file = nullptr;
  int line = 0;
  const char* what = "";  // the primitive
  static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line, ""};
  }
  constexpr Site named(const char* name) const { return {file, line, name}; }
};
inline bool operator==(const Site& a, const Site& b) {
  return a.line == b.line && (a.what == b.what || !strcmp(a.what, b.what)) &&
         (a.file == b.file || (a.file && b.file && !strcmp(a.file, b.file)));
}
inline bool operator!=(const Site& a, const Site& b) { return !(a == b); }
inline std::string text_of(const Site& s) {
  return std::string(s.what) + " at " + (s.file ? s.file : "?") + ":" + std::to_string(s.line);
}

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr Dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  constexpr uint64_t count() const { return uint64_t(x) * y * z; }
};
inline std::string text_of(const Dim3& d) {
  return "(" + std::to_string(d.x) + "," + std::to_string(d.y) + "," + std::to_string(d.z) + ")";
}

// Thrown by launch(): the kernel did what hardware forbids, or leaves undefined.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// `printf` into a string.
template <class... A> inline std::string format(const char* text, A... args) {
  char line[512];
  snprintf(line, sizeof line, text, args...);
  return line;
}

}  // namespace emu
