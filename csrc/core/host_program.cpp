// The reader and evaluator of host programs; every step is checked for overflow.
#include "core/host_program.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "core/error.h"

namespace tileops {
namespace {

struct OpInfo {
  const char* name;
  int operands;
  const char* symbol;  // infix spelling in messages; null: written as a call
};

// In the order of HostOp.
constexpr OpInfo kOps[] = {
    {"const", 0, nullptr},   {"add", 2, "+"},          {"sub", 2, "-"},
    {"mul", 2, "*"},         {"floordiv", 2, "//"},    {"floormod", 2, "%"},
    {"ceildiv", 2, nullptr}, {"truncdiv", 2, nullptr}, {"truncmod", 2, nullptr},
    {"min", 2, nullptr},     {"max", 2, nullptr},      {"and", 2, "&"},
    {"or", 2, "|"},          {"xor", 2, "^"},          {"shl", 2, "<<"},
    {"shr", 2, ">>"},        {"eq", 2, "=="},          {"ne", 2, "!="},
    {"lt", 2, "<"},          {"le", 2, "<="},          {"gt", 2, ">"},
    {"ge", 2, ">="},         {"land", 2, nullptr},     {"lor", 2, nullptr},
    {"neg", 1, nullptr},     {"not", 1, nullptr},      {"select", 3, nullptr},
};
constexpr int kOpCount = sizeof(kOps) / sizeof(kOps[0]);

constexpr const char* kFactNames[kHostFacts] = {"sm_count", "max_shared_per_block", "l2_bytes",
                                                "max_threads_per_sm", "warp_size"};

HostInput read_input(const std::string& text) {
  const std::size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  const std::string rest = colon == std::string::npos ? "" : text.substr(colon + 1);
  if (kind == "host") {
    for (int i = 0; i < kHostFacts; ++i) {
      if (rest == kFactNames[i]) return {HostInput::kHost, static_cast<uint16_t>(i)};
    }
  } else if (kind == "size" || kind == "scalar") {
    char* stop = nullptr;
    const long number = std::strtol(rest.c_str(), &stop, 10);
    if (!rest.empty() && *stop == '\0' && number >= 0 && number < 1024) {
      return {kind == "size" ? HostInput::kSize : HostInput::kScalar,
              static_cast<uint16_t>(number)};
    }
  }
  raise(ErrorKind::kInternal, "unknown host program input '", text, "'");
}

HostOp read_op(const std::string& name) {
  for (int i = 0; i < kOpCount; ++i) {
    if (name == kOps[i].name) return static_cast<HostOp>(i);
  }
  raise(ErrorKind::kInternal, "unknown host program operation '", name, "'");
}

[[noreturn]] __attribute__((cold, noinline)) void overflow(const char* op) {
  raise(ErrorKind::kArgument, op, ": the sizes of this call overflow 64-bit arithmetic");
}

[[noreturn]] __attribute__((cold, noinline)) void divide_by_zero(const char* op) {
  raise(ErrorKind::kArgument, op, ": a size expression of this call divides by zero");
}

int64_t divide(HostOp kind, int64_t a, int64_t b, const char* op) {
  if (b == 0) divide_by_zero(op);
  if (a == INT64_MIN && b == -1) {
    if (kind == HostOp::kFloorMod || kind == HostOp::kTruncMod) return 0;
    overflow(op);
  }
  const int64_t quotient = a / b, remainder = a % b;
  const bool adjust = remainder != 0 && ((remainder < 0) != (b < 0));
  switch (kind) {
    case HostOp::kCeilDiv:
      return remainder != 0 && !adjust ? quotient + 1 : quotient;
    case HostOp::kFloorDiv:
      return adjust ? quotient - 1 : quotient;
    case HostOp::kFloorMod:
      return adjust ? remainder + b : remainder;
    case HostOp::kTruncDiv:
      return quotient;
    default:
      return remainder;
  }
}

int64_t shift(HostOp kind, int64_t a, int64_t b, const char* op) {
  if (b < 0 || b > 63) overflow(op);
  if (kind == HostOp::kShr) return a >> b;
  const int64_t result = static_cast<int64_t>(static_cast<uint64_t>(a) << b);
  if ((result >> b) != a) overflow(op);
  return result;
}

int64_t arithmetic(HostOp kind, int64_t a, int64_t b, const char* op) {
  int64_t result = 0;
  bool bad = false;
  if (kind == HostOp::kAdd)
    bad = __builtin_add_overflow(a, b, &result);
  else if (kind == HostOp::kSub)
    bad = __builtin_sub_overflow(a, b, &result);
  else
    bad = __builtin_mul_overflow(a, b, &result);
  if (bad) overflow(op);
  return result;
}

int64_t compare_or_bits(HostOp kind, int64_t a, int64_t b) {
  switch (kind) {
    case HostOp::kMin:
      return std::min(a, b);
    case HostOp::kMax:
      return std::max(a, b);
    case HostOp::kAnd:
      return a & b;
    case HostOp::kOr:
      return a | b;
    case HostOp::kXor:
      return a ^ b;
    case HostOp::kEq:
      return a == b;
    case HostOp::kNe:
      return a != b;
    case HostOp::kLt:
      return a < b;
    case HostOp::kLe:
      return a <= b;
    case HostOp::kGt:
      return a > b;
    case HostOp::kGe:
      return a >= b;
    case HostOp::kLand:
      return a != 0 && b != 0;
    default:
      return a != 0 || b != 0;
  }
}

}  // namespace

const char* host_fact_name(HostFact fact) {
  return kFactNames[static_cast<int>(fact)];
}

HostProgram HostProgram::from_json(const json::Value* value) {
  HostProgram program;
  if (value == nullptr || value->is_null()) return program;
  const auto& inputs = value->at("inputs").as_array("host.inputs");
  if (inputs.size() > kMaxSlots) raise(ErrorKind::kInternal, "host program too long");
  for (const json::Value& input : inputs) {
    program.inputs_.push_back(read_input(input.as_string("host.inputs")));
  }
  for (const json::Value& line : value->at("code").as_array("host.code")) {
    const auto& parts = line.as_array("host.code");
    if (parts.empty()) raise(ErrorKind::kInternal, "empty host instruction");
    HostInstruction instruction;
    instruction.op = read_op(parts[0].as_string("host.code"));
    const int operands = kOps[static_cast<int>(instruction.op)].operands;
    const std::size_t expected =
        instruction.op == HostOp::kConst ? 2 : static_cast<std::size_t>(operands) + 1;
    if (parts.size() != expected) raise(ErrorKind::kInternal, "wrong length of a host instruction");
    if (program.slot_count() >= kMaxSlots) raise(ErrorKind::kInternal, "host program too long");
    if (instruction.op == HostOp::kConst) instruction.literal = parts[1].as_int("host.code");
    uint16_t* slots[] = {&instruction.a, &instruction.b, &instruction.c};
    for (int i = 0; i < operands; ++i)
      *slots[i] = program.checked_slot(parts[static_cast<std::size_t>(i) + 1], "host.code");
    program.code_.push_back(instruction);
  }
  return program;
}

bool HostProgram::is_same(const HostProgram& other) const {
  const auto same_input = [](const HostInput& a, const HostInput& b) {
    return a.kind == b.kind && a.index == b.index;
  };
  const auto same_step = [](const HostInstruction& a, const HostInstruction& b) {
    return a.op == b.op && a.a == b.a && a.b == b.b && a.c == b.c && a.literal == b.literal;
  };
  return std::equal(inputs_.begin(), inputs_.end(), other.inputs_.begin(), other.inputs_.end(),
                    same_input) &&
         std::equal(code_.begin(), code_.end(), other.code_.begin(), other.code_.end(), same_step);
}

uint16_t HostProgram::checked_slot(const json::Value& value, const char* where) const {
  return static_cast<uint16_t>(value.as_int_in(0, static_cast<int64_t>(slot_count()) - 1, where));
}

void HostProgram::evaluate(int64_t* slots, const char* op) const {
  int64_t* out = slots + inputs_.size();
  for (const HostInstruction& line : code_) {
    const int64_t a = slots[line.a], b = slots[line.b];
    switch (line.op) {
      case HostOp::kConst:
        *out = line.literal;
        break;
      case HostOp::kAdd:
      case HostOp::kSub:
      case HostOp::kMul:
        *out = arithmetic(line.op, a, b, op);
        break;
      case HostOp::kFloorDiv:
      case HostOp::kFloorMod:
      case HostOp::kCeilDiv:
      case HostOp::kTruncDiv:
      case HostOp::kTruncMod:
        *out = divide(line.op, a, b, op);
        break;
      case HostOp::kShl:
      case HostOp::kShr:
        *out = shift(line.op, a, b, op);
        break;
      case HostOp::kNeg:
        *out = arithmetic(HostOp::kSub, 0, a, op);
        break;
      case HostOp::kNot:
        *out = a == 0;
        break;
      case HostOp::kSelect:
        *out = a != 0 ? b : slots[line.c];
        break;
      default:
        *out = compare_or_bits(line.op, a, b);
    }
    ++out;
  }
}

std::string HostProgram::describe(std::size_t slot, const std::vector<std::string>& sizes,
                                  const std::vector<std::string>& scalars, int depth) const {
  // Shared subexpressions are written out at each use: the depth bounds what would grow
  // exponentially.
  if (depth > 6) return "...";
  if (slot < inputs_.size()) {
    const HostInput& input = inputs_[slot];
    if (input.kind == HostInput::kHost) return kFactNames[input.index];
    const auto& names = input.kind == HostInput::kSize ? sizes : scalars;
    return input.index < names.size() ? names[input.index] : "?";
  }
  const HostInstruction& line = code_[slot - inputs_.size()];
  const OpInfo& info = kOps[static_cast<int>(line.op)];
  if (line.op == HostOp::kConst) return std::to_string(line.literal);
  auto operand = [&](uint16_t number) {
    std::string text = describe(number, sizes, scalars, depth + 1);
    const bool infix = number >= inputs_.size() &&
                       kOps[static_cast<int>(code_[number - inputs_.size()].op)].symbol != nullptr;
    if (infix && info.symbol != nullptr) text = "(" + text + ")";
    return text;
  };
  if (info.symbol != nullptr) return operand(line.a) + " " + info.symbol + " " + operand(line.b);
  std::string text = std::string(info.name) + "(" + operand(line.a);
  if (info.operands > 1) text += ", " + operand(line.b);
  if (info.operands > 2) text += ", " + operand(line.c);
  return text + ")";
}

}  // namespace tileops
