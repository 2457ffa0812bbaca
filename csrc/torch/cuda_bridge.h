// The access to functions that only CUDA builds of torch export.
#pragma once

#include "core/cuda_abi.h"

namespace tileops {

// torch's current stream on the device, asked anew each time. Raises InternalError where torch has
// no CUDA.
CUstream current_cuda_stream(int device_index);

}  // namespace tileops
