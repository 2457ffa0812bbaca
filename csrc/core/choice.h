// The facts of run-time integers that choose among the entries of one key: code for foreign kernels
// depends on them.
#pragma once

#include <cstdint>
#include <vector>

#include "core/host_program.h"
#include "core/json.h"

namespace tileops {

// The bits of an integer's fact; tileops/ir/extern.py has the same.
inline constexpr uint64_t kIsOne = 1, kIsDivisible = 2, kIsWide = 4;

// An integer that is 1 has the first bit alone.
inline uint64_t fact_of(int64_t value, uint64_t mask) {
  if (value == 1) return kIsOne & mask;
  const uint64_t divisible = (value & 15) == 0 ? kIsDivisible : 0;
  const uint64_t wide = value < INT32_MIN || value > INT32_MAX ? kIsWide : 0;
  return (divisible | wide) & mask;
}

struct ChoiceKey {
  uint16_t slot;
  uint64_t mask;  // of the facts that count
  bool exact;     // the value itself counts
};

// From sizes and scalars to key words, and the words of one entry.
struct ChoiceSpec {
  HostProgram host;
  std::vector<ChoiceKey> keys;
  std::vector<uint64_t> words;

  static ChoiceSpec from_json(const json::Value& value);
  bool same_keys(const ChoiceSpec& other) const;
  // The words for a call whose host program gave `slots`; under `general` nothing is assumed that
  // code can do without.
  void put_words(const int64_t* slots, bool general, uint64_t* out) const {
    for (const ChoiceKey& key : keys) {
      const int64_t value = slots[key.slot];
      *out++ = key.exact ? static_cast<uint64_t>(value)
                         : fact_of(value, general ? key.mask & kIsWide : key.mask);
    }
  }
};

}  // namespace tileops
