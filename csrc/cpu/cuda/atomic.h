// Atomic updates of elements in global and shared memory: each returns the value before it.
#ifndef TILEOPS_CUDA_ATOMIC_H_
#define TILEOPS_CUDA_ATOMIC_H_

#include "arith.h"
#include "atomic_forms.h"

namespace tileops {

// Compare-and-swap on the bits until no other thread came between. There is none of single bytes:
// theirs is on the aligned word around them, whose other bytes stay.
template <class S, class Change>
TILEOPS_INLINE ValueOf<S> atomic_update(S* place, Change change) {
  if constexpr (sizeof(S) == 1) {
    const u64 address = reinterpret_cast<u64>(place);
    u32* word = reinterpret_cast<u32*>(address & ~u64{3});
    const u32 shift = static_cast<u32>(address & 3) * 8;
    u32 seen = *static_cast<volatile u32*>(word);
    for (;;) {
      const ValueOf<S> before = widen(bit_cast<S>(static_cast<u8>(seen >> shift)));
      const u32 byte = bit_cast<u8>(encode<S>(change(before)));
      const u32 found = atomicCAS(word, seen, (seen & ~(0xffu << shift)) | (byte << shift));
      if (found == seen) return before;
      seen = found;
    }
  } else {
    typedef typename Word<sizeof(S)>::type W;
    W* word = reinterpret_cast<W*>(place);
    W seen = *static_cast<volatile W*>(word);
    for (;;) {
      const ValueOf<S> before = widen(bit_cast<S>(seen));
      const W found = atomicCAS(word, seen, bit_cast<W>(encode<S>(change(before))));
      if (found == seen) return before;
      seen = found;
    }
  }
}

template <class S>
TILEOPS_INLINE ValueOf<S> atomic_add(S* place, ValueOf<S> x) {
  if constexpr (IsSame<S, i32>::value || IsSame<S, u32>::value || IsSame<S, u64>::value ||
                IsSame<S, f32>::value || IsSame<S, f64>::value) {
    return atomicAdd(place, x);
  } else if constexpr (IsSame<S, i64>::value) {
    return static_cast<i64>(atomicAdd(reinterpret_cast<u64*>(place), static_cast<u64>(x)));
  } else {
    return atomic_update(place, [x](ValueOf<S> y) { return round_to<S>(y + x); });
  }
}
// True for the integers whose extremes, and bits, have an instruction.
template <class S>
struct HasInstruction {
  static constexpr bool value = IsSame<S, i32>::value || IsSame<S, u32>::value ||
                                IsSame<S, i64>::value || IsSame<S, u64>::value;
};
#define TILEOPS_ATOMIC(NAME, INSTRUCTION, EXPRESSION)                                      \
  template <class S>                                                                       \
  TILEOPS_INLINE ValueOf<S> atomic_##NAME(S* place, ValueOf<S> x) {                        \
    if constexpr (HasInstruction<S>::value) {                                              \
      return INSTRUCTION(place, x);                                                        \
    } else {                                                                               \
      return atomic_update(place, [x](ValueOf<S> y) -> ValueOf<S> { return EXPRESSION; }); \
    }                                                                                      \
  }
TILEOPS_ATOMIC(max, atomicMax, greatest<ValueOf<S>>(y, x))
TILEOPS_ATOMIC(min, atomicMin, least<ValueOf<S>>(y, x))
#undef TILEOPS_ATOMIC
template <class S>
TILEOPS_INLINE ValueOf<S> atomic_load(S* place) {
  if constexpr (sizeof(S) == 1) {
    return widen(bit_cast<S>(*reinterpret_cast<volatile u8*>(place)));
  } else {
    typedef typename Word<sizeof(S)>::type W;
    return widen(bit_cast<S>(*reinterpret_cast<volatile W*>(place)));
  }
}

// The same on what one thread has for itself.
template <class S, class Change>
TILEOPS_INLINE ValueOf<S> plain_update(S* place, Change change) {
  const ValueOf<S> before = widen(*place);
  *place = encode<S>(change(before));
  return before;
}

}  // namespace tileops

#endif  // TILEOPS_CUDA_ATOMIC_H_
