// Tensor maps: what cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col make, in the emulator's own 128 bytes. The two
// functions have the driver's names, arguments, checks and results, so host code needs no change.
#pragma once
#include "report.h"
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if !defined(CUDA_VERSION)  // cuda.h was not included
struct alignas(64) CUtensorMap {
  uint64_t opaque[16];
};
enum CUresult { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1, CUDA_ERROR_NOT_FOUND = 500 };
using cuuint32_t = uint32_t;
using cuuint64_t = uint64_t;
enum CUtensorMapDataType {
  CU_TENSOR_MAP_DATA_TYPE_UINT8,
  CU_TENSOR_MAP_DATA_TYPE_UINT16,
  CU_TENSOR_MAP_DATA_TYPE_UINT32,
  CU_TENSOR_MAP_DATA_TYPE_INT32,
  CU_TENSOR_MAP_DATA_TYPE_UINT64,
  CU_TENSOR_MAP_DATA_TYPE_INT64,
  CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
  CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
  CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
  CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
  CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ,
  CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,
  CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ
};
enum CUtensorMapInterleave {
  CU_TENSOR_MAP_INTERLEAVE_NONE,
  CU_TENSOR_MAP_INTERLEAVE_16B,
  CU_TENSOR_MAP_INTERLEAVE_32B
};
enum CUtensorMapSwizzle {
  CU_TENSOR_MAP_SWIZZLE_NONE,
  CU_TENSOR_MAP_SWIZZLE_32B,
  CU_TENSOR_MAP_SWIZZLE_64B,
  CU_TENSOR_MAP_SWIZZLE_128B
};
enum CUtensorMapL2promotion {
  CU_TENSOR_MAP_L2_PROMOTION_NONE,
  CU_TENSOR_MAP_L2_PROMOTION_L2_64B,
  CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
  CU_TENSOR_MAP_L2_PROMOTION_L2_256B
};
enum CUtensorMapFloatOOBfill { CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA };
#endif

namespace emu AITC_EMULATOR_HIDDEN {

struct TensorMap {
  static constexpr uint32_t kMagic = 0x7e50a9a9;
  char* base;
  uint64_t pitch[5];  // bytes from one index to the next, of every dimension; pitch[0] is an element
  uint32_t size[5];
  uint16_t box[5];  // tiled: elements along each dimension of the copied box, before the element strides
  uint8_t step[5];
  uint8_t rank, element_bytes, swizzle_bytes;  // swizzle 0: none
  bool im2col, fill_nan, tf32;  // tf32: floats are rounded to TF32 as they are loaded
  int16_t lower[3], upper[3];  // im2col, of dimensions 1 .. rank - 2
  uint16_t channels, pixels;
  uint32_t magic;

  // Elements of the box along dimension i, as it lies in shared memory.
  int box_elements(int i) const { return (box[i] + step[i] - 1) / step[i]; }
  uint32_t box_bytes() const {
    if (im2col) return uint32_t(channels) * pixels * element_bytes;
    uint32_t n = element_bytes;
    for (int i = 0; i < rank; ++i) n *= uint32_t(box_elements(i));
    return n;
  }
};
static_assert(sizeof(TensorMap) <= sizeof(CUtensorMap), "fits in a tensor map");

inline int element_bytes_of(int type) {
  constexpr int bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
  return type >= 0 && type < 13 ? bytes[type] : 0;
}

// What both kinds share. False: the driver would refuse.
inline bool encode_common(TensorMap& map, int type, uint32_t rank, void* base, const uint64_t* size,
                          const uint64_t* pitch, const uint32_t* step, int interleave, int swizzle, int fill) {
  memset(&map, 0, sizeof map);
  map.element_bytes = uint8_t(element_bytes_of(type));
  if (!map.element_bytes || rank < 1 || rank > 5 || interleave != 0 || swizzle < 0 || swizzle > 3) return false;
  if (!base || reinterpret_cast<uintptr_t>(base) % 16) return false;
  map.base = static_cast<char*>(base);
  map.rank = uint8_t(rank);
  map.swizzle_bytes = uint8_t(swizzle ? 16 << swizzle : 0);
  map.fill_nan = fill != 0;
  map.tf32 = type >= CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
  map.pitch[0] = map.element_bytes;
  for (uint32_t i = 0; i < rank; ++i) {
    if (size[i] < 1 || size[i] > uint64_t(1) << 32 || step[i] < 1 || step[i] > 8) return false;
    map.size[i] = uint32_t(size[i]);
    map.step[i] = uint8_t(step[i]);
    if (i == 0) continue;
    if (pitch[i - 1] % 16 || pitch[i - 1] >= uint64_t(1) << 40) return false;
    map.pitch[i] = pitch[i - 1];
  }
  map.magic = TensorMap::kMagic;
  return true;
}

}  // namespace emu

extern "C" __attribute__((visibility("default"), used)) inline CUresult cuTensorMapEncodeTiled(
    CUtensorMap* to, CUtensorMapDataType type, cuuint32_t rank, void* base, const cuuint64_t* size,
    const cuuint64_t* pitch, const cuuint32_t* box, const cuuint32_t* step, CUtensorMapInterleave interleave,
    CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill) {
  emu::TensorMap map;
  if (!emu::encode_common(map, type, rank, base, size, pitch, step, interleave, swizzle, fill))
    return CUDA_ERROR_INVALID_VALUE;
  for (cuuint32_t i = 0; i < rank; ++i) {
    if (box[i] < 1 || box[i] > 256) return CUDA_ERROR_INVALID_VALUE;
    map.box[i] = uint16_t(box[i]);
  }
  const uint32_t row = box[0] * map.element_bytes;
  if (row % 16 || (map.swizzle_bytes && row > map.swizzle_bytes)) return CUDA_ERROR_INVALID_VALUE;
  memset(to, 0, sizeof *to);
  memcpy(to, &map, sizeof map);
  return CUDA_SUCCESS;
}

// Dimensions: channels, then W, (H, (D,)) then N; the corners in the order W, H, D.
extern "C" __attribute__((visibility("default"), used)) inline CUresult cuTensorMapEncodeIm2col(
    CUtensorMap* to, CUtensorMapDataType type, cuuint32_t rank, void* base, const cuuint64_t* size,
    const cuuint64_t* pitch, const int* lower, const int* upper, cuuint32_t channels, cuuint32_t pixels,
    const cuuint32_t* step, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
    CUtensorMapFloatOOBfill fill) {
  emu::TensorMap map;
  if (rank < 3 || !emu::encode_common(map, type, rank, base, size, pitch, step, interleave, swizzle, fill))
    return CUDA_ERROR_INVALID_VALUE;
  const int limit = rank == 3 ? 32768 : rank == 4 ? 128 : 16;
  for (cuuint32_t i = 0; i < rank - 2; ++i) {
    if (lower[i] < -limit || lower[i] >= limit || upper[i] < -limit || upper[i] >= limit)
      return CUDA_ERROR_INVALID_VALUE;
    map.lower[i] = int16_t(lower[i]);
    map.upper[i] = int16_t(upper[i]);
  }
  const uint32_t row = channels * map.element_bytes;
  if (channels < 1 || channels > 256 || pixels < 1 || pixels > 1024 || row % 16 ||
      (map.swizzle_bytes && row > map.swizzle_bytes))
    return CUDA_ERROR_INVALID_VALUE;
  map.im2col = true;
  map.channels = uint16_t(channels);
  map.pixels = uint16_t(pixels);
  memset(to, 0, sizeof *to);
  memcpy(to, &map, sizeof map);
  return CUDA_SUCCESS;
}
