// Handles over torch's stable C interface, and the numbers that torch assigns.
#pragma once

#include <string>
#include <utility>

#include "core/error.h"
#include "torch/torch_abi.h"

namespace tileops {

// The functions of the ABI return 0 or fail for reasons that they only print; `what` names the
// call.
inline void check_torch(AOTITorchError code, const char* what) {
  if (__builtin_expect(code != 0, 0)) raise(ErrorKind::kInternal, "torch: ", what, " failed");
}

// An owned tensor.
class TensorHandle {
 public:
  TensorHandle() = default;
  explicit TensorHandle(AtenTensorHandle handle) : handle_(handle) {}
  TensorHandle(TensorHandle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  TensorHandle& operator=(TensorHandle&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~TensorHandle() {
    if (handle_ != nullptr) aoti_torch_delete_tensor_object(handle_);
  }
  AtenTensorHandle get() const { return handle_; }
  AtenTensorHandle release() { return std::exchange(handle_, nullptr); }

 private:
  AtenTensorHandle handle_ = nullptr;
};

// torch's number of a dtype by its name; raises InternalError where this torch has no such dtype.
int32_t dtype_code(const std::string& name);
// The same, `otherwise` where this torch lacks it.
int32_t dtype_code_or(const std::string& name, int32_t otherwise);

// Numbers that torch assigns; asked once.
struct TorchCodes {
  int32_t cpu = aoti_torch_device_type_cpu();
  int32_t cuda = aoti_torch_device_type_cuda();
  int32_t meta = aoti_torch_device_type_meta();
  int32_t strided = aoti_torch_layout_strided();
  int32_t uint8 = aoti_torch_dtype_uint8();
  int32_t float4 = dtype_code_or("float4_e2m1fn_x2", -1);
};
// Asked when the library is loaded, after torch's.
extern const TorchCodes torch_code_table;
inline const TorchCodes& torch_codes() {
  return torch_code_table;
}

std::string dtype_name(int32_t code);
std::string device_name(int32_t type, int32_t index);

}  // namespace tileops
