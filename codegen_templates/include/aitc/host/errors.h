// Errors inside a model's library are exceptions; at the C interface they become a status and a text of the calling
// thread.
#pragma once
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>

#include "aitc/host/abi.h"

namespace aitc::host {

struct Error : std::exception {
  aitc_status status;
  std::string text;
  Error(aitc_status status, std::string text) : status(status), text(std::move(text)) {}
  const char* what() const noexcept override { return text.c_str(); }
};

__attribute__((format(printf, 1, 2))) inline std::string format(const char* pattern, ...) {
  va_list args, again;
  va_start(args, pattern);
  va_copy(again, args);
  std::string text(size_t(vsnprintf(nullptr, 0, pattern, args)), '\0');
  va_end(args);
  vsnprintf(&text[0], text.size() + 1, pattern, again);
  va_end(again);
  return text;
}

inline std::string& last_error() {
  static thread_local std::string text;
  return text;
}

// Does not throw: where there is no memory for the text, a shorter one needs none.
inline aitc_status failed(aitc_status status, const char* text) noexcept {
  try {
    last_error() = text;
  } catch (...) {
    last_error().clear();
  }
  return status;
}

// Runs `body`; what it throws becomes a status. No exception crosses the C interface.
template <class Body>
aitc_status guarded(const Body& body) noexcept {
  try {
    body();
    return AITC_OK;
  } catch (const Error& e) {
    return failed(e.status, e.what());
  } catch (const std::bad_alloc&) {
    return failed(AITC_OUT_OF_MEMORY, "out of host memory");
  } catch (const std::length_error&) {
    return failed(AITC_OUT_OF_MEMORY, "more than host memory holds");
  } catch (const std::exception& e) {
    return failed(AITC_INTERNAL, e.what());
  } catch (...) {
    return failed(AITC_INTERNAL, "unknown failure");
  }
}

// ---- sizes that the caller or the data says
// `a * b`, or an error: sizes that wrap would be memory that is too small.
inline uint64_t times(uint64_t a, uint64_t b, const char* name) {
  uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product) || product > uint64_t(INT64_MAX))
    throw Error(AITC_OUT_OF_MEMORY, format("no memory holds \"%s\" at these sizes", name));
  return product;
}
inline void* host_allocate(size_t bytes) {
  void* data = bytes > size_t(PTRDIFF_MAX) - 64 ? nullptr : aligned_alloc(64, (bytes + 64) / 64 * 64);
  if (data == nullptr) throw Error(AITC_OUT_OF_MEMORY, format("cannot allocate %zu bytes", bytes));
  return data;
}
inline void check_copy(const void* to, const void* from, size_t bytes) {
  if (bytes > size_t(PTRDIFF_MAX)) throw Error(AITC_BAD_ARGUMENT, format("there are no %zu bytes to copy", bytes));
  if (bytes && (to == nullptr || from == nullptr)) throw Error(AITC_BAD_ARGUMENT, "one side of the copy is null");
}

}  // namespace aitc::host
