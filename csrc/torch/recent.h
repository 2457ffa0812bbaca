// Each thread's memory of recent calls: arguments that are equal but for their addresses need
// neither checks nor look-up nor arithmetic again.
#pragma once

#include "torch/bind.h"

namespace tileops {

// What decides the outcome of a call's checks and of its look-up, as words. Addresses enter by
// their alignment, floats not at all: they only become parameters.
class CallWords {
 public:
  static constexpr std::size_t kMost = 64;

  // Gathers the words of a call whose tensors were read; false where a call must be checked each
  // time.
  bool gather(const Op& op, const Inputs& inputs, const Binding& call);
  const uint64_t* data() const { return words_; }
  std::size_t count() const { return count_; }
  uint64_t hash() const { return hash_ ^ hash_ >> 32; }

 private:
  bool put_tensor(const TensorFacts& facts);
  bool put_static(const Inputs& inputs, std::size_t arg, ArgKind kind);
  void put(uint64_t word) {
    words_[count_++] = word;
    hash_ = (hash_ ^ word) * 0xD6E8FEB86659FD93ull;
  }

  std::size_t count_ = 0;
  uint64_t hash_ = 0;
  uint64_t words_[kMost];  // the first count_ are valid
};

// A call that found its kernel, and what was computed for it.
struct RecentCall {
  static constexpr std::size_t kMostSlots = 48, kMostSizes = 24, kMostDims = 32;

  bool in_use = false;  // by a call further up this thread's stack
  std::size_t count = 0;
  uint64_t words[CallWords::kMost];
  const Variant* variant = nullptr;
  const Entry* entry = nullptr;
  std::size_t leading_rank = 0;
  int64_t slots[kMostSlots];
  int64_t sizes[kMostSizes];
  int64_t shapes[kMostDims], strides[kMostDims];  // of the outputs, one after the other
};

// This thread's call with the same words; null if there is none.
RecentCall* find_recent(const CallWords& words);

// Remembers a call whose entry was found, if it is of a kind that can be repeated. `slots` are
// those of the entry.
void remember(const CallWords& words, const Binding& call, const Entry& entry,
              const int64_t* slots);

}  // namespace tileops
