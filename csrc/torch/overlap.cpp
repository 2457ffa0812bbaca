// The check whether two tensors share memory if one of them is written.
//
// Generated code may move a load before a store to another tensor, and blocks run in any order: a
// program sees its tensors as separate memory, so tensors that are not are refused.
#include <algorithm>

#include "torch/bind.h"

namespace tileops {
namespace {

// Part of an address: stride * k, with k between low and high.
struct Term {
  int64_t stride, low, high;
};

constexpr std::size_t kMaxTerms = 2 * 32;
constexpr int kMaxSteps = 4096;

// Whether the terms can add up to a distance. Strides fall, so each term leaves few choices; a
// search that takes too long counts as found, which refuses the call.
class Search {
 public:
  void add(int64_t stride, int64_t low, int64_t high) {
    if (low == high) return;
    for (std::size_t i = 0; i < count_; ++i) {
      if (terms_[i].stride != stride) continue;
      terms_[i].low += low;
      terms_[i].high += high;
      return;
    }
    terms_[count_++] = {stride, low, high};
  }
  bool reaches(int64_t distance) {
    std::sort(terms_, terms_ + count_,
              [](const Term& a, const Term& b) { return a.stride > b.stride; });
    low_[count_] = high_[count_] = 0;
    for (std::size_t i = count_; i-- > 0;) {
      low_[i] = low_[i + 1] + terms_[i].stride * terms_[i].low;
      high_[i] = high_[i + 1] + terms_[i].stride * terms_[i].high;
    }
    return go(0, distance);
  }

 private:
  bool go(std::size_t i, int64_t rest) {
    if (rest < low_[i] || rest > high_[i]) return false;
    if (i == count_) return true;  // low_ and high_ are 0 there
    if (++steps_ > kMaxSteps) return true;
    const Term& term = terms_[i];
    const int64_t first = std::max(term.low, ceil_div(rest - high_[i + 1], term.stride));
    const int64_t last = std::min(term.high, floor_div(rest - low_[i + 1], term.stride));
    for (int64_t k = first; k <= last; ++k) {
      if (go(i + 1, rest - k * term.stride)) return true;
    }
    return false;
  }
  static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }
  static int64_t ceil_div(int64_t a, int64_t b) { return -floor_div(-a, b); }

  std::size_t count_ = 0;
  int steps_ = 0;
  Term terms_[kMaxTerms + 1];
  int64_t low_[kMaxTerms + 2], high_[kMaxTerms + 2];
};

int64_t element_bytes(int32_t dtype) {
  return static_cast<int64_t>(aoti_torch_dtype_element_size(dtype));
}

struct Extent {
  bool empty = false;
  int64_t bytes = 0;  // from the first byte to the last one reached
};

Extent extent_of(const TensorFacts& facts, int64_t element) {
  Extent extent;
  extent.bytes = element;
  for (int64_t i = 0; i < facts.rank; ++i) {
    if (facts.sizes[i] == 0) extent.empty = true;
    extent.bytes += (facts.sizes[i] - 1) * facts.strides[i] * element;
  }
  return extent;
}

bool is_dense(const TensorFacts& facts) {
  int64_t expected = 1;
  for (int64_t i = facts.rank - 1; i >= 0; --i) {
    if (facts.sizes[i] != 1 && facts.strides[i] != expected) return false;
    expected *= facts.sizes[i];
  }
  return true;
}

__attribute__((noinline)) bool shares_memory(const TensorFacts& a, int64_t a_element,
                                             const TensorFacts& b, int64_t b_element) {
  if (is_dense(a) && is_dense(b)) return true;  // their ranges meet
  if (a.rank + b.rank + 1 > static_cast<int64_t>(kMaxTerms)) return true;
  Search search;
  for (int64_t i = 0; i < a.rank; ++i) search.add(a.strides[i] * a_element, 0, a.sizes[i] - 1);
  for (int64_t i = 0; i < b.rank; ++i) search.add(b.strides[i] * b_element, 1 - b.sizes[i], 0);
  search.add(1, 1 - b_element, a_element - 1);
  return search.reaches(reinterpret_cast<intptr_t>(b.data) - reinterpret_cast<intptr_t>(a.data));
}

}  // namespace

void check_overlaps(const Binding& call) {
  const auto& args = call.op->spec.args;
  for (std::size_t w = 0; w < args.size(); ++w) {
    const TensorFacts& written = call.tensors[w];
    if (!args[w].mutated || written.handle == nullptr) continue;
    for (int64_t i = 0; i < written.rank; ++i) {
      if (written.strides[i] == 0 && written.sizes[i] > 1) fail_self_overlap(call, w);
    }
    const int64_t element = element_bytes(written.dtype);
    const Extent extent = extent_of(written, element);
    if (extent.empty) continue;
    const char* begin = static_cast<const char*>(written.data);
    for (std::size_t o = 0; o < args.size(); ++o) {
      const TensorFacts& other = call.tensors[o];
      if (o == w || (o < w && args[o].mutated) || other.handle == nullptr) continue;
      const int64_t other_element = element_bytes(other.dtype);
      const Extent reach = extent_of(other, other_element);
      const char* other_begin = static_cast<const char*>(other.data);
      if (reach.empty || begin + extent.bytes <= other_begin ||
          other_begin + reach.bytes <= begin) {
        continue;
      }
      if (shares_memory(written, element, other, other_element)) fail_overlap(call, w, o);
    }
  }
}

}  // namespace tileops
