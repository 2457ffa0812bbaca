// The arguments of one call: read from the boxed stack, freed on every path.
#pragma once

#include <string>
#include <vector>

#include "core/params.h"
#include "core/spec.h"
#include "torch/shim.h"

namespace tileops {

inline constexpr std::size_t kMaxArgs = 64;

// What the call path needs to know about a tensor; borrowed from it.
struct TensorFacts {
  AtenTensorHandle handle;  // null for an optional tensor that was not given
  void* data;
  int64_t rank;
  const int64_t* sizes;
  const int64_t* strides;
  int32_t dtype;
  int32_t device_type, device_index;
};

// Takes the inputs over from the stack: whatever happens, they are freed when this goes out of
// scope.
class Inputs {
 public:
  Inputs(const OpSpec& op, const StableIValue* stack);
  ~Inputs();
  Inputs(const Inputs&) = delete;
  Inputs& operator=(const Inputs&) = delete;

  // The tensor of an argument; only where the argument is a tensor.
  AtenTensorHandle tensor(std::size_t arg) const;
  bool has_value(std::size_t arg) const { return !op_.args[arg].optional || words_[arg] != 0; }
  // True if every argument that selects a variant is None.
  bool are_defaults() const {
    for (uint16_t arg : op_.key_args) {
      if (has_value(arg)) return false;
    }
    return true;
  }
  // Numbers: int and bool arguments in `i`, float ones in `f`.
  ScalarValue scalar(std::size_t arg) const;
  StaticValue static_value(std::size_t arg) const;
  // {type, index}; only where the argument is a device that was given.
  std::pair<int32_t, int32_t> device(std::size_t arg) const;

 private:
  StableIValue payload(std::size_t arg) const;  // with the box of an optional opened

  const OpSpec& op_;
  void* const python_;  // the thread state of a call that Python announced, or null
  StableIValue words_[kMaxArgs];
};

// Reads shape, strides, dtype and device of an argument, into the place where they stay: a copy of
// what was written a moment ago waits for the stores. Raises ArgumentError for a layout that is not
// strided, ArgumentTypeError for a tensor that was None.
void read_facts(AtenTensorHandle handle, const OpSpec& op, std::size_t arg, TensorFacts& facts);

}  // namespace tileops
