// The record of recent CUDA launches: one of them may have caused an error of the driver.
#pragma once

#include <cstdint>
#include <string>

#include "core/cuda_abi.h"
#include "core/error.h"

namespace tileops {

struct CallFrame;

// Notes a launch; a few stores into a ring that all threads share.
void note_launch(const CallFrame& frame, int device_index, CUstream stream);

// The latest launches on a device, newest first, one a line; those on `stream` are marked. Empty
// where there were none.
TILEOPS_API std::string recent_launches(int device_index, CUstream stream);

// Raises DriverError for a failed driver call, with the launches that may have caused it.
[[noreturn]] void raise_in_flight(CUresult result, const std::string& what, int device_index,
                                  CUstream stream);

}  // namespace tileops
