// The reader of op.json and variant descriptions.
#include "core/spec.h"

#include <algorithm>
#include <limits>

#include "core/error.h"

namespace tileops {

double read_float(const json::Value& value, const char* where);

namespace {

struct KindName {
  const char* text;
  ArgKind kind;
};
constexpr KindName kKinds[] = {
    {"tensor", ArgKind::kTensor}, {"int", ArgKind::kInt},    {"float", ArgKind::kFloat},
    {"bool", ArgKind::kBool},     {"str", ArgKind::kString}, {"int[]", ArgKind::kIntList},
    {"device", ArgKind::kDevice},
};

ArgKind read_kind(std::string text, bool& optional) {
  optional = !text.empty() && text.back() == '?';
  if (optional) text.pop_back();
  for (const KindName& row : kKinds) {
    if (text == row.text) return row.kind;
  }
  raise(ErrorKind::kInternal, "unknown kind of argument '", text, "'");
}

ArgRole read_role(const std::string& text) {
  if (text == "tensor") return ArgRole::kTensor;
  if (text == "scalar") return ArgRole::kScalar;
  if (text == "static") return ArgRole::kStatic;
  if (text == "device") return ArgRole::kDevice;
  raise(ErrorKind::kInternal, "unknown role of argument '", text, "'");
}

StaticValue read_static(const json::Value& value, const ArgSpec& arg) {
  if (value.is_null()) return std::monostate{};
  switch (arg.kind) {
    case ArgKind::kInt:
      return value.as_int("static");
    case ArgKind::kFloat:
      return read_float(value, "static");
    case ArgKind::kTensor:  // given or not
    case ArgKind::kBool:
      return value.as_bool("static");
    case ArgKind::kString:
      return value.as_string("static");
    default:
      break;
  }
  std::vector<int64_t> list;
  for (const json::Value& item : value.as_array("static")) list.push_back(item.as_int("static"));
  return list;
}

ArgSpec read_arg(const json::Value& value) {
  // The schema, which torch reads, says what is required.
  value.check_members({"name", "kind", "role", "mutated", "is_required", "standard"}, "args");
  ArgSpec arg;
  arg.name = value.at("name").as_string("args.name");
  arg.kind = read_kind(value.at("kind").as_string("args.kind"), arg.optional);
  arg.role = read_role(value.at("role").as_string("args.role"));
  const json::Value* mutated = value.find("mutated");
  arg.mutated = mutated != nullptr && mutated->as_bool("args.mutated");
  const bool is_tensor = arg.kind == ArgKind::kTensor;
  const bool is_number =
      arg.kind == ArgKind::kInt || arg.kind == ArgKind::kFloat || arg.kind == ArgKind::kBool;
  const bool fits = arg.role == ArgRole::kTensor   ? is_tensor
                    : arg.role == ArgRole::kDevice ? arg.kind == ArgKind::kDevice
                    : arg.role == ArgRole::kScalar ? is_number
                                                   : !is_tensor && arg.kind != ArgKind::kDevice;
  if (!fits) raise(ErrorKind::kInternal, "argument '", arg.name, "': kind and role do not fit");
  if (arg.mutated && !is_tensor) raise(ErrorKind::kInternal, "'", arg.name, "' cannot be mutated");
  const json::Value* standard = value.find("standard");
  if (standard != nullptr && !standard->is_null()) {
    if (arg.role != ArgRole::kStatic || !arg.optional)
      raise(ErrorKind::kInternal, "'", arg.name, "' cannot have a standard value");
    arg.standard = read_static(*standard, arg);
  }
  return arg;
}

DimRule read_dim(const json::Value& value, const HostProgram& host, std::size_t sizes) {
  const int64_t last = static_cast<int64_t>(sizes) - 1;
  value.check_members({"bind", "solve", "eq"}, "a rule");
  if (const json::Value* bind = value.find("bind")) {
    return {DimRule::kBind, static_cast<uint16_t>(bind->as_int_in(0, last, "bind"))};
  }
  if (const json::Value* solve = value.find("solve")) {
    const auto& parts = solve->as_array("solve");
    if (parts.size() != 3) raise(ErrorKind::kInternal, "solve takes [size, mul, add]");
    DimRule rule{DimRule::kSolve, static_cast<uint16_t>(parts[0].as_int_in(0, last, "solve"))};
    rule.scale = parts[1].as_int_in(1, INT32_MAX, "solve");
    rule.shift = parts[2].as_int_in(-INT32_MAX, INT32_MAX, "solve");
    return rule;
  }
  return {DimRule::kEqual, host.checked_slot(value.at("eq"), "eq")};
}

TensorRule read_tensor(const json::Value& value, const OpSpec& op, const VariantSpec& variant) {
  value.check_members({"arg", "name", "dtypes", "shape", "strides", "pack", "raw", "leading"},
                      "tensors");
  TensorRule rule;
  rule.arg = static_cast<uint16_t>(
      value.at("arg").as_int_in(0, static_cast<int64_t>(op.args.size()) - 1, "tensors.arg"));
  if (op.args[rule.arg].kind != ArgKind::kTensor)
    raise(ErrorKind::kInternal, "tensors.arg is not a tensor");
  rule.name = value.at("name").as_string("tensors.name");
  for (const json::Value& dtype : value.at("dtypes").as_array("tensors.dtypes")) {
    rule.dtypes.push_back(dtype.as_string("tensors.dtypes"));
  }
  for (const json::Value& dim : value.at("shape").as_array("tensors.shape")) {
    rule.shape.push_back(read_dim(dim, variant.host, variant.sizes.size()));
  }
  if (const json::Value* pack = value.find("pack")) rule.pack = pack->as_int_in(1, 8, "pack");
  if (const json::Value* raw = value.find("raw")) rule.raw = raw->as_bool("raw");
  if (const json::Value* leading = value.find("leading"))
    rule.leading = leading->as_bool("leading");
  if (rule.leading && rule.shape.empty())
    raise(ErrorKind::kInternal, "leading dimensions need a rule");
  const json::Value* strides = value.find("strides");
  if (strides != nullptr && !strides->is_null()) {
    rule.contiguous = false;
    for (const json::Value& dim : strides->as_array("tensors.strides")) {
      rule.strides.push_back(read_dim(dim, variant.host, variant.sizes.size()));
    }
    if (rule.strides.size() != rule.shape.size())
      raise(ErrorKind::kInternal, "strides and shape differ in rank");
  }
  return rule;
}

void check_host_inputs(const HostProgram& host, const VariantSpec& variant) {
  for (const HostInput& input : host.inputs()) {
    const bool bad =
        (input.kind == HostInput::kSize && input.index >= variant.sizes.size()) ||
        (input.kind == HostInput::kScalar && (input.index >= variant.scalars.size() ||
                                              is_float_type(variant.scalars[input.index].type)));
    if (bad)
      raise(ErrorKind::kInternal, "a host program input does not exist or is not an integer");
  }
}

// "alloc:N", the number of an allocated output.
uint16_t read_return(const std::string& text) {
  constexpr char kPrefix[] = "alloc:";
  constexpr std::size_t kStart = sizeof(kPrefix) - 1, kMostDigits = 4;
  const std::string digits = text.size() < kStart ? "" : text.substr(kStart);
  if (text.rfind(kPrefix, 0) != 0 || digits.empty() || digits.size() > kMostDigits ||
      digits.find_first_not_of("0123456789") != std::string::npos)
    raise(ErrorKind::kInternal, "unknown return '", text, "'");
  return static_cast<uint16_t>(std::stoul(digits));
}

OutputRule read_output(const json::Value& value, const HostProgram& host) {
  value.check_members({"dtype", "shape", "pack", "leading"}, "outputs");
  OutputRule rule;
  rule.dtype = value.at("dtype").as_string("outputs.dtype");
  for (const json::Value& slot : value.at("shape").as_array("outputs.shape")) {
    rule.shape.push_back(host.checked_slot(slot, "outputs.shape"));
  }
  if (const json::Value* pack = value.find("pack")) rule.pack = pack->as_int_in(1, 8, "pack");
  if (const json::Value* leading = value.find("leading"))
    rule.leading = leading->as_bool("leading");
  if (rule.leading && rule.shape.empty())
    raise(ErrorKind::kInternal, "leading dimensions need a slot");
  return rule;
}

DTypeRule read_dtype_rule(const json::Value& value, const OpSpec& op) {
  value.check_members({"name", "args", "stored"}, "dtype_rules");
  DTypeRule rule;
  rule.name = value.at("name").as_string("dtype_rules.name");
  for (const json::Value& item : value.at("args").as_array("dtype_rules.args")) {
    const auto arg = static_cast<uint16_t>(
        item.as_int_in(0, static_cast<int64_t>(op.args.size()) - 1, "dtype_rules.args"));
    if (op.args[arg].kind != ArgKind::kTensor)
      raise(ErrorKind::kInternal, "dtype_rules.args is not a tensor");
    rule.args.push_back(arg);
  }
  for (const json::Value& item : value.at("stored").as_array("dtype_rules.stored")) {
    const auto& pair = item.as_array("dtype_rules.stored");
    if (pair.size() != 2) raise(ErrorKind::kInternal, "dtype_rules.stored holds pairs");
    rule.stored.emplace_back(pair[0].as_string("dtype_rules.stored"),
                             pair[1].as_string("dtype_rules.stored"));
  }
  if (rule.stored.empty() || rule.args.empty())
    raise(ErrorKind::kInternal, "a dtype rule needs dtypes and tensors");
  return rule;
}

// Pairs of a size's number and its bounds.
void read_buckets(const json::Value& value, VariantSpec& variant) {
  const json::Value* buckets = value.find("buckets");
  if (buckets == nullptr) return;
  for (const json::Value& item : buckets->as_array("buckets")) {
    const auto& pair = item.as_array("buckets");
    if (pair.size() != 2) raise(ErrorKind::kInternal, "a bucket is a pair");
    BucketRule rule;
    rule.size = static_cast<uint16_t>(
        pair[0].as_int_in(0, static_cast<int64_t>(variant.sizes.size()) - 1, "buckets"));
    for (const json::Value& bound : pair[1].as_array("buckets"))
      rule.bounds.push_back(bound.as_int("buckets"));
    if (!std::is_sorted(rule.bounds.begin(), rule.bounds.end()))
      raise(ErrorKind::kInternal, "bounds of buckets ascend");
    variant.buckets.push_back(std::move(rule));
  }
}

}  // namespace

// Shared with the entry reader.
// JSON has no infinities and no NaN: those come as strings.
double read_float(const json::Value& value, const char* where) {
  if (value.type != json::Type::kString) return value.as_double(where);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (value.text == "inf") return kInfinity;
  if (value.text == "-inf") return -kInfinity;
  if (value.text == "nan") return std::numeric_limits<double>::quiet_NaN();
  raise(ErrorKind::kInternal, "'", value.text, "' is not a float");
}

void read_outputs(const json::Value& value, const HostProgram& host, std::vector<OutputRule>& out) {
  const json::Value* outputs = value.find("outputs");
  if (outputs == nullptr) return;
  for (const json::Value& output : outputs->as_array("outputs"))
    out.push_back(read_output(output, host));
}

void check_inputs(const HostProgram& host, const VariantSpec& variant) {
  check_host_inputs(host, variant);
}

OpSpec OpSpec::from_json(const json::Value& value) {
  if (value.at("format").as_int("format") != 1) raise(ErrorKind::kInternal, "format is not 1");
  value.check_members(
      {"format", "namespace", "name", "schema", "args", "returns", "contiguous", "dtype_rules"},
      "op");
  OpSpec op;
  op.ns = value.at("namespace").as_string("namespace");
  op.name = value.at("name").as_string("name");
  op.schema = value.at("schema").as_string("schema");
  for (const json::Value& item : value.at("args").as_array("args")) {
    ArgSpec arg = read_arg(item);
    op.has_tensor |= arg.kind == ArgKind::kTensor;
    op.has_mutated |= arg.mutated;
    op.has_keys |= arg.role == ArgRole::kStatic || (arg.role == ArgRole::kTensor && arg.optional);
    op.args.push_back(std::move(arg));
  }
  for (ArgRole role : {ArgRole::kStatic, ArgRole::kTensor}) {
    for (std::size_t i = 0; i < op.args.size(); ++i) {
      if (op.args[i].role == role && (role == ArgRole::kStatic || op.args[i].optional))
        op.key_args.push_back(static_cast<uint16_t>(i));
    }
  }
  if (const json::Value* rules = value.find("dtype_rules")) {
    for (const json::Value& item : rules->as_array("dtype_rules"))
      op.dtype_rules.push_back(read_dtype_rule(item, op));
    op.has_keys |= !op.dtype_rules.empty();
  }
  if (const json::Value* contiguous = value.find("contiguous"))
    op.copies = contiguous->as_string("contiguous") == "copy";
  for (const json::Value& item : value.at("returns").as_array("returns")) {
    const uint16_t number = read_return(item.as_string("returns"));
    // A result is handed over: there is no second one to hand over.
    if (std::find(op.returns.begin(), op.returns.end(), number) != op.returns.end())
      raise(ErrorKind::kInternal, "output ", number, " is returned twice");
    op.returns.push_back(number);
  }
  return op;
}

VariantSpec VariantSpec::from_json(const json::Value& value, const OpSpec& op) {
  value.check_members(
      {"static", "tensors", "sizes", "scalars", "host", "align_sizes", "outputs", "buckets"},
      "variant");
  VariantSpec variant;
  const auto& statics = value.at("static").as_array("static");
  if (statics.size() != op.key_args.size() + op.dtype_rules.size())
    raise(ErrorKind::kInternal, "wrong number of static values");
  for (std::size_t i = 0; i < op.key_args.size(); ++i)
    variant.statics.push_back(read_static(statics[i], op.args[op.key_args[i]]));
  for (std::size_t i = op.key_args.size(); i < statics.size(); ++i) {
    if (statics[i].is_null())
      variant.statics.push_back(std::monostate{});
    else
      variant.statics.push_back(statics[i].as_string("static"));
  }
  for (const json::Value& item : value.at("sizes").as_array("sizes")) {
    item.check_members({"name", "kind", "bits"}, "sizes");
    const bool is_const = item.at("kind").as_string("sizes.kind") == "const";
    if (is_const) variant.const_sizes.push_back(static_cast<uint16_t>(variant.sizes.size()));
    const json::Value* bits = item.find("bits");
    variant.sizes.push_back(
        {item.at("name").as_string("sizes.name"), is_const,
         bits == nullptr ? 32 : static_cast<int>(bits->as_int_in(32, 64, "sizes.bits"))});
  }
  read_buckets(value, variant);
  for (const json::Value& item : value.at("scalars").as_array("scalars")) {
    item.check_members({"arg", "name", "dtype"}, "scalars");
    ScalarRule rule;
    rule.arg = static_cast<uint16_t>(
        item.at("arg").as_int_in(0, static_cast<int64_t>(op.args.size()) - 1, "scalars.arg"));
    if (op.args[rule.arg].role != ArgRole::kScalar)
      raise(ErrorKind::kInternal, "scalars.arg is not a scalar");
    rule.name = item.at("name").as_string("scalars.name");
    rule.dtype = item.at("dtype").as_string("scalars.dtype");
    rule.type = scalar_type_of_dtype(rule.dtype, "scalars.dtype");
    variant.scalars.push_back(std::move(rule));
  }
  if (variant.scalars.size() > op.args.size())
    raise(ErrorKind::kInternal, "more scalars than arguments");
  variant.host = HostProgram::from_json(value.find("host"));
  check_host_inputs(variant.host, variant);
  for (const json::Value& item : value.at("tensors").as_array("tensors")) {
    variant.tensors.push_back(read_tensor(item, op, variant));
    const TensorRule& made = variant.tensors.back();
    if (made.leading) variant.leading_dims += made.shape.size();
  }
  if (const json::Value* aligned = value.find("align_sizes")) {
    for (const json::Value& item : aligned->as_array("align_sizes")) {
      variant.align_sizes.push_back(static_cast<uint16_t>(
          item.as_int_in(0, static_cast<int64_t>(variant.sizes.size()) - 1, "align_sizes")));
    }
  }
  read_outputs(value, variant.host, variant.outputs);
  return variant;
}

std::vector<std::string> VariantSpec::size_names() const {
  std::vector<std::string> names;
  for (const SizeSpec& size : sizes) names.push_back(size.name);
  return names;
}

std::vector<std::string> VariantSpec::scalar_names() const {
  std::vector<std::string> names;
  for (const ScalarRule& scalar : scalars) names.push_back(scalar.name);
  return names;
}

}  // namespace tileops
