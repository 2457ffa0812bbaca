// Kernel images: bytes or files that become loaded code, per device, at first use.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "core/cuda_abi.h"
#include "core/driver.h"
#include "core/files.h"
#include "core/forks.h"
#include "tileops_cpu_abi.h"

namespace tileops {

// What a launch's image comes from: the content itself, or a path that is read at first use. With
// both, the path is where a copy may lie, for systems on which no content in memory can be opened.
struct ImageSource {
  std::string name;  // for messages
  std::string bytes;
  std::string path;
  FileFact expected{};  // of the file at `path`; without a digest the file is taken as it is
};

// A cubin, fatbin or PTX text; loaded once on each device.
class CudaImage {
 public:
  explicit CudaImage(ImageSource source) : source_(std::move(source)) {}
  ~CudaImage();
  CudaImage(const CudaImage&) = delete;
  CudaImage& operator=(const CudaImage&) = delete;

  // The module on a device, loaded under a lock at the first request. The device's context must be
  // current, and the interpreter's lock not held: a driver takes seconds over some images.
  CUmodule module_on(int device_index);
  const std::string& name() const { return source_.name; }

 private:
  Mutex mutex_;
  ImageSource source_;
  CUmodule modules_[kMaxDevices] = {};
  CUcontext contexts_[kMaxDevices] = {};
};

// One entry point of an image, with the function handles that were resolved on each device.
class CudaKernel {
 public:
  CudaKernel(std::shared_ptr<CudaImage> image, std::string entry, uint32_t shared_bytes,
             std::string label)
      : image_(std::move(image)),
        entry_(std::move(entry)),
        label_(std::move(label)),
        shared_bytes_(shared_bytes) {}

  // Null until the first `function_on` for that device.
  CUfunction loaded_on(int device_index) const {
    return functions_[device_index].load(std::memory_order_acquire);
  }
  // Loads if needed; opts in to more than 48 KiB of dynamic shared memory. The device's context
  // must be current. Lets the interpreter's lock go while it loads.
  CUfunction function_on(int device_index);
  const std::string& label() const { return label_; }
  uint32_t shared_bytes() const { return shared_bytes_; }

 private:
  CUfunction load(int device_index);
  void allow_shared_bytes(CUfunction function, int device_index) const;

  std::shared_ptr<CudaImage> image_;
  std::string entry_;
  std::string label_;
  uint32_t shared_bytes_;
  Mutex mutex_;
  std::atomic<CUfunction> functions_[kMaxDevices] = {};
};

// A shared library with generated C++ code.
class CpuImage {
 public:
  explicit CpuImage(ImageSource source) : source_(std::move(source)) {}
  ~CpuImage();
  CpuImage(const CpuImage&) = delete;
  CpuImage& operator=(const CpuImage&) = delete;

  // The address of an exported function; opens the library at the first request.
  TileopsCpuEntry find(const std::string& symbol);

 private:
  void open();

  Mutex mutex_;
  ImageSource source_;
  void* handle_ = nullptr;
};

class CpuKernel {
 public:
  CpuKernel(std::shared_ptr<CpuImage> image, std::string entry)
      : image_(std::move(image)), entry_(std::move(entry)) {}
  TileopsCpuEntry function() {
    TileopsCpuEntry found = function_.load(std::memory_order_acquire);
    if (__builtin_expect(found != nullptr, 1)) return found;
    found = image_->find(entry_);
    function_.store(found, std::memory_order_release);
    return found;
  }
  bool is_loaded() const { return function_.load(std::memory_order_acquire) != nullptr; }

 private:
  std::shared_ptr<CpuImage> image_;
  std::string entry_;
  std::atomic<TileopsCpuEntry> function_{nullptr};
};

}  // namespace tileops
