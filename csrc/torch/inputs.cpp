// Unboxing: the representation of each kind of argument in the stable ABI.
#include "torch/inputs.h"

#include <cstring>

#include "core/hooks.h"

namespace tileops {
namespace {

template <class Handle>
Handle as_handle(StableIValue word) {
  return reinterpret_cast<Handle>(static_cast<uintptr_t>(word));
}

// A list is read through the ABI; its handle stays ours to free.
std::vector<int64_t> read_list(StableListHandle list) {
  std::size_t size = 0;
  check_torch(torch_list_size(list, &size), "torch_list_size");
  std::vector<int64_t> values(size);
  for (std::size_t i = 0; i < size; ++i) {
    StableIValue item = 0;
    check_torch(torch_list_get_item(list, i, &item), "torch_list_get_item");
    values[i] = static_cast<int64_t>(item);
  }
  return values;
}

std::string read_string(StringHandle text) {
  std::size_t length = 0;
  const char* data = nullptr;
  check_torch(torch_string_length(text, &length), "torch_string_length");
  check_torch(torch_string_c_str(text, &data), "torch_string_c_str");
  return std::string(data, length);
}

void free_payload(ArgKind kind, StableIValue word) {
  // A failed free leaks one object; nobody could be told.
  if (kind == ArgKind::kTensor)
    aoti_torch_delete_tensor_object(as_handle<AtenTensorHandle>(word));
  else if (kind == ArgKind::kString)
    torch_delete_string(as_handle<StringHandle>(word));
  else if (kind == ArgKind::kIntList)
    torch_delete_list(as_handle<StableListHandle>(word));
}

// torch's parser takes None for a tensor that is not optional, and hands over an undefined one.
[[noreturn]] __attribute__((cold, noinline)) void fail_unreadable(AtenTensorHandle handle,
                                                                  const OpSpec& op,
                                                                  std::size_t arg) {
  bool is_defined = true;
  check_torch(aoti_torch_is_defined(handle, &is_defined), "aoti_torch_is_defined");
  raise(is_defined ? ErrorKind::kArgument : ErrorKind::kArgumentType, op.title(), ": argument '",
        op.args[arg].name, "': expected a ", is_defined ? "dense strided " : "", "tensor, got ",
        is_defined ? "one of another layout" : "None");
}

// Frameworks free the storage of parameters that are not in use, and a kernel reads where it
// points.
__attribute__((cold, noinline)) void refuse_freed(const TensorFacts& facts, const OpSpec& op,
                                                  std::size_t arg) {
  const TorchCodes& codes = torch_codes();
  // A tensor of another device has no memory either, and is refused for its device.
  if (facts.device_type != codes.cpu && facts.device_type != codes.cuda) return;
  for (int64_t i = 0; i < facts.rank; ++i) {
    if (facts.sizes[i] == 0) return;
  }
  raise(ErrorKind::kArgument, op.title(), ": argument '", op.args[arg].name,
        "': expected a tensor with memory, got one whose storage was freed or never allocated");
}

}  // namespace

Inputs::Inputs(const OpSpec& op, const StableIValue* stack) : op_(op), python_(take_python_call()) {
  std::memcpy(words_, stack, op.args.size() * sizeof(StableIValue));
}

Inputs::~Inputs() {
  const GilTakeScope gil(python_);
  for (std::size_t i = 0; i < op_.args.size(); ++i) {
    const ArgSpec& arg = op_.args[i];
    if (!has_value(i)) continue;
    free_payload(arg.kind, payload(i));
    // An optional value is in a box that torch allocated with new (see to<std::optional<T>> in
    // torch's headers).
    if (arg.optional) delete as_handle<StableIValue*>(words_[i]);
  }
}

StableIValue Inputs::payload(std::size_t arg) const {
  return op_.args[arg].optional ? *as_handle<StableIValue*>(words_[arg]) : words_[arg];
}

AtenTensorHandle Inputs::tensor(std::size_t arg) const {
  return has_value(arg) ? as_handle<AtenTensorHandle>(payload(arg)) : nullptr;
}

ScalarValue Inputs::scalar(std::size_t arg) const {
  if (!has_value(arg)) {
    raise(ErrorKind::kArgumentType, op_.title(), ": argument '", op_.args[arg].name,
          "': expected a number, got None");
  }
  const StableIValue word = payload(arg);
  ScalarValue value;
  if (op_.args[arg].kind == ArgKind::kBool)
    value.i = (word & 0xFF) != 0;
  else
    std::memcpy(&value, &word, sizeof(value));
  return value;
}

StaticValue Inputs::static_value(std::size_t arg) const {
  if (!has_value(arg)) return std::monostate{};
  switch (op_.args[arg].kind) {
    case ArgKind::kString:
      return read_string(as_handle<StringHandle>(payload(arg)));
    case ArgKind::kIntList:
      return read_list(as_handle<StableListHandle>(payload(arg)));
    case ArgKind::kFloat:
      return scalar(arg).f;
    case ArgKind::kBool:
      return scalar(arg).i != 0;
    default:
      return scalar(arg).i;
  }
}

std::pair<int32_t, int32_t> Inputs::device(std::size_t arg) const {
  // Index in the lower half, type in the upper (to<torch::stable::Device> in torch's headers).
  const StableIValue word = payload(arg);
  return {static_cast<int32_t>(word >> 32), static_cast<int32_t>(word & 0xFFFFFFFF)};
}

void read_facts(AtenTensorHandle handle, const OpSpec& op, std::size_t arg, TensorFacts& facts) {
  facts.handle = handle;
  int64_t* sizes = nullptr;
  int64_t* strides = nullptr;
  // Getters of a strided tensor cannot fail, but those of another layout have no data pointer.
  AOTITorchError bad = aoti_torch_get_dtype(handle, &facts.dtype);
  bad |= aoti_torch_get_device_type(handle, &facts.device_type);
  facts.device_index = -1;  // a CPU has none that matters
  if (facts.device_type != torch_codes().cpu)
    bad |= aoti_torch_get_device_index(handle, &facts.device_index);
  bad |= aoti_torch_get_dim(handle, &facts.rank);
  bad |= aoti_torch_get_sizes(handle, &sizes);
  bad |= aoti_torch_get_strides(handle, &strides);
  bad |= aoti_torch_get_data_ptr(handle, &facts.data);
  if (__builtin_expect(bad != 0, 0)) fail_unreadable(handle, op, arg);
  facts.sizes = sizes;
  facts.strides = strides;
  if (__builtin_expect(facts.data == nullptr, 0)) refuse_freed(facts, op, arg);
}

}  // namespace tileops
