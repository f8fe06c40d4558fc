// The run time on CUDA and HIP devices: memory, and an instance whose launches are recorded once and replayed.
#pragma once
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "aitc/host/launch_gpu.h"
#include "aitc/host/profile.h"
#include "aitc/host/weights.h"

namespace aitc::host {

inline int device_count() { return gpu::device_count(); }

inline void check_device(int device) {
  const int count = device_count();
  if (device < 0 || device >= count)
    throw Error(AITC_NO_DEVICE, format("there is no device %d: %d found, and -1 is host memory", device, count));
}
inline void* device_allocate(int device, size_t bytes) {
  if (device == -1) return host_allocate(bytes);
  check_device(device);
  gpu::DeviceScope scope(device);
  void* data = nullptr;
  gpu::check(AITC_GPU_CALL(Malloc)(&data, bytes ? bytes : 1), "allocating device memory");
  return data;
}
inline void device_release(int device, void* data) {
  if (device == -1 || data == nullptr) return free(data);
  check_device(device);
  gpu::DeviceScope scope(device);
  gpu::check(AITC_GPU_CALL(Free)(data), "freeing device memory");
}
inline void device_copy(int device, void* to, const void* from, size_t bytes) {
  check_copy(to, from, bytes);
  if (device == -1) {
    if (bytes) memmove(to, from, bytes);
    return;
  }
  check_device(device);
  gpu::DeviceScope scope(device);
  gpu::copy(to, from, bytes);
}

// The weights on a device, shared by all instances there and freed with the last.
inline std::shared_ptr<gpu::Memory> device_weights(const Program& program, int device, const char* path) {
  static std::mutex mutex;
  static std::map<int, std::weak_ptr<gpu::Memory>> everywhere;
  std::lock_guard<std::mutex> lock(mutex);
  std::shared_ptr<gpu::Memory> here = everywhere[device].lock();
  if (here == nullptr) {
    Weights file;
    open_weights(file, path, program.name, program.digest, program.weights_bytes);
    here = std::make_shared<gpu::Memory>(program.weights_bytes);
    gpu::copy(here->data(), file.data(), program.weights_bytes);
    everywhere[device] = here;
  }
  return here;
}

// What one instance owns, and how it runs. One run at a time (the caller holds a lock).
class Executor {
 public:
  Executor(const Program& program, int device, const char* weights_path)
      : program_(program), device_(device), late_(device), can_record_(!program.steps) {
    const int count = device_count();
    if (device < 0 || device >= count)
      throw Error(AITC_NO_DEVICE, format("there is no %s device %d: %d found", program.api, device, count));
    gpu::DeviceScope scope(device);
    program.load(device);
    weights_ = device_weights(program, device, weights_path);
    arena_ = gpu::Memory(program.arena_bytes);
    state_ = gpu::Memory(program.state_bytes);
    gpu::zero(state_.data(), program.state_bytes);
    stream_.reset(new gpu::OwnStream);
    done_.reset(new gpu::Mark(false));
    if (program.lanes > 0) lanes_.reset(new Lanes(program.lanes));
    staging_.resize(size_t(program.input_count + program.output_count));
  }
  ~Executor() {
    try {
      gpu::DeviceScope scope(device_);
      if (used_) done_->wait();
      recorded_.clear();
      done_.reset();
      lanes_.reset();
      stream_.reset();
      arena_ = gpu::Memory();
      state_ = gpu::Memory();
      staging_.clear();
      weights_.reset();
    } catch (...) {  // the device is lost, and its memory with it
    }
  }

  std::string device_name() const { return gpu::device_name(device_); }

  // Outputs without data get memory when their sizes are known; `sizes` gets the shapes that only the data decides.
  void run_sized(Sizes& sizes, const aitc_tensor* inputs, aitc_tensor* outputs, void* caller_stream) {
    const gpu::Stream stream = static_cast<gpu::Stream>(caller_stream);
    if (gpu::is_recording(stream))
      throw Error(AITC_BAD_ARGUMENT, "a run whose sizes the data decides cannot be recorded in a graph");
    const auto allocate = [&](int i) {
      const uint64_t bytes = sizes.bytes[size_t(program_.input_count + i)];
      if (outputs[i].data != nullptr) return;
      const bool here = outputs[i].memory == AITC_MEMORY_DEVICE;
      if (!here) outputs[i].memory = AITC_MEMORY_HOST;
      outputs[i].data = device_allocate(here ? device_ : -1, bytes);
    };
    const int64_t* size = sizes.shapes.data() + sizes.first_output_size;
    std::vector<bool> late;
    for (int i = 0; i < program_.output_count; size += program_.outputs[i++].rank) {
      late.push_back(is_late(size, program_.outputs[i].rank));
      if (!late.back()) allocate(i);
    }
    std::vector<char*> places(size_t(program_.output_count), nullptr);
    late_.output = [&](int i, const std::vector<int64_t>& shape) {
      const uint64_t bytes = settle_shape(program_, sizes, i, shape);
      if (outputs[i].data != nullptr) check_capacity(program_, sizes, i, outputs[i]);
      else allocate(i);
      return places[size_t(i)] = place_of(program_.input_count + i, outputs[i], bytes);
    };
    run(sizes, inputs, outputs, caller_stream);
    gpu::DeviceScope scope(device_);
    for (int i = 0; i < program_.output_count; ++i)
      if (late[size_t(i)] && places[size_t(i)] != outputs[i].data)
        gpu::copy_async(outputs[i].data, places[size_t(i)], sizes.bytes[size_t(program_.input_count + i)], stream);
    gpu::synchronize(stream);
  }

  void run(const Sizes& sizes, const aitc_tensor* inputs, const aitc_tensor* outputs, void* caller_stream) {
    gpu::DeviceScope scope(device_);
    const gpu::Stream stream = static_cast<gpu::Stream>(caller_stream);
    reserve(sizes, gpu::is_recording(stream));
    // All runs share the arena: one on another stream waits for the one before.
    // A caller that records a graph orders it by itself.
    const bool recording = gpu::is_recording(stream);
    if (used_ && stream != last_stream_ && !recording) done_->hold_back(stream);
    bool to_host = false;
    Pointers pointers;
    for (int p = 0; p < program_.input_count + program_.output_count; ++p) {
      const bool input = p < program_.input_count;
      const aitc_tensor& tensor = input ? inputs[p] : outputs[p - program_.input_count];
      const uint64_t bytes = sizes.bytes[size_t(p)];
      const bool here = bytes == 0 || (tensor.memory == AITC_MEMORY_AUTO ? gpu::on_device(tensor.data, device_)
                                                                         : tensor.memory == AITC_MEMORY_DEVICE);
      // Kernels read and write 16 bytes at once.
      const bool in_place = here && reinterpret_cast<uintptr_t>(tensor.data) % 16 == 0;
      pointers.push_back(in_place ? static_cast<char*>(tensor.data) : staging(p, bytes));
      if (!in_place && input) gpu::copy_async(pointers.back(), tensor.data, bytes, stream);
      to_host = to_host || !here;
    }
    if (recording && to_host)
      throw Error(AITC_BAD_ARGUMENT, "a stream that records a graph takes tensors in device memory alone");
    recording ? program_.run(make_run(pointers, stream, nullptr, lanes_.get()), sizes.dims.data())
              : execute(sizes, pointers, stream);
    for (int i = 0; i < program_.output_count; ++i) {
      char* from = pointers[size_t(program_.input_count + i)];
      if (from != outputs[i].data && from != nullptr)  // late outputs have none: run_sized copies them
        gpu::copy_async(outputs[i].data, from, sizes.bytes[size_t(program_.input_count + i)], stream);
    }
    if (recording) return;
    done_->record(stream);
    last_stream_ = stream;
    used_ = true;
    if (to_host) gpu::synchronize(stream);
  }

  void bench(Sizes& sizes, const aitc_tensor* inputs, const uint8_t* chosen, int warmup, int iterations, double* seconds,
             double* launch_seconds) {
    gpu::DeviceScope scope(device_);
    const gpu::Stream stream = stream_->get();
    const Pointers pointers = begin_bench(sizes, inputs);
    gpu::Replay part;  // of the chosen launches
    const auto once = [&](int before) {
      if (chosen == nullptr) execute(sizes, pointers, stream);
      else if (before > 0 && can_record_ && (part || try_record(part, pointers, sizes, chosen))) part.launch(stream);
      else program_.run(make_run(pointers, stream, nullptr, nullptr, chosen), sizes.dims.data());
    };
    for (int i = 0; i < warmup + 2; ++i) once(i);  // twice at least: launched, then recorded
    std::vector<gpu::Mark> marks;
    for (int i = 0; i < 2 * iterations; ++i) marks.emplace_back(true);
    for (int i = 0; i < iterations; ++i) {
      marks[size_t(2 * i)].record(stream);
      once(warmup + 2);
      marks[size_t(2 * i + 1)].record(stream);
    }
    gpu::synchronize(stream);
    for (int i = 0; i < iterations; ++i) seconds[i] = marks[size_t(2 * i + 1)].seconds_since(marks[size_t(2 * i)]);
    if (launch_seconds && iterations > 0) {
      std::vector<aitc_span> spans;
      timed_runs(sizes, pointers, 0, iterations, nullptr, spans);
      mean_seconds(spans, iterations, launch_seconds, program_.launch_count);
    }
    end_bench();
  }

  void profile(Sizes& sizes, const aitc_tensor* inputs, int warmup, int runs, const uint8_t* chosen,
               std::vector<aitc_span>& spans) {
    gpu::DeviceScope scope(device_);
    timed_runs(sizes, begin_bench(sizes, inputs), warmup, runs, chosen, spans);
    end_bench();
  }

 private:
  using Pointers = std::vector<char*>;

  struct Recorded {
    std::vector<int64_t> dims;
    Pointers pointers;
    gpu::Replay replay;  // empty when these sizes came once only
    bool current = false;  // it is of these addresses
    uint64_t last_use = 0;
  };
  static constexpr size_t kept_recordings = 16, kept_of_sizes = 4;

  // Device memory for a tensor that is not (suitably) on the device. It grows, never shrinks.
  char* staging(int port, uint64_t bytes) {
    gpu::Memory& memory = staging_[size_t(port)];
    if (memory.bytes() < bytes || memory.data() == nullptr) {
      if (used_) done_->wait();  // it may still be read
      memory = gpu::Memory();
      memory = gpu::Memory(bytes ? bytes : 16);
    }
    return memory.data();
  }

  // Grows the arena to what these sizes need; what was recorded with the old one is forgotten.
  void reserve(const Sizes& sizes, bool recording) {
    if (program_.arena == nullptr) return;
    const uint64_t bytes = uint64_t(program_.arena(sizes.dims.data()));
    if (bytes <= arena_.bytes()) return;
    if (recording) throw Error(AITC_BAD_ARGUMENT, "run these sizes once before recording them: the arena has to grow");
    if (used_) done_->wait();
    recorded_.clear();
    arena_ = gpu::Memory();
    arena_ = gpu::Memory(bytes);
  }

  Run make_run(const Pointers& pointers, gpu::Stream stream, Timeline* timeline, Lanes* lanes = nullptr,
               const uint8_t* chosen = nullptr) {
    if (program_.steps) late_.pool.begin();
    if (lanes) lanes->begin();
    return Run{arena_.data(), weights_->data(), state_.data(), pointers.data(), pointers.data() + program_.input_count,
               device_,       stream,           timeline,      &late_,          lanes,           chosen};
  }

  // Where kernels read or write a tensor of the caller: there, or in device memory of our own.
  char* place_of(int port, const aitc_tensor& tensor, uint64_t bytes) {
    const bool here = bytes == 0 || (tensor.memory == AITC_MEMORY_AUTO ? gpu::on_device(tensor.data, device_)
                                                                       : tensor.memory == AITC_MEMORY_DEVICE);
    // Kernels read and write 16 bytes at once.
    const bool in_place = here && reinterpret_cast<uintptr_t>(tensor.data) % 16 == 0;
    return in_place ? static_cast<char*>(tensor.data) : staging(port, bytes);
  }

  // The first time that sizes come they are launched one by one, from the second time on replayed. Each set of addresses has
  // its recording, up to `kept_of_sizes`; then the one that was used least recently is brought up to date with new ones.
  void execute(const Sizes& sizes, const Pointers& pointers, gpu::Stream stream) {
    Recorded *found = nullptr, *oldest = nullptr;
    size_t alike = 0;
    for (Recorded& r : recorded_) {
      if (r.dims != sizes.dims) continue;
      if (r.pointers == pointers) found = &r;
      if (oldest == nullptr || r.last_use < oldest->last_use) oldest = &r;
      ++alike;
    }
    if (found == nullptr) {
      found = alike < kept_of_sizes ? &free_place() : oldest;
      found->dims = sizes.dims;
      found->pointers = pointers;
      found->current = false;
    }
    found->last_use = ++clock_;
    if (!found->current && alike > 0 && can_record_) found->current = try_record(found->replay, pointers, sizes, nullptr);
    if (found->current) found->replay.launch(stream);
    else program_.run(make_run(pointers, stream, nullptr), sizes.dims.data());
  }

  // Where nothing is recorded; what was used least recently is forgotten if there is no room.
  Recorded& free_place() {
    if (recorded_.size() < kept_recordings) return recorded_.emplace_back(), recorded_.back();
    Recorded* oldest = &recorded_.front();
    for (Recorded& r : recorded_)
      if (r.last_use < oldest->last_use) oldest = &r;
    *oldest = Recorded();
    return *oldest;
  }

  // Whether `replay` has them now; where that cannot be, launches go one by one from then on.
  bool try_record(gpu::Replay& replay, const Pointers& pointers, const Sizes& sizes, const uint8_t* chosen) {
    const gpu::Stream stream = stream_->get();
    try {
      replay.record(stream, [&] {
        program_.run(make_run(pointers, stream, nullptr, lanes_.get(), chosen), sizes.dims.data());
      });
      return true;
    } catch (const Error&) {
      if (!gpu::may_not_record) throw;
      can_record_ = false;
      return false;
    }
  }

  // Inputs on the device, and room for the outputs there.
  Pointers begin_bench(Sizes& sizes, const aitc_tensor* inputs) {
    reserve(sizes, false);
    if (used_) done_->hold_back(stream_->get());
    Pointers pointers;
    for (int p = 0; p < program_.input_count + program_.output_count; ++p) {
      const uint64_t bytes = sizes.bytes[size_t(p)];
      pointers.push_back(staging(p, bytes));
      if (p < program_.input_count) gpu::copy(pointers.back(), inputs[p].data, bytes);
    }
    late_.output = [this, &sizes](int i, const std::vector<int64_t>& shape) {
      return staging(program_.input_count + i, settle_shape(program_, sizes, i, shape));
    };
    return pointers;
  }
  void end_bench() {
    done_->record(stream_->get());
    last_stream_ = stream_->get();
    used_ = true;
  }

  void timed_runs(const Sizes& sizes, const Pointers& pointers, int warmup, int runs, const uint8_t* chosen,
                  std::vector<aitc_span>& spans) {
    const gpu::Stream stream = stream_->get();
    std::vector<aitc_span> unused;
    Timeline untimed(unused, false), timeline(spans, !program_.steps);
    for (int i = -warmup; i < runs; ++i) {
      Timeline& used = i < 0 ? untimed : timeline;
      used.start(i, stream);
      program_.run(make_run(pointers, stream, &used, nullptr, chosen), sizes.dims.data());
      used.finish(stream);
    }
  }

  const Program& program_;
  const int device_;
  std::shared_ptr<gpu::Memory> weights_;
  gpu::Memory arena_, state_;
  std::vector<gpu::Memory> staging_;
  std::unique_ptr<gpu::OwnStream> stream_;
  std::unique_ptr<gpu::Mark> done_;
  std::unique_ptr<Lanes> lanes_;  // of recorded runs; null where nothing forks
  gpu::Stream last_stream_ = nullptr;
  bool used_ = false;
  Late late_;
  bool can_record_;
  std::vector<Recorded> recorded_;
  uint64_t clock_ = 0;
};

}  // namespace aitc::host
