// The loading and unloading of kernel images.
#include "core/image.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>

#include "core/counters.h"
#include "core/hooks.h"
#include "core/ptx.h"

namespace tileops {
namespace {

bool is_verified(const ImageSource& source) {
  return !source.path.empty() && !source.expected.sha256.empty();
}

std::string content_of(const ImageSource& source) {
  if (is_verified(source)) return read_verified(source.path, source.expected);
  return read_file(source.path, UINT64_MAX);
}

CUmodule load_module(const std::string& bytes, const std::string& name, int device_index) {
  char log[4096] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof(log))};
  CUmodule module = nullptr;
  const std::optional<PtxHead> ptx = ptx_head(bytes);
  const CountedTime timed(ptx ? Counter::kJitNanoseconds : Counter::kLoadNanoseconds);
  const CUresult result = driver().module_load_data_ex(&module, bytes.c_str(), 2, options, values);
  if (result != CUDA_SUCCESS) {
    std::string what = "loading kernel image " + name + " on cuda:" + std::to_string(device_index);
    if (log[0] != '\0') what += " (" + std::string(log, strnlen(log, sizeof(log))) + ")";
    if (ptx) what += ", " + ptx_and_driver(*ptx);
    raise_driver(result, what + ": cuModuleLoadDataEx");
  }
  count(Counter::kLoads);
  if (ptx) count(Counter::kJits);
  return module;
}

std::string dl_reason() {
  const char* reason = dlerror();
  return reason == nullptr ? "cannot be opened" : reason;
}

// glibc answers a path that it has seen with the library it loaded then, and descriptor numbers are
// reused: the bits of a counter, written as redundant path components, make each path a new one.
std::string unique_path_noise() {
  static std::atomic<uint32_t> counter{0};
  std::string noise;
  for (uint32_t bits = counter.fetch_add(1); bits != 0; bits >>= 1)
    noise += (bits & 1) != 0 ? "./" : ".//";
  return noise;
}

// dlopen takes a path only: content in memory goes through an anonymous file. Null,
// with the cause in `reason` where that cannot be opened.
void* open_bytes(const std::string& bytes, std::string& reason) {
  const int file = memfd_create("tileops_kernel", MFD_CLOEXEC);
  if (file < 0) {
    reason = std::string("memfd_create: ") + std::strerror(errno);
    return nullptr;
  }
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t wrote = write(file, bytes.data() + done, bytes.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      reason = std::string("write: ") + std::strerror(errno);
      close(file);
      return nullptr;
    }
    done += static_cast<std::size_t>(wrote);
  }
  const std::string path = "/proc/self/fd/" + unique_path_noise() + std::to_string(file);
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) reason = dl_reason();
  close(file);  // the mapping keeps the content alive
  return handle;
}

void* open_file(const std::string& path, std::string& reason) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) reason = dl_reason();
  return handle;
}

// Some systems allow no code in anonymous files, or have no /proc to name them by.
bool holds(const std::string& path, const std::string& bytes) {
  try {
    return read_file(path, bytes.size()) == bytes;
  } catch (const Error&) {
    return false;
  }
}

void* open_source(const ImageSource& source, std::string& reason) {
  // What was verified is what is opened: the file itself can change, or go, at any moment, and a
  // page that vanishes under running code ends the process.
  if (is_verified(source)) return open_bytes(content_of(source), reason);
  if (source.bytes.empty()) return open_file(source.path, reason);
  void* handle = open_bytes(source.bytes, reason);
  if (handle == nullptr && !source.path.empty() && holds(source.path, source.bytes))
    handle = open_file(source.path, reason);
  return handle;
}

}  // namespace

CudaImage::~CudaImage() {
  for (int i = 0; i < kMaxDevices; ++i) {
    if (modules_[i] == nullptr) continue;
    const Driver& api = driver();
    // Best effort: a context that is gone took its modules with it.
    if (api.ctx_push_current(contexts_[i]) != CUDA_SUCCESS) continue;
    api.ctx_synchronize();
    api.module_unload(modules_[i]);
    CUcontext popped = nullptr;
    api.ctx_pop_current(&popped);
  }
}

CUmodule CudaImage::module_on(int device_index) {
  std::lock_guard<Mutex> lock(mutex_);
  if (modules_[device_index] != nullptr) return modules_[device_index];
  if (source_.bytes.empty()) source_.bytes = content_of(source_);
  CUcontext current = nullptr;
  check_driver(driver().ctx_get_current(&current), "cuCtxGetCurrent");
  modules_[device_index] = load_module(source_.bytes, source_.name, device_index);
  contexts_[device_index] = current;
  return modules_[device_index];
}

CUfunction CudaKernel::function_on(int device_index) {
  CUfunction function = loaded_on(device_index);
  return __builtin_expect(function != nullptr, 1) ? function : load(device_index);
}

CUfunction CudaKernel::load(int device_index) {
  const GilReleaseScope no_gil;  // around the lock: see core/forks.h
  std::lock_guard<Mutex> lock(mutex_);
  CUfunction function = loaded_on(device_index);
  if (function != nullptr) return function;
  CUmodule module = image_->module_on(device_index);
  const CUresult result = driver().module_get_function(&function, module, entry_.c_str());
  if (result != CUDA_SUCCESS) {
    raise_driver(result, label_ + ": kernel image " + image_->name() + " has no entry '" + entry_ +
                             "': cuModuleGetFunction");
  }
  allow_shared_bytes(function, device_index);
  functions_[device_index].store(function, std::memory_order_release);
  return function;
}

void CudaKernel::allow_shared_bytes(CUfunction function, int device_index) const {
  // Dynamic shared memory above 48 KiB needs the opt-in attribute (CUDA C++ programming guide,
  // shared memory).
  constexpr uint32_t kWithoutOptIn = 48 * 1024;
  if (shared_bytes_ <= kWithoutOptIn) return;
  const CUresult result = driver().func_set_attribute(
      function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, static_cast<int>(shared_bytes_));
  if (result == CUDA_SUCCESS) return;
  const int64_t limit =
      device_info(device_index).facts[static_cast<int>(HostFact::kMaxSharedPerBlock)];
  raise_driver(result, label_ + ": the kernel needs " + std::to_string(shared_bytes_) +
                           " bytes of shared memory, cuda:" + std::to_string(device_index) +
                           " allows " + std::to_string(limit) + " a block: cuFuncSetAttribute");
}

CpuImage::~CpuImage() {
  const NoForkScope no_fork;  // the loader's own lists are half changed meanwhile
  if (handle_ != nullptr) dlclose(handle_);
}

void CpuImage::open() {
  const CountedTime timed(Counter::kLoadNanoseconds);
  std::string reason;
  void* handle = open_source(source_, reason);
  if (handle == nullptr) raise(ErrorKind::kInternal, "kernel library ", source_.name, ": ", reason);
  if (dlsym(handle, "tileops_cpu_abi_1") == nullptr) {
    dlclose(handle);
    raise(ErrorKind::kInternal, "kernel library ", source_.name,
          " was built for another runtime (no symbol tileops_cpu_abi_1)");
  }
  handle_ = handle;
  source_.bytes = std::string();  // a second copy in memory is of no use
  count(Counter::kLoads);
}

TileopsCpuEntry CpuImage::find(const std::string& symbol) {
  const GilReleaseScope no_gil;
  std::lock_guard<Mutex> lock(mutex_);
  if (handle_ == nullptr) open();
  auto found = reinterpret_cast<TileopsCpuEntry>(dlsym(handle_, symbol.c_str()));
  if (found == nullptr) {
    raise(ErrorKind::kInternal, "kernel library ", source_.name, " has no entry '", symbol, "'");
  }
  return found;
}

}  // namespace tileops
