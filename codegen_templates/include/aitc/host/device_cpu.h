// The run time on cpu: kernels are called, memory is the caller's.
#pragma once
#include <sys/mman.h>
#include <time.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "aitc/host/isa.h"
#include "aitc/host/late.h"
#include "aitc/host/profile.h"
#include "aitc/host/program.h"
#include "aitc/host/weights.h"

namespace aitc::host {

inline double now_seconds() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}

}  // namespace aitc::host

// The generated kernels.h defines `Kernels`, table.cpp one of these for each instruction set that the build was told to
// make (AITC_WITH_*), beside what a processor must have to run it.
struct Kernels;
extern const Kernels kernels_native, kernels_avx2, kernels_avx512;
extern const char *const *const needs_native, *const *const needs_avx2, *const *const needs_avx512;

namespace aitc::host {

// The best that this processor runs; the environment variable AITC_ISA, as the first call finds it, leaves only those that
// it names. Throws as `choose_isa` does.
inline const Kernels& choose_kernels() {
  std::vector<Built<Kernels>> built;
#ifdef AITC_WITH_avx512
  built.push_back({"avx512", &kernels_avx512, needs_avx512});
#endif
#ifdef AITC_WITH_avx2
  built.push_back({"avx2", &kernels_avx2, needs_avx2});
#endif
#ifdef AITC_WITH_native
  built.push_back({"native", &kernels_native, needs_native});
#endif
  static const Kernels& chosen = choose_isa(built, getenv("AITC_ISA"));
  return chosen;
}

// ---- one run
// When launches begin and end, by the clock.
class Timeline {
 public:
  explicit Timeline(std::vector<aitc_span>& spans) : spans_(spans) {}
  void start(int run) { run_ = run, start_ = now_seconds(); }
  template <typename Launch>
  void time(int index, const Launch& launch) {
    const double begin = now_seconds();
    launch();
    spans_.push_back({run_, index, begin - start_, now_seconds() - start_});
  }

 private:
  std::vector<aitc_span>& spans_;
  int run_ = 0;
  double start_ = 0;
};

struct Run {
  char* arena;
  const char* weights;
  char* state;
  char* const* inputs;
  char* const* outputs;
  Timeline* timeline;     // null: launches are not timed
  const uint8_t* chosen;  // null: all launches; flags otherwise
  Late* late;

  template <typename... Parameters, typename... Args>
  void launch(int index, void (*kernel)(Parameters...), Args... args) const {
    if (chosen != nullptr && !chosen[index]) return;
    if (timeline == nullptr) return kernel(static_cast<Parameters>(args)...);
    timeline->time(index, [&] { kernel(static_cast<Parameters>(args)...); });
  }
  void copy(char* to, const char* from, int64_t bytes) const {
    if (bytes > 0 && to != from) memmove(to, from, size_t(bytes));
  }

  // ---- what the data decides, see late.h
  void fetch(void* to, const char* from, size_t bytes) const {
    if (bytes) memcpy(to, from, bytes);
  }
  bool truth(const char* at) const { return *at != 0; }
  char* take(int64_t bytes) const { return late->pool.take(bytes); }
  void give(const char* data) const { late->pool.give(data); }
  int64_t room(const char* data) const { return late->pool.size(data); }
  char* output(int index, const std::vector<int64_t>& shape) const { return late->output(index, shape); }
};

// Zeroed pages that cost nothing until they are touched: an arena for the largest shapes is paid for by the shapes that
// come.
class Pages {
 public:
  explicit Pages(uint64_t bytes) : bytes_(size_t(bytes)) {
    if (bytes_ == 0) return;
    void* data = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) throw Error(AITC_OUT_OF_MEMORY, format("cannot reserve %zu bytes", bytes_));
    madvise(data, bytes_, MADV_HUGEPAGE);
    data_ = static_cast<char*>(data);
  }
  Pages(const Pages&) = delete;
  ~Pages() {
    if (data_) munmap(data_, bytes_);
  }
  char* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  char* data_ = nullptr;
  size_t bytes_;
};

inline int device_count() { return 1; }

inline void check_device(int device) {
  if (device < -1 || device > 0)
    throw Error(AITC_NO_DEVICE, format("there is no cpu device %d: use 0, or -1 for host memory", device));
}
inline void* device_allocate(int device, size_t bytes) {
  check_device(device);
  return host_allocate(bytes);
}
inline void device_release(int, void* data) { free(data); }
inline void device_copy(int device, void* to, const void* from, size_t bytes) {
  check_device(device);
  check_copy(to, from, bytes);
  if (bytes) memmove(to, from, bytes);
}

// What one instance owns, and how it runs.
class Executor {
 public:
  Executor(const Program& program, int device, const char* weights_path)
      : program_(program), arena_(new Pages(program.arena_bytes)), state_(program.state_bytes) {
    if (device != 0) throw Error(AITC_NO_DEVICE, format("there is no cpu device %d: use 0", device));
    choose_kernels();
    open_weights(weights_, weights_path, program.name, program.digest, program.weights_bytes);
  }

  std::string device_name() const {
    std::string name = "cpu";
    if (FILE* file = fopen("/proc/cpuinfo", "r")) {
      char line[256];
      while (fgets(line, sizeof(line), file))
        if (strncmp(line, "model name", 10) == 0 && strchr(line, ':')) {
          name = strchr(line, ':') + 2;
          name.erase(name.find_last_not_of("\n ") + 1);
          break;
        }
      fclose(file);
    }
    return name;
  }

  void run(const Sizes& sizes, const aitc_tensor* inputs, const aitc_tensor* outputs, void*) {
    run_timed(sizes, inputs, outputs, nullptr);
  }

  // Outputs without data get memory; `sizes` gets the shapes that only the data decides.
  void run_sized(Sizes& sizes, const aitc_tensor* inputs, aitc_tensor* outputs, void*) {
    const auto allocate = [&](int i, uint64_t bytes) {
      if (outputs[i].data == nullptr) {
        outputs[i].data = device_allocate(0, bytes);
        outputs[i].memory = AITC_MEMORY_HOST;
      } else check_capacity(program_, sizes, i, outputs[i]);
      return static_cast<char*>(outputs[i].data);
    };
    const int64_t* size = sizes.shapes.data() + sizes.first_output_size;
    for (int i = 0; i < program_.output_count; size += program_.outputs[i++].rank)
      if (outputs[i].data == nullptr && !is_late(size, program_.outputs[i].rank))
        allocate(i, sizes.bytes[size_t(program_.input_count + i)]);
    late_.output = [&](int i, const std::vector<int64_t>& shape) { return allocate(i, settle_shape(program_, sizes, i, shape)); };
    run_timed(sizes, inputs, outputs, nullptr);
  }

  void bench(Sizes& sizes, const aitc_tensor* inputs, const uint8_t* chosen, int warmup, int iterations, double* seconds,
             double* launch_seconds) {
    const std::vector<aitc_tensor> outputs = own_outputs(sizes);
    for (int i = -warmup; i < iterations; ++i) {
      const double begin = now_seconds();
      run_timed(sizes, inputs, outputs.data(), nullptr, chosen);
      if (i >= 0) seconds[i] = now_seconds() - begin;
    }
    if (launch_seconds == nullptr || iterations <= 0) return;
    std::vector<aitc_span> spans;
    profile(sizes, inputs, 0, iterations, nullptr, spans);
    mean_seconds(spans, iterations, launch_seconds, program_.launch_count);
  }

  void profile(Sizes& sizes, const aitc_tensor* inputs, int warmup, int runs, const uint8_t* chosen,
               std::vector<aitc_span>& spans) {
    const std::vector<aitc_tensor> outputs = own_outputs(sizes);
    std::vector<aitc_span> unused;
    Timeline untimed(unused), timeline(spans);
    for (int i = -warmup; i < runs; ++i) {
      Timeline& used = i < 0 ? untimed : timeline;
      used.start(i);
      run_timed(sizes, inputs, outputs.data(), &used, chosen);
    }
  }

 private:
  // Outputs in memory of our own, which is kept for the next time.
  std::vector<aitc_tensor> own_outputs(Sizes& sizes) {
    results_.resize(size_t(program_.output_count));
    const auto room = [this](int i, uint64_t bytes) {
      std::unique_ptr<Pages>& pages = results_[size_t(i)];
      if (pages == nullptr || pages->bytes() < bytes) pages.reset(new Pages(bytes));
      return pages->data();
    };
    std::vector<aitc_tensor> outputs;
    for (int i = 0; i < program_.output_count; ++i)
      outputs.push_back({room(i, sizes.bytes[size_t(program_.input_count + i)]), nullptr, 0, program_.outputs[i].dtype,
                         AITC_MEMORY_HOST});
    late_.output = [this, room, &sizes](int i, const std::vector<int64_t>& shape) {
      return room(i, settle_shape(program_, sizes, i, shape));
    };
    return outputs;
  }

  void run_timed(const Sizes& sizes, const aitc_tensor* inputs, const aitc_tensor* outputs, Timeline* timeline,
                 const uint8_t* chosen = nullptr) {
    if (program_.arena != nullptr) {
      const uint64_t bytes = uint64_t(program_.arena(sizes.dims.data()));
      if (bytes > arena_->bytes()) arena_.reset(new Pages(bytes));
    }
    std::vector<char*> in, out;
    for (int i = 0; i < program_.input_count; ++i) in.push_back(static_cast<char*>(inputs[i].data));
    for (int i = 0; i < program_.output_count; ++i) out.push_back(static_cast<char*>(outputs[i].data));
    if (program_.steps) late_.pool.begin();
    program_.run(Run{arena_->data(), weights_.data(), state_.data(), in.data(), out.data(), timeline, chosen, &late_},
                 sizes.dims.data());
  }

  const Program& program_;
  Weights weights_;
  std::unique_ptr<Pages> arena_;
  Pages state_;
  std::vector<std::unique_ptr<Pages>> results_;  // of runs that are timed
  Late late_{0};
};

}  // namespace aitc::host
