// The loading of the CUDA driver and the per-device facts.
#include "core/driver.h"

#include <dlfcn.h>

#include <atomic>
#include <memory>
#include <mutex>

#include "core/forks.h"

namespace tileops {
namespace {

struct State {
  Mutex mutex;
  std::string library = "libcuda.so.1";
  std::atomic<const Driver*> table{nullptr};
  std::atomic<const DeviceInfo*> devices[kMaxDevices] = {};
};

Lasting<State> made;

State& state() {
  return made.get();
}

template <class Function>
void find(void* library, const char* symbol, Function& out, bool optional = false) {
  out = reinterpret_cast<Function>(dlsym(library, symbol));
  if (out == nullptr && !optional) {
    raise(ErrorKind::kToolchain, "the CUDA driver lacks ", symbol,
          ": install a driver for CUDA 12 or newer");
  }
}

std::unique_ptr<Driver> load(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    raise(ErrorKind::kToolchain, "cannot open the CUDA driver ", path, " (",
          reason == nullptr ? "no reason" : reason,
          "): install the NVIDIA driver, or use CPU tensors");
  }
  auto table = std::make_unique<Driver>();
  find(library, "cuInit", table->init);
  find(library, "cuDriverGetVersion", table->driver_get_version);
  find(library, "cuDeviceGetCount", table->device_get_count);
  find(library, "cuDeviceGet", table->device_get);
  find(library, "cuDeviceGetName", table->device_get_name);
  find(library, "cuDeviceGetAttribute", table->device_get_attribute);
  find(library, "cuDevicePrimaryCtxRetain", table->primary_ctx_retain);
  find(library, "cuCtxGetCurrent", table->ctx_get_current);
  find(library, "cuCtxPushCurrent_v2", table->ctx_push_current);
  find(library, "cuCtxPopCurrent_v2", table->ctx_pop_current);
  find(library, "cuCtxSynchronize", table->ctx_synchronize);
  find(library, "cuModuleLoadDataEx", table->module_load_data_ex);
  find(library, "cuModuleGetFunction", table->module_get_function);
  find(library, "cuModuleUnload", table->module_unload);
  find(library, "cuFuncSetAttribute", table->func_set_attribute);
  find(library, "cuFuncGetAttribute", table->func_get_attribute);
  find(library, "cuLaunchKernelEx", table->launch_kernel_ex);
  find(library, "cuOccupancyMaxActiveBlocksPerMultiprocessor", table->max_active_blocks);
  find(library, "cuStreamIsCapturing", table->stream_is_capturing);
  find(library, "cuMemsetD8Async", table->memset_d8_async);
  find(library, "cuMemcpyDtoHAsync_v2", table->memcpy_dtoh_async);
  find(library, "cuStreamSynchronize", table->stream_synchronize);
  find(library, "cuGetErrorName", table->get_error_name);
  find(library, "cuGetErrorString", table->get_error_string);
  find(library, "cuTensorMapEncodeTiled", table->tensor_map_encode_tiled, true);
  return table;
}

std::string words(const Driver& table, CUresult result) {
  const char* name = nullptr;
  const char* text = nullptr;
  table.get_error_name(result, &name);
  table.get_error_string(result, &text);
  return std::string(name == nullptr ? "unknown error" : name) + " (" +
         std::to_string(static_cast<int>(result)) +
         "): " + (text == nullptr ? "no description" : text);
}

int64_t attribute(CUdevice_attribute which, CUdevice device) {
  int value = 0;
  check_driver(driver().device_get_attribute(&value, which, device), "cuDeviceGetAttribute");
  return value;
}

std::unique_ptr<DeviceInfo> query_device(int index) {
  const Driver& api = driver();
  auto info = std::make_unique<DeviceInfo>();
  check_driver(api.device_get(&info->device, index), "cuDeviceGet");
  check_driver(api.primary_ctx_retain(&info->primary, info->device), "cuDevicePrimaryCtxRetain");
  info->capability =
      static_cast<int>(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, info->device) * 10 +
                       attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, info->device));
  auto fact = [&](HostFact which) -> int64_t& { return info->facts[static_cast<int>(which)]; };
  fact(HostFact::kSmCount) = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, info->device);
  fact(HostFact::kMaxSharedPerBlock) =
      attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, info->device);
  fact(HostFact::kL2Bytes) = attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, info->device);
  fact(HostFact::kMaxThreadsPerSm) =
      attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, info->device);
  fact(HostFact::kWarpSize) = attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE, info->device);
  return info;
}

}  // namespace

const Driver& driver() {
  State& s = state();
  const Driver* table = s.table.load(std::memory_order_acquire);
  if (__builtin_expect(table != nullptr, 1)) return *table;
  std::lock_guard<Mutex> lock(s.mutex);
  table = s.table.load(std::memory_order_acquire);
  if (table != nullptr) return *table;
  std::unique_ptr<Driver> fresh = load(s.library);
  const CUresult result = fresh->init(0);
  if (result != CUDA_SUCCESS) raise(ErrorKind::kDriver, "cuInit: ", words(*fresh, result));
  if (const CUresult asked = fresh->driver_get_version(&fresh->version); asked != CUDA_SUCCESS)
    raise(ErrorKind::kDriver, "cuDriverGetVersion: ", words(*fresh, asked));
  table = fresh.release();  // never freed: readers do not lock
  s.table.store(table, std::memory_order_release);
  return *table;
}

bool driver_available() {
  try {
    driver();
    return true;
  } catch (const Error&) {
    return false;
  }
}

void set_driver_library(const std::string& path) {
  State& s = state();
  std::lock_guard<Mutex> lock(s.mutex);
  s.library = path;
  s.table.store(nullptr, std::memory_order_release);
  for (auto& device : s.devices) device.store(nullptr, std::memory_order_release);
}

std::string driver_words(CUresult result) {
  return words(driver(), result);
}

void raise_driver(CUresult result, const std::string& what) {
  raise(ErrorKind::kDriver, what, ": ", words(driver(), result));
}

int device_count() {
  if (!driver_available()) return 0;
  int count = 0;
  check_driver(driver().device_get_count(&count), "cuDeviceGetCount");
  return count < kMaxDevices ? count : kMaxDevices;
}

const DeviceInfo& device_info(int index) {
  if (index < 0 || index >= kMaxDevices)
    raise(ErrorKind::kDriver, "there is no CUDA device ", index);
  State& s = state();
  const DeviceInfo* info = s.devices[index].load(std::memory_order_acquire);
  if (__builtin_expect(info != nullptr, 1)) return *info;
  driver();  // its own error says more than a count of 0
  if (index >= device_count()) raise(ErrorKind::kDriver, "there is no CUDA device ", index);
  std::unique_ptr<DeviceInfo> fresh = query_device(index);
  std::lock_guard<Mutex> lock(s.mutex);
  info = s.devices[index].load(std::memory_order_acquire);
  if (info != nullptr) return *info;
  info = fresh.release();
  s.devices[index].store(info, std::memory_order_release);
  return *info;
}

std::string device_name(int index) {
  char name[256] = "";
  check_driver(driver().device_get_name(name, sizeof(name), device_info(index).device),
               "cuDeviceGetName");
  return name;
}

ContextScope::ContextScope(const DeviceInfo& info) {
  const Driver& api = driver();
  CUcontext current = nullptr;
  check_driver(api.ctx_get_current(&current), "cuCtxGetCurrent");
  if (current == info.primary) return;
  check_driver(api.ctx_push_current(info.primary), "cuCtxPushCurrent");
  pushed_ = true;
}

ContextScope::~ContextScope() {
  CUcontext popped = nullptr;
  // A failure here means that the context was destroyed meanwhile; the next driver call says so.
  if (pushed_) driver().ctx_pop_current(&popped);
}

}  // namespace tileops

extern "C" void tileops_set_driver_library(const char* path) {
  tileops::set_driver_library(path);
}
