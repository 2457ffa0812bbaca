// Autograd's version counters of the tensors that a call writes.
#include <algorithm>

#include "torch/bind.h"

namespace tileops {
namespace {

// An empty view of a tensor; torch reads as many sizes and strides as the tensor has dimensions.
TensorHandle empty_view(AtenTensorHandle base, int64_t rank) {
  SmallBuffer<int64_t, 16> sizes(static_cast<std::size_t>(rank));
  SmallBuffer<int64_t, 16> strides(static_cast<std::size_t>(rank));
  std::fill_n(sizes.data(), rank, 0);
  std::fill_n(strides.data(), rank, 1);
  AtenTensorHandle view = nullptr;
  check_torch(aoti_torch_as_strided(base, sizes.data(), strides.data(), &view),
              "aoti_torch_as_strided");
  return TensorHandle(view);
}

// Counts one write to a tensor without changing it. False where torch allows none.
bool count_write(AtenTensorHandle base, const TensorFacts& facts) {
  // One element is not an empty view; its copy onto itself counts as well.
  if (facts.rank == 0) return aoti_torch_copy_(base, base, 0) == 0;
  const TensorHandle view = empty_view(base, facts.rank);
  // Torch has no fill of two float4 in a byte.
  if (facts.dtype == torch_codes().float4) return aoti_torch_copy_(view.get(), view.get(), 0) == 0;
  return aoti_torch_zero_(view.get()) == 0;
}

}  // namespace

void bump_versions(const Binding& call) {
  const auto& args = call.op->spec.args;
  for (std::size_t i = 0; i < args.size(); ++i) {
    if (!args[i].mutated || call.tensors[i].handle == nullptr) continue;
    AtenTensorHandle target = call.tensors[i].handle;
    for (const ContiguousCopy& copy : call.copies) {
      if (copy.arg == i) target = copy.original;
    }
    if (!count_write(target, call.tensors[i])) {
      raise(ErrorKind::kArgument, call.op->spec.title(), ": argument '", args[i].name,
            "': torch allows no in-place write to it (a leaf that requires grad, or an inference "
            "tensor)");
    }
  }
}

}  // namespace tileops
