// The C interface over an Executor: checks, locks and error texts. Include a device_*.h first.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "aitc/host/program.h"

struct aitc_instance {
  aitc::host::Executor executor;
  const int device;
  const std::string device_name;
  std::mutex mutex;  // runs take turns: they share one arena
  std::vector<aitc_span> spans;  // of the last profile
  aitc_instance(const aitc::host::Program& program, int device, const char* weights)
      : executor(program, device, weights), device(device), device_name(executor.device_name()) {}
};

namespace aitc::host {

// The instances that live. One that was destroyed is known as such, unless a new one has its address; one that is
// destroyed while it runs goes when the run is over.
class Live {
 public:
  aitc_instance* add(std::shared_ptr<aitc_instance> instance) {
    std::lock_guard<std::mutex> lock(mutex_);
    return instances_.emplace(instance.get(), instance).first->first;
  }
  void remove(aitc_instance* instance) {
    std::shared_ptr<aitc_instance> last;  // is freed after the lock
    std::lock_guard<std::mutex> lock(mutex_);
    const auto at = instances_.find(instance);
    if (at == instances_.end()) return;
    last = std::move(at->second);
    instances_.erase(at);
  }
  std::shared_ptr<aitc_instance> find(const aitc_instance* instance) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto at = instances_.find(const_cast<aitc_instance*>(instance));
    return at == instances_.end() ? nullptr : at->second;
  }
  std::shared_ptr<aitc_instance> get(const aitc_instance* instance) {
    if (instance == nullptr) throw Error(AITC_BAD_ARGUMENT, "the instance is null");
    std::shared_ptr<aitc_instance> found = find(instance);
    if (found == nullptr) throw Error(AITC_BAD_ARGUMENT, "the instance is none of this library, or was destroyed");
    return found;
  }

 private:
  std::mutex mutex_;
  std::map<aitc_instance*, std::shared_ptr<aitc_instance>> instances_;
};
inline Live& live() {
  static Live* const all = new Live;  // outlives what runs at exit: a driver may be gone by then
  return *all;
}

template <const Program& program>
struct Library {
  static aitc_status create(int device, const char* weights, aitc_instance** instance) {
    return guarded([&] {
      if (instance == nullptr) throw Error(AITC_BAD_ARGUMENT, "the place for the instance is null");
      *instance = nullptr;
      auto made = std::make_shared<aitc_instance>(program, device, weights);
      *instance = live().add(std::move(made));
    });
  }
  static void destroy(aitc_instance* instance) {
    guarded([&] { live().remove(instance); });
  }
  static const char* device_name(const aitc_instance* instance) {
    const std::shared_ptr<aitc_instance> held = live().find(instance);
    return held ? held->device_name.c_str() : "";
  }

  static aitc_status output_shapes(const aitc_tensor* inputs, size_t count, int64_t* shapes) {
    return guarded([&] {
      if (shapes == nullptr) throw Error(AITC_BAD_ARGUMENT, "the place for the shapes is null");
      const Sizes sizes = bind_inputs(program, inputs, count, /*with_data*/ false);
      for (size_t i = sizes.first_output_size; i < sizes.shapes.size(); ++i) *shapes++ = sizes.shapes[i];
    });
  }

  static aitc_status run(aitc_instance* instance, const aitc_tensor* inputs, size_t input_count,
                         const aitc_tensor* outputs, size_t output_count, void* stream) {
    return guarded([&] {
      const std::shared_ptr<aitc_instance> held = live().get(instance);
      Sizes sizes = bind_inputs(program, inputs, input_count);
      check_outputs(program, sizes, outputs, output_count);
      std::lock_guard<std::mutex> lock(instance->mutex);
      instance->executor.run(sizes, inputs, outputs, stream);
    });
  }

  static aitc_status run_sized(aitc_instance* instance, const aitc_tensor* inputs, size_t input_count,
                               aitc_tensor* outputs, size_t output_count, int64_t* shapes, void* stream) {
    return guarded([&] {
      const std::shared_ptr<aitc_instance> held = live().get(instance);
      if (shapes == nullptr) throw Error(AITC_BAD_ARGUMENT, "the place for the shapes is null");
      Sizes sizes = bind_inputs(program, inputs, input_count);
      check_outputs(program, sizes, outputs, output_count, /*sized*/ true);
      std::vector<aitc_tensor> given(outputs, outputs + output_count);
      std::lock_guard<std::mutex> lock(instance->mutex);
      try {
        instance->executor.run_sized(sizes, inputs, given.data(), stream);
      } catch (...) {
        for (size_t i = 0; i < output_count; ++i)
          if (given[i].data != outputs[i].data) release(given[i].memory == AITC_MEMORY_DEVICE ? instance->device : -1, given[i].data);
        throw;
      }
      for (size_t i = sizes.first_output_size; i < sizes.shapes.size(); ++i) *shapes++ = sizes.shapes[i];
      for (size_t i = 0; i < output_count; ++i) outputs[i].data = given[i].data;
    });
  }

  static aitc_status bench(aitc_instance* instance, const aitc_tensor* inputs, size_t input_count, int warmup,
                           int iterations, double* seconds, double* launch_seconds) {
    return timed(instance, inputs, input_count, nullptr, warmup, iterations, seconds, launch_seconds);
  }
  static aitc_status bench_chosen(aitc_instance* instance, const aitc_tensor* inputs, size_t input_count, const uint8_t* chosen,
                                  int warmup, int iterations, double* seconds) {
    return timed(instance, inputs, input_count, chosen, warmup, iterations, seconds, nullptr);
  }
  static aitc_status timed(aitc_instance* instance, const aitc_tensor* inputs, size_t input_count, const uint8_t* chosen,
                           int warmup, int iterations, double* seconds, double* launch_seconds) {
    return guarded([&] {
      const std::shared_ptr<aitc_instance> held = live().get(instance);
      if (seconds == nullptr || iterations < 0 || warmup < 0)
        throw Error(AITC_BAD_ARGUMENT, "bench needs a place for the times and counts that are not negative");
      Sizes sizes = bind_inputs(program, inputs, input_count);
      std::lock_guard<std::mutex> lock(instance->mutex);
      instance->executor.bench(sizes, inputs, chosen, warmup, iterations, seconds, launch_seconds);
    });
  }

  static aitc_status profile(aitc_instance* instance, const aitc_tensor* inputs, size_t input_count, int warmup,
                             int runs, const uint8_t* chosen, const aitc_span** spans, size_t* count) {
    return guarded([&] {
      const std::shared_ptr<aitc_instance> held = live().get(instance);
      if (spans == nullptr || count == nullptr || runs < 0 || warmup < 0)
        throw Error(AITC_BAD_ARGUMENT, "profile needs a place for the spans and counts that are not negative");
      Sizes sizes = bind_inputs(program, inputs, input_count);
      std::lock_guard<std::mutex> lock(instance->mutex);
      instance->spans.clear();
      instance->executor.profile(sizes, inputs, warmup, runs, chosen, instance->spans);
      *spans = instance->spans.data();
      *count = instance->spans.size();
    });
  }

  static aitc_status allocate(int device, size_t bytes, void** data) {
    return guarded([&] {
      if (data == nullptr) throw Error(AITC_BAD_ARGUMENT, "the place for the pointer is null");
      *data = device_allocate(device, bytes);
    });
  }
  static void release(int device, void* data) {
    guarded([&] { device_release(device, data); });
  }
  static aitc_status copy(int device, void* to, const void* from, size_t bytes) {
    return guarded([&] { device_copy(device, to, from, bytes); });
  }
  static const char* error() { return last_error().c_str(); }
  static int count() {
    int devices = 0;
    guarded([&] { devices = device_count(); });
    return devices;
  }

  static const aitc_model* model() {
    static const aitc_model table = {AITC_ABI_VERSION,
                                     uint32_t(sizeof(aitc_model)),
                                     program.name,
                                     program.api,
                                     program.targets,
                                     program.model,
                                     program.digest,
                                     program.input_count,
                                     program.output_count,
                                     program.symbol_count,
                                     program.launch_count,
                                     program.inputs,
                                     program.outputs,
                                     program.symbols,
                                     program.launches,
                                     error,
                                     count,
                                     create,
                                     destroy,
                                     device_name,
                                     output_shapes,
                                     run,
                                     bench,
                                     allocate,
                                     release,
                                     copy,
                                     run_sized,
                                     profile,
                                     bench_chosen};
    return &table;
  }
};

}  // namespace aitc::host
