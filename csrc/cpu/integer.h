// Integer arithmetic with defined results: floor division, shifts, bit counts. Nothing here
// traps.
//
// Signed overflow wraps: kernels for CPUs are compiled with -fwrapv, and those in CUDA C++, for
// whose compiler it cannot happen, use the functions for it. Division by zero gives -1 for
// quotients of signed and all ones for unsigned integers, and the dividend for remainders, as
// RISC-V and most GPUs do.
#ifndef TILEOPS_CPU_INTEGER_H_
#define TILEOPS_CPU_INTEGER_H_

#include "types.h"

namespace tileops {

template <class T>
TILEOPS_INLINE T wrapping_add(T a, T b) {
  return static_cast<T>(static_cast<u64>(a) + static_cast<u64>(b));
}

template <class T>
TILEOPS_INLINE T wrapping_sub(T a, T b) {
  return static_cast<T>(static_cast<u64>(a) - static_cast<u64>(b));
}

template <class T>
TILEOPS_INLINE T wrapping_mul(T a, T b) {
  return static_cast<T>(static_cast<u64>(a) * static_cast<u64>(b));
}

// A divisor that makes the machine's division safe: 0 and -1 become 1; their results are put in
// after.
template <class T>
TILEOPS_INLINE T safe_divisor(T b) {
  return b == T(0) || b == T(-1) ? T(1) : b;
}

template <class T>
TILEOPS_INLINE T truncdiv(T a, T b) {
  if (T(-1) > T(0)) {
    return b == T(0) ? T(-1) : static_cast<T>(a / (b == T(0) ? T(1) : b));
  }
  const T q = static_cast<T>(a / safe_divisor(b));
  return b == T(0) ? T(-1) : b == T(-1) ? wrapping_sub(T(0), a) : q;
}

template <class T>
TILEOPS_INLINE T truncmod(T a, T b) {
  if (T(-1) > T(0)) {
    return b == T(0) ? a : static_cast<T>(a % (b == T(0) ? T(1) : b));
  }
  const T r = static_cast<T>(a % safe_divisor(b));
  return b == T(0) ? a : b == T(-1) ? T(0) : r;
}

template <class T>
TILEOPS_INLINE T floordiv(T a, T b) {
  const T q = truncdiv(a, b);
  const T r = truncmod(a, b);
  return static_cast<T>(q - T(b != T(0) && r != T(0) && ((r < T(0)) != (b < T(0)))));
}

template <class T>
TILEOPS_INLINE T ceildiv(T a, T b) {
  const T q = truncdiv(a, b);
  const T r = truncmod(a, b);
  return static_cast<T>(q + T(b != T(0) && r != T(0) && ((r < T(0)) == (b < T(0)))));
}

// Of a >= 0 and b >= 1, such as sizes: their sum fits the unsigned type.
template <class T>
TILEOPS_INLINE T ceildiv_of_counts(T a, T b) {
  typedef typename Unsigned<T>::type U;
  return static_cast<T>((static_cast<U>(a) + (static_cast<U>(b) - U(1))) / static_cast<U>(b));
}

template <class T>
TILEOPS_INLINE T floormod(T a, T b) {
  const T r = truncmod(a, b);
  return static_cast<T>(r + (b != T(0) && r != T(0) && ((r < T(0)) != (b < T(0))) ? b : T(0)));
}

// Shifts by the width or more give what an unlimited shift would (0, or the sign); negative counts
// do too.
template <class T>
TILEOPS_INLINE T shift_left(T a, T n) {
  constexpr int bits = 8 * static_cast<int>(sizeof(T));
  const bool inside = n >= T(0) && n < T(bits);
  return inside ? static_cast<T>(static_cast<u64>(a) << (inside ? n : T(0))) : T(0);
}

template <class T>
TILEOPS_INLINE T shift_right(T a, T n) {
  constexpr int bits = 8 * static_cast<int>(sizeof(T));
  const bool inside = n >= T(0) && n < T(bits);
  return inside ? static_cast<T>(a >> (inside ? n : T(0))) : (a < T(0) ? T(-1) : T(0));
}

template <class T>
TILEOPS_INLINE T absolute(T a) {
  return a < T(0) ? wrapping_sub(T(0), a) : a;
}

template <class T>
TILEOPS_INLINE T popcount(T a) {
  constexpr u64 mask = ~u64{0} >> (64 - 8 * sizeof(T));
  return static_cast<T>(__builtin_popcountll(static_cast<u64>(a) & mask));
}

template <class T>
TILEOPS_INLINE T count_leading_zeros(T a) {
  constexpr int bits = 8 * static_cast<int>(sizeof(T));
  constexpr u64 mask = ~u64{0} >> (64 - bits);
  const u64 x = static_cast<u64>(a) & mask;
  return static_cast<T>(x == 0 ? bits : __builtin_clzll(x | (x == 0)) - (64 - bits));
}

// Integer powers by repeated squaring, wrapping; a negative exponent gives 0, except for bases 1
// and -1.
template <class T>
TILEOPS_INLINE T integer_power(T base, T exponent) {
  if (exponent < T(0)) {
    return base == T(1) ? T(1) : base == T(-1) ? ((exponent & T(1)) != 0 ? T(-1) : T(1)) : T(0);
  }
  T result = 1;
  for (u64 n = static_cast<u64>(exponent); n != 0; n >>= 1) {
    if ((n & 1u) != 0) result = wrapping_mul(result, base);
    base = wrapping_mul(base, base);
  }
  return result;
}

TILEOPS_INLINE i64 clamp64(i64 x, i64 low, i64 high) {
  return x < low ? low : (x > high ? high : x);
}

}  // namespace tileops

#endif  // TILEOPS_CPU_INTEGER_H_
