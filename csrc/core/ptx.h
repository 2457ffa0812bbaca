// PTX text: what its head says, and whether the driver compiles it for a device.
#pragma once

#include <optional>
#include <string>

#include "core/error.h"

namespace tileops {

// The first two directives of a PTX text.
struct PtxHead {
  std::string version, target;  // "8.8", "sm_80"
};

// The head of a PTX text; none for an image of another kind.
std::optional<PtxHead> ptx_head(const std::string& bytes);

// Why the driver does not take such PTX for a device; empty if it does. Loads a text that has the
// head of this one and nothing else. The interpreter's lock may not be held: the driver may have to
// load its compiler. ArgumentError for what is not PTX.
TILEOPS_API std::string refusal_of_ptx(const std::string& text, int device_index);

// The versions of both, for messages: "PTX .version 8.8 for sm_80, the driver is for CUDA 12.4".
std::string ptx_and_driver(const PtxHead& head);

}  // namespace tileops
