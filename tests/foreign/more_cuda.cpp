// What Triton's launcher needs of a driver beside tests/runtime/fake_cuda.cpp.
#include <cuda.h>
#define EXPORT extern "C" __attribute__((visibility("default")))
EXPORT CUresult cuPointerGetAttribute(void* out, CUpointer_attribute, CUdeviceptr pointer) {
  *static_cast<CUdeviceptr*>(out) = pointer;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
EXPORT CUresult cuCtxSetLimit(CUlimit, size_t) { return CUDA_SUCCESS; }
EXPORT CUresult cuCtxGetLimit(size_t*, CUlimit) { return CUDA_SUCCESS; }
EXPORT CUresult cuCtxGetDevice(CUdevice* device) { return *device = 0, CUDA_SUCCESS; }
EXPORT CUresult cuFuncSetCacheConfig(CUfunction, CUfunc_cache) { return CUDA_SUCCESS; }
EXPORT CUresult cuModuleLoadData(CUmodule*, const void*) { return CUDA_ERROR_NOT_FOUND; }
