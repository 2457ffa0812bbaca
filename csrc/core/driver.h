// The table of CUDA driver functions: found by dlopen at first use, never linked.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>

#include "core/error.h"
#include "core/host_program.h"

namespace tileops {

// The driver functions that the runtime calls. cuda.h renames versioned functions by macro, so the
// members carry the names of the current headers and the loader asks for the exported symbols.
struct Driver {
  int version;  // 13010 for CUDA 13.1
  decltype(&::cuInit) init;
  decltype(&::cuDriverGetVersion) driver_get_version;
  decltype(&::cuDeviceGetCount) device_get_count;
  decltype(&::cuDeviceGet) device_get;
  decltype(&::cuDeviceGetName) device_get_name;
  decltype(&::cuDeviceGetAttribute) device_get_attribute;
  decltype(&::cuDevicePrimaryCtxRetain) primary_ctx_retain;
  decltype(&::cuCtxGetCurrent) ctx_get_current;
  decltype(&::cuCtxPushCurrent) ctx_push_current;
  decltype(&::cuCtxPopCurrent) ctx_pop_current;
  decltype(&::cuCtxSynchronize) ctx_synchronize;
  decltype(&::cuModuleLoadDataEx) module_load_data_ex;
  decltype(&::cuModuleGetFunction) module_get_function;
  decltype(&::cuModuleUnload) module_unload;
  decltype(&::cuFuncSetAttribute) func_set_attribute;
  decltype(&::cuFuncGetAttribute) func_get_attribute;
  decltype(&::cuLaunchKernelEx) launch_kernel_ex;
  decltype(&::cuStreamIsCapturing) stream_is_capturing;
  // For checked kernels alone.
  decltype(&::cuMemsetD8Async) memset_d8_async;
  decltype(&::cuMemcpyDtoHAsync) memcpy_dtoh_async;
  decltype(&::cuStreamSynchronize) stream_synchronize;
  decltype(&::cuGetErrorName) get_error_name;
  decltype(&::cuGetErrorString) get_error_string;
  CUresult (*tensor_map_encode_tiled)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                                      const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                                      const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                      CUtensorMapL2promotion,
                                      CUtensorMapFloatOOBfill);  // may be null
};

// The driver, loaded and initialised; raises ToolchainError if there is none and DriverError if
// cuInit fails. Thread-safe.
const Driver& driver();

// True if `driver()` would succeed.
bool driver_available();

// Names the library to open instead of libcuda.so.1, and forgets what was loaded before. For tests:
// nothing of the former driver may be in use.
TILEOPS_API void set_driver_library(const std::string& path);

// Raises DriverError with the driver's name and words for `result`, after `what`.
[[noreturn]] void raise_driver(CUresult result, const std::string& what);
// The driver's name and words for `result`.
std::string driver_words(CUresult result);
inline void check_driver(CUresult result, const char* what) {
  if (__builtin_expect(result != CUDA_SUCCESS, 0)) raise_driver(result, what);
}

constexpr int kMaxDevices = 64;

// What the runtime knows about one CUDA device; filled once, at first use.
struct DeviceInfo {
  CUdevice device;
  CUcontext primary;
  int capability;  // 90 for compute capability 9.0
  int64_t facts[kHostFacts];
};

TILEOPS_API int device_count();  // 0 without a driver
TILEOPS_API const DeviceInfo& device_info(
    int index);  // raises DriverError for an index that does not exist
TILEOPS_API std::string device_name(int index);

// Makes the primary context of a device current for a scope and restores the former one.
class ContextScope {
 public:
  explicit ContextScope(const DeviceInfo& info);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  bool pushed_ = false;
};

}  // namespace tileops

extern "C" TILEOPS_API void tileops_set_driver_library(const char* path);
