// The dtypes that a call's tensors give to an op's dtype rules.
#include "torch/bind.h"

namespace tileops {
namespace {

// The tile dtype that a tensor of torch's dtype `code` has under a rule; null if it may not have
// it.
const std::string* tile_dtype(const DTypeRule& rule, const std::vector<int32_t>& codes,
                              int32_t code) {
  for (std::size_t i = 0; i < codes.size(); ++i) {
    if (codes[i] == code) return &rule.stored[i].second;
  }
  return nullptr;
}

}  // namespace

std::vector<std::vector<int32_t>> codes_of(const std::vector<DTypeRule>& rules) {
  std::vector<std::vector<int32_t>> codes;
  for (const DTypeRule& rule : rules) {
    codes.emplace_back();
    for (const auto& stored : rule.stored) codes.back().push_back(dtype_code_or(stored.first, -1));
  }
  return codes;
}

StaticValue bound_dtype(const Op& op, const Binding& call, std::size_t number) {
  const DTypeRule& rule = op.spec.dtype_rules[number];
  const std::string* found = nullptr;
  std::size_t first = 0;
  for (uint16_t arg : rule.args) {
    const TensorFacts& facts = call.tensors[arg];
    if (facts.handle == nullptr) continue;
    const std::string* dtype = tile_dtype(rule, op.rule_codes[number], facts.dtype);
    if (found == nullptr) {
      if (dtype == nullptr) fail_dtype_rule(op, call, rule, arg);
      found = dtype;
      first = arg;
    } else if (dtype == nullptr || *dtype != *found) {
      fail_dtype_agreement(op, call, rule, first, arg);
    }
  }
  return found == nullptr ? StaticValue() : StaticValue(*found);
}

}  // namespace tileops
