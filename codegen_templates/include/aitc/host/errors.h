// Errors inside a model's library are exceptions; at the C interface they become a status and a text of the calling
// thread.
#pragma once
#include <cstdarg>
#include <cstdio>
#include <exception>
#include <new>
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

// Runs `body`; what it throws becomes a status. No exception crosses the C interface.
template <class Body>
aitc_status guarded(const Body& body) noexcept {
  try {
    body();
    return AITC_OK;
  } catch (const Error& e) {
    last_error() = e.text;
    return e.status;
  } catch (const std::bad_alloc&) {
    last_error() = "out of host memory";
    return AITC_OUT_OF_MEMORY;
  } catch (const std::exception& e) {
    last_error() = e.what();
    return AITC_INTERNAL;
  } catch (...) {
    last_error() = "unknown failure";
    return AITC_INTERNAL;
  }
}

}  // namespace aitc::host
