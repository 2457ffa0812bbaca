// Reads descriptions of ops and variants as the runtime does, and writes what it holds of them.
//
// Usage: reread < lines. Each line is {"op": ..., "variant": ...}; each line of the output is the
// same, from the fields of OpSpec and VariantSpec. What stands in a line and not in the answer, a
// call would not know.
#include <cstdio>
#include <iostream>
#include <string>

#include "core/error.h"
#include "core/json.h"
#include "core/spec.h"

using namespace tileops;

namespace {

std::string quoted(const std::string& text) {
  std::string out;
  json::append_quoted(out, text);
  return out;
}

std::string flag(bool value) {
  return value ? "true" : "false";
}

template <class Items, class Text>
std::string list(const Items& items, const Text& text) {
  std::string out = "[";
  for (const auto& item : items) out += (out.size() == 1 ? "" : ", ") + text(item);
  return out + "]";
}

template <class Number>
std::string numbers(const std::vector<Number>& items) {
  return list(items, [](Number number) { return std::to_string(number); });
}

std::string kind_of(const ArgSpec& arg) {
  const char* const kinds[] = {"tensor", "int", "float", "bool", "str", "int[]", "device"};
  return quoted(kinds[static_cast<int>(arg.kind)] + std::string(arg.optional ? "?" : ""));
}

std::string text_of(const StaticValue& value);

std::string text_of(const ArgSpec& arg) {
  const char* const roles[] = {"tensor", "scalar", "static", "device"};
  return "{\"name\": " + quoted(arg.name) + ", \"kind\": " + kind_of(arg) +
         ", \"role\": " + quoted(roles[static_cast<int>(arg.role)]) +
         ", \"mutated\": " + flag(arg.mutated) + ", \"standard\": " + text_of(arg.standard) + "}";
}

std::string text_of(const DTypeRule& rule) {
  return "{\"name\": " + quoted(rule.name) + ", \"args\": " + numbers(rule.args) +
         ", \"stored\": " +
         list(rule.stored,
              [](const auto& pair) {
                return "[" + quoted(pair.first) + ", " + quoted(pair.second) + "]";
              }) +
         "}";
}

std::string text_of(const OpSpec& op) {
  return "{\"format\": 1, \"schema\": " + quoted(op.schema) + ", \"namespace\": " + quoted(op.ns) +
         ", \"name\": " + quoted(op.name) +
         ", \"args\": " + list(op.args, [](const ArgSpec& arg) { return text_of(arg); }) +
         ", \"dtype_rules\": " +
         list(op.dtype_rules, [](const DTypeRule& rule) { return text_of(rule); }) +
         ", \"contiguous\": " + quoted(op.copies ? "copy" : "require") + ", \"returns\": " +
         list(op.returns, [](uint16_t n) { return quoted("alloc:" + std::to_string(n)); }) + "}";
}

std::string text_of(const DimRule& rule) {
  const std::string index = std::to_string(rule.index);
  if (rule.kind == DimRule::kBind) return "{\"bind\": " + index + "}";
  if (rule.kind == DimRule::kEqual) return "{\"eq\": " + index + "}";
  return "{\"solve\": [" + index + ", " + std::to_string(rule.scale) + ", " +
         std::to_string(rule.shift) + "]}";
}

std::string dims(const std::vector<DimRule>& rules) {
  return list(rules, [](const DimRule& rule) { return text_of(rule); });
}

std::string text_of(const TensorRule& rule) {
  return "{\"arg\": " + std::to_string(rule.arg) + ", \"name\": " + quoted(rule.name) +
         ", \"dtypes\": " + list(rule.dtypes, quoted) + ", \"shape\": " + dims(rule.shape) +
         ", \"strides\": " + (rule.contiguous ? "null" : dims(rule.strides)) +
         ", \"pack\": " + std::to_string(rule.pack) + ", \"raw\": " + flag(rule.raw) +
         ", \"leading\": " + flag(rule.leading) + "}";
}

std::string text_of(const OutputRule& rule) {
  return "{\"dtype\": " + quoted(rule.dtype) + ", \"shape\": " + numbers(rule.shape) +
         ", \"pack\": " + std::to_string(rule.pack) + ", \"leading\": " + flag(rule.leading) + "}";
}

std::string text_of(const SizeSpec& size) {
  return "{\"name\": " + quoted(size.name) +
         ", \"kind\": " + quoted(size.is_const ? "const" : "dynamic") +
         ", \"bits\": " + std::to_string(size.bits) + "}";
}

std::string text_of(const ScalarRule& rule) {
  return "{\"arg\": " + std::to_string(rule.arg) + ", \"name\": " + quoted(rule.name) +
         ", \"dtype\": " + quoted(rule.dtype) + "}";
}

std::string text_of(const StaticValue& value) {
  struct Text {
    std::string operator()(std::monostate) const { return "null"; }
    std::string operator()(int64_t number) const { return std::to_string(number); }
    std::string operator()(bool yes) const { return flag(yes); }
    std::string operator()(const std::string& text) const { return quoted(text); }
    std::string operator()(const std::vector<int64_t>& values) const { return numbers(values); }
    std::string operator()(double number) const {
      char text[40];
      std::snprintf(text, sizeof text, "%.17g", number);
      const std::string plain = text;
      const bool is_finite = plain.find_first_of("in") == std::string::npos;
      if (!is_finite) return quoted(plain == "-nan" ? "nan" : plain);
      return plain.find_first_of(".e") == std::string::npos ? plain + ".0" : plain;
    }
  };
  return std::visit(Text(), value);
}

std::string text_of(const VariantSpec& variant) {
  const auto each = [](const auto& items) {
    return list(items, [](const auto& item) { return text_of(item); });
  };
  return "{\"static\": " + each(variant.statics) + ", \"tensors\": " + each(variant.tensors) +
         ", \"sizes\": " + each(variant.sizes) + ", \"scalars\": " + each(variant.scalars) +
         ", \"align_sizes\": " + numbers(variant.align_sizes) +
         ", \"outputs\": " + each(variant.outputs) +
         ", \"host\": {\"inputs\": " + std::to_string(variant.host.inputs().size()) +
         ", \"slots\": " + std::to_string(variant.host.slot_count()) + "}}";
}

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    try {
      const json::Value value = json::parse(line);
      const OpSpec op = OpSpec::from_json(value.at("op"));
      const VariantSpec variant = VariantSpec::from_json(value.at("variant"), op);
      std::cout << "{\"op\": " << text_of(op) << ", \"variant\": " << text_of(variant) << "}\n";
    } catch (const Error& error) {
      std::cerr << error.what() << "\n";
      return 1;
    }
  }
  return 0;
}
