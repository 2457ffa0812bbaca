// The search for torch's CUDA functions in a library that this one is not linked with.
#include "torch/cuda_bridge.h"

#include <dlfcn.h>

#include <atomic>

#include "core/driver.h"
#include "torch/api.h"
#include "torch/shim.h"

namespace tileops {
namespace {

using StreamFunction = AOTITorchError (*)(int32_t device_index, void** stream);

// Null where no CUDA build of torch is loaded. RTLD_DEFAULT does not reach the library: Python
// loads torch locally.
StreamFunction find_stream_function() {
  static std::atomic<StreamFunction> cached{nullptr};
  StreamFunction found = cached.load(std::memory_order_acquire);
  if (__builtin_expect(found != nullptr, 1)) return found;
  for (const char* name : {"libtorch_cuda.so", "libtorch_hip.so"}) {
    void* library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) continue;
    found = reinterpret_cast<StreamFunction>(dlsym(library, "aoti_torch_get_current_cuda_stream"));
    if (found != nullptr) break;
  }
  cached.store(found, std::memory_order_release);
  return found;
}

}  // namespace

CUstream current_cuda_stream(int device_index) {
  StreamFunction function = find_stream_function();
  if (function == nullptr)
    raise(ErrorKind::kInternal, "this torch has no CUDA support, yet a CUDA device was asked for");
  void* stream = nullptr;
  check_torch(function(device_index, &stream), "aoti_torch_get_current_cuda_stream");
  return static_cast<CUstream>(stream);
}

bool is_capturing(int device_index) {
  StreamFunction function = find_stream_function();
  void* stream = nullptr;
  if (function == nullptr || function(device_index, &stream) != 0) return false;
  if (!driver_available()) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  // The legacy stream cannot tell while another stream captures
  // (CUDA_ERROR_STREAM_CAPTURE_IMPLICIT): a load would break that capture too.
  const CUresult result = driver().stream_is_capturing(static_cast<CUstream>(stream), &status);
  return result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ||
         (result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE);
}

}  // namespace tileops
