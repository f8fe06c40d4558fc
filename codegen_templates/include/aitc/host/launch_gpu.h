// Launches on CUDA and HIP devices: kernels from embedded images, what they are called with, and a run that puts them into
// streams, times them or leaves some out.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "aitc/host/gpu_api.h"
#include "aitc/host/lanes.h"
#include "aitc/host/late.h"
#include "aitc/host/program.h"
#include "aitc/host/tensor_map.h"

namespace aitc::host {

struct Geometry {
  int64_t grid[3];
  int block[3];
  int smem_bytes;
  int cluster = 1;
  bool overlap = false;  // may begin while the launch before it ends
};

// A kernel's argument: its bytes, as the kernel's parameter has them.
class Arg {
 public:
  Arg(const void* pointer) { set(pointer); }
  Arg(int32_t number) { set(number); }
  Arg(int64_t number) { set(number); }
  Arg(const TensorMap& map) { set(map); }
  const void* address() const { return bytes_; }

 private:
  template <class T>
  void set(const T& value) {
    static_assert(sizeof(T) <= sizeof(bytes_), "an argument's place");
    memcpy(bytes_, &value, sizeof(T));
  }
  alignas(64) char bytes_[sizeof(TensorMap) > 8 ? sizeof(TensorMap) : 8];
};

// A kernel of an embedded image, loaded on each device when it is first needed.
class Kernel {
 public:
  Kernel(const unsigned char* image, const char* name, int smem_bytes)
      : image_(image), name_(name), smem_bytes_(smem_bytes) {}

  // Throws NO_DEVICE if the image holds no code for the (current) device.
  void load(int device) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (device < int(loaded_.size()) && loaded_[size_t(device)]) return;
    if (device >= int(loaded_.size())) loaded_.resize(size_t(device) + 1);
#if defined(AITC_API_hip)
    hipModule_t module;  // lives as long as the process
    check(hipModuleLoadData(&module, image_));
    check(hipModuleGetFunction(&loaded_[size_t(device)], module, name_));
#else
    if (kernel_ == nullptr) {
      cudaLibrary_t library;  // for all devices, lives as long as the process
      check(cudaLibraryLoadData(&library, image_, nullptr, nullptr, 0, nullptr, nullptr, 0));
      check(cudaLibraryGetKernel(&kernel_, library, name_));
    }
    if (smem_bytes_ > 48 * 1024)
      check(cudaKernelSetAttributeForDevice(kernel_, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes_, device));
    cudaFuncAttributes attributes;  // asking loads the code, which must not happen first while launches are recorded
    check(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel_)));
    loaded_[size_t(device)] = true;
#endif
  }

  void launch(const Geometry& g, void** args, int device, gpu::Stream stream) const {
    (void)device;
#if defined(AITC_API_hip)
    const gpu::Status status = hipModuleLaunchKernel(
        loaded_[size_t(device)], unsigned(g.grid[0]), unsigned(g.grid[1]), unsigned(g.grid[2]), unsigned(g.block[0]),
        unsigned(g.block[1]), unsigned(g.block[2]), unsigned(g.smem_bytes), stream, args, nullptr);
#else
    cudaLaunchAttribute attributes[2];
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(unsigned(g.grid[0]), unsigned(g.grid[1]), unsigned(g.grid[2]));
    config.blockDim = dim3(unsigned(g.block[0]), unsigned(g.block[1]), unsigned(g.block[2]));
    config.dynamicSmemBytes = size_t(g.smem_bytes);
    config.stream = stream;
    config.attrs = attributes;
    if (g.cluster > 1) {
      attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
      attributes[config.numAttrs++].val.clusterDim = {unsigned(g.cluster), 1, 1};
    }
    if (g.overlap) {
      attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    }
    const gpu::Status status = cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel_), args);
#endif
    gpu::check(status, name_);
  }

 private:
  void check(gpu::Status status) const {
    if (status == gpu::success) return;
    (void)AITC_GPU_CALL(GetLastError)();
    throw Error(AITC_NO_DEVICE, format("kernel %s cannot be loaded: %s. Was the model compiled for this device?", name_,
                                       AITC_GPU_CALL(GetErrorString)(status)));
  }

  const unsigned char* image_;
  const char* name_;
  const int smem_bytes_;
  std::mutex mutex_;
#if defined(AITC_API_hip)
  std::vector<hipFunction_t> loaded_;
#else
  cudaKernel_t kernel_ = nullptr;
  std::vector<bool> loaded_;
#endif
};

// ---- one run
// Marks around launches, which are read when the stream is idle. Launches are put into the stream while it is held back
// (`held`: not where the host waits for results on the way), `together` at a time, less than a stream's queue holds.
class Timeline {
 public:
  Timeline(std::vector<aitc_span>& spans, bool held) : spans_(spans), held_(held) {}

  void start(int run, gpu::Stream stream) {
    run_ = run;
    begin_part(stream);
  }
  template <typename Launch>
  void time(int index, gpu::Stream stream, const Launch& launch) {
    if (launches_.size() == together) {
      end_part(stream);
      begin_part(stream);
    }
    mark(stream);
    launch();
    mark(stream);
    launches_.push_back(index);
  }
  void finish(gpu::Stream stream) {
    end_part(stream);
    past_ = 0;
  }

 private:
  static constexpr size_t together = 256;

  void mark(gpu::Stream stream) {
    if (used_ == marks_.size()) marks_.emplace_back(true);
    marks_[used_++].record(stream);
  }
  void begin_part(gpu::Stream stream) {
    used_ = 0;
    launches_.clear();
    if (held_) gate_.reset(new gpu::Gate(stream));
    mark(stream);
  }
  // Parts follow each other without the time that the host takes between them.
  void end_part(gpu::Stream stream) {
    gate_.reset();
    gpu::synchronize(stream);
    double end = past_;
    for (size_t i = 0; i < launches_.size(); ++i) {
      const double begin = past_ + marks_[2 * i + 1].seconds_since(marks_[0]);
      end = begin + marks_[2 * i + 2].seconds_since(marks_[2 * i + 1]);
      spans_.push_back({run_, launches_[i], begin, end});
    }
    past_ = end;
  }

  std::vector<aitc_span>& spans_;
  const bool held_;
  std::unique_ptr<gpu::Gate> gate_;
  std::vector<gpu::Mark> marks_;  // the part's beginning, then one before and one after each launch
  std::vector<int> launches_;
  size_t used_ = 0;
  int run_ = 0;
  double past_ = 0;  // when the part before ended
};

struct Run {
  char* arena;
  const char* weights;
  char* state;
  char* const* inputs;
  char* const* outputs;
  int device;
  gpu::Stream stream;
  Timeline* timeline;  // null: launches are not timed
  Late* late;
  Lanes* lanes;           // null: launches go to `stream`, one after another
  const uint8_t* chosen;  // null: all launches; flags otherwise

  void fork(int count) const {
    if (lanes) lanes->fork(stream, count);
  }
  void lane(int number) const {
    if (lanes) lanes->lane(number);
  }
  void join() const {
    if (lanes) lanes->join(stream);
  }

  void launch(int index, const Kernel& kernel, const Geometry& geometry, std::initializer_list<Arg> args) const {
    if (chosen != nullptr && !chosen[index]) return;
    void* addresses[64];
    if (args.size() > 64) throw Error(AITC_INTERNAL, "a kernel with more than 64 arguments");
    int count = 0;
    for (const Arg& arg : args) addresses[count++] = const_cast<void*>(arg.address());
    if (lanes) {
      Geometry here = geometry;
      here.overlap = !lanes->first() && geometry.overlap;
      return kernel.launch(here, addresses, device, lanes->stream(stream));
    }
    if (timeline == nullptr) return kernel.launch(geometry, addresses, device, stream);
    timeline->time(index, stream, [&] { kernel.launch(geometry, addresses, device, stream); });
  }
  void copy(char* to, const char* from, int64_t bytes) const {
    if (to != from) gpu::copy_async(to, from, uint64_t(bytes), stream);
  }

  // ---- what the data decides, see late.h: the host waits for the launches so far and reads
  void fetch(void* to, const char* from, size_t bytes) const {
    if (bytes == 0) return;
    gpu::copy_async(to, from, bytes, stream);
    gpu::synchronize(stream);
  }
  bool truth(const char* at) const {
    char value = 0;
    fetch(&value, at, 1);
    return value != 0;
  }
  char* take(int64_t bytes) const { return late->pool.take(bytes); }
  void give(const char* data) const { late->pool.give(data); }
  int64_t room(const char* data) const { return late->pool.size(data); }
  char* output(int index, const std::vector<int64_t>& shape) const { return late->output(index, shape); }
};

}  // namespace aitc::host
