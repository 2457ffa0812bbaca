// Owns the one exception type of the runtime, its kinds, and the export macro.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

#define TILEOPS_API __attribute__((visibility("default")))

namespace tileops {

// One kind for each class of tileops/errors.py that the runtime can raise; the order is the
// binding's table.
enum class ErrorKind : int {
  kArgument = 0,
  kArgumentType = 1,
  kRedefined = 2,
  kCompileMiss = 3,
  kToolchain = 4,
  kDriver = 5,
  kInternal = 6,
  kOutOfMemory = 7,  // torch's own class
};
inline constexpr int kErrorKinds = 8;

TILEOPS_API const char* error_class_name(ErrorKind kind);

// Visible, so that its type is one type in every library that catches it.
class TILEOPS_API Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

// Joins its arguments into the message and throws; never inlined, so that the callers' hot paths
// stay small.
template <class... Parts>
[[noreturn]] __attribute__((noinline, cold)) void raise(ErrorKind kind, const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw Error(kind, text.str());
}

}  // namespace tileops
