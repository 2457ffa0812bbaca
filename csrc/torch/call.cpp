// The call path: from the boxed stack to launches and back.
#include <dlfcn.h>

#include "core/counters.h"
#include "core/hooks.h"
#include "core/launch.h"
#include "core/stages.h"
#include "torch/allocate.h"
#include "torch/bind.h"
#include "torch/cuda_bridge.h"
#include "torch/op.h"
#include "torch/recent.h"
#include "torch/stubs.h"

namespace tileops {
namespace {

// The outputs of a call until they are handed to torch.
class Outputs {
 public:
  Outputs() = default;
  Outputs(const Outputs&) = delete;
  Outputs& operator=(const Outputs&) = delete;
  ~Outputs() {
    for (std::size_t i = 0; i < count_; ++i) {
      if (handles_[i] != nullptr) aoti_torch_delete_tensor_object(handles_[i]);
    }
  }
  void push(TensorHandle tensor) { handles_[count_++] = tensor.release(); }
  AtenTensorHandle operator[](std::size_t i) const { return handles_[i]; }
  AtenTensorHandle release(std::size_t i) { return std::exchange(handles_[i], nullptr); }

 private:
  std::size_t count_ = 0;
  AtenTensorHandle handles_[kMaxOutputs];  // the first count_ are valid
};

// The device of an op without tensors: the argument, or the CPU as for torch's own factories.
void read_device(const Inputs& inputs, Binding& call) {
  const auto& args = call.op->spec.args;
  for (std::size_t i = 0; i < args.size(); ++i) {
    if (args[i].kind != ArgKind::kDevice || !inputs.has_value(i)) continue;
    const auto [type, index] = inputs.device(i);
    const TorchCodes& codes = torch_codes();
    call.meta = type == codes.meta;
    if (type != codes.cpu && type != codes.cuda && !call.meta) {
      raise(ErrorKind::kArgument, call.op->spec.title(), ": argument '", args[i].name,
            "': expected a CPU, CUDA or meta device, got ", device_name(type, index));
    }
    call.cuda = type == codes.cuda;
    call.device_index = call.cuda ? index : 0;
    // A torch without CUDA has no current device.
    if (call.cuda && index < 0 && aoti_torch_get_current_device_index(&call.device_index) != 0) {
      raise(ErrorKind::kArgument, call.op->spec.title(), ": argument '", args[i].name,
            "': expected a device that torch has, got cuda, and torch finds no CUDA device");
    }
  }
}

bool refuses_to_compile(const Binding& call, const char** reason) {
  if (strict())
    *reason = "and strict mode allows no compile";
  else if (call.cuda && is_capturing(call.device_index))
    *reason = "while a CUDA graph is being captured";
  else
    return false;
  return true;
}

[[noreturn]] __attribute__((cold, noinline)) void fail_miss(const Binding& call,
                                                            const char* reason) {
  std::string sizes;
  if (call.variant != nullptr) {
    for (std::size_t i = 0; i < call.variant->spec.sizes.size(); ++i) {
      sizes += (i == 0 ? " with " : ", ") + call.variant->spec.sizes[i].name + " = " +
               std::to_string(call.sizes[i]);
    }
  }
  const std::string device = call.cuda ? "cuda:" + std::to_string(call.device_index) : "cpu";
  raise(ErrorKind::kCompileMiss, call.op->spec.title(), ": no kernel is loaded for ", device, sizes,
        ", ", reason, "; run the op once on such inputs before, or warm it up with tileops.warmup");
}

// An op of a bundle has the kernels that it came with and no others.
[[noreturn]] __attribute__((cold, noinline)) void fail_bundled(const Binding& call,
                                                               const std::string& origin,
                                                               const std::string& key) {
  const std::string device = call.cuda ? "cuda:" + std::to_string(call.device_index) + " (sm_" +
                                             std::to_string(call.capability) + ")"
                                       : "cpu";
  const std::string refused =
      call.cuda && call.variant != nullptr ? refused_ptx(*call.op, call) : std::string();
  raise(ErrorKind::kCompileMiss, call.op->spec.title(), ": no kernel for ", device, key, " in ",
        origin, refused.empty() ? "" : ", and the driver refuses what it has: ", refused,
        "; add this combination with tileops.bundle");
}

std::string static_key(const OpSpec& op, const std::vector<StaticValue>& values) {
  std::string text;
  std::size_t next = 0;
  for (ArgRole role : {ArgRole::kStatic, ArgRole::kTensor}) {
    for (const ArgSpec& arg : op.args) {
      if (arg.role != role || (role == ArgRole::kTensor && !arg.optional)) continue;
      text += (text.empty() ? " with " : ", ") + arg.name + " = " + describe(values[next++]);
    }
  }
  for (const DTypeRule& rule : op.dtype_rules)
    text += (text.empty() ? " with " : ", ") + rule.name + " = " + describe(values[next++]);
  return text;
}

std::string entry_key(const Binding& call) {
  const VariantSpec& spec = call.variant->spec;
  std::string text = static_key(call.op->spec, spec.statics);
  for (uint16_t size : spec.const_sizes) {
    text += (text.empty() ? " with " : ", ") + spec.sizes[size].name + " = " +
            std::to_string(call.sizes[size]);
  }
  return text + (call.fast ? ", aligned" : ", any alignment") +
         (call.index64 ? ", 2^31 elements or more" : "");
}

Variant* find_variant(const OpTables& tables, const std::vector<uint64_t>& key) {
  return tables.variants.find(key.data(), key.size());
}

__attribute__((cold, noinline)) const Variant& resolve_variant(Op& op, const Binding& call,
                                                               Request request,
                                                               const std::vector<uint64_t>& key) {
  const char* reason = nullptr;
  if (const std::string* origin = op.sealed())
    fail_bundled(call, *origin, static_key(op.spec, request.statics));
  if (refuses_to_compile(call, &reason)) fail_miss(call, reason);
  request.kind = Request::kVariant;
  request.handle = op.handle();
  request.op = &op.spec;
  std::vector<uint64_t> flight = key;
  flight.insert(flight.begin(), 0);
  const Variant* variant = nullptr;
  auto found = [&] {
    variant = op.spec.has_keys ? find_variant(op.tables(), key)
                               : op.tables().only.load(std::memory_order_acquire);
    return variant != nullptr;
  };
  op.resolve(flight, request, found);
  return *variant;
}

// The value of a static argument; none where it is what leaving the argument out means.
StaticValue chosen_value(const Inputs& inputs, const Op& op, uint16_t arg) {
  StaticValue value = inputs.static_value(arg);
  if (op.keeps_given()) return value;
  std::vector<uint64_t> given, standard;
  append_key_words(given, value);
  append_key_words(standard, op.spec.args[arg].standard);
  return given == standard ? StaticValue() : value;
}

const Variant& select_variant(Op& op, const Inputs& inputs, const Binding& call) {
  if (!op.spec.has_keys) {
    const Variant* variant = op.tables().only.load(std::memory_order_acquire);
    return __builtin_expect(variant != nullptr, 1) ? *variant
                                                   : resolve_variant(op, call, Request(), {});
  }
  if (op.spec.dtype_rules.empty() && inputs.are_defaults()) {
    const Variant* variant = op.tables().only.load(std::memory_order_acquire);
    if (__builtin_expect(variant != nullptr, 1)) return *variant;
  }
  Request request;
  std::vector<uint64_t> key;
  key.reserve(32);
  for (uint16_t arg : op.spec.key_args) {
    const bool is_tensor = op.spec.args[arg].kind == ArgKind::kTensor;
    request.statics.push_back(is_tensor ? StaticValue(inputs.has_value(arg))
                                        : chosen_value(inputs, op, arg));
    append_key_words(key, request.statics.back());
  }
  for (std::size_t i = 0; i < op.spec.dtype_rules.size(); ++i) {
    request.statics.push_back(bound_dtype(op, call, i));
    append_key_words(key, request.statics.back());
  }
  const Variant* variant = find_variant(op.tables(), key);
  return __builtin_expect(variant != nullptr, 1)
             ? *variant
             : resolve_variant(op, call, std::move(request), key);
}

// The key words of an entry: device, constant sizes, buckets, flags.
class EntryKey {
 public:
  explicit EntryKey(const Binding& call)
      : count_(call.variant->spec.key_sizes() + 2), buffer_(call.variant->spec.key_sizes() + 2) {
    uint64_t* words = buffer_.data();
    *words++ = device_word(call.cuda, call.capability);
    for (uint16_t size : call.variant->spec.const_sizes)
      *words++ = static_cast<uint64_t>(call.sizes[size]);
    for (const BucketRule& rule : call.variant->spec.buckets)
      *words++ = rule.word(call.sizes[rule.size]);
    set_flags(call.fast, call.index64);
  }
  void set_flags(bool fast, bool index64) {
    buffer_.data()[count_ - 1] = entry_flags(fast, index64);
  }
  // The entry of a call with this key, or null; under `general` that without facts of numbers.
  const Entry* find(const Binding& call, bool general = false) {
    const Entry* found = call.variant->entries.find(buffer_.data(), count_);
    if (found == nullptr || __builtin_expect(found->choices == nullptr, 1)) return found;
    return found->choices->find(call, general);
  }
  std::vector<uint64_t> words() {
    return std::vector<uint64_t>(buffer_.data(), buffer_.data() + count_);
  }

 private:
  std::size_t count_;
  SmallBuffer<uint64_t, 32> buffer_;
};

StaticValue scalar_value(const Binding& call, std::size_t number) {
  const ScalarType type = call.variant->spec.scalars[number].type;
  const ScalarValue value = call.scalars[number];
  if (is_float_type(type)) return value.f;
  if (type == ScalarType::kI1) return value.i != 0;
  return value.i;
}

// What is there for a call: the fast kernel, else the general one, which assumes nothing.
const Entry* find_general(const Binding& call, EntryKey& key) {
  key.set_flags(call.fast, call.index64);
  const Entry* found = key.find(call);
  if (found == nullptr && call.fast) found = key.find(call, true);
  key.set_flags(false, call.index64);
  if (found == nullptr) found = key.find(call);
  if (found == nullptr) found = key.find(call, true);
  return found;
}

__attribute__((cold, noinline)) const Entry& resolve_entry(Op& op, const Binding& call,
                                                           EntryKey& key) {
  const char* reason = nullptr;
  const std::string* origin = op.sealed();
  if (origin != nullptr || refuses_to_compile(call, &reason)) {
    // The general kernel serves where the fast one may not be made now.
    if (const Entry* found = find_general(call, key)) return *found;
    if (origin != nullptr && call.cuda) {
      if (is_capturing(call.device_index)) fail_miss(call, "while a CUDA graph is being captured");
      if (serve_portable(op, call)) {
        if (const Entry* found = find_general(call, key)) return *found;
      }
    }
    if (origin != nullptr) fail_bundled(call, *origin, entry_key(call));
    fail_miss(call, reason);
  }
  Request request;
  request.kind = Request::kEntry;
  request.handle = op.handle();
  request.op = &op.spec;
  request.variant = call.variant->number;
  request.cuda = call.cuda;
  request.device_index = call.device_index;
  request.capability = call.capability;
  request.fast = call.fast;
  request.index64 = call.index64;
  const VariantSpec& spec = call.variant->spec;
  for (uint16_t size : spec.const_sizes) request.consts.push_back(call.sizes[size]);
  for (std::size_t i = 0; i < spec.sizes.size(); ++i)
    request.sizes.emplace_back(spec.sizes[i].name, call.sizes[i]);
  for (std::size_t i = 0; i < spec.scalars.size(); ++i)
    request.scalars.emplace_back(spec.scalars[i].name, scalar_value(call, i));
  request.entries = call.variant->entries.size();
  std::vector<uint64_t> flight = key.words();
  flight.insert(flight.begin(), uint64_t{1} + call.variant->number);
  const Entry* entry = nullptr;
  op.resolve(flight, request, [&] { return (entry = key.find(call)) != nullptr; });
  return *entry;
}

void allocate_outputs(const Binding& call, const std::vector<OutputRule>& rules,
                      const std::vector<int32_t>& dtypes, const int64_t* slots, Outputs& outputs) {
  for (std::size_t i = 0; i < rules.size(); ++i) {
    const std::size_t rank = output_rank(rules[i], call.leading_rank);
    SmallBuffer<int64_t, 16> sizes(rank);
    put_output_shape(rules[i], call, slots, sizes.data());
    const int64_t pack = rules[i].pack;
    if (pack > 1) {
      int64_t& last = sizes.data()[rank - 1];
      if (last % pack != 0) {
        raise(ErrorKind::kArgument, call.op->spec.title(), ": an output of ", pack,
              " elements a byte needs a last dimension divisible by ", pack, ", got ", last);
      }
      last /= pack;
    }
    outputs.push(allocate(call, sizes.data(), static_cast<int64_t>(rank), dtypes[i], "an output"));
  }
}

// Launches with the device idle before and after: what fails is this call's, and the error says
// which it was.
__attribute__((cold, noinline)) void run_and_wait(const Binding& call, const EntrySpec& spec,
                                                  const CallFrame& frame) {
  const CUstream stream = current_cuda_stream(call.device_index);
  finish_cuda(call.device_index, stream,
              "a kernel that was launched before this call failed: cuCtxSynchronize");
  try {
    run_cuda(spec, frame, call.device_index, stream);
    finish_cuda(call.device_index, stream, "cuCtxSynchronize");
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kDriver) throw;
    raise(ErrorKind::kDriver, "the call ", describe_call(call),
          spec.config.empty() ? "" : ", config ", spec.config,
          " failed on cuda:", call.device_index, ": ", error.what());
  }
}

// The memory of a call's workspaces, and where each is in it.
class Workspaces {
 public:
  Workspaces(const Binding& call, const EntrySpec& spec, CallFrame& frame)
      : addresses_(spec.workspaces.size()) {
    SmallBuffer<int64_t, 16> offsets(spec.workspaces.size());
    int64_t scratch_offset = -1;
    const int64_t bytes = plan_workspaces(spec, frame, offsets.data(), &scratch_offset);
    char* base = nullptr;
    if (bytes > 0) {
      // torch aligns CPU memory to 64 bytes only.
      const int64_t size = bytes + (call.cuda ? 0 : kWorkspaceAlignment);
      owned_ = allocate(call, &size, 1, torch_codes().uint8, "a workspace");
      const auto address = reinterpret_cast<uintptr_t>(data_of(owned_.get()));
      base = reinterpret_cast<char*>((address + kWorkspaceAlignment - 1) / kWorkspaceAlignment *
                                     kWorkspaceAlignment);
    }
    for (std::size_t i = 0; i < spec.workspaces.size(); ++i)
      addresses_.data()[i] = base + offsets.data()[i];
    frame.workspaces = addresses_.data();
    if (scratch_offset >= 0) frame.global_scratch = base + scratch_offset;
  }

 private:
  TensorHandle owned_;
  SmallBuffer<void*, 16> addresses_;
};

void start(const Binding& call, const EntrySpec& spec, const CallFrame& frame) {
  if (call.op->spec.has_mutated) bump_versions(call);
  if (!call.cuda)
    run_cpu(spec, frame);
  else if (__builtin_expect(sync(), 0) && !is_capturing(call.device_index))
    run_and_wait(call, spec, frame);
  else
    run_cuda(spec, frame, call.device_index, current_cuda_stream(call.device_index));
  if (!call.copies.empty()) copy_back(call);
}

__attribute__((noinline)) void start_with_memory(const Binding& call, const EntrySpec& spec,
                                                 CallFrame& frame) {
  const Workspaces workspaces(call, spec, frame);
  start(call, spec, frame);
}

void run(const Binding& call, const Entry& entry, const int64_t* slots, const Outputs& outputs) {
  const EntrySpec& spec = entry.spec;
  SmallBuffer<void*, 32> tensors(spec.tensors.size());
  for (std::size_t i = 0; i < spec.tensors.size(); ++i) {
    const TensorSource& source = spec.tensors[i];
    tensors.data()[i] = source.is_output ? data_of(outputs[source.index])
                        : call.tensors[source.index].handle == nullptr
                            ? nullptr
                            : call.tensors[source.index].data;
  }
  CallFrame frame;
  frame.op = call.op->spec.name.c_str();
  frame.slots = slots;
  frame.tensors = tensors.data();
  frame.scalars = call.scalars;
  frame.sizes = call.sizes;
  frame.size_count = call.variant->spec.sizes.size();
  if (spec.has_memory)
    start_with_memory(call, spec, frame);
  else
    start(call, spec, frame);
}

void return_outputs(const Op& op, Outputs& outputs, StableIValue* stack) {
  for (std::size_t i = 0; i < op.spec.returns.size(); ++i) {
    stack[i] = reinterpret_cast<uintptr_t>(outputs.release(op.spec.returns[i]));
  }
}

// A meta device asks for the outputs without their data; where tensors say so, torch calls the fake
// instead.
__attribute__((cold, noinline)) void call_meta(const Op& op, const Binding& call,
                                               StableIValue* stack) {
  const VariantSpec& spec = call.variant->spec;
  SmallBuffer<int64_t, 128> slots(spec.host.slot_count() + 1);
  evaluate_host(spec.host, call, slots.data());
  Outputs outputs;
  allocate_outputs(call, spec.outputs, call.variant->output_dtypes, slots.data(), outputs);
  return_outputs(op, outputs, stack);
}

// A call with the arguments of one that was checked on this thread, other tensors and floats apart.
void repeat(const Inputs& inputs, Binding& call, RecentCall& recent, StableIValue* stack,
            StageClock& clock) {
  // Calls may nest on one record: an allocator may call back into Python.
  struct Use {
    RecentCall& recent;
    const bool outer;
    explicit Use(RecentCall& used) : recent(used), outer(std::exchange(used.in_use, true)) {}
    ~Use() { recent.in_use = outer; }
  };
  const Entry& entry = *recent.entry;
  call.variant = recent.variant;
  if (call.op->spec.has_mutated) check_overlaps(call);
  bind_scalars(inputs, call);
  const std::size_t count = call.variant->spec.sizes.size();
  for (std::size_t i = 0; i < count; ++i) call.sizes[i] = recent.sizes[i];
  const Use use(recent);
  clock.end(Stage::kLookUp);
  Outputs outputs;
  std::size_t at = 0;
  for (std::size_t i = 0; i < entry.spec.outputs.size(); ++i) {
    const std::size_t rank = output_rank(entry.spec.outputs[i], recent.leading_rank);
    outputs.push(allocate_strided(call, recent.shapes + at, recent.strides + at,
                                  static_cast<int64_t>(rank), entry.output_dtypes[i], "an output"));
    at += rank;
  }
  clock.end(Stage::kAllocate);
  run(call, entry, recent.slots, outputs);
  return_outputs(*call.op, outputs, stack);
  clock.end(Stage::kLaunch);
}

void call_op(Op& op, StableIValue* stack, StageClock& clock) {
  Inputs inputs(op.spec, stack);
  Op::Stay stay(op);
  if (const std::string* message = op.retired()) raise(ErrorKind::kRedefined, *message);
  Binding call;
  call.op = &op;
  call.variant = nullptr;
  read_tensors(inputs, call);
  if (!op.spec.has_tensor) read_device(inputs, call);
  clock.end(Stage::kRead);
  CallWords words;
  const bool has_words = words.gather(op, inputs, call);
  if (has_words) {
    if (RecentCall* recent = find_recent(words)) {
      count(Counter::kMemoryHits);
      return repeat(inputs, call, *recent, stack, clock);
    }
  }
  call.capability = call.cuda ? device_info(call.device_index).capability : 0;
  call.variant = &select_variant(op, inputs, call);
  bind_sizes(inputs, call);
  if (__builtin_expect(call.meta, 0)) return call_meta(op, call, stack);
  EntryKey key(call);
  const Entry* entry = key.find(call);
  const bool is_hit = entry != nullptr;
  if (__builtin_expect(is_hit, 1))
    count(Counter::kMemoryHits);
  else
    entry = &resolve_entry(op, call, key);
  if (call.cuda && __builtin_expect(!is_loaded(entry->spec, call.device_index), 0) &&
      is_capturing(call.device_index)) {
    fail_miss(call, "while a CUDA graph is being captured");
  }
  SmallBuffer<int64_t, 128> slots(entry->spec.host.slot_count());
  evaluate_entry(entry->spec, call, slots.data());
  clock.end(Stage::kLookUp);
  Outputs outputs;
  allocate_outputs(call, entry->spec.outputs, entry->output_dtypes, slots.data(), outputs);
  clock.end(Stage::kAllocate);
  run(call, *entry, slots.data(), outputs);
  return_outputs(op, outputs, stack);
  clock.end(Stage::kLaunch);
  // Not after a miss: a call that may not compile now gets the general kernel for once.
  if (is_hit && has_words) remember(words, call, *entry, slots.data());
}

}  // namespace
}  // namespace tileops

extern "C" void tileops_invoke(uint64_t* stack, uint64_t inputs, uint64_t outputs, uint32_t slot) {
  using namespace tileops;
  try {
    Op* op = op_in_slot(slot);
    if (op == nullptr || op->spec.args.size() != inputs || op->spec.returns.size() != outputs) {
      raise(ErrorKind::kInternal, "op slot ", slot, " was called with ", inputs, " arguments and ",
            outputs, " results");
    }
    if (__builtin_expect(slot != op->handle(), 0)) fail_negated(Inputs(op->spec, stack), op->spec);
    StageClock clock;
    call_op(*op, stack, clock);
    clock.end(Stage::kFree);
  } catch (const Error& error) {
    if (hooks().raise != nullptr) hooks().raise(error.kind(), error.what());
    throw std::runtime_error(std::string(error_class_name(error.kind())) + ": " + error.what());
  }
}
