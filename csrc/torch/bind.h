// The checks of a call's tensors against a variant, and the sizes that they bind.
#pragma once

#include <array>
#include <memory>

#include "torch/inputs.h"
#include "torch/op.h"

namespace tileops {

// Room for `count` values on the stack, on the heap where it does not suffice.
template <class T, std::size_t kInline>
class SmallBuffer {
 public:
  explicit SmallBuffer(std::size_t count) {
    if (__builtin_expect(count > kInline, 0)) heap_.reset(new T[count]);
  }
  T* data() { return heap_ ? heap_.get() : inline_; }

 private:
  T inline_[kInline];
  std::unique_ptr<T[]> heap_;
};

inline constexpr std::size_t kMaxSizes = 128;
inline constexpr std::size_t kMaxOutputs = 32;

// A contiguous copy in place of an argument; what an op writes is copied back.
struct ContiguousCopy {
  std::size_t arg;
  AtenTensorHandle original;
  TensorHandle copy;
};

// What binding a call yields, and where the call runs.
struct Binding {
  const Op* op;
  const Variant* variant;
  TensorFacts tensors[kMaxArgs];  // by argument; `handle` null if the argument is not a tensor or
                                  // was not given
  int64_t sizes[kMaxSizes];
  ScalarValue scalars[kMaxArgs];
  bool cuda = false;
  bool meta = false;  // only the shapes of the outputs are wanted
  int32_t device_index = 0;
  int capability = 0;
  bool fast = true, index64 = false;
  // The leading dimensions of the tensors whose rules have some, and the argument that they were
  // read from. `flat` holds the shapes and strides of such tensors.
  const int64_t* leading = nullptr;
  std::size_t leading_rank = 0, leading_arg = 0;
  int64_t flat_inline[32];
  std::unique_ptr<int64_t[]> flat_heap;
  std::vector<ContiguousCopy> copies;
};

// The dimensions of an output, of which one rule may stand for several.
inline std::size_t output_rank(const OutputRule& rule, std::size_t leading_rank) {
  return rule.shape.size() + (rule.leading ? leading_rank - 1 : 0);
}
inline void put_output_shape(const OutputRule& rule, const Binding& call, const int64_t* slots,
                             int64_t* sizes) {
  std::size_t first = 0;
  if (rule.leading) {
    for (std::size_t d = 0; d < call.leading_rank; ++d) *sizes++ = call.leading[d];
    first = 1;
  }
  for (std::size_t d = first; d < rule.shape.size(); ++d) *sizes++ = slots[rule.shape[d]];
}

// The extent of a dimension in the rule's elements.
inline int64_t extent_of(const TensorRule& rule, const TensorFacts& facts, std::size_t dim) {
  return dim + 1 == rule.shape.size() ? facts.sizes[dim] * rule.pack : facts.sizes[dim];
}

// The stride of a dimension in the rule's elements; along the last one these lie side by side.
inline int64_t stride_of(const TensorRule& rule, const TensorFacts& facts, std::size_t dim) {
  return dim + 1 == rule.shape.size() ? facts.strides[dim] : facts.strides[dim] * rule.pack;
}

// Reads the tensors and checks that they share a supported device.
void read_tensors(const Inputs& inputs, Binding& call);
// Checks dtypes, ranks, shapes and strides, binds sizes and scalars, and finds `fast` and
// `index64`.
void bind_sizes(const Inputs& inputs, Binding& call);
// The tile dtype that the call's tensors give to a dtype rule, none if it gives none of them;
// refuses a dtype that is not allowed and tensors that differ.
StaticValue bound_dtype(const Op& op, const Binding& call, std::size_t rule);
// Reads the scalars, checks that their types hold them.
void bind_scalars(const Inputs& inputs, Binding& call);
// Refuses tensors that an op writes where two elements of a call share memory.
void check_overlaps(const Binding& call);
// Replaces the tensor of an argument by a contiguous copy of it.
void copy_contiguous(Binding& call, std::size_t arg);
void copy_back(const Binding& call);
// Autograd's version counter: an in-place operation on an empty view counts as a write to the base.
// It also makes torch refuse a leaf that requires grad, before anything is written.
void bump_versions(const Binding& call);
// Writes the inputs of a host program to the front of `slots` and evaluates it.
void evaluate_host(const HostProgram& host, const Binding& call, int64_t* slots);
// The same for an entry, whose conditions must hold: ArgumentError.
void evaluate_entry(const EntrySpec& entry, const Binding& call, int64_t* slots);

// The errors of a binding, with their texts (torch/messages.cpp).
[[noreturn]] void fail_device(const Binding& call, std::size_t first, std::size_t other);
[[noreturn]] void fail_dtype(const Binding& call, const TensorRule& rule);
[[noreturn]] void fail_rank(const Binding& call, const TensorRule& rule);
[[noreturn]] void fail_bound(const Binding& call, const TensorRule& rule, std::size_t dim,
                             bool is_stride);
[[noreturn]] void fail_solve(const Binding& call, const TensorRule& rule, std::size_t dim);
[[noreturn]] void fail_equal(const Binding& call, const TensorRule& rule, std::size_t dim,
                             int64_t expected);
[[noreturn]] void fail_contiguous(const Binding& call, const TensorRule& rule);
[[noreturn]] void fail_leading(const Binding& call, const TensorRule& rule);
[[noreturn]] void fail_leading_layout(const Binding& call, const TensorRule& rule);
[[noreturn]] void fail_dtype_rule(const Op& op, const Binding& call, const DTypeRule& rule,
                                  std::size_t arg);
[[noreturn]] void fail_dtype_agreement(const Op& op, const Binding& call, const DTypeRule& rule,
                                       std::size_t first, std::size_t other);
[[noreturn]] void fail_stride(const Binding& call, const TensorRule& rule, std::size_t dim,
                              int64_t expected);
[[noreturn]] void fail_overlap(const Binding& call, std::size_t written, std::size_t other);
[[noreturn]] void fail_self_overlap(const Binding& call, std::size_t written);
// For an op that writes its inputs and was given a lazily negated view.
[[noreturn]] void fail_negated(const Inputs& inputs, const OpSpec& op);
[[noreturn]] void fail_scalar_range(const Binding& call, const ScalarRule& rule, int64_t value);

// The op, its tensors, its compile-time arguments and its source, for errors of the device.
std::string describe_call(const Binding& call);

}  // namespace tileops
