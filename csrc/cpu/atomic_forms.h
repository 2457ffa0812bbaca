// Atomic updates that are made of another, which each kind of machine has its own of.
#ifndef TILEOPS_CPU_ATOMIC_FORMS_H_
#define TILEOPS_CPU_ATOMIC_FORMS_H_

#include "arith.h"

namespace tileops {

// Puts change(value) in place of the value, and returns the value before it.
template <class S, class Change>
TILEOPS_INLINE ValueOf<S> atomic_update(S* place, Change change);

template <class S>
TILEOPS_INLINE ValueOf<S> atomic_or(S* place, ValueOf<S> x) {
  return atomic_update(place, [x](ValueOf<S> y) { return static_cast<ValueOf<S>>(y | x); });
}
template <class S>
TILEOPS_INLINE ValueOf<S> atomic_and(S* place, ValueOf<S> x) {
  return atomic_update(place, [x](ValueOf<S> y) { return static_cast<ValueOf<S>>(y & x); });
}
template <class S>
TILEOPS_INLINE ValueOf<S> atomic_xor(S* place, ValueOf<S> x) {
  return atomic_update(place, [x](ValueOf<S> y) { return static_cast<ValueOf<S>>(y ^ x); });
}
template <class S>
TILEOPS_INLINE ValueOf<S> atomic_exchange(S* place, ValueOf<S> x) {
  return atomic_update(place, [x](ValueOf<S>) { return x; });
}
template <class S>
TILEOPS_INLINE ValueOf<S> atomic_store(S* place, ValueOf<S> x) {
  return atomic_exchange(place, x);
}

}  // namespace tileops

#endif  // TILEOPS_CPU_ATOMIC_FORMS_H_
