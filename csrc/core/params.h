// The conversion of call values into kernel parameters, for both kinds of kernel.
#pragma once

#include <cstdint>

#include "core/spec.h"

namespace tileops {

inline constexpr std::size_t kMaxParams =
    512;  // CUDA passes at most 4 KiB of parameters; a parameter takes 8 bytes here
inline constexpr std::size_t kMaxMaps = 16;

union ScalarValue {
  int64_t i;
  double f;
};

// The values of one call, in the entry's own numbering.
struct CallFrame {
  const char* op = "";
  const int64_t* slots = nullptr;  // the entry's evaluated host program
  void* const* tensors = nullptr;
  void* const* workspaces = nullptr;
  void* global_scratch = nullptr;
  const ScalarValue* scalars = nullptr;
  const int64_t* sizes = nullptr;  // of the variant, for the record of launches
  std::size_t size_count = 0;
};

// Storage for the parameters of one CUDA launch; not initialised, because it is on the hot path's
// stack.
struct CudaParams {
  alignas(64) CUtensorMap maps[kMaxMaps];
  uint64_t words[kMaxParams];
  void* pointers[kMaxParams];
};

// Fills `out.pointers` with the address of each parameter. Raises ArgumentError for a value that
// its type cannot hold and DriverError where the driver refuses a tensor map.
void pack_cuda(const LaunchSpec& launch, const CallFrame& frame, CudaParams& out);
// The bytes of a float at the start of a word.
uint64_t pack_float(double value, ScalarType type);
void pack_cpu(const LaunchSpec& launch, const CallFrame& frame, TileopsValue* out);

// The nearest value of a float type, as a double; ties to even, overflow to infinity.
double round_to_type(double value, ScalarType type);
uint16_t half_bits(double value);  // IEEE binary16
uint16_t bfloat16_bits(double value);

}  // namespace tileops
