// Conversions between scalar types: exact widening, rounding to nearest even, saturating float
// to int.
//
// All functions are free of branches so that the compiler vectorises loops over them. Rules, as on
// CUDA:
//   float to narrower float  nearest, ties to even; float8_e4m3fn and float8_e5m2 saturate to the
//   largest
//                            finite value (infinities too), float16 and bfloat16 overflow to
//                            infinity
//   float to integer         towards zero, saturating, NaN gives 0
//   integer to integer       wraps (two's complement)
//   anything to bool         value != 0 (NaN is true)
#ifndef TILEOPS_CPU_CONVERT_H_
#define TILEOPS_CPU_CONVERT_H_

#include "types.h"

namespace tileops {

// ---- widening, exact
// ----------------------------------------------------------------------------------

TILEOPS_INLINE f32 widen(f16 h) {
  const u32 a = h.bits & 0x7fffu;
  const u32 sign = static_cast<u32>(h.bits & 0x8000u) << 16;
  // The exponent moves from bias 15 to bias 127; infinities and NaNs move to the all-ones exponent.
  const u32 normal = (a << 13) + (a >= 0x7c00u ? 0x70000000u : 0x38000000u);
  const u32 tiny = bit_cast<u32>(static_cast<f32>(static_cast<i32>(a)) * 0x1p-24f);
  return bit_cast<f32>((a < 0x400u ? tiny : normal) | sign);
}

TILEOPS_INLINE f32 widen(bf16 h) {
  return bit_cast<f32>(static_cast<u32>(h.bits) << 16);
}

TILEOPS_INLINE f32 widen(f8e4m3fn h) {
  const u32 a = h.bits & 0x7fu;
  const u32 sign = static_cast<u32>(h.bits & 0x80u) << 24;
  const u32 normal = a == 0x7fu ? 0x7fc00000u : (a << 20) + 0x3c000000u;
  const u32 tiny = bit_cast<u32>(static_cast<f32>(static_cast<i32>(a)) * 0x1p-9f);
  return bit_cast<f32>((a < 8u ? tiny : normal) | sign);
}

TILEOPS_INLINE f32 widen(f8e5m2 h) {
  f16 wide;  // the upper byte of a float16
  wide.bits = static_cast<u16>(static_cast<u32>(h.bits) << 8);
  return widen(wide);
}

TILEOPS_INLINE f32 widen(f8e8m0fnu h) {
  const u32 e = h.bits;
  const u32 normal = e == 0xffu ? 0x7fc00000u : e << 23;
  return bit_cast<f32>(e == 0u ? 0x00400000u : normal);
}

TILEOPS_INLINE bool widen(b8 h) {
  return h.bits != 0;
}
TILEOPS_INLINE f32 widen(f32 x) {
  return x;
}
TILEOPS_INLINE f64 widen(f64 x) {
  return x;
}
TILEOPS_INLINE i8 widen(i8 x) {
  return x;
}
TILEOPS_INLINE i16 widen(i16 x) {
  return x;
}
TILEOPS_INLINE i32 widen(i32 x) {
  return x;
}
TILEOPS_INLINE i64 widen(i64 x) {
  return x;
}
TILEOPS_INLINE u8 widen(u8 x) {
  return x;
}
TILEOPS_INLINE u16 widen(u16 x) {
  return x;
}
TILEOPS_INLINE u32 widen(u32 x) {
  return x;
}
TILEOPS_INLINE u64 widen(u64 x) {
  return x;
}

// ---- float32 to a narrow float, rounded to nearest even
// -------------------------------------------------

// Rounds the magnitude bits `a` of a float to `keep` fewer mantissa bits and rebias; `drop` = 23 -
// mantissa.
TILEOPS_INLINE u32 round_magnitude(u32 a, int drop, u32 rebias) {
  const u32 half = (1u << (drop - 1)) - 1u;
  return (a + half + ((a >> drop) & 1u) - rebias) >> drop;
}

// For results below the smallest normal: adding `shift`, whose last place is the subnormal step,
// rounds.
TILEOPS_INLINE u32 round_subnormal(u32 a, f32 shift) {
  return bit_cast<u32>(bit_cast<f32>(a) + shift) - bit_cast<u32>(shift);
}

TILEOPS_INLINE f16 to_f16(f32 x) {
  const u32 b = bit_cast<u32>(x);
  const u32 a = b & 0x7fffffffu;
  u32 r = a < 0x38800000u ? round_subnormal(a, 0.5f) : round_magnitude(a, 13, 0x38000000u);
  r = a >= 0x477ff000u ? 0x7c00u : r;
  r = a > 0x7f800000u ? 0x7e00u : r;
  f16 out;
  out.bits = static_cast<u16>(r | ((b >> 16) & 0x8000u));
  return out;
}

TILEOPS_INLINE bf16 to_bf16(f32 x) {
  const u32 b = bit_cast<u32>(x);
  const u32 rounded = (b + 0x7fffu + ((b >> 16) & 1u)) >> 16;
  const bool nan = (b & 0x7fffffffu) > 0x7f800000u;
  bf16 out;
  out.bits = static_cast<u16>(nan ? (b >> 16) | 0x40u : rounded);
  return out;
}

TILEOPS_INLINE f8e4m3fn to_f8e4m3fn(f32 x) {
  const u32 b = bit_cast<u32>(x);
  const u32 a = b & 0x7fffffffu;
  u32 r = a < 0x3c800000u ? round_subnormal(a, 0x1p14f) : round_magnitude(a, 20, 0x3c000000u);
  r = r > 0x7eu ? 0x7eu : r;
  r = a > 0x7f800000u ? 0x7fu : r;
  f8e4m3fn out;
  out.bits = static_cast<u8>(r | ((b >> 24) & 0x80u));
  return out;
}

// `largest` is the bit pattern that larger magnitudes saturate to: 0x7b is finite, 0x7c infinity.
TILEOPS_INLINE f8e5m2 to_f8e5m2(f32 x, u32 largest = 0x7bu) {
  const u32 b = bit_cast<u32>(x);
  const u32 a = b & 0x7fffffffu;
  u32 r = a < 0x38800000u ? round_subnormal(a, 0x1p7f) : round_magnitude(a, 21, 0x38000000u);
  r = r > largest ? largest : r;
  r = a > 0x7f800000u ? 0x7fu : r;
  f8e5m2 out;
  out.bits = static_cast<u8>(r | ((b >> 24) & 0x80u));
  return out;
}

// Powers of two only: the nearest exponent, halfway up (the OCP rule as torch has it); the sign is
// dropped.
TILEOPS_INLINE f8e8m0fnu to_f8e8m0fnu(f32 x) {
  const u32 b = bit_cast<u32>(x);
  const u32 e = (b >> 23) & 0xffu;
  const u32 m = b & 0x7fffffu;
  const u32 up = (m > 0x400000u || (m == 0x400000u && e > 0u)) ? 1u : 0u;
  f8e8m0fnu out;
  out.bits = static_cast<u8>(e == 0xffu ? 0xffu : e + up);
  return out;
}

// ---- float64 and 64-bit integers towards narrow floats: one rounding only
// -------------------------------

// float64 to float32 rounded to odd: a later rounding to fewer than 22 bits is then that of the
// float64.
TILEOPS_INLINE f32 to_odd_f32(f64 x) {
  const f32 nearest = static_cast<f32>(x);
  const u32 bits = bit_cast<u32>(nearest);
  const f64 back = static_cast<f64>(nearest);
  const u32 truncated = __builtin_fabs(back) > __builtin_fabs(x) ? bits - 1u : bits;
  return bit_cast<f32>(back != x ? truncated | 1u : bits);
}

// 64-bit integers to float64 rounded to odd. The sticky bit is what falls off at the right.
TILEOPS_INLINE f64 to_odd_f64(i64 x) {
  const i64 sticky = (x >> 11) | ((x & 0x7ff) != 0 ? 1 : 0);
  const bool small = x < (i64{1} << 52) && x > -(i64{1} << 52);
  return small ? static_cast<f64>(x) : static_cast<f64>(sticky) * 2048.0;
}
TILEOPS_INLINE f64 to_odd_f64(u64 x) {
  const u64 sticky = (x >> 11) | ((x & 0x7ffu) != 0 ? 1u : 0u);
  return x < (u64{1} << 52) ? static_cast<f64>(x) : static_cast<f64>(sticky) * 2048.0;
}

// A float that rounds to every narrow float as `x` itself would.
TILEOPS_INLINE f32 narrowing(f32 x) {
  return x;
}
TILEOPS_INLINE f32 narrowing(f64 x) {
  return to_odd_f32(x);
}
TILEOPS_INLINE f32 narrowing(bool x) {
  return x ? 1.0f : 0.0f;
}
TILEOPS_INLINE f32 narrowing(i8 x) {
  return static_cast<f32>(x);
}
TILEOPS_INLINE f32 narrowing(u8 x) {
  return static_cast<f32>(x);
}
TILEOPS_INLINE f32 narrowing(i16 x) {
  return static_cast<f32>(x);
}
TILEOPS_INLINE f32 narrowing(u16 x) {
  return static_cast<f32>(x);
}
TILEOPS_INLINE f32 narrowing(i32 x) {
  return to_odd_f32(static_cast<f64>(x));
}
TILEOPS_INLINE f32 narrowing(u32 x) {
  return to_odd_f32(static_cast<f64>(x));
}
TILEOPS_INLINE f32 narrowing(i64 x) {
  return to_odd_f32(to_odd_f64(x));
}
TILEOPS_INLINE f32 narrowing(u64 x) {
  return to_odd_f32(to_odd_f64(x));
}

// ---- floats to integers: towards zero, saturating, NaN gives 0
// -------------------------------------------

// `low` and `high` are the bounds as floats; `high` is exact or the first value above the range.
template <class I, class F>
TILEOPS_INLINE I saturate(F x, F low, F high, I least, I most) {
  const F inside = (x > low) & (x < high) ? x : F(0);  // a NaN compares false and becomes 0
  const I value = static_cast<I>(inside);
  const I upper = x >= high ? most : value;
  return x <= low ? least : upper;
}

template <class I>
struct Limits;
#define TILEOPS_LIMITS(T, LOW, HIGH, LEAST, MOST)  \
  template <>                                      \
  struct Limits<T> {                               \
    static constexpr f64 low = LOW, high = HIGH;   \
    static constexpr T least = LEAST, most = MOST; \
  };
TILEOPS_LIMITS(i8, -0x1p7, 0x1p7, -__INT8_MAX__ - 1, __INT8_MAX__)
TILEOPS_LIMITS(i16, -0x1p15, 0x1p15, -__INT16_MAX__ - 1, __INT16_MAX__)
TILEOPS_LIMITS(i32, -0x1p31, 0x1p31, -__INT32_MAX__ - 1, __INT32_MAX__)
TILEOPS_LIMITS(i64, -0x1p63, 0x1p63, -__INT64_MAX__ - 1, __INT64_MAX__)
TILEOPS_LIMITS(u8, 0.0, 0x1p8, 0, __UINT8_MAX__)
TILEOPS_LIMITS(u16, 0.0, 0x1p16, 0, __UINT16_MAX__)
TILEOPS_LIMITS(u32, 0.0, 0x1p32, 0, __UINT32_MAX__)
TILEOPS_LIMITS(u64, 0.0, 0x1p64, 0, __UINT64_MAX__)
#undef TILEOPS_LIMITS

// ---- convert<To>(value): `To` is a storage type, the result its bits as stored
// --------------------------

template <class To>
struct Converter {  // integers
  template <class From>
  static TILEOPS_INLINE_MEMBER To from(From x) {
    return static_cast<To>(x);
  }
  static TILEOPS_INLINE_MEMBER To from(f32 x) {
    return saturate<To, f32>(x, static_cast<f32>(Limits<To>::low),
                             static_cast<f32>(Limits<To>::high), Limits<To>::least,
                             Limits<To>::most);
  }
  static TILEOPS_INLINE_MEMBER To from(f64 x) {
    return saturate<To, f64>(x, Limits<To>::low, Limits<To>::high, Limits<To>::least,
                             Limits<To>::most);
  }
};
#define TILEOPS_CONVERTER(T, EXPRESSION)          \
  template <>                                     \
  struct Converter<T> {                           \
    template <class From>                         \
    static TILEOPS_INLINE_MEMBER T from(From x) { \
      return EXPRESSION;                          \
    }                                             \
  };
TILEOPS_CONVERTER(f32, static_cast<f32>(x))
TILEOPS_CONVERTER(f64, static_cast<f64>(x))
TILEOPS_CONVERTER(f16, to_f16(narrowing(x)))
TILEOPS_CONVERTER(bf16, to_bf16(narrowing(x)))
TILEOPS_CONVERTER(f8e4m3fn, to_f8e4m3fn(narrowing(x)))
TILEOPS_CONVERTER(f8e5m2, to_f8e5m2(narrowing(x)))
TILEOPS_CONVERTER(f8e8m0fnu, to_f8e8m0fnu(narrowing(x)))
TILEOPS_CONVERTER(b8, b8{static_cast<u8>(x != From(0) ? 1 : 0)})
#undef TILEOPS_CONVERTER

// A value in storage form.
template <class To, class From>
TILEOPS_INLINE To convert(From x) {
  return Converter<To>::from(x);
}

// A value that is one of `To`'s already, in storage form; infinities of float8_e5m2 stay.
template <class To>
TILEOPS_INLINE To encode(ValueOf<To> x) {
  if constexpr (IsSame<To, f8e5m2>::value) {
    return to_f8e5m2(x, 0x7cu);
  } else {
    return convert<To>(x);
  }
}

// A value of type `To` in computing form: rounded, but kept in the type that expressions use.
template <class To, class From>
TILEOPS_INLINE ValueOf<To> round_to(From x) {
  return widen(Converter<To>::from(x));
}

}  // namespace tileops

#endif  // TILEOPS_CPU_CONVERT_H_
