// What is done with an entry without tensors: loading it before its first call, and running it
// on raw addresses, so that the launch path can be tested against a recorded driver.
#include <vector>

#include "core/driver.h"
#include "core/launch.h"
#include "torch/api.h"
#include "torch/bind.h"
#include "torch/op.h"

namespace tileops {
namespace {

const Entry& find_entry(const Op& op, const Variant& variant, const EntryChoice& choice) {
  std::vector<uint64_t> key = {
      device_word(choice.cuda, choice.cuda ? device_info(choice.device_index).capability : 0)};
  for (int64_t size : choice.consts) key.push_back(static_cast<uint64_t>(size));
  key.push_back(entry_flags(choice.fast, choice.index64));
  const Entry* entry = variant.entries.find(key.data(), key.size());
  if (entry == nullptr)
    raise(ErrorKind::kInternal, op.spec.title(), ": there is no entry for these sizes");
  return *entry;
}

}  // namespace

void load_entry(uint64_t handle, uint32_t number, const EntryChoice& choice) {
  Op& op = op_of_handle(handle);
  Op::Stay stay(op);
  Variant& variant = op.variant(number);
  if (choice.consts.size() != variant.spec.key_sizes())
    raise(ErrorKind::kInternal, op.spec.title(), ": wrong number of constant sizes");
  const Entry& entry = find_entry(op, variant, choice);
  if (entry.choices != nullptr)
    entry.choices->load(choice.device_index);
  else
    load(entry.spec, choice.device_index);
}

void run_raw(uint64_t handle, uint32_t number, const RawCall& raw) {
  Op& op = op_of_handle(handle);
  Op::Stay stay(op);
  Variant& variant = op.variant(number);
  const VariantSpec& spec = variant.spec;
  EntryChoice choice{raw.cuda, raw.device_index, {}, raw.fast, raw.index64};
  for (uint16_t size : spec.const_sizes) choice.consts.push_back(raw.sizes.at(size));
  for (const BucketRule& rule : spec.buckets)
    choice.consts.push_back(static_cast<int64_t>(rule.word(raw.sizes.at(rule.size))));
  if (raw.sizes.size() != spec.sizes.size() || raw.int_scalars.size() != spec.scalars.size() ||
      raw.float_scalars.size() != spec.scalars.size()) {
    raise(ErrorKind::kInternal, op.spec.title(), ": wrong number of sizes or scalars");
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
  const Entry* found = &find_entry(op, variant, choice);
  if (found->choices != nullptr) found = found->choices->find(call, raw.general);
  if (found == nullptr)
    raise(ErrorKind::kInternal, op.spec.title(), ": there is no entry for these facts");
  const Entry& entry = *found;
  if (raw.tensors.size() != entry.spec.tensors.size())
    raise(ErrorKind::kInternal, op.spec.title(), ": wrong number of tensors");
  std::vector<int64_t> slots(entry.spec.host.slot_count() + 1);
  evaluate_entry(entry.spec, call, slots.data());
  std::vector<void*> tensors, workspaces;
  for (uint64_t address : raw.tensors) tensors.push_back(reinterpret_cast<void*>(address));
  CallFrame frame;
  frame.op = op.spec.name.c_str();
  frame.slots = slots.data();
  frame.tensors = tensors.data();
  frame.scalars = call.scalars;
  frame.sizes = call.sizes;
  frame.size_count = spec.sizes.size();
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
