// Philox4x32 with 10 rounds (Salmon et al., SC11), in the order in which cuRAND's
// curandStatePhilox4_32_10_t gives its numbers.
#ifndef TILEOPS_CPU_PHILOX_H_
#define TILEOPS_CPU_PHILOX_H_

#include "types.h"

namespace tileops {

class Philox {
 public:
  // The generator of a seed, at number `offset` of a sequence; sequences have 2^66 numbers each.
  TILEOPS_INLINE_MEMBER void start(u64 seed, u64 sequence, u64 offset) {
    key_[0] = static_cast<u32>(seed), key_[1] = static_cast<u32>(seed >> 32);
    low_ = offset >> 2, high_ = sequence;
    used_ = static_cast<u32>(offset & 3);
    mix();
  }
  TILEOPS_INLINE_MEMBER u32 next() {
    const u32 number = used_ == 0   ? numbers_[0]
                       : used_ == 1 ? numbers_[1]
                       : used_ == 2 ? numbers_[2]
                                    : numbers_[3];
    used_ += 1;
    if (used_ == 4) {
      used_ = 0;
      low_ += 1;
      high_ += low_ == 0 ? 1 : 0;
      mix();
    }
    return number;
  }
  // Greater than 0 and at most 1.
  TILEOPS_INLINE_MEMBER f32 next_float() { return static_cast<f32>(next()) * 0x1p-32f + 0x1p-33f; }

 private:
  TILEOPS_INLINE_MEMBER void mix() {
    u32 a = static_cast<u32>(low_), b = static_cast<u32>(low_ >> 32);
    u32 c = static_cast<u32>(high_), d = static_cast<u32>(high_ >> 32);
    u32 first = key_[0], second = key_[1];
    for (int round = 0; round < 10; ++round) {
      const u64 left = u64{0xd2511f53u} * a, right = u64{0xcd9e8d57u} * c;
      a = static_cast<u32>(right >> 32) ^ b ^ first;
      b = static_cast<u32>(right);
      c = static_cast<u32>(left >> 32) ^ d ^ second;
      d = static_cast<u32>(left);
      first += 0x9e3779b9u, second += 0xbb67ae85u;
    }
    numbers_[0] = a, numbers_[1] = b, numbers_[2] = c, numbers_[3] = d;
  }

  u32 key_[2] = {};
  u64 low_ = 0, high_ = 0;
  u32 used_ = 0;
  u32 numbers_[4] = {};
};

}  // namespace tileops

#endif  // TILEOPS_CPU_PHILOX_H_
