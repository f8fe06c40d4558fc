// What models need whose sizes, branches or trips only the data decides: memory that is taken while the model runs, and
// numbers that the host reads back. Included by device_cpu.h and launch_gpu.h.
#pragma once
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <vector>

#include "aitc/host/errors.h"
#include "aitc/host/program.h"

namespace aitc::host {

void* device_allocate(int device, size_t bytes);
void device_release(int device, void* data);

// Blocks of memory that are taken and given back in the order of the launches, and kept for the next run.
class BlockPool {
 public:
  explicit BlockPool(int device) : device_(device) {}
  BlockPool(const BlockPool&) = delete;
  ~BlockPool() {
    for (Block& b : blocks_) release(b);
  }

  // At the beginning of a run: what an unfinished one still held is free, and what the last two had no use for goes.
  void begin() {
    size_t kept = 0;
    for (Block& b : blocks_) {
      b.busy = false;
      if (b.idle++ < 2) blocks_[kept++] = b;
      else release(b);
    }
    blocks_.resize(kept);
  }

  char* take(int64_t bytes) {
    if (bytes < 0) throw Error(AITC_BAD_INPUT, "a size that the data decides is negative");
    Block* best = nullptr;
    for (Block& b : blocks_)
      if (!b.busy && b.bytes >= bytes && b.bytes / 4 <= bytes + 4096 && (best == nullptr || b.bytes < best->bytes))
        best = &b;
    if (best == nullptr) {
      const int64_t size = (bytes + bytes / 8 + 4095) / 4096 * 4096 + 4096;
      blocks_.push_back({static_cast<char*>(device_allocate(device_, size_t(size))), size, false, 0});
      best = &blocks_.back();
    }
    best->busy = true;
    best->idle = 0;
    return best->data;
  }

  void give(const char* data) {
    if (data != nullptr) find(data).busy = false;
  }
  int64_t size(const char* data) { return find(data).bytes; }

 private:
  struct Block {
    char* data;
    int64_t bytes;
    bool busy;
    int idle;  // runs since it was taken last
  };
  Block& find(const char* data) {
    for (Block& b : blocks_)
      if (b.data == data) return b;
    throw Error(AITC_INTERNAL, "memory that was never taken");
  }
  void release(Block& b) {
    try {
      device_release(device_, b.data);
    } catch (const Error&) {  // the device is lost, and its memory with it
    }
  }

  const int device_;
  std::vector<Block> blocks_;
};

// What a run with late sizes shares with its Executor: `output` says where an output goes whose shape is known now.
struct Late {
  BlockPool pool;
  std::function<char*(int output, const std::vector<int64_t>& shape)> output;
  explicit Late(int device) : pool(device) {}
};

// Decides where late outputs go: the caller's memory, if it holds them, else memory of their own.
// `sizes` and `outputs` get the actual shapes and addresses.
inline uint64_t settle_shape(const Program& program, Sizes& sizes, int output, const std::vector<int64_t>& shape) {
  const aitc_port& port = program.outputs[output];
  size_t at = sizes.first_output_size;
  for (int i = 0; i < output; ++i) at += size_t(program.outputs[i].rank);
  uint64_t bytes = uint64_t(dtype_info(port.dtype).bytes);
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] < 0)
      throw Error(AITC_BAD_INPUT, format("output \"%s\": the data makes axis %zu %lld long", port.name, axis,
                                         static_cast<long long>(shape[axis])));
    sizes.shapes[at + axis] = shape[axis];
    bytes = times(bytes, uint64_t(shape[axis]), port.name);
  }
  sizes.bytes[size_t(program.input_count + output)] = bytes;
  return bytes;
}
inline void check_capacity(const Program& program, const Sizes& sizes, int output, const aitc_tensor& tensor) {
  const aitc_port& port = program.outputs[output];
  const uint64_t needed = sizes.bytes[size_t(program.input_count + output)];
  uint64_t room = uint64_t(dtype_info(port.dtype).bytes);
  for (int axis = 0; axis < tensor.rank; ++axis) room = times(room, uint64_t(tensor.shape[axis]), port.name);
  if (needed > room)
    throw Error(AITC_BAD_ARGUMENT, format("output \"%s\": it takes %llu bytes this time, the given memory holds %llu",
                                          port.name, static_cast<unsigned long long>(needed),
                                          static_cast<unsigned long long>(room)));
}

// ---- numbers that the host reads back
template <class Run>
int64_t read_integer(const Run& r, const char* from, int dtype) {
  int64_t value = 0;
  switch (dtype) {
    case AITC_I64: r.fetch(&value, from, 8); return value;
    case AITC_I32: {
      int32_t v;
      r.fetch(&v, from, 4);
      return v;
    }
    case AITC_BOOL:
    case AITC_U8: {
      uint8_t v;
      r.fetch(&v, from, 1);
      return v;
    }
    default: throw Error(AITC_INTERNAL, "a size of a type that the host does not read");
  }
}

struct LateDim {
  int64_t* to;
  int64_t lo, hi;
};
// `dims` become the elements at `from`, of type i64 or i32. `what` names the node, for the message when one is out of bounds.
template <class Run>
void read_dims(const Run& r, const char* from, int dtype, std::initializer_list<LateDim> dims, const char* what) {
  if (dtype != AITC_I64 && dtype != AITC_I32) throw Error(AITC_INTERNAL, "sizes of a type that the host does not read");
  const size_t bytes = size_t(dtype_info(dtype).bytes);
  std::vector<int64_t> numbers(dims.size());
  r.fetch(numbers.data(), from, dims.size() * bytes);
  size_t i = dims.size();
  if (dtype == AITC_I32)
    while (i-- > 0) numbers[i] = reinterpret_cast<const int32_t*>(numbers.data())[i];
  i = 0;
  for (const LateDim& dim : dims) {
    const int64_t value = numbers[i++];
    if (value < dim.lo || value > dim.hi)
      throw Error(AITC_BAD_INPUT, format("%s: a size that the data decides is %lld, and has to be at least %lld%s", what,
                                         static_cast<long long>(value), static_cast<long long>(dim.lo),
                                         dim.hi < (int64_t(1) << 62)
                                             ? format(" and at most %lld", static_cast<long long>(dim.hi)).c_str()
                                             : ""));
    *dim.to = value;
  }
}
// What the sizes of the inputs, or the data, ask for must fit what is there: at most `more`, or exactly as much.
inline void require(int64_t less, int64_t more, bool equal, const char* what) {
  if (equal ? less != more : less > more)
    throw Error(AITC_BAD_INPUT, format(equal ? "%s: sizes that have to be equal are %lld and %lld" : "%s: %lld of %lld elements are asked for",
                                       what, static_cast<long long>(less), static_cast<long long>(more)));
}
inline void fail(const char* what) { throw Error(AITC_BAD_INPUT, format("a branch that cannot run was taken: %s", what)); }
inline void set_dims(std::initializer_list<int64_t*> to, std::initializer_list<int64_t> values) {
  auto value = values.begin();
  for (int64_t* dim : to) *dim = *value++;
}

// Appends a part to what a loop has stacked so far; `whole` moves to more memory when it is full.
template <class Run>
void append(const Run& r, char*& whole, int64_t& used, const char* part, int64_t bytes) {
  if (used + bytes > r.room(whole)) {
    char* larger = r.take(2 * (used + bytes));
    r.copy(larger, whole, used);
    r.give(whole);
    whole = larger;
  }
  r.copy(whole + used, part, bytes);
  used += bytes;
}

}  // namespace aitc::host
