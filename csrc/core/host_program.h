// Host programs: the integer expressions over sizes, scalars and device facts that a call
// evaluates.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/json.h"

namespace tileops {

enum class HostOp : uint8_t {
  kConst,
  kAdd,
  kSub,
  kMul,
  kFloorDiv,
  kFloorMod,
  kCeilDiv,
  kTruncDiv,
  kTruncMod,
  kMin,
  kMax,
  kAnd,
  kOr,
  kXor,
  kShl,
  kShr,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kLand,
  kLor,
  kNeg,
  kNot,
  kSelect,
};

struct HostInstruction {
  HostOp op;
  uint16_t a = 0, b = 0, c = 0;
  int64_t literal = 0;
};

// Where a leading slot comes from.
struct HostInput {
  enum Kind : uint8_t { kSize, kScalar, kHost } kind;
  uint16_t index;  // of the size or scalar; for kHost the number of the fact (HostFact)
};

// Facts of a device at call time.
enum class HostFact : uint16_t {
  kSmCount,
  kMaxSharedPerBlock,
  kL2Bytes,
  kMaxThreadsPerSm,
  kWarpSize
};
inline constexpr int kHostFacts = 5;
TILEOPS_API const char* host_fact_name(HostFact fact);

class HostProgram {
 public:
  static constexpr std::size_t kMaxSlots = 4096;

  // Reads {"inputs": [...], "code": [[op, a, b, c], ...]}; null is the empty program. Raises
  // InternalError for unknown operations and for slots that are not defined before their use.
  static HostProgram from_json(const json::Value* value);

  const std::vector<HostInput>& inputs() const { return inputs_; }
  std::size_t slot_count() const { return inputs_.size() + code_.size(); }
  bool has_code() const { return !code_.empty(); }
  bool is_same(const HostProgram& other) const;

  // Fills slots[inputs().size() ..] from the inputs, which the caller has written to the front.
  // Raises ArgumentError for overflow of 64 bits and for division by zero, naming `op`.
  void evaluate(int64_t* slots, const char* op) const;

  // The expression of a slot for error messages; sizes and scalars by the given names.
  std::string describe(std::size_t slot, const std::vector<std::string>& sizes,
                       const std::vector<std::string>& scalars, int depth = 0) const;

  // Raises InternalError unless `slot` exists.
  uint16_t checked_slot(const json::Value& value, const char* where) const;

 private:
  std::vector<HostInput> inputs_;
  std::vector<HostInstruction> code_;
};

}  // namespace tileops
