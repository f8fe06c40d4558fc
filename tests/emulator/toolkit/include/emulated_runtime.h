// The part of the CUDA and HIP runtimes that aitc's host code uses, on the CPU. The including header defines
// AITC_EMULATOR_API(name), cuda##name or hip##name. Streams run at once, in the calling thread; graphs record and
// replay. "Device memory" is host memory that starts as NaN and ends where memory ends. A kernel's image is a shared
// library (see bin/emulated_compiler.py).
#pragma once
#include <dlfcn.h>
#include <elf.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#define API(name) AITC_EMULATOR_API(name)

enum API(Error_t) {
  API(Success) = 0,
  API(ErrorInvalidValue) = 1,
  API(ErrorMemoryAllocation) = 2,
  API(ErrorInvalidConfiguration) = 9,
  API(ErrorInsufficientDriver) = 35,
  API(ErrorNoDevice) = 100,
  API(ErrorInvalidDevice) = 101,
  API(ErrorInvalidImage) = 200,
  API(ErrorNotFound) = 500,
  API(ErrorLaunchFailure) = 719
};
enum API(MemcpyKind) {
  API(MemcpyHostToHost),
  API(MemcpyHostToDevice),
  API(MemcpyDeviceToHost),
  API(MemcpyDeviceToDevice),
  API(MemcpyDefault)
};
enum API(StreamCaptureStatus) {
  API(StreamCaptureStatusNone),
  API(StreamCaptureStatusActive),
  API(StreamCaptureStatusInvalidated)
};
enum API(StreamCaptureMode) {
  API(StreamCaptureModeGlobal),
  API(StreamCaptureModeThreadLocal),
  API(StreamCaptureModeRelaxed)
};
enum API(MemoryType) {
  API(MemoryTypeUnregistered),
  API(MemoryTypeHost),
  API(MemoryTypeDevice),
  API(MemoryTypeManaged)
};
enum { API(StreamDefault) = 0, API(StreamNonBlocking) = 1, API(EventDefault) = 0, API(EventDisableTiming) = 2 };

namespace emulated_runtime {

using Status = API(Error_t);
using Steps = std::vector<std::function<Status()>>;
struct Stream {
  std::unique_ptr<Steps> recording;
};
struct Event {
  std::chrono::steady_clock::time_point at;
};

struct Failure {
  Status last = API(Success);
  std::string text;  // what the emulator said of a launch
};
inline Failure& failure() {
  static thread_local Failure f;
  return f;
}
inline Status report(Status status) {
  if (status != API(Success)) failure().last = status;
  return status;
}

// ---- memory
class Allocations {
 public:
  void* allocate(size_t bytes) {
    const size_t page = 4096, room = (bytes + 255) / 256 * 256, pages = (room + page - 1) / page;
    char* base = static_cast<char*>(
        mmap(nullptr, (pages + 1) * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base == MAP_FAILED) return nullptr;
    mprotect(base + pages * page, page, PROT_NONE);
    char* data = base + pages * page - room;
    memset(data, 0xff, room);
    const std::lock_guard<std::mutex> lock(mutex_);
    all_[data] = {room, base, (pages + 1) * page};
    return data;
  }
  bool release(void* p) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = all_.find(static_cast<char*>(p));
    if (found == all_.end()) return false;
    munmap(found->second.base, found->second.mapped);
    all_.erase(found);
    return true;
  }
  bool contains(const void* p) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto next = all_.upper_bound(const_cast<char*>(static_cast<const char*>(p)));
    return next != all_.begin() && (--next, static_cast<const char*>(p) < next->first + next->second.bytes);
  }

 private:
  struct Allocation {
    size_t bytes;
    char* base;
    size_t mapped;
  };
  std::mutex mutex_;
  std::map<char*, Allocation> all_;
};
inline Allocations& allocations() {
  static Allocations* a = new Allocations;  // outlives everything
  return *a;
}

// ---- work: at once, or into a graph
inline Status submit(Stream* stream, std::function<Status()> step) {
  if (stream && stream->recording) {
    stream->recording->push_back(std::move(step));
    return API(Success);
  }
  return report(step());
}

// ---- kernels
struct Kernel {
  int (*launch)(const unsigned* dims, size_t smem_bytes, void** arguments) = nullptr;
  int (*parameters)(size_t* bytes, int room) = nullptr;
  const char* (*error)() = nullptr;
};
// An image is an ELF file; its section table ends it.
inline void* open_image(const void* image) {
  Elf64_Ehdr header;
  memcpy(&header, image, sizeof header);
  if (memcmp(header.e_ident, ELFMAG, SELFMAG)) return nullptr;
  const size_t bytes = header.e_shoff + size_t(header.e_shnum) * header.e_shentsize;
  const int file = memfd_create("aitc-kernel", 0);  // stays open: the library's lines are looked up in it
  if (file < 0 || write(file, image, bytes) != ssize_t(bytes)) return nullptr;
  return dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(), RTLD_NOW | RTLD_LOCAL);
}
inline Kernel* find_kernel(void* library, const char* name) {
  const auto symbol = [&](const std::string& s) { return dlsym(library, s.c_str()); };
  Kernel k;
  k.launch = reinterpret_cast<decltype(k.launch)>(symbol(std::string("aitc_emulator_launch_") + name));
  k.parameters = reinterpret_cast<decltype(k.parameters)>(symbol(std::string("aitc_emulator_parameters_") + name));
  k.error = reinterpret_cast<decltype(k.error)>(symbol("aitc_emulator_error"));
  return k.launch && k.parameters && k.error ? new Kernel(k) : nullptr;  // as long as the process
}
struct Dims {
  unsigned of[9];
};
inline Status launch(const Kernel& kernel, const Dims& dims, size_t smem_bytes, void** arguments, Stream* stream) {
  size_t bytes[128];
  const int count = kernel.parameters(bytes, 128);
  auto values = std::make_shared<std::vector<std::vector<char>>>();
  for (int i = 0; i < count; ++i)
    values->emplace_back(static_cast<char*>(arguments[i]), static_cast<char*>(arguments[i]) + bytes[i]);
  return submit(stream, [kernel, dims, smem_bytes, values] {
    std::vector<void*> pointers;
    for (std::vector<char>& v : *values) pointers.push_back(v.data());
    if (!kernel.launch(dims.of, smem_bytes, pointers.data())) return API(Success);
    failure().text = kernel.error();
    return API(ErrorLaunchFailure);
  });
}

}  // namespace emulated_runtime

using API(Stream_t) = emulated_runtime::Stream*;
using API(Event_t) = emulated_runtime::Event*;
using API(Graph_t) = emulated_runtime::Steps*;
using API(GraphExec_t) = emulated_runtime::Steps*;

#define RETURN(status) return ::emulated_runtime::report(status)
inline const char* API(GetErrorName)(API(Error_t) e) {
  return e == API(Success)                 ? "success"
         : e == API(ErrorMemoryAllocation) ? "out of memory"
         : e == API(ErrorLaunchFailure)    ? "launch failure"
                                           : "error";
}
inline const char* API(GetErrorString)(API(Error_t) e) {
  return e == API(ErrorLaunchFailure) ? emulated_runtime::failure().text.c_str() : API(GetErrorName)(e);
}
inline API(Error_t) API(GetLastError)() {
  const API(Error_t) e = emulated_runtime::failure().last;
  emulated_runtime::failure().last = API(Success);
  return e;
}
inline API(Error_t) API(GetDeviceCount)(int* count) { return *count = 1, API(Success); }
inline API(Error_t) API(GetDevice)(int* device) { return *device = 0, API(Success); }
inline API(Error_t) API(SetDevice)(int device) { RETURN(device == 0 ? API(Success) : API(ErrorInvalidDevice)); }
inline API(Error_t) API(DeviceSynchronize)() { return API(Success); }

inline API(Error_t) API(Malloc)(void** p, size_t bytes) {
  *p = emulated_runtime::allocations().allocate(bytes);
  RETURN(*p ? API(Success) : API(ErrorMemoryAllocation));
}
inline API(Error_t) API(Free)(void* p) {
  RETURN(!p || emulated_runtime::allocations().release(p) ? API(Success) : API(ErrorInvalidValue));
}
inline API(Error_t) API(Memset)(void* p, int value, size_t bytes) { return memset(p, value, bytes), API(Success); }
inline API(Error_t) API(MemsetAsync)(void* p, int value, size_t bytes, API(Stream_t) stream = nullptr) {
  return emulated_runtime::submit(stream, [=] { return memset(p, value, bytes), API(Success); });
}
inline API(Error_t) API(Memcpy)(void* to, const void* from, size_t bytes, API(MemcpyKind)) {
  return memmove(to, from, bytes), API(Success);
}
inline API(Error_t)
    API(MemcpyAsync)(void* to, const void* from, size_t bytes, API(MemcpyKind), API(Stream_t) stream = nullptr) {
  return emulated_runtime::submit(stream, [=] { return memmove(to, from, bytes), API(Success); });
}

inline API(Error_t) API(StreamCreateWithFlags)(API(Stream_t) * stream, unsigned) {
  return *stream = new emulated_runtime::Stream, API(Success);
}
inline API(Error_t) API(StreamDestroy)(API(Stream_t) stream) { return delete stream, API(Success); }
inline API(Error_t) API(StreamSynchronize)(API(Stream_t)) { return API(Success); }
inline API(Error_t) API(StreamIsCapturing)(API(Stream_t) stream, API(StreamCaptureStatus) * status) {
  return *status = stream && stream->recording ? API(StreamCaptureStatusActive) : API(StreamCaptureStatusNone),
         API(Success);
}
inline API(Error_t) API(StreamBeginCapture)(API(Stream_t) stream, API(StreamCaptureMode)) {
  if (!stream || stream->recording) RETURN(API(ErrorInvalidValue));
  return stream->recording.reset(new emulated_runtime::Steps), API(Success);
}
inline API(Error_t) API(StreamEndCapture)(API(Stream_t) stream, API(Graph_t) * graph) {
  if (!stream || !stream->recording) RETURN(API(ErrorInvalidValue));
  return *graph = stream->recording.release(), API(Success);
}
inline API(Error_t) API(GraphDestroy)(API(Graph_t) graph) { return delete graph, API(Success); }
inline API(Error_t) API(GraphExecDestroy)(API(GraphExec_t) exec) { return delete exec, API(Success); }
inline API(Error_t) API(GraphLaunch)(API(GraphExec_t) exec, API(Stream_t) stream) {
  for (const auto& step : *exec) {
    const API(Error_t) e = emulated_runtime::submit(stream, step);
    if (e != API(Success)) return e;
  }
  return API(Success);
}

inline API(Error_t) API(EventCreateWithFlags)(API(Event_t) * event, unsigned) {
  return *event = new emulated_runtime::Event, API(Success);
}
inline API(Error_t) API(EventDestroy)(API(Event_t) event) { return delete event, API(Success); }
inline API(Error_t) API(EventRecord)(API(Event_t) event, API(Stream_t) = nullptr) {
  return event->at = std::chrono::steady_clock::now(), API(Success);
}
inline API(Error_t) API(EventSynchronize)(API(Event_t)) { return API(Success); }
inline API(Error_t) API(StreamWaitEvent)(API(Stream_t), API(Event_t), unsigned) { return API(Success); }
inline API(Error_t) API(EventElapsedTime)(float* milliseconds, API(Event_t) begin, API(Event_t) end) {
  return *milliseconds = std::chrono::duration<float, std::milli>(end->at - begin->at).count(), API(Success);
}
