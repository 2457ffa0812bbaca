// The interface of the stub pool.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tileops {

inline constexpr uint32_t kStubCount = 65536;

using BoxedFunction = void (*)(uint64_t* stack, uint64_t inputs, uint64_t outputs);

// The boxed function whose calls reach tileops_invoke with `slot`.
BoxedFunction stub_address(uint32_t slot);

}  // namespace tileops

// Where every stub jumps to (torch/call.cpp).
extern "C" __attribute__((visibility("hidden"))) void tileops_invoke(uint64_t* stack,
                                                                     uint64_t inputs,
                                                                     uint64_t outputs,
                                                                     uint32_t slot);
