// What the generated model.cpp tells the run time about its model, and the checks of the caller's tensors against it.
#pragma once
#include <cctype>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "aitc/host/abi.h"
#include "aitc/host/errors.h"

namespace aitc::host {

struct Run;  // what a launch needs; defined by device_cpu.h or launch_gpu.h

struct Program {
  const char *name, *api, *targets, *model, *digest;
  uint64_t weights_bytes, arena_bytes, state_bytes;
  int input_count, output_count, symbol_count, launch_count;
  const aitc_port *inputs, *outputs;
  const aitc_symbol* symbols;
  const char* const* launches;
  void (*shapes)(const int64_t* dims, int64_t* sizes);  // of all inputs, then all outputs, axis after axis
  void (*run)(const Run& run, const int64_t* dims);
  void (*load)(int device);               // of the kernels, on GPUs
  int64_t (*arena)(const int64_t* dims);  // bytes of the arena at these dims; null when it is always `arena_bytes`
  bool steps;                             // the data decides sizes, branches or trips: no two runs need be alike
  int lanes;                              // of launches side by side, the most that a fork has; 0: there is none
};

// ---- arithmetic of the generated expressions
template <typename A, typename B>
constexpr int64_t min_of(A a, B b) {
  return int64_t(a) < int64_t(b) ? int64_t(a) : int64_t(b);
}
template <typename A, typename B>
constexpr int64_t max_of(A a, B b) {
  return int64_t(a) < int64_t(b) ? int64_t(b) : int64_t(a);
}
constexpr int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }
constexpr int64_t floor_mod(int64_t a, int64_t b) { return a % b < 0 ? a % b + b : a % b; }
// The end of a buffer in the arena, where the next may begin.
constexpr int64_t end_of(int64_t offset, int64_t bytes) { return offset + (bytes + 255) / 256 * 256; }
inline int64_t last_of(std::initializer_list<int64_t> ends) {
  int64_t last = 0;
  for (int64_t end : ends) last = max_of(last, end);
  return last;
}
template <int N>
inline int64_t* put(int64_t* to, const int64_t (&sizes)[N]) {
  for (int64_t size : sizes) *to++ = size;
  return to;
}

// Those of outputs whose sizes only the data decides are -1 before the run.
inline bool is_late(const int64_t* sizes, int rank) {
  for (int axis = 0; axis < rank; ++axis)
    if (sizes[axis] < 0) return true;
  return false;
}

// ---- types
struct DTypeInfo {
  const char* name;
  int bytes;
};
inline DTypeInfo dtype_info(int dtype) {
  static constexpr DTypeInfo table[] = {
      {"?", 0},   {"f32", 4},   {"u8", 1},     {"i8", 1},       {"u16", 2},        {"i16", 2},    {"i32", 4},
      {"i64", 8}, {"?", 0},     {"bool", 1},   {"f16", 2},      {"f64", 8},        {"u32", 4},    {"u64", 8},
      {"c64", 8}, {"c128", 16}, {"bf16", 2},   {"f8e4m3fn", 1}, {"f8e4m3fnuz", 1}, {"f8e5m2", 1}, {"f8e5m2fnuz", 1},
      {"u4", 1},  {"i4", 1},    {"f4e2m1", 1}, {"f8e8m0", 1},   {"u2", 1},         {"i2", 1}};
  return dtype >= 0 && dtype < int(sizeof(table) / sizeof(table[0])) ? table[dtype] : table[0];
}

// Whether the identifier `name` stands in `text`.
inline bool mentions(const std::string& text, const std::string& name) {
  const auto inside = [](char c) { return isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1))
    if ((at == 0 || !inside(text[at - 1])) && (at + name.size() >= text.size() || !inside(text[at + name.size()])))
      return true;
  return false;
}

// "f32[batch, 3, 224] (batch in 1..32)"
inline std::string expected_text(const Program& program, const aitc_port& port) {
  std::string text = std::string(dtype_info(port.dtype).name) + "[", bounds;
  for (int i = 0; i < port.rank; ++i) {
    const aitc_axis& axis = port.shape[i];
    text += (i ? ", " : "") + (axis.text ? std::string(axis.text) : std::to_string(axis.size));
    for (int s = 0; s < program.symbol_count && axis.text; ++s) {
      const aitc_symbol& symbol = program.symbols[s];
      if (!mentions(axis.text, symbol.name) || mentions(bounds, symbol.name)) continue;
      bounds += (bounds.empty() ? "" : ", ") + std::string(symbol.name) + " in " + std::to_string(symbol.lo) + ".." +
                std::to_string(symbol.hi);
      if (symbol.multiple_of > 1) bounds += " by " + std::to_string(symbol.multiple_of);
    }
  }
  return text + "]" + (bounds.empty() ? "" : " (" + bounds + ")");
}
inline std::string given_text(const aitc_tensor& tensor) {
  constexpr int most = 8;  // a rank that is garbage would lead beyond the shape
  std::string text = std::string(dtype_info(tensor.dtype).name) + "[";
  if (tensor.rank < 0 || tensor.rank > most) return text + format("rank %d]", int(tensor.rank));
  for (int i = 0; i < tensor.rank && tensor.shape != nullptr; ++i)
    text += (i ? ", " : "") + std::to_string(tensor.shape[i]);
  return text + "]";
}
[[noreturn]] inline void refuse(const Program& program, const char* what, const aitc_port& port,
                                const aitc_tensor& tensor, const std::string& why = "") {
  throw Error(AITC_BAD_INPUT, format("%s \"%s\": expected %s, given %s%s", what, port.name,
                                     expected_text(program, port).c_str(), given_text(tensor).c_str(), why.c_str()));
}

inline void check_memory(const char* what, const aitc_port& port, const aitc_tensor& tensor) {
  if (tensor.memory < AITC_MEMORY_AUTO || tensor.memory > AITC_MEMORY_DEVICE)
    throw Error(AITC_BAD_ARGUMENT, format("%s \"%s\": memory %d is no aitc_memory", what, port.name, int(tensor.memory)));
}

// The sizes that one call runs with.
struct Sizes {
  std::vector<int64_t> dims;     // value of each symbol
  std::vector<int64_t> shapes;   // of all inputs, then all outputs
  std::vector<uint64_t> bytes;   // of each input, then each output
  size_t first_output_size = 0;  // index into shapes
};

inline int total_rank(const aitc_port* ports, int count) {
  int total = 0;
  for (int i = 0; i < count; ++i) total += ports[i].rank;
  return total;
}

// Reads the symbols off the inputs' shapes and computes every shape. Throws Error naming the input, expected and given.
// `with_data`: null data is an error too.
inline Sizes bind_inputs(const Program& program, const aitc_tensor* inputs, size_t count, bool with_data = true) {
  if (count != size_t(program.input_count))
    throw Error(AITC_BAD_ARGUMENT, format("%s takes %d inputs, given %zu", program.name, program.input_count, count));
  if (inputs == nullptr && count != 0) throw Error(AITC_BAD_ARGUMENT, "the array of inputs is null");
  for (size_t i = 0; i < count; ++i) {
    const aitc_port& port = program.inputs[i];
    if (inputs[i].shape == nullptr && port.rank != 0)
      throw Error(AITC_BAD_ARGUMENT, format("input \"%s\": its shape is null", port.name));
    check_memory("input", port, inputs[i]);
    if (inputs[i].dtype != port.dtype || inputs[i].rank != port.rank) refuse(program, "input", port, inputs[i]);
  }
  Sizes sizes;
  for (int s = 0; s < program.symbol_count; ++s) {
    const aitc_symbol& symbol = program.symbols[s];
    const aitc_tensor& tensor = inputs[symbol.input];
    const int64_t value = tensor.shape[symbol.axis];
    if (value < symbol.lo || value > symbol.hi || (symbol.multiple_of > 1 && value % symbol.multiple_of != 0))
      refuse(program, "input", program.inputs[symbol.input], tensor,
             format("; axis %d (%s) is %lld", symbol.axis, symbol.name, static_cast<long long>(value)));
    sizes.dims.push_back(value);
  }
  if (sizes.dims.empty()) sizes.dims.push_back(0);  // what run() is given is never null, even where it reads nothing of it
  sizes.first_output_size = size_t(total_rank(program.inputs, program.input_count));
  sizes.shapes.resize(sizes.first_output_size + size_t(total_rank(program.outputs, program.output_count)));
  program.shapes(sizes.dims.data(), sizes.shapes.data());
  const int64_t* size = sizes.shapes.data();
  for (int p = 0; p < program.input_count + program.output_count; ++p) {
    const bool input = p < program.input_count;
    const aitc_port& port = input ? program.inputs[p] : program.outputs[p - program.input_count];
    uint64_t bytes = is_late(size, port.rank) ? 0 : uint64_t(dtype_info(port.dtype).bytes);
    for (int axis = 0; axis < port.rank; ++axis, ++size) {
      bytes = times(bytes, is_late(size, 1) ? 0 : uint64_t(*size), port.name);
      if (input && inputs[p].shape[axis] != *size)
        refuse(program, "input", port, inputs[p],
               format("; axis %d has to be %lld here", axis, static_cast<long long>(*size)));
    }
    sizes.bytes.push_back(bytes);
    if (input && with_data && inputs[p].data == nullptr && bytes != 0)
      throw Error(AITC_BAD_ARGUMENT, format("input \"%s\": its data is null", port.name));
  }
  return sizes;
}

// Memory that is given for an output whose size only the data decides says by its shape how much it holds.
inline void check_room(const Program& program, const aitc_port& port, const aitc_tensor& tensor) {
  if (tensor.data == nullptr) return;
  if (tensor.shape == nullptr && port.rank != 0)
    throw Error(AITC_BAD_ARGUMENT, format("output \"%s\": its size depends on the data, so say by its shape how much "
                                          "the given memory holds",
                                          port.name));
  if (tensor.rank != port.rank) refuse(program, "output", port, tensor);
  for (int axis = 0; axis < port.rank; ++axis)
    if (tensor.shape[axis] < 0) refuse(program, "output", port, tensor);
}

// `sized`: the caller learns the shapes, so outputs may be late, and memory that is null is allocated.
inline void check_outputs(const Program& program, const Sizes& sizes, const aitc_tensor* outputs, size_t count,
                          bool sized = false) {
  if (count != size_t(program.output_count))
    throw Error(AITC_BAD_ARGUMENT,
                format("%s gives %d outputs, given memory for %zu", program.name, program.output_count, count));
  if (outputs == nullptr && count != 0) throw Error(AITC_BAD_ARGUMENT, "the array of outputs is null");
  const int64_t* size = sizes.shapes.data() + sizes.first_output_size;
  for (size_t i = 0; i < count; ++i) {
    const aitc_port& port = program.outputs[i];
    check_memory("output", port, outputs[i]);
    if (outputs[i].dtype != port.dtype) refuse(program, "output", port, outputs[i]);
    if (is_late(size, port.rank)) {
      if (!sized)
        throw Error(AITC_BAD_ARGUMENT,
                    format("the size of output \"%s\" depends on the data: call run_sized instead of run", port.name));
      check_room(program, port, outputs[i]);
    } else if (outputs[i].shape != nullptr) {
      if (outputs[i].rank != port.rank) refuse(program, "output", port, outputs[i]);
      for (int axis = 0; axis < port.rank; ++axis)
        if (outputs[i].shape[axis] != size[axis])
          refuse(program, "output", port, outputs[i],
                 format("; axis %d has to be %lld here", axis, static_cast<long long>(size[axis])));
    }
    size += port.rank;
    if (!sized && outputs[i].data == nullptr && sizes.bytes[size_t(program.input_count) + i] != 0)
      throw Error(AITC_BAD_ARGUMENT, format("output \"%s\": its data is null", port.name));
  }
}

}  // namespace aitc::host
