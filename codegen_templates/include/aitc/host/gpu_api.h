// The few runtime functions that the host code uses, under one spelling for CUDA and HIP. The only host file that tells
// them apart (besides tensor_map.h).
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "aitc/host/errors.h"

#if defined(AITC_API_hip)
#include <hip/hip_runtime_api.h>
#define AITC_GPU_CALL(name) hip##name
#else
#include <cuda_runtime_api.h>
#define AITC_GPU_CALL(name) cuda##name
#endif

namespace aitc::host::gpu {

using Stream = AITC_GPU_CALL(Stream_t);
using Event = AITC_GPU_CALL(Event_t);
using Graph = AITC_GPU_CALL(Graph_t);
using GraphExec = AITC_GPU_CALL(GraphExec_t);
using Status = AITC_GPU_CALL(Error_t);
constexpr Status success = AITC_GPU_CALL(Success);

inline void check(Status status, const char* what) {
  if (status == success) return;
  (void)AITC_GPU_CALL(GetLastError)();  // or the next call would report it again
  const bool memory = status == AITC_GPU_CALL(ErrorMemoryAllocation);
  const bool none = status == AITC_GPU_CALL(ErrorNoDevice) || status == AITC_GPU_CALL(ErrorInvalidDevice) ||
                    status == AITC_GPU_CALL(ErrorInsufficientDriver);
  throw Error(memory ? AITC_OUT_OF_MEMORY
              : none ? AITC_NO_DEVICE
                     : AITC_DEVICE_ERROR,
              format("%s: %s (%s)", what, AITC_GPU_CALL(GetErrorString)(status), AITC_GPU_CALL(GetErrorName)(status)));
}

inline int device_count() {
  int count = 0;
  const Status status = AITC_GPU_CALL(GetDeviceCount)(&count);
  if (status != success) (void)AITC_GPU_CALL(GetLastError)();
  return status == success ? count : 0;
}

// Makes `device` current for a scope; the caller's choice comes back afterwards.
class DeviceScope {
 public:
  explicit DeviceScope(int device) {
    check(AITC_GPU_CALL(GetDevice)(&before_), "asking for the current device");
    if (before_ != device) check(AITC_GPU_CALL(SetDevice)(device), "choosing the device");
    changed_ = before_ != device;
  }
  ~DeviceScope() {
    if (changed_) (void)AITC_GPU_CALL(SetDevice)(before_);
  }
  DeviceScope(const DeviceScope&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

// Device memory that frees itself, on the device it was made on.
class Memory {
 public:
  Memory() = default;
  explicit Memory(uint64_t bytes) : bytes_(bytes) {
    if (bytes_)
      check(AITC_GPU_CALL(Malloc)(reinterpret_cast<void**>(&data_), size_t(bytes_)),
            format("allocating %llu bytes of device memory", static_cast<unsigned long long>(bytes_)).c_str());
  }
  Memory(Memory&& other) noexcept : data_(other.data_), bytes_(other.bytes_) {
    other.data_ = nullptr, other.bytes_ = 0;
  }
  Memory& operator=(Memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Memory() {
    if (data_) (void)AITC_GPU_CALL(Free)(data_);
  }
  char* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  char* data_ = nullptr;
  uint64_t bytes_ = 0;
};

inline void zero(void* data, uint64_t bytes) {
  if (bytes) check(AITC_GPU_CALL(Memset)(data, 0, size_t(bytes)), "zeroing memory");
}
inline void copy(void* to, const void* from, uint64_t bytes) {
  if (bytes) check(AITC_GPU_CALL(Memcpy)(to, from, size_t(bytes), AITC_GPU_CALL(MemcpyDefault)), "copying");
}
inline void copy_async(void* to, const void* from, uint64_t bytes, Stream stream) {
  if (bytes)
    check(AITC_GPU_CALL(MemcpyAsync)(to, from, size_t(bytes), AITC_GPU_CALL(MemcpyDefault), stream), "copying");
}
// Whether the caller is recording a graph of its own on `stream` (never on the default stream).
inline bool is_recording(Stream stream) {
  if (stream == nullptr) return false;
  AITC_GPU_CALL(StreamCaptureStatus) status = AITC_GPU_CALL(StreamCaptureStatusNone);
  check(AITC_GPU_CALL(StreamIsCapturing)(stream, &status), "asking a stream for its state");
  return status == AITC_GPU_CALL(StreamCaptureStatusActive);
}
inline void synchronize(Stream stream) { check(AITC_GPU_CALL(StreamSynchronize)(stream), "running the model"); }

// Whether the memory at `p` can be read by kernels of `device`: its own device memory or managed memory. Throws for
// another device's.
inline bool on_device(const void* p, int device) {
#if defined(AITC_API_hip)
  hipPointerAttribute_t attributes;
  if (hipPointerGetAttributes(&attributes, p) != hipSuccess) {
    (void)hipGetLastError();  // plain host memory is unknown to it
    return false;
  }
#if HIP_VERSION_MAJOR >= 6
  const bool device_memory = attributes.type == hipMemoryTypeDevice, managed = attributes.isManaged != 0;
#else
  const bool device_memory = attributes.memoryType == hipMemoryTypeDevice, managed = attributes.isManaged != 0;
#endif
#else
  cudaPointerAttributes attributes;
  check(cudaPointerGetAttributes(&attributes, p), "asking whose memory a tensor is in");
  const bool device_memory = attributes.type == cudaMemoryTypeDevice,
             managed = attributes.type == cudaMemoryTypeManaged;
#endif
  if (device_memory && attributes.device != device)
    throw Error(AITC_BAD_ARGUMENT, format("a tensor is in the memory of device %d, the model runs on device %d",
                                          attributes.device, device));
  return device_memory || managed;
}

// An event that records its place in a stream; with `timing` two of them measure time.
class Mark {
 public:
  explicit Mark(bool timing) {
#if defined(AITC_API_hip)
    check(hipEventCreateWithFlags(&event_, timing ? hipEventDefault : hipEventDisableTiming), "creating an event");
#else
    check(cudaEventCreateWithFlags(&event_, timing ? cudaEventDefault : cudaEventDisableTiming), "creating an event");
#endif
  }
  Mark(const Mark&) = delete;
  Mark(Mark&& other) noexcept : event_(other.event_) { other.event_ = nullptr; }
  ~Mark() {
    if (event_) (void)AITC_GPU_CALL(EventDestroy)(event_);
  }
  void record(Stream stream) const { check(AITC_GPU_CALL(EventRecord)(event_, stream), "recording an event"); }
  void hold_back(Stream stream) const {
    check(AITC_GPU_CALL(StreamWaitEvent)(stream, event_, 0), "ordering two streams");
  }
  void wait() const { check(AITC_GPU_CALL(EventSynchronize)(event_), "running the model"); }  // on the host
  double seconds_since(const Mark& begin) const {
    float milliseconds = 0;
    check(AITC_GPU_CALL(EventElapsedTime)(&milliseconds, begin.event_, event_), "measuring time");
    return double(milliseconds) * 1e-3;
  }

 private:
  Event event_ = nullptr;
};

// Holds a stream back while work is put into it, so that the device finds one launch after another and its times are
// its own, not the host's. Opens by itself after `patience`, in case the stream's queue is full.
class Gate {
 public:
  explicit Gate(Stream stream) : state_(new std::shared_ptr<State>(std::make_shared<State>())), open_(*state_) {
    const Status status = AITC_GPU_CALL(StreamAddCallback)(stream, wait, state_, 0);  // ROCm 5.2 lacks LaunchHostFunc
    if (status != success) delete state_;
    check(status, "holding a stream back");
  }
  Gate(const Gate&) = delete;
  ~Gate() { open_->now = true; }

 private:
  struct State {
    std::atomic<bool> now{false};
  };
  static constexpr std::chrono::milliseconds patience{200};
  static void wait(Stream, Status, void* data) {
    const std::unique_ptr<std::shared_ptr<State>> mine(static_cast<std::shared_ptr<State>*>(data));
    const auto end = std::chrono::steady_clock::now() + patience;
    while (!(*mine)->now && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  }

  std::shared_ptr<State>* state_;  // the stream's share
  std::shared_ptr<State> open_;
};

// A stream of our own, which does not wait for the default stream.
class OwnStream {
 public:
  OwnStream() {
    check(AITC_GPU_CALL(StreamCreateWithFlags)(&stream_, AITC_GPU_CALL(StreamNonBlocking)), "creating a stream");
  }
  OwnStream(const OwnStream&) = delete;
  ~OwnStream() {
    if (stream_) (void)AITC_GPU_CALL(StreamDestroy)(stream_);
  }
  Stream get() const { return stream_; }

 private:
  Stream stream_ = nullptr;
};

// HIP's early graphs refuse some sequences of launches: models then run without.
#if defined(AITC_API_hip)
constexpr bool may_not_record = true;
#else
constexpr bool may_not_record = false;
#endif

// A recorded sequence of launches.
class Replay {
 public:
  Replay() = default;
  Replay(const Replay&) = delete;
  Replay(Replay&& other) noexcept : exec_(other.exec_) { other.exec_ = nullptr; }
  Replay& operator=(Replay&& other) noexcept {
    std::swap(exec_, other.exec_);
    return *this;
  }
  ~Replay() {
    if (exec_) (void)AITC_GPU_CALL(GraphExecDestroy)(exec_);
  }
  explicit operator bool() const { return exec_ != nullptr; }
  void launch(Stream stream) const { check(AITC_GPU_CALL(GraphLaunch)(exec_, stream), "launching the recorded model"); }

  // Records what `body` launches on `stream`, in place of what was recorded before. Where that was the same launches at
  // other addresses the executable graph is brought up to date, which takes less than making one. If it fails nothing is
  // recorded.
  template <class Body>
  void record(Stream stream, const Body& body) {
    Replay before;
    std::swap(exec_, before.exec_);
    check(AITC_GPU_CALL(StreamBeginCapture)(stream, AITC_GPU_CALL(StreamCaptureModeRelaxed)),
          "beginning to record the model");
    Graph graph = nullptr;
    try {
      body();
    } catch (...) {
      (void)AITC_GPU_CALL(StreamEndCapture)(stream, &graph);
      if (graph) (void)AITC_GPU_CALL(GraphDestroy)(graph);
      throw;
    }
    check(AITC_GPU_CALL(StreamEndCapture)(stream, &graph), "recording the model");
    Status status = success;
    if (before && updated(before.exec_, graph)) std::swap(exec_, before.exec_);
    else
#if defined(AITC_API_hip)
      status = hipGraphInstantiate(&exec_, graph, nullptr, nullptr, 0);
#else
      status = cudaGraphInstantiate(&exec_, graph, 0);
#endif
    (void)AITC_GPU_CALL(GraphDestroy)(graph);
    check(status, "preparing the recorded model");
  }

 private:
  // Gives `exec` the launches of `graph`; false if they are others.
  static bool updated(GraphExec exec, Graph graph) {
#if defined(AITC_API_hip)
    hipGraphNode_t node;
    hipGraphExecUpdateResult result;
    const Status status = hipGraphExecUpdate(exec, graph, &node, &result);
#else
    cudaGraphExecUpdateResultInfo result;
    const Status status = cudaGraphExecUpdate(exec, graph, &result);
#endif
    if (status != success) (void)AITC_GPU_CALL(GetLastError)();
    return status == success;
  }

  GraphExec exec_ = nullptr;
};

inline std::string device_name(int device) {
#if defined(AITC_API_hip)
  hipDeviceProp_t properties;
  check(hipGetDeviceProperties(&properties, device), "asking for the device's name");
  return std::string(properties.name) + " (" + properties.gcnArchName + ")";
#else
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, device), "asking for the device's name");
  return format("%s (sm_%d%d)", properties.name, properties.major, properties.minor);
#endif
}

}  // namespace aitc::host::gpu
