// The tensors that a call makes: outputs and the memory of workspaces.
#pragma once

#include "torch/bind.h"

namespace tileops {

// A tensor from torch's allocator on the call's device. Raises OutOfMemoryError; `what` names the
// tensor in errors.
TensorHandle allocate_strided(const Binding& call, const int64_t* sizes, const int64_t* strides,
                              int64_t rank, int32_t dtype, const char* what);
// The same, contiguous; raises ArgumentError for sizes that no tensor can have.
TensorHandle allocate(const Binding& call, const int64_t* sizes, int64_t rank, int32_t dtype,
                      const char* what);

void* data_of(AtenTensorHandle tensor);

}  // namespace tileops
