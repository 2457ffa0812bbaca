// Contiguous copies of arguments, made for ops that declare contiguous="copy".
#include "torch/bind.h"

namespace tileops {

__attribute__((cold, noinline)) void copy_contiguous(Binding& call, std::size_t arg) {
  TensorFacts& facts = call.tensors[arg];
  SmallBuffer<int64_t, 16> strides(static_cast<std::size_t>(facts.rank));
  int64_t step = 1;
  for (int64_t i = facts.rank - 1; i >= 0; --i) {
    strides.data()[i] = step;
    step *= facts.sizes[i] > 1 ? facts.sizes[i] : 1;
  }
  AtenTensorHandle made = nullptr;
  if (aoti_torch_empty_strided(facts.rank, facts.sizes, strides.data(), facts.dtype,
                               facts.device_type, facts.device_index, &made) != 0) {
    raise(ErrorKind::kOutOfMemory, call.op->spec.title(), ": torch could not allocate a copy of '",
          call.op->spec.args[arg].name, "'");
  }
  TensorHandle copy(made);
  check_torch(aoti_torch_copy_(made, facts.handle, 0), "aoti_torch_copy_");
  call.copies.push_back({arg, facts.handle, std::move(copy)});
  read_facts(made, call.op->spec, arg, facts);
}

void copy_back(const Binding& call) {
  for (const ContiguousCopy& copy : call.copies) {
    if (!call.op->spec.args[copy.arg].mutated) continue;
    check_torch(aoti_torch_copy_(copy.original, copy.copy.get(), 0), "aoti_torch_copy_");
  }
}

}  // namespace tileops
