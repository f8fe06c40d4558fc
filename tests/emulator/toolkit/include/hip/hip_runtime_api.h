// The emulator's HIP runtime.
#pragma once
#define AITC_EMULATOR_API(name) hip##name
#include "../emulated_runtime.h"

#define HIP_VERSION_MAJOR 6
struct hipPointerAttribute_t {
  hipMemoryType type;
  int device;
  int isManaged;
};
struct hipDeviceProp_t {
  char name[256];
  char gcnArchName[256];
};
using hipModule_t = void*;
using hipFunction_t = emulated_runtime::Kernel*;

inline hipError_t hipPointerGetAttributes(hipPointerAttribute_t* attributes, const void* p) {
  if (!emulated_runtime::allocations().contains(p)) RETURN(hipErrorInvalidValue);
  *attributes = {hipMemoryTypeDevice, 0, 0};
  return hipSuccess;
}
inline hipError_t hipGetDeviceProperties(hipDeviceProp_t* p, int) {
  *p = {"aitc emulator", "emulated"};
  return hipSuccess;
}
inline hipError_t hipModuleLoadData(hipModule_t* module, const void* image) {
  *module = emulated_runtime::open_image(image);
  RETURN(*module ? hipSuccess : hipErrorInvalidImage);
}
inline hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t module, const char* name) {
  *function = emulated_runtime::find_kernel(module, name);
  RETURN(*function ? hipSuccess : hipErrorNotFound);
}
inline hipError_t hipModuleLaunchKernel(hipFunction_t f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                        unsigned by, unsigned bz, unsigned smem_bytes, hipStream_t stream,
                                        void** arguments, void**) {
  return emulated_runtime::launch(*f, {{gx, gy, gz, bx, by, bz, 1, 1, 1}}, smem_bytes, arguments, false, stream);
}
inline hipError_t hipGraphInstantiate(hipGraphExec_t* exec, hipGraph_t graph, void*, char*, size_t) {
  return emulated_runtime::instantiate(exec, *graph);
}
using hipGraphNode_t = void*;
struct hipGraphExecUpdateResult {};
inline hipError_t hipGraphExecUpdate(hipGraphExec_t exec, hipGraph_t graph, hipGraphNode_t*, hipGraphExecUpdateResult*) {
  return emulated_runtime::update(*exec, *graph);
}
#undef API
#undef RETURN
