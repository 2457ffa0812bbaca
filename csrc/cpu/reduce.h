// Reductions and scans of tiles; they accumulate in the destination's type, rounding at each
// step.
#ifndef TILEOPS_CPU_REDUCE_H_
#define TILEOPS_CPU_REDUCE_H_

#include "arith.h"
#include "rows.h"

namespace tileops {

template <class T>
struct Bounds {  // of computing types
  static constexpr T least = Limits<T>::least;
  static constexpr T most = Limits<T>::most;
};
template <>
struct Bounds<f32> {
  static constexpr f32 least = -__builtin_inff(), most = __builtin_inff();
};
template <>
struct Bounds<f64> {
  static constexpr f64 least = -__builtin_inf(), most = __builtin_inf();
};
template <>
struct Bounds<bool> {
  static constexpr bool least = false, most = true;
};

// What any element is preferred to, and another such value stays: NaN, where the type has one.
template <class T>
struct Nothing {
  static constexpr T least = Bounds<T>::least, most = Bounds<T>::most, magnitude = T(0);
};
template <>
struct Nothing<f32> {
  static constexpr f32 nan = __builtin_nanf(""), least = nan, most = nan, magnitude = nan;
};
template <>
struct Nothing<f64> {
  static constexpr f64 nan = __builtin_nan(""), least = nan, most = nan, magnitude = nan;
};

template <class T>
TILEOPS_INLINE T magnitude(T x) {
  return absolute(x);
}
TILEOPS_INLINE f32 magnitude(f32 x) {
  return __builtin_fabsf(x);
}
TILEOPS_INLINE f64 magnitude(f64 x) {
  return __builtin_fabs(x);
}
TILEOPS_INLINE bool magnitude(bool x) {
  return x;
}

// Each kind: the neutral element, how an element enters, how two partial results meet. `D` is the
// storage type.
template <class D>
struct Sum {
  typedef ValueOf<D> T;
  static constexpr T start = T(0);
  static TILEOPS_INLINE_MEMBER T enter(T x) { return x; }
  static TILEOPS_INLINE_MEMBER T join(T a, T b) { return round_to<D>(a + b); }
};
template <class D>
struct AbsSum : Sum<D> {
  typedef ValueOf<D> T;
  static TILEOPS_INLINE_MEMBER T enter(T x) { return magnitude(x); }
};
template <class D>
struct Max {
  typedef ValueOf<D> T;
  static constexpr T start = Nothing<T>::least;
  static TILEOPS_INLINE_MEMBER T enter(T x) { return x; }
  static TILEOPS_INLINE_MEMBER T join(T a, T b) { return greatest<T>(a, b); }
};
template <class D>
struct Min {
  typedef ValueOf<D> T;
  static constexpr T start = Nothing<T>::most;
  static TILEOPS_INLINE_MEMBER T enter(T x) { return x; }
  static TILEOPS_INLINE_MEMBER T join(T a, T b) { return least<T>(a, b); }
};
template <class D>
struct AbsMax {
  typedef ValueOf<D> T;
  static constexpr T start = Nothing<T>::magnitude;
  static TILEOPS_INLINE_MEMBER T enter(T x) { return magnitude(x); }
  // The first operand may be an old value of the destination, of either sign.
  static TILEOPS_INLINE_MEMBER T join(T a, T b) { return greatest<T>(magnitude(a), b); }
};
// Variants in which a NaN wins.
template <class D>
struct MaxNan : Max<D> {
  typedef ValueOf<D> T;
  static constexpr T start = Bounds<T>::least;
  static TILEOPS_INLINE_MEMBER T join(T a, T b) { return ((a > b) | (a != a)) ? a : b; }
};
template <class D>
struct MinNan : Min<D> {
  typedef ValueOf<D> T;
  static constexpr T start = Bounds<T>::most;
  static TILEOPS_INLINE_MEMBER T join(T a, T b) { return ((a < b) | (a != a)) ? a : b; }
};
template <class D>
struct AbsMaxNan : AbsMax<D> {
  typedef ValueOf<D> T;
  static constexpr T start = T(0);
  static TILEOPS_INLINE_MEMBER T join(T a, T b) {
    const T old = magnitude(a);
    return ((old > b) | (old != old)) ? old : b;
  }
};
template <class D>
struct BitAnd {
  typedef ValueOf<D> T;
  static constexpr T start = static_cast<T>(~T(0));
  static TILEOPS_INLINE_MEMBER T enter(T x) { return x; }
  static TILEOPS_INLINE_MEMBER T join(T a, T b) { return static_cast<T>(a & b); }
};
template <>
struct BitAnd<b8> {
  static constexpr bool start = true;
  static TILEOPS_INLINE_MEMBER bool enter(bool x) { return x; }
  static TILEOPS_INLINE_MEMBER bool join(bool a, bool b) { return a & b; }
};
template <class D>
struct BitOr {
  typedef ValueOf<D> T;
  static constexpr T start = T(0);
  static TILEOPS_INLINE_MEMBER T enter(T x) { return x; }
  static TILEOPS_INLINE_MEMBER T join(T a, T b) { return static_cast<T>(a | b); }
};
template <class D>
struct BitXor {
  typedef ValueOf<D> T;
  static constexpr T start = T(0);
  static TILEOPS_INLINE_MEMBER T enter(T x) { return x; }
  static TILEOPS_INLINE_MEMBER T join(T a, T b) { return static_cast<T>(a ^ b); }
};

// An element of the source as the destination's type sees it.
template <class D, class S>
TILEOPS_INLINE ValueOf<D> entering(S x) {
  return widen(convert_element<D>(x));
}

// One row, `step` elements apart, in `kLanes` partial results so that no addition waits for the one
// before.
template <template <class> class Kind, class D, class S>
static ValueOf<D> reduce_row(const S* src, i64 step, i64 n) {
  typedef Kind<D> K;
  typedef ValueOf<D> T;
  constexpr int kLanes = 4 * TILEOPS_VECTOR_BYTES / static_cast<int>(sizeof(T));
  T part[kLanes];
  for (int l = 0; l < kLanes; ++l) part[l] = K::start;
  i64 i = 0;
  if (step == 1) {
    for (; i + kLanes <= n; i += kLanes) {
      for (int l = 0; l < kLanes; ++l)
        part[l] = K::join(part[l], K::enter(entering<D>(src[i + l])));
    }
  }
  for (; i < n; ++i)
    part[i % kLanes] = K::join(part[i % kLanes], K::enter(entering<D>(src[i * step])));
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int l = 0; l < width; ++l) part[l] = K::join(part[l], part[l + width]);
  }
  return part[0];
}

// `n` results side by side, each over `length` elements `src_step` apart: out[j] = reduce(src[k *
// src_step + j]).
template <template <class> class Kind, class D, class S>
static void reduce_columns(D* __restrict out, const S* __restrict src, i64 src_step, i64 length,
                           i64 n) {
  typedef Kind<D> K;
  for (i64 k = 0; k < length; ++k) {
    const S* __restrict row = src + k * src_step;
    for (i64 j = 0; j < n; ++j) {
      out[j] = encode<D>(K::join(widen(out[j]), K::enter(entering<D>(row[j]))));
    }
  }
}

// The place of the largest (else smallest) element of a row: a number before NaN, the first of
// equals.
template <bool kLargest, class S>
static i32 place_in_row(const S* src, i64 step, i64 n) {
  auto best = widen(src[0]);
  i64 place = 0;
  for (i64 i = 1; i < n; ++i) {
    const auto x = widen(src[i * step]);
    if ((kLargest ? x > best : x < best) | ((best != best) & (x == x))) {
      best = x;
      place = i;
    }
  }
  return static_cast<i32>(place);
}

// Inclusive scan of one line; `src` and `dst` may be the same.
template <template <class> class Kind, class D, class S>
static void scan_line(D* dst, i64 dst_step, const S* src, i64 src_step, i64 n, bool reverse) {
  typedef Kind<D> K;
  ValueOf<D> so_far = K::start;
  for (i64 i = 0; i < n; ++i) {
    const i64 at = reverse ? n - 1 - i : i;
    so_far = K::join(so_far, K::enter(entering<D>(src[at * src_step])));
    dst[at * dst_step] = encode<D>(so_far);
  }
}

}  // namespace tileops

#endif  // TILEOPS_CPU_REDUCE_H_
