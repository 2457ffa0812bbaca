// Owns running an entry on raw addresses, so that the launch path can be tested against a recorded
// driver.
#include <vector>

#include "core/driver.h"
#include "core/launch.h"
#include "torch/api.h"
#include "torch/bind.h"
#include "torch/op.h"

namespace tileops {
namespace {

const Entry& find_entry(const Op& op, const Variant& variant, const RawCall& raw) {
  std::vector<uint64_t> key = {
      device_word(raw.cuda, raw.cuda ? device_info(raw.device_index).capability : 0)};
  for (uint16_t size : variant.spec.const_sizes)
    key.push_back(static_cast<uint64_t>(raw.sizes.at(size)));
  key.push_back(entry_flags(raw.fast, raw.index64));
  const Entry* entry = variant.entries.find(key.data(), key.size());
  if (entry == nullptr)
    raise(ErrorKind::kInternal, op.spec.name, ": there is no entry for these sizes");
  return *entry;
}

}  // namespace

void run_raw(uint64_t handle, uint32_t number, const RawCall& raw) {
  Op& op = op_of_handle(handle);
  Op::Stay stay(op);
  Variant& variant = op.variant(number);
  const VariantSpec& spec = variant.spec;
  const Entry& entry = find_entry(op, variant, raw);
  if (raw.sizes.size() != spec.sizes.size() || raw.tensors.size() != entry.spec.tensors.size() ||
      raw.int_scalars.size() != spec.scalars.size() ||
      raw.float_scalars.size() != spec.scalars.size()) {
    raise(ErrorKind::kInternal, op.spec.name, ": wrong number of sizes, tensors or scalars");
  }
  Binding call;
  call.op = &op;
  call.variant = &variant;
  call.cuda = raw.cuda;
  call.device_index = raw.device_index;
  for (std::size_t i = 0; i < raw.sizes.size(); ++i) call.sizes[i] = raw.sizes[i];
  for (std::size_t i = 0; i < spec.scalars.size(); ++i) {
    if (is_float_type(spec.scalars[i].type))
      call.scalars[i].f = raw.float_scalars[i];
    else
      call.scalars[i].i = raw.int_scalars[i];
  }
  std::vector<int64_t> slots(entry.spec.host.slot_count() + 1);
  evaluate_host(entry.spec.host, call, slots.data());
  std::vector<void*> tensors, workspaces;
  for (uint64_t address : raw.tensors) tensors.push_back(reinterpret_cast<void*>(address));
  CallFrame frame;
  frame.op = op.spec.name.c_str();
  frame.slots = slots.data();
  frame.tensors = tensors.data();
  frame.scalars = call.scalars;
  std::vector<int64_t> offsets(entry.spec.workspaces.size() + 1);
  int64_t scratch_offset = -1;
  plan_workspaces(entry.spec, frame, offsets.data(), &scratch_offset);
  for (std::size_t i = 0; i < entry.spec.workspaces.size(); ++i) {
    workspaces.push_back(
        reinterpret_cast<void*>(raw.workspace + static_cast<uint64_t>(offsets[i])));
  }
  frame.workspaces = workspaces.data();
  if (scratch_offset >= 0)
    frame.global_scratch =
        reinterpret_cast<void*>(raw.workspace + static_cast<uint64_t>(scratch_offset));
  if (raw.cuda)
    run_cuda(entry.spec, frame, raw.device_index, reinterpret_cast<CUstream>(raw.stream));
  else
    run_cpu(entry.spec, frame);
}

}  // namespace tileops
