// Atomic updates of elements by any number of threads: each returns the value before it.
#ifndef TILEOPS_CPU_ATOMIC_H_
#define TILEOPS_CPU_ATOMIC_H_

#include "arith.h"
#include "atomic_forms.h"

namespace tileops {

// Compare-and-swap on the bits until no other thread came between. Sequentially consistent: the
// strongest order serves every order that a program may ask for.
template <class S, class Change>
TILEOPS_INLINE ValueOf<S> atomic_update(S* place, Change change) {
  typedef typename Word<sizeof(S)>::type W;
  W* word = reinterpret_cast<W*>(place);
  W seen = __atomic_load_n(word, __ATOMIC_RELAXED);
  for (;;) {
    const ValueOf<S> before = widen(bit_cast<S>(seen));
    const W after = bit_cast<W>(encode<S>(change(before)));
    if (__atomic_compare_exchange_n(word, &seen, after, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
      return before;
  }
}

template <class S>
TILEOPS_INLINE ValueOf<S> atomic_add(S* place, ValueOf<S> x) {
  return atomic_update(place, [x](ValueOf<S> y) { return round_to<S>(y + x); });
}
template <class S>
TILEOPS_INLINE ValueOf<S> atomic_max(S* place, ValueOf<S> x) {
  return atomic_update(place, [x](ValueOf<S> y) { return greatest<ValueOf<S>>(y, x); });
}
template <class S>
TILEOPS_INLINE ValueOf<S> atomic_min(S* place, ValueOf<S> x) {
  return atomic_update(place, [x](ValueOf<S> y) { return least<ValueOf<S>>(y, x); });
}
template <class S>
TILEOPS_INLINE ValueOf<S> atomic_load(S* place) {
  typedef typename Word<sizeof(S)>::type W;
  return widen(bit_cast<S>(__atomic_load_n(reinterpret_cast<W*>(place), __ATOMIC_SEQ_CST)));
}

// The same on a tile, which one thread owns.
template <class S, class Change>
TILEOPS_INLINE ValueOf<S> plain_update(S* place, Change change) {
  const ValueOf<S> before = widen(*place);
  *place = encode<S>(change(before));
  return before;
}
#define TILEOPS_PLAIN(NAME, EXPRESSION)                                                 \
  template <class S>                                                                    \
  TILEOPS_INLINE ValueOf<S> plain_##NAME(S* place, ValueOf<S> x) {                      \
    return plain_update(place, [x](ValueOf<S> y) -> ValueOf<S> { return EXPRESSION; }); \
  }
TILEOPS_PLAIN(add, round_to<S>(y + x))
TILEOPS_PLAIN(max, greatest<ValueOf<S>>(y, x))
TILEOPS_PLAIN(min, least<ValueOf<S>>(y, x))
TILEOPS_PLAIN(or, static_cast<ValueOf<S>>(y | x))
TILEOPS_PLAIN(and, static_cast<ValueOf<S>>(y& x))
TILEOPS_PLAIN(xor, static_cast<ValueOf<S>>(y ^ x))
TILEOPS_PLAIN(exchange, (static_cast<void>(y), x))
TILEOPS_PLAIN(store, (static_cast<void>(y), x))
#undef TILEOPS_PLAIN
template <class S>
TILEOPS_INLINE ValueOf<S> plain_load(S* place) {
  return widen(*place);
}

// Integers have the instruction.
#define TILEOPS_ATOMIC_ADD(T)                              \
  TILEOPS_INLINE T atomic_add(T* place, T x) {             \
    return __atomic_fetch_add(place, x, __ATOMIC_SEQ_CST); \
  }
TILEOPS_ATOMIC_ADD(i32)
TILEOPS_ATOMIC_ADD(i64)
TILEOPS_ATOMIC_ADD(u32)
TILEOPS_ATOMIC_ADD(u64)
#undef TILEOPS_ATOMIC_ADD

}  // namespace tileops

#endif  // TILEOPS_CPU_ATOMIC_H_
