// The Python class names of the runtime's error kinds.
#include "core/error.h"

namespace tileops {

const char* error_class_name(ErrorKind kind) {
  static constexpr const char* kNames[kErrorKinds] = {
      "ArgumentError",  "ArgumentTypeError", "RedefinedOpError", "CompileMissError",
      "ToolchainError", "DriverError",       "InternalError",    "OutOfMemoryError",
  };
  return kNames[static_cast<int>(kind)];
}

}  // namespace tileops
