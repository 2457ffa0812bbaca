// Scalar arithmetic whose C++ operator would not do: minimum and maximum, division of floats
// to integers.
#ifndef TILEOPS_CPU_ARITH_H_
#define TILEOPS_CPU_ARITH_H_

#include "convert.h"
#include "integer.h"

namespace tileops {

// For floats the operand that is not NaN wins, as with CUDA's fmin and fmax. Bitwise `|` keeps them
// free of branches.
template <class T>
TILEOPS_INLINE T greatest(T a, T b) {
  return ((a > b) | (b != b)) ? a : b;
}
template <class T>
TILEOPS_INLINE T least(T a, T b) {
  return ((a < b) | (b != b)) ? a : b;
}

// The same where `known` is a constant that is not NaN: a NaN in `a` compares false and gives the
// constant.
template <class T>
TILEOPS_INLINE T greatest_of_known(T a, T known) {
  return a > known ? a : known;
}
template <class T>
TILEOPS_INLINE T least_of_known(T a, T known) {
  return a < known ? a : known;
}

TILEOPS_INLINE f32 floordiv(f32 a, f32 b) {
  return __builtin_floorf(a / b);
}
TILEOPS_INLINE f64 floordiv(f64 a, f64 b) {
  return __builtin_floor(a / b);
}
// From the exact remainder: a product with the rounded quotient is off by as much as the quotient.
TILEOPS_INLINE f32 floormod(f32 a, f32 b) {
  const f32 r = __builtin_fmodf(a, b);
  return ((r != 0.0f) & ((r < 0.0f) != (b < 0.0f))) ? r + b : r;
}
TILEOPS_INLINE f64 floormod(f64 a, f64 b) {
  const f64 r = __builtin_fmod(a, b);
  return ((r != 0.0) & ((r < 0.0) != (b < 0.0))) ? r + b : r;
}
TILEOPS_INLINE f32 truncdiv(f32 a, f32 b) {
  return __builtin_truncf(a / b);
}
TILEOPS_INLINE f64 truncdiv(f64 a, f64 b) {
  return __builtin_trunc(a / b);
}
TILEOPS_INLINE f32 truncmod(f32 a, f32 b) {
  return __builtin_fmodf(a, b);
}
TILEOPS_INLINE f64 truncmod(f64 a, f64 b) {
  return __builtin_fmod(a, b);
}

}  // namespace tileops

#endif  // TILEOPS_CPU_ARITH_H_
