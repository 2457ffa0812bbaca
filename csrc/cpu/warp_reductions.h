// Reductions over the lanes of a warp, of whatever thread has `shfl_xor`.
#ifndef TILEOPS_CPU_WARP_REDUCTIONS_H_
#define TILEOPS_CPU_WARP_REDUCTIONS_H_

#include "arith.h"

namespace tileops {

// Pairs of lanes, then pairs of those: sums have the same order on every machine.
template <class S, class Me, class Join>
TILEOPS_INLINE ValueOf<S> joined(Me& me, ValueOf<S> value, Join join) {
  for (i32 bit = 16; bit > 0; bit /= 2) {
    value = round_to<S>(join(value, me.shfl_xor(value, bit, 32, ~u32{0})));
  }
  return value;
}
template <class S, class Me>
TILEOPS_INLINE ValueOf<S> warp_reduce_sum(Me& me, ValueOf<S> value) {
  typedef ValueOf<S> T;
  return joined<S>(me, value, [](T a, T b) -> T {
    if constexpr (T(1) / T(2) == T(0)) {  // an integer
      return wrapping_add(a, b);
    } else {
      return a + b;
    }
  });
}
template <class S, class Me>
TILEOPS_INLINE ValueOf<S> warp_reduce_max(Me& me, ValueOf<S> value) {
  return joined<S>(me, value, greatest<ValueOf<S>>);
}
template <class S, class Me>
TILEOPS_INLINE ValueOf<S> warp_reduce_min(Me& me, ValueOf<S> value) {
  return joined<S>(me, value, least<ValueOf<S>>);
}
template <class S, class Me>
TILEOPS_INLINE ValueOf<S> warp_reduce_bitand(Me& me, ValueOf<S> value) {
  return joined<S>(me, value, [](ValueOf<S> a, ValueOf<S> b) { return a & b; });
}
template <class S, class Me>
TILEOPS_INLINE ValueOf<S> warp_reduce_bitor(Me& me, ValueOf<S> value) {
  return joined<S>(me, value, [](ValueOf<S> a, ValueOf<S> b) { return a | b; });
}

}  // namespace tileops

#endif  // TILEOPS_CPU_WARP_REDUCTIONS_H_
