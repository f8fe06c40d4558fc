// The part of the CUDA and HIP runtimes that aitc's host code uses, on the CPU. The including header defines
// AITC_EMULATOR_API(name), cuda##name or hip##name. Streams run at once, in the calling thread; graphs record, with
// forks and joins, and replay in any order that their edges allow. "Device memory" is host memory that starts as NaN and ends where memory ends. A kernel's image is a shared
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
#include <atomic>
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
  API(ErrorLaunchFailure) = 719,
  API(ErrorStreamCaptureUnjoined) = 904,
  API(ErrorStreamCaptureIsolation) = 905,
  API(ErrorGraphExecUpdateFailure) = 910
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
// One thing that a stream does: a kernel's launch, or anything else.
struct Launched;
struct Step {
  std::function<Status()> other;
  std::shared_ptr<const Launched> launch;
};
// A recorded step, and the numbers of those that have to be over before.
struct Node {
  Step step;
  std::vector<int> after;
};
using Graph = std::vector<Node>;
struct Stream;
struct Recording {
  Graph graph;
  std::vector<Stream*> streams;  // the one that is recorded, then those that waited for it
};
struct Stream {
  std::shared_ptr<Recording> recording;
  std::vector<int> last;  // what a step put into it now comes after
};
struct Event {
  std::chrono::steady_clock::time_point at;
  std::weak_ptr<Recording> recording;
  bool recorded = false;  // in a recording, which may be over
  std::vector<int> last;
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

// ---- kernels
struct Kernel {
  int (*launch)(const unsigned* dims, size_t smem_bytes, void** arguments) = nullptr;
  int (*parameters)(size_t* bytes, int room) = nullptr;
  void (*follow)(void (*run)(void*), void* data) = nullptr;
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
  k.follow = reinterpret_cast<decltype(k.follow)>(symbol("aitc_emulator_follow"));
  k.error = reinterpret_cast<decltype(k.error)>(symbol("aitc_emulator_error"));
  return k.launch && k.parameters && k.follow && k.error ? new Kernel(k) : nullptr;  // as long as the process
}
struct Dims {
  unsigned of[9];
};
struct Launched {
  Kernel kernel;
  Dims dims;
  size_t smem_bytes;
  std::vector<std::vector<char>> arguments;
  bool overlaps;  // may begin before the launch ahead of it has ended

  Status run() const {
    std::vector<void*> pointers;
    for (const std::vector<char>& v : arguments) pointers.push_back(const_cast<char*>(v.data()));
    if (!kernel.launch(dims.of, smem_bytes, pointers.data())) return API(Success);
    failure().text = kernel.error();
    return API(ErrorLaunchFailure);
  }
};

// ---- work, in order. A launch waits for what comes next: one that overlaps it begins first, and lets it run when it
// waits for it, so that a kernel that does not wait reads what is old. Every second pair; a reversed or odd order takes
// the others.
class Work {
 public:
  Status submit(Stream* stream, Step step) {
    if (stream && stream->recording) return record(stream, std::move(step));
    const std::lock_guard<std::mutex> lock(mutex_);
    if (step.other) {
      const Status before = run_held(), status = step.other();
      return report(before != API(Success) ? before : status);
    }
    if (!step.launch->overlaps || !held_) {
      const Status before = run_held();
      held_ = step.launch;
      if (!skip_) return report(before);
      skip_ = false;
      const Status status = run_held();
      return report(before != API(Success) ? before : status);
    }
    Held first{held_, API(Success), false};
    held_ = nullptr;
    step.launch->kernel.follow([](void* data) { static_cast<Held*>(data)->run(); }, &first);
    const Status status = step.launch->run();
    first.run();
    return report(first.status != API(Success) ? first.status : status);
  }
  // Runs a recorded graph: in the order of the recording, or in another that its edges allow (see AITC_EMULATOR_ORDER).
  // A launch that may begin early does so if the one that ran last is what it comes after.
  Status replay(Stream* stream, const Graph& graph) {
    std::vector<bool> done(graph.size());
    int last = -1;
    for (size_t count = 0; count < graph.size(); ++count) {
      std::vector<int> ready;
      for (int n = 0; n < int(graph.size()); ++n) {
        const std::vector<int>& after = graph[size_t(n)].after;
        if (!done[size_t(n)] && std::all_of(after.begin(), after.end(), [&](int m) { return done[size_t(m)]; }))
          ready.push_back(n);
      }
      const int n = ready[pick(ready.size())];
      Step step = graph[size_t(n)].step;
      if (step.launch && step.launch->overlaps && graph[size_t(n)].after != std::vector<int>{last}) {
        auto alone = std::make_shared<Launched>(*step.launch);
        alone->overlaps = false;
        step.launch = alone;
      }
      const Status status = submit(stream, step);
      if (status != API(Success)) return status;
      done[size_t(n)] = true;
      last = n;
    }
    return API(Success);
  }
  // A callback holds its stream back, which the calling thread cannot wait for: it runs when somebody waits.
  void defer(std::function<void()> function) {
    const std::lock_guard<std::mutex> lock(mutex_);
    deferred_.push_back(std::move(function));
  }
  Status finish() {
    std::vector<std::function<void()>> now;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      now.swap(deferred_);
    }
    for (const auto& function : now) function();
    return submit(nullptr, {[] { return API(Success); }, nullptr});
  }

 private:
  Status record(Stream* stream, Step step) {
    // What a launch does that may begin early and comes after several others is not written down anywhere.
    if (step.launch && step.launch->overlaps && stream->last.size() > 1) return report(API(ErrorInvalidValue));
    Graph& graph = stream->recording->graph;
    graph.push_back({std::move(step), stream->last});
    stream->last = {int(graph.size()) - 1};
    return API(Success);
  }
  size_t pick(size_t count) {
    if (!order_ || !strcmp(order_, "forward")) return 0;
    if (!strcmp(order_, "reverse")) return count - 1;
    random_ = random_ * 6364136223846793005u + 1442695040888963407u;
    return size_t(random_ >> 33) % count;
  }
  struct Held {
    std::shared_ptr<const Launched> launch;
    Status status;
    bool done;
    void run() {
      if (done) return;
      done = true;
      status = launch->run();
    }
  };
  Status run_held() {
    if (!held_) return API(Success);
    const std::shared_ptr<const Launched> launch = held_;
    held_ = nullptr;
    return launch->run();
  }

  std::mutex mutex_;
  std::shared_ptr<const Launched> held_;
  std::vector<std::function<void()>> deferred_;
  const char* order_ = getenv("AITC_EMULATOR_ORDER");
  bool skip_ = order_ && (!strcmp(order_, "reverse") || atoi(order_) % 2);
  uint64_t random_ = order_ ? uint64_t(atoi(order_)) : 0;
};
inline Work& work() {
  static Work* w = new Work;
  return *w;
}

// An executable copy. AITC_EMULATOR_GRAPHS limits how many a process may make.
inline Status instantiate(Graph** exec, const Graph& graph) {
  static std::atomic<int> left{[] {
    const char* most = getenv("AITC_EMULATOR_GRAPHS");
    return most ? atoi(most) : 1 << 30;
  }()};
  if (left-- <= 0) return report(API(ErrorMemoryAllocation));
  return *exec = new Graph(graph), API(Success);
}
// Gives `exec` the arguments of `graph`; an error if it is not of the same launches, with the same edges.
inline Status update(Graph& exec, const Graph& graph) {
  const auto alike = [](const Node& a, const Node& b) {
    const Launched *x = a.step.launch.get(), *y = b.step.launch.get();
    return a.after == b.after && !x == !y && (!x || (x->kernel.launch == y->kernel.launch && x->overlaps == y->overlaps));
  };
  if (exec.size() != graph.size() || !std::equal(exec.begin(), exec.end(), graph.begin(), alike))
    return report(API(ErrorGraphExecUpdateFailure));
  exec = graph;
  return API(Success);
}

inline Status launch(const Kernel& kernel, const Dims& dims, size_t smem_bytes, void** arguments, bool overlaps,
                     Stream* stream) {
  size_t bytes[128];
  const int count = kernel.parameters(bytes, 128);
  auto launched = std::make_shared<Launched>(Launched{kernel, dims, smem_bytes, {}, overlaps});
  for (int i = 0; i < count; ++i)
    launched->arguments.emplace_back(static_cast<char*>(arguments[i]), static_cast<char*>(arguments[i]) + bytes[i]);
  return work().submit(stream, {nullptr, launched});
}

inline Status copy(Stream* stream, std::function<Status()> step) {
  return work().submit(stream, {std::move(step), nullptr});
}

}  // namespace emulated_runtime

using API(Stream_t) = emulated_runtime::Stream*;
using API(Event_t) = emulated_runtime::Event*;
using API(Graph_t) = emulated_runtime::Graph*;
using API(GraphExec_t) = emulated_runtime::Graph*;

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
inline API(Error_t) API(DeviceSynchronize)() { return emulated_runtime::work().finish(); }

inline API(Error_t) API(Malloc)(void** p, size_t bytes) {
  *p = emulated_runtime::allocations().allocate(bytes);
  RETURN(*p ? API(Success) : API(ErrorMemoryAllocation));
}
inline API(Error_t) API(Free)(void* p) {
  const API(Error_t) before = emulated_runtime::work().finish();  // it may still be used
  const bool freed = !p || emulated_runtime::allocations().release(p);
  RETURN(before != API(Success) ? before : freed ? API(Success) : API(ErrorInvalidValue));
}
inline API(Error_t) API(Memset)(void* p, int value, size_t bytes) {
  return emulated_runtime::copy(nullptr, [=] { return memset(p, value, bytes), API(Success); });
}
inline API(Error_t) API(MemsetAsync)(void* p, int value, size_t bytes, API(Stream_t) stream = nullptr) {
  return emulated_runtime::copy(stream, [=] { return memset(p, value, bytes), API(Success); });
}
inline API(Error_t) API(Memcpy)(void* to, const void* from, size_t bytes, API(MemcpyKind)) {
  return emulated_runtime::copy(nullptr, [=] { return memmove(to, from, bytes), API(Success); });
}
inline API(Error_t)
    API(MemcpyAsync)(void* to, const void* from, size_t bytes, API(MemcpyKind), API(Stream_t) stream = nullptr) {
  return emulated_runtime::copy(stream, [=] { return memmove(to, from, bytes), API(Success); });
}

inline API(Error_t) API(StreamCreateWithFlags)(API(Stream_t) * stream, unsigned) {
  return *stream = new emulated_runtime::Stream, API(Success);
}
inline API(Error_t) API(StreamDestroy)(API(Stream_t) stream) { return delete stream, API(Success); }
inline API(Error_t) API(StreamSynchronize)(API(Stream_t)) { return emulated_runtime::work().finish(); }
inline API(Error_t)
    API(StreamAddCallback)(API(Stream_t) stream, void (*call)(API(Stream_t), API(Error_t), void*), void* data, unsigned) {
  return emulated_runtime::work().defer([=] { call(stream, API(Success), data); }), API(Success);
}
inline API(Error_t) API(StreamIsCapturing)(API(Stream_t) stream, API(StreamCaptureStatus) * status) {
  return *status = stream && stream->recording ? API(StreamCaptureStatusActive) : API(StreamCaptureStatusNone),
         API(Success);
}
inline API(Error_t) API(StreamBeginCapture)(API(Stream_t) stream, API(StreamCaptureMode)) {
  if (!stream || stream->recording) RETURN(API(ErrorInvalidValue));
  stream->recording = std::make_shared<emulated_runtime::Recording>();
  stream->recording->streams = {stream};
  return stream->last.clear(), API(Success);
}
inline API(Error_t) API(StreamEndCapture)(API(Stream_t) stream, API(Graph_t) * graph) {
  *graph = nullptr;
  if (!stream || !stream->recording || stream->recording->streams[0] != stream) RETURN(API(ErrorInvalidValue));
  const std::shared_ptr<emulated_runtime::Recording> recording = stream->recording;
  for (emulated_runtime::Stream* s : recording->streams) s->recording.reset();
  // All has to end in the stream that was recorded.
  std::vector<bool> joined(recording->graph.size());
  std::vector<int> waiting = stream->last;
  while (!waiting.empty()) {
    const int n = waiting.back();
    waiting.pop_back();
    if (joined[size_t(n)]) continue;
    joined[size_t(n)] = true;
    const std::vector<int>& after = recording->graph[size_t(n)].after;
    waiting.insert(waiting.end(), after.begin(), after.end());
  }
  if (!std::all_of(joined.begin(), joined.end(), [](bool b) { return b; })) RETURN(API(ErrorStreamCaptureUnjoined));
  return *graph = new emulated_runtime::Graph(recording->graph), API(Success);
}
inline API(Error_t) API(GraphDestroy)(API(Graph_t) graph) { return delete graph, API(Success); }
inline API(Error_t) API(GraphExecDestroy)(API(GraphExec_t) exec) { return delete exec, API(Success); }
inline API(Error_t) API(GraphLaunch)(API(GraphExec_t) exec, API(Stream_t) stream) {
  return emulated_runtime::work().replay(stream, *exec);
}

inline API(Error_t) API(EventCreateWithFlags)(API(Event_t) * event, unsigned) {
  return *event = new emulated_runtime::Event, API(Success);
}
inline API(Error_t) API(EventDestroy)(API(Event_t) event) { return delete event, API(Success); }
inline API(Error_t) API(EventRecord)(API(Event_t) event, API(Stream_t) stream = nullptr) {
  event->recorded = stream && stream->recording;
  if (event->recorded) return event->recording = stream->recording, event->last = stream->last, API(Success);
  return emulated_runtime::copy(stream, [=] { return event->at = std::chrono::steady_clock::now(), API(Success); });
}
inline API(Error_t) API(EventSynchronize)(API(Event_t)) { return emulated_runtime::work().finish(); }
inline API(Error_t) API(StreamWaitEvent)(API(Stream_t) stream, API(Event_t) event, unsigned) {
  const std::shared_ptr<emulated_runtime::Recording> recording = event->recording.lock();
  if (!event->recorded) RETURN(stream && stream->recording ? API(ErrorStreamCaptureIsolation) : API(Success));
  if (!stream || !recording || (stream->recording && stream->recording != recording))
    RETURN(API(ErrorStreamCaptureIsolation));
  if (!stream->recording) {
    stream->recording = recording;
    recording->streams.push_back(stream);
    stream->last.clear();
  }
  for (int n : event->last)
    if (std::find(stream->last.begin(), stream->last.end(), n) == stream->last.end()) stream->last.push_back(n);
  return API(Success);
}
inline API(Error_t) API(EventElapsedTime)(float* milliseconds, API(Event_t) begin, API(Event_t) end) {
  return *milliseconds = std::chrono::duration<float, std::milli>(end->at - begin->at).count(), API(Success);
}
