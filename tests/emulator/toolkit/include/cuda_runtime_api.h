// The emulator's CUDA runtime.
#pragma once
#define AITC_EMULATOR_API(name) cuda##name
#include "cuda.h"
#include "emulated_runtime.h"

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct cudaPointerAttributes {
  cudaMemoryType type;
  int device;
};
struct cudaDeviceProp {
  char name[256];
  int major, minor;
};
struct cudaFuncAttributes {
  int binaryVersion;
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaLaunchAttributeID {
  cudaLaunchAttributeClusterDimension = 4,
  cudaLaunchAttributeProgrammaticStreamSerialization = 6
};
union cudaLaunchAttributeValue {
  struct {
    unsigned x, y, z;
  } clusterDim;
  int programmaticStreamSerializationAllowed;
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  cudaLaunchAttributeValue val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned numAttrs = 0;
};
using cudaLibrary_t = void*;
using cudaKernel_t = emulated_runtime::Kernel*;
enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess, cudaDriverEntryPointSymbolNotFound };
enum { cudaEnableDefault = 0 };

inline cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* p) {
  attributes->type = emulated_runtime::allocations().contains(p) ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
  attributes->device = 0;
  return cudaSuccess;
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  *p = {"aitc emulator", 0, 0};
  return cudaSuccess;
}
inline cudaError_t cudaDriverGetVersion(int* version) { return *version = 13020, cudaSuccess; }
inline cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void* image, void*, void**, unsigned, void*,
                                       void**, unsigned) {
  *library = emulated_runtime::open_image(image);
  RETURN(*library ? cudaSuccess : cudaErrorInvalidImage);
}
inline cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t library, const char* name) {
  *kernel = emulated_runtime::find_kernel(library, name);
  RETURN(*kernel ? cudaSuccess : cudaErrorNotFound);
}
inline cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t, cudaFuncAttribute, int, int) {
  return cudaSuccess;
}  // the launch checks it
inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, const void*) { return *a = {}, cudaSuccess; }
inline cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* c, const void* kernel, void** arguments) {
  emulated_runtime::Dims dims{
      {c->gridDim.x, c->gridDim.y, c->gridDim.z, c->blockDim.x, c->blockDim.y, c->blockDim.z, 1, 1, 1}};
  bool overlaps = false;
  for (unsigned i = 0; i < c->numAttrs; ++i) {
    const cudaLaunchAttributeValue& value = c->attrs[i].val;
    if (c->attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization)
      overlaps = value.programmaticStreamSerializationAllowed != 0;
    if (c->attrs[i].id == cudaLaunchAttributeClusterDimension)
      dims.of[6] = value.clusterDim.x, dims.of[7] = value.clusterDim.y, dims.of[8] = value.clusterDim.z;
  }
  return emulated_runtime::launch(*static_cast<const emulated_runtime::Kernel*>(kernel), dims, c->dynamicSmemBytes,
                                  arguments, overlaps, c->stream);
}
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  return emulated_runtime::instantiate(exec, *graph);
}
struct cudaGraphExecUpdateResultInfo {};
inline cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo*) {
  return emulated_runtime::update(*exec, *graph);
}
inline cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                                    cudaDriverEntryPointQueryResult* found) {
  *function = !strcmp(name, "cuTensorMapEncodeTiled")    ? reinterpret_cast<void*>(&cuTensorMapEncodeTiled)
              : !strcmp(name, "cuTensorMapEncodeIm2col") ? reinterpret_cast<void*>(&cuTensorMapEncodeIm2col)
                                                         : nullptr;
  *found = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  RETURN(*function ? cudaSuccess : cudaErrorNotFound);
}
#undef API
#undef RETURN
