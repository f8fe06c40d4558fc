// Tensor maps (TMA descriptors), made by the driver; found through the runtime, so that nothing links libcuda. HIP has
// none.
#pragma once
#include <cstdint>
#include <cstring>
#include <initializer_list>

#include "aitc/host/gpu_api.h"

#if !defined(AITC_API_hip)
#include <cuda.h>

namespace aitc::host {

struct alignas(64) TensorMap {
  CUtensorMap map;
};

namespace tensor_maps {

template <class Function>
Function driver_function(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  gpu::check(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found), name);
  if (found != cudaDriverEntryPointSuccess || function == nullptr)
    throw Error(AITC_DEVICE_ERROR, format("the CUDA driver has no %s", name));
  return reinterpret_cast<Function>(function);
}

constexpr int AITC_TF32 = -32;  // an element type of maps alone: floats, rounded to TF32 as they are loaded

inline CUtensorMapDataType data_type(int dtype) {
  switch (dtype) {
    case AITC_TF32: return CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
    case AITC_F16:  return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case AITC_BF16: return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case AITC_F32:  return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case AITC_F64:  return CU_TENSOR_MAP_DATA_TYPE_FLOAT64;
    case AITC_I32:  return CU_TENSOR_MAP_DATA_TYPE_INT32;
    case AITC_U32:  return CU_TENSOR_MAP_DATA_TYPE_UINT32;
    case AITC_I64:  return CU_TENSOR_MAP_DATA_TYPE_INT64;
    case AITC_U64:  return CU_TENSOR_MAP_DATA_TYPE_UINT64;
    case AITC_U16:
    case AITC_I16:  return CU_TENSOR_MAP_DATA_TYPE_UINT16;
    default:        return CU_TENSOR_MAP_DATA_TYPE_UINT8;  // 8-bit integers and floats are moved as bytes
  }
}

inline CUtensorMapSwizzle swizzle_mode(int bytes) {
  return bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
         : bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
         : bytes == 32 ? CU_TENSOR_MAP_SWIZZLE_32B
                       : CU_TENSOR_MAP_SWIZZLE_NONE;
}

// What both kinds have in common, in the types that the driver takes.
struct Extents {
  cuuint64_t sizes[5], strides[5];
  cuuint32_t steps[5];
  cuuint32_t rank;
  Extents(std::initializer_list<int64_t> size, std::initializer_list<int64_t> stride, std::initializer_list<int> step)
      : rank(cuuint32_t(size.size())) {
    int i = 0;
    for (int64_t s : size) sizes[i++] = cuuint64_t(s);
    i = 0;
    for (int64_t s : stride) strides[i++] = cuuint64_t(s);
    i = 0;
    for (int s : step) steps[i++] = cuuint32_t(s);
  }
};

inline void check(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS)
    throw Error(AITC_DEVICE_ERROR, format("%s refused a tensor map (CUresult %d)", what, int(result)));
}

}  // namespace tensor_maps

// Sizes innermost first in elements; strides in bytes, of every dim but the innermost; box in elements; swizzle 0, 32,
// 64 or 128 bytes.
inline TensorMap tiled_map(int dtype, const void* base, std::initializer_list<int64_t> sizes,
                           std::initializer_list<int64_t> strides, std::initializer_list<int> box,
                           std::initializer_list<int> steps, int swizzle) {
  static const auto encode = tensor_maps::driver_function<decltype(&cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
  const tensor_maps::Extents e(sizes, strides, steps);
  cuuint32_t boxes[5];
  int i = 0;
  for (int b : box) boxes[i++] = cuuint32_t(b);
  TensorMap result;
  tensor_maps::check(
      encode(&result.map, tensor_maps::data_type(dtype), e.rank, const_cast<void*>(base), e.sizes, e.strides, boxes,
             e.steps, CU_TENSOR_MAP_INTERLEAVE_NONE, tensor_maps::swizzle_mode(swizzle),
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
      "cuTensorMapEncodeTiled");
  return result;
}

// Columns of `pixels` pixels of `channels` channels each; `lower` and `upper`: corners of the pixels where windows
// begin.
inline TensorMap im2col_map(int dtype, const void* base, std::initializer_list<int64_t> sizes,
                            std::initializer_list<int64_t> strides, std::initializer_list<int> lower,
                            std::initializer_list<int> upper, int channels, int pixels,
                            std::initializer_list<int> steps, int swizzle) {
  static const auto encode =
      tensor_maps::driver_function<decltype(&cuTensorMapEncodeIm2col)>("cuTensorMapEncodeIm2col");
  const tensor_maps::Extents e(sizes, strides, steps);
  TensorMap result;
  tensor_maps::check(encode(&result.map, tensor_maps::data_type(dtype), e.rank, const_cast<void*>(base), e.sizes,
                            e.strides, lower.begin(), upper.begin(), cuuint32_t(channels), cuuint32_t(pixels), e.steps,
                            CU_TENSOR_MAP_INTERLEAVE_NONE, tensor_maps::swizzle_mode(swizzle),
                            CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
                     "cuTensorMapEncodeIm2col");
  // Drivers up to CUDA 13.1 set a bit that is wrong for im2col tensors below 128 KiB.
  static const bool wrong_bit = [] {
    int version = 0;
    return cudaDriverGetVersion(&version) == cudaSuccess && version <= 13010;
  }();
  if (wrong_bit && e.sizes[e.rank - 1] * e.strides[e.rank - 2] < 131072) {
    uint64_t word;
    memcpy(&word, reinterpret_cast<char*>(&result.map) + 8, 8);
    word &= ~(uint64_t(1) << 21);
    memcpy(reinterpret_cast<char*>(&result.map) + 8, &word, 8);
  }
  return result;
}

}  // namespace aitc::host
#else
namespace aitc::host {
struct TensorMap {
  char unused;
};
}  // namespace aitc::host
#endif
