// The table of CUDA driver functions: found by dlopen at first use, never linked.
#pragma once

#include <cstdint>
#include <string>

#include "core/cuda_abi.h"
#include "core/error.h"
#include "core/host_program.h"

namespace tileops {

// The driver functions that the runtime calls.
struct Driver {
  int version;  // 13010 for CUDA 13.1
  cuda_abi::cuInit* init;
  cuda_abi::cuDriverGetVersion* driver_get_version;
  cuda_abi::cuDeviceGetCount* device_get_count;
  cuda_abi::cuDeviceGet* device_get;
  cuda_abi::cuDeviceGetName* device_get_name;
  cuda_abi::cuDeviceGetAttribute* device_get_attribute;
  cuda_abi::cuDevicePrimaryCtxRetain* primary_ctx_retain;
  cuda_abi::cuCtxGetCurrent* ctx_get_current;
  cuda_abi::cuCtxPushCurrent_v2* ctx_push_current;
  cuda_abi::cuCtxPopCurrent_v2* ctx_pop_current;
  cuda_abi::cuCtxSynchronize* ctx_synchronize;
  cuda_abi::cuModuleLoadDataEx* module_load_data_ex;
  cuda_abi::cuModuleGetFunction* module_get_function;
  cuda_abi::cuModuleUnload* module_unload;
  cuda_abi::cuFuncSetAttribute* func_set_attribute;
  cuda_abi::cuFuncGetAttribute* func_get_attribute;
  cuda_abi::cuLaunchKernelEx* launch_kernel_ex;
  // For the words of an error alone.
  cuda_abi::cuOccupancyMaxActiveBlocksPerMultiprocessor* max_active_blocks;
  cuda_abi::cuStreamIsCapturing* stream_is_capturing;
  // For checked kernels alone.
  cuda_abi::cuMemsetD8Async* memset_d8_async;
  cuda_abi::cuMemcpyDtoHAsync_v2* memcpy_dtoh_async;
  cuda_abi::cuStreamSynchronize* stream_synchronize;
  cuda_abi::cuGetErrorName* get_error_name;
  cuda_abi::cuGetErrorString* get_error_string;
  cuda_abi::cuTensorMapEncodeTiled* tensor_map_encode_tiled;  // may be null
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
