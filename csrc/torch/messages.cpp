// The texts of call errors: each names op, argument, what was expected and what was given.
#include "core/error.h"
#include "torch/bind.h"

namespace tileops {
namespace {

std::string join(const std::vector<std::string>& parts, const char* separator) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) text += (i == 0 ? "" : separator) + parts[i];
  return text;
}

std::string tuple_text(const int64_t* values, int64_t count) {
  std::vector<std::string> parts;
  for (int64_t i = 0; i < count; ++i) parts.push_back(std::to_string(values[i]));
  return "(" + join(parts, ", ") + (count == 1 ? ",)" : ")");
}

std::string dim_text(const Binding& call, const DimRule& rule) {
  const VariantSpec& spec = call.variant->spec;
  if (rule.kind == DimRule::kEqual)
    return spec.host.describe(rule.index, spec.size_names(), spec.scalar_names());
  std::string text = spec.sizes[rule.index].name;
  if (rule.kind == DimRule::kBind) return text;
  if (rule.scale != 1) text += " * " + std::to_string(rule.scale);
  if (rule.shift > 0) text += " + " + std::to_string(rule.shift);
  if (rule.shift < 0) text += " - " + std::to_string(-rule.shift);
  return text;
}

std::string shape_text(const Binding& call, const TensorRule& rule) {
  std::vector<std::string> parts;
  for (const DimRule& dim : rule.shape) parts.push_back(dim_text(call, dim));
  if (rule.leading) parts[0] = "...";
  return "(" + join(parts, ", ") + (parts.size() == 1 ? ",)" : ")");
}

// What to add to a message about a tensor whose extents count fewer, wider elements than the rule.
std::string packed_text(const TensorRule& rule) {
  return rule.pack == 1 ? "" : " (" + std::to_string(rule.pack) + " elements in each of the last)";
}

std::string head(const Binding& call, const std::string& argument) {
  return call.op->spec.title() + ": argument '" + argument + "': ";
}

// A tensor as its caller has it: facts may show its leading dimensions as one.
struct Original {
  int64_t rank = 0;
  int64_t* sizes = nullptr;
  int64_t* strides = nullptr;

  explicit Original(const TensorFacts& facts) {
    check_torch(aoti_torch_get_dim(facts.handle, &rank), "aoti_torch_get_dim");
    check_torch(aoti_torch_get_sizes(facts.handle, &sizes), "aoti_torch_get_sizes");
    check_torch(aoti_torch_get_strides(facts.handle, &strides), "aoti_torch_get_strides");
  }
};

std::string shape_of(const TensorFacts& facts) {
  const Original tensor(facts);
  return tuple_text(tensor.sizes, tensor.rank);
}

std::string strides_of(const TensorFacts& facts) {
  const Original tensor(facts);
  return tuple_text(tensor.strides, tensor.rank);
}

// What a message calls a dimension of the rule, or its stride: by its place in the tensor.
std::string place_of(const Binding& call, const TensorRule& rule, std::size_t dim, bool is_stride) {
  const std::string kind = is_stride ? "stride" : "dimension";
  if (!rule.leading) return kind + " " + std::to_string(dim);
  if (dim == 0)
    return "the " + std::string(is_stride ? "stride" : "product") + " of the leading dimensions";
  const auto rank = static_cast<std::size_t>(Original(call.tensors[rule.arg]).rank);
  return kind + " " + std::to_string(dim + rank - rule.shape.size());
}

// Where a size got its value: the first tensor dimension or stride that binds it.
std::string source_of(const Binding& call, uint16_t size) {
  for (const TensorRule& rule : call.variant->spec.tensors) {
    for (std::size_t i = 0; i < rule.shape.size(); ++i) {
      if (rule.shape[i].kind != DimRule::kEqual && rule.shape[i].index == size) {
        if (!rule.leading) return rule.name + ".shape[" + std::to_string(i) + "]";
        if (i == 0) return "the leading dimensions of " + rule.name;
        return rule.name + ".shape[-" + std::to_string(rule.shape.size() - i) + "]";
      }
    }
    for (std::size_t i = 0; i < rule.strides.size(); ++i) {
      if (rule.strides[i].kind == DimRule::kBind && rule.strides[i].index == size) {
        return rule.name + ".stride(" + std::to_string(i) + ")";
      }
    }
  }
  return "another argument";
}

bool is_negated(AtenTensorHandle tensor) {
  AtenTensorHandle handed_over = nullptr;  // the dispatcher frees it
  check_torch(aoti_torch_new_tensor_handle(tensor, &handed_over), "aoti_torch_new_tensor_handle");
  StableIValue stack[] = {reinterpret_cast<uintptr_t>(handed_over)};
  check_torch(torch_call_dispatcher("aten::is_neg", "", stack, kTorchInterface), "aten::is_neg");
  return (stack[0] & 0xFF) != 0;
}

}  // namespace

void fail_device(const Binding& call, std::size_t first, std::size_t other) {
  const TensorFacts& a = call.tensors[first];
  const TensorFacts& b = call.tensors[other];
  const TorchCodes& codes = torch_codes();
  const auto& args = call.op->spec.args;
  for (std::size_t i : {first, other}) {
    const TensorFacts& facts = call.tensors[i];
    if (facts.device_type == codes.cpu || facts.device_type == codes.cuda) continue;
    raise(ErrorKind::kArgument, head(call, args[i].name),
          "expected a CPU or CUDA tensor, got one on ",
          device_name(facts.device_type, facts.device_index));
  }
  raise(ErrorKind::kArgument, call.op->spec.title(), ": expected all tensors on one device, got '",
        args[first].name, "' on ", device_name(a.device_type, a.device_index), " and '",
        args[other].name, "' on ", device_name(b.device_type, b.device_index));
}

void fail_dtype(const Binding& call, const TensorRule& rule) {
  raise(ErrorKind::kArgumentType, head(call, rule.name), "expected dtype ",
        join(rule.dtypes, " or "), ", got ", dtype_name(call.tensors[rule.arg].dtype));
}

void fail_rank(const Binding& call, const TensorRule& rule) {
  const TensorFacts& facts = call.tensors[rule.arg];
  const std::size_t least = rule.shape.size() - (rule.leading ? 1 : 0);
  raise(ErrorKind::kArgument, head(call, rule.name), "expected ", least,
        least == 1 ? " dimension " : " dimensions ", rule.leading ? "or more " : "",
        shape_text(call, rule), ", got ", facts.rank, " with shape ", shape_of(facts),
        packed_text(rule));
}

void fail_bound(const Binding& call, const TensorRule& rule, std::size_t dim, bool is_stride) {
  const TensorFacts& facts = call.tensors[rule.arg];
  const DimRule& dim_rule = is_stride ? rule.strides[dim] : rule.shape[dim];
  const SizeSpec& size = call.variant->spec.sizes[dim_rule.index];
  const int64_t bound = call.sizes[dim_rule.index];
  const int64_t expected =
      dim_rule.kind == DimRule::kSolve ? bound * dim_rule.scale + dim_rule.shift : bound;
  const std::string got = is_stride ? "strides " + strides_of(facts) : "shape " + shape_of(facts);
  raise(ErrorKind::kArgument, head(call, rule.name), "expected ",
        place_of(call, rule, dim, is_stride), " to be ", expected, " (", dim_text(call, dim_rule),
        ", where ", size.name, " is ", bound, " by ", source_of(call, dim_rule.index), "), got ",
        is_stride ? stride_of(rule, facts, dim) : extent_of(rule, facts, dim), " in ", got,
        packed_text(rule));
}

void fail_solve(const Binding& call, const TensorRule& rule, std::size_t dim) {
  raise(ErrorKind::kArgument, head(call, rule.name), "expected ", place_of(call, rule, dim, false),
        " to be ", dim_text(call, rule.shape[dim]), " for a whole ",
        call.variant->spec.sizes[rule.shape[dim].index].name, ", got ",
        extent_of(rule, call.tensors[rule.arg], dim), " in shape ",
        shape_of(call.tensors[rule.arg]), packed_text(rule));
}

void fail_equal(const Binding& call, const TensorRule& rule, std::size_t dim, int64_t expected) {
  const std::string text = dim_text(call, rule.shape[dim]);
  const std::string value = std::to_string(expected);
  raise(ErrorKind::kArgument, head(call, rule.name), "expected ", place_of(call, rule, dim, false),
        " to be ", value, text == value ? "" : " (" + text + ")", ", got ",
        extent_of(rule, call.tensors[rule.arg], dim), " in shape ",
        shape_of(call.tensors[rule.arg]), packed_text(rule));
}

void fail_leading(const Binding& call, const TensorRule& rule) {
  const TensorFacts& facts = call.tensors[rule.arg];
  const auto count = facts.rank + 1 - static_cast<int64_t>(rule.shape.size());
  raise(ErrorKind::kArgument, head(call, rule.name), "expected the leading dimensions ",
        tuple_text(call.leading, static_cast<int64_t>(call.leading_rank)), " of '",
        call.op->spec.args[call.leading_arg].name, "', whose shape is ",
        shape_of(call.tensors[call.leading_arg]), ", got ", tuple_text(facts.sizes, count),
        " in shape ", shape_of(facts));
}

void fail_leading_layout(const Binding& call, const TensorRule& rule) {
  const TensorFacts& facts = call.tensors[rule.arg];
  raise(ErrorKind::kArgument, head(call, rule.name),
        "expected leading dimensions that can be viewed as one dimension with one stride, got "
        "strides ",
        strides_of(facts), " for shape ", shape_of(facts), "; pass ", rule.name,
        ".contiguous(), or declare @tileops.jit(contiguous=\"copy\")");
}

void fail_dtype_rule(const Op& op, const Binding& call, const DTypeRule& rule, std::size_t arg) {
  std::vector<std::string> allowed;
  for (const auto& stored : rule.stored) allowed.push_back(stored.first);
  const std::string last = allowed.back();
  allowed.pop_back();
  raise(ErrorKind::kArgumentType, op.spec.title(), ": argument '", op.spec.args[arg].name,
        "': expected dtype ", join(allowed, ", "), allowed.empty() ? "" : " or ", last, " (",
        rule.name, "), got ", dtype_name(call.tensors[arg].dtype));
}

void fail_dtype_agreement(const Op& op, const Binding& call, const DTypeRule& rule,
                          std::size_t first, std::size_t other) {
  raise(ErrorKind::kArgumentType, op.spec.title(), ": argument '", op.spec.args[other].name,
        "': expected dtype ", dtype_name(call.tensors[first].dtype), ", which '",
        op.spec.args[first].name, "' has (", rule.name, "), got ",
        dtype_name(call.tensors[other].dtype));
}

void fail_contiguous(const Binding& call, const TensorRule& rule) {
  const TensorFacts& facts = call.tensors[rule.arg];
  std::vector<int64_t> expected(static_cast<std::size_t>(facts.rank), 1);
  for (std::size_t i = expected.size(); i-- > 1;) expected[i - 1] = expected[i] * facts.sizes[i];
  raise(ErrorKind::kArgument, head(call, rule.name), "expected a contiguous tensor with strides ",
        tuple_text(expected.data(), facts.rank), ", got strides ",
        tuple_text(facts.strides, facts.rank), " for shape ", shape_of(facts), "; pass ", rule.name,
        ".contiguous()");
}

void fail_stride(const Binding& call, const TensorRule& rule, std::size_t dim, int64_t expected) {
  const TensorFacts& facts = call.tensors[rule.arg];
  const std::string text = dim_text(call, rule.strides[dim]);
  const std::string value = std::to_string(expected);
  raise(ErrorKind::kArgument, head(call, rule.name), "expected ", place_of(call, rule, dim, true),
        " to be ", value, text == value ? "" : " (" + text + ")", ", got ",
        stride_of(rule, facts, dim), " in strides ", strides_of(facts), packed_text(rule),
        "; pass ", rule.name, ".contiguous() or a tensor of that layout");
}

void fail_overlap(const Binding& call, std::size_t written, std::size_t other) {
  const auto& args = call.op->spec.args;
  raise(ErrorKind::kArgument, head(call, args[written].name),
        "expected memory of its own, since the op writes it, got memory that it shares with '",
        args[other].name, "'; pass a clone() of one of the two");
}

void fail_self_overlap(const Binding& call, std::size_t written) {
  const TensorFacts& facts = call.tensors[written];
  raise(ErrorKind::kArgument, head(call, call.op->spec.args[written].name),
        "expected a tensor whose elements lie apart, since the op writes it, got strides ",
        tuple_text(facts.strides, facts.rank), " for shape ", shape_of(facts),
        " (expanded); pass a clone()");
}

std::string describe_call(const Binding& call) {
  const OpSpec& spec = call.op->spec;
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < spec.args.size(); ++i) {
    const TensorFacts& facts = call.tensors[i];
    if (facts.handle == nullptr) continue;
    parts.push_back(spec.args[i].name + " " + dtype_name(facts.dtype) + " " + shape_of(facts) +
                    " with strides " + strides_of(facts));
  }
  const VariantSpec& variant = call.variant->spec;
  for (std::size_t i = 0; i < variant.scalars.size(); ++i) {
    const ScalarRule& rule = variant.scalars[i];
    parts.push_back(rule.name + " = " +
                    (is_float_type(rule.type) ? std::to_string(call.scalars[i].f)
                                              : std::to_string(call.scalars[i].i)));
  }
  std::size_t given = 0;
  for (const ArgSpec& arg : spec.args) {
    if (arg.role != ArgRole::kStatic) continue;
    const StaticValue& value = variant.statics[given++];
    if (!std::holds_alternative<std::monostate>(value))
      parts.push_back(arg.name + " = " + describe(value));
  }
  const std::string origin = call.op->origin();
  return spec.ns + "::" + spec.name + "(" + join(parts, ", ") + ")" +
         (origin.empty() ? "" : ", program " + origin);
}

void fail_negated(const Inputs& inputs, const OpSpec& op) {
  std::string name;
  for (std::size_t i = 0; i < op.args.size() && name.empty(); ++i) {
    if (op.args[i].kind != ArgKind::kTensor || inputs.tensor(i) == nullptr) continue;
    if (is_negated(inputs.tensor(i))) name = op.args[i].name;
  }
  raise(ErrorKind::kArgument, op.title(), ": argument '", name,
        "': expected a tensor with its values in memory, got a lazily negated view; pass its "
        "resolve_neg()");
}

void fail_scalar_range(const Binding& call, const ScalarRule& rule, int64_t value) {
  if (call.op->spec.args[rule.arg].kind == ArgKind::kFloat) {
    raise(ErrorKind::kArgumentType, head(call, rule.name), "expected ", rule.dtype,
          ", got a float");
  }
  raise(ErrorKind::kArgument, head(call, rule.name), "expected a value of ", rule.dtype, ", got ",
        value);
}

}  // namespace tileops
