// The one exception type of the runtime, its kinds, and the export macro.
#pragma once

#include <stdexcept>
#include <string>
#include <type_traits>

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

// Text of one part of a message. No stream anywhere in this library: some toolchains link libstdc++
// statically, and the streams of a second copy in a process read the locale of the first.
template <class Part>
std::string text_of_part(const Part& part) {
  if constexpr (std::is_same_v<Part, char>)
    return std::string(1, part);
  else if constexpr (std::is_arithmetic_v<Part>)
    return std::to_string(part);
  else
    return std::string(part);
}

// Joins its arguments into the message and throws; never inlined, so that the callers' hot paths
// stay small.
template <class... Parts>
[[noreturn]] __attribute__((noinline, cold)) void raise(ErrorKind kind, const Parts&... parts) {
  std::string text;
  (text.append(text_of_part(parts)), ...);
  throw Error(kind, text);
}

// Runs `read`. Where it finds a text malformed (kInternal), the error begins with that text's name,
// which readers of parts of a text do not know. `kind` is the error's kind from then on: malformed
// can also mean damaged, where no digest vouches for the text.
template <class Read>
auto naming(const std::string& document, const Read& read, ErrorKind kind = ErrorKind::kInternal) {
  try {
    return read();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInternal) throw;
    raise(kind, document, ": ", error.what());
  }
}

}  // namespace tileops
