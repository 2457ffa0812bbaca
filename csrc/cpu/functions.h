// The mathematical functions of kernels. The float32 ones that programs use most are free of
// branches, so that loops over them become vector code; the others go through the C library's
// float64 functions.
//
// Errors in units in the last place of the float32 result, measured over all arguments or dense
// samples by tests/cpu: exp and exp2 1; log, log2, log10, tanh, sigmoid, erf, exp10, sqrt and
// everything that goes through float64 0.51; rsqrt 1.5. Polynomials are Chebyshev fits of the named
// quotient on the reduced range.
#ifndef TILEOPS_CPU_FUNCTIONS_H_
#define TILEOPS_CPU_FUNCTIONS_H_

#include "convert.h"
#include "integer.h"
#include "rounding.h"

namespace tileops {

// x * y + z, fused where the target has the instruction (it is then also the faster form).
TILEOPS_INLINE f32 multiply_add(f32 x, f32 y, f32 z) {
#if defined(__FMA__) || defined(__aarch64__)
  return __builtin_fmaf(x, y, z);
#else
  return x * y + z;
#endif
}
TILEOPS_INLINE f64 multiply_add(f64 x, f64 y, f64 z) {
#if defined(__FMA__) || defined(__aarch64__)
  return __builtin_fma(x, y, z);
#else
  return x * y + z;
#endif
}

// p * 2^n for |n| <= 250, in two steps so that neither factor leaves the range and a subnormal
// rounds once.
TILEOPS_INLINE f32 scale_by_power(f32 p, i32 n) {
  const i32 half = n >> 1;
  return p * bit_cast<f32>((half + 127) << 23) * bit_cast<f32>((n - half + 127) << 23);
}

// Adding and subtracting 1.5 * 2^23 rounds to an integer, whose value stands in the low bits of the
// sum.
constexpr f32 kRounder = 0x1.8p23f;
constexpr f64 kRounder64 = 0x1.8p52;

TILEOPS_INLINE f32 fn_exp2(f32 x) {
  f32 a = x > 129.0f ? 129.0f : x;
  a = a < -151.0f ? -151.0f : a;
  const f32 sum = a + kRounder;
  const i32 n = bit_cast<i32>(sum) - bit_cast<i32>(kRounder);
  const f32 r = a - (sum - kRounder);
  f32 q = 0x1.44149ap-13f;  // (2^r - 1) / r on [-0.5, 0.5]
  q = multiply_add(q, r, 0x1.5f0a1cp-10f);
  q = multiply_add(q, r, 0x1.3b2a52p-7f);
  q = multiply_add(q, r, 0x1.c6af6ap-5f);
  q = multiply_add(q, r, 0x1.ebfbe0p-3f);
  q = multiply_add(q, r, 0x1.62e430p-1f);
  return scale_by_power(multiply_add(q, r, 1.0f), n);
}

TILEOPS_INLINE f32 fn_exp(f32 x) {
  f32 a = x > 89.0f ? 89.0f : x;
  a = a < -105.0f ? -105.0f : a;
  const f32 sum = a * 0x1.715476p0f + kRounder;
  const i32 n = bit_cast<i32>(sum) - bit_cast<i32>(kRounder);
  const f32 m = sum - kRounder;
  // ln 2 in two parts; the first has 16 significant bits, so that m times it is exact.
  const f32 r = (a - m * 0x1.62e4p-1f) - m * 0x1.7f7d1cp-20f;
  f32 q = 0x1.6d13e2p-10f;  // (e^r - 1 - r) / r^2 on [-0.35, 0.35]
  q = multiply_add(q, r, 0x1.120e48p-7f);
  q = multiply_add(q, r, 0x1.555518p-5f);
  q = multiply_add(q, r, 0x1.5554dap-3f);
  q = multiply_add(q, r, 0.5f);
  return scale_by_power(multiply_add(q * r, r, r) + 1.0f, n);
}

// e^x in float64 with a relative error below 2^-39, for |x| <= 700: the inner part of float32
// functions.
TILEOPS_INLINE f64 exp_inner(f64 x) {
  const f64 sum = multiply_add(x, 0x1.71547652b82fep0, kRounder64);
  const f64 m = sum - kRounder64;
  const f64 r = multiply_add(m, -0x1.62e42fefa39efp-1, x);
  const i64 power = (bit_cast<i64>(sum) - bit_cast<i64>(kRounder64) + 1023) << 52;
  f64 q = 0x1.72afa0edd1a5ep-19;  // (e^r - 1 - r) / r^2 on [-0.35, 0.35]
  q = multiply_add(q, r, 0x1.a139fd0cf4a7dp-16);
  q = multiply_add(q, r, 0x1.a019c1ff3ba9cp-13);
  q = multiply_add(q, r, 0x1.6c1669e92f56cp-10);
  q = multiply_add(q, r, 0x1.1111111740995p-7);
  q = multiply_add(q, r, 0x1.555555665942ep-5);
  q = multiply_add(q, r, 0x1.5555555554f52p-3);
  q = multiply_add(q, r, 0x1.fffffffffdeecp-2);
  return (multiply_add(q * r, r, r) + 1.0) * bit_cast<f64>(power);
}

TILEOPS_INLINE f32 fn_exp10(f32 x) {
  f64 a = x > 39.0f ? 39.0 : static_cast<f64>(x);
  a = x < -46.0f ? -46.0 : a;
  return static_cast<f32>(exp_inner(a * 0x1.26bb1bbb55516p1));
}

TILEOPS_INLINE f32 fn_sigmoid(f32 x) {
  f64 a = x > 120.0f ? 120.0 : static_cast<f64>(x);
  a = x < -120.0f ? -120.0 : a;
  return static_cast<f32>(1.0 / (1.0 + exp_inner(-a)));
}

// log(x) * scale + exponent * unit for positive finite x; zeros, infinities, negatives and NaN as
// IEEE 754 says.
TILEOPS_INLINE f32 logarithm(f32 x, f64 unit, f64 scale) {
  const bool tiny = x < 0x1p-126f;
  const i32 u = bit_cast<i32>(tiny ? x * 0x1p23f : x);
  const i32 e = (u - 0x3f3504f3) >> 23;  // so that the mantissa lies in [sqrt(1/2), sqrt(2))
  const f64 m = static_cast<f64>(bit_cast<f32>(u - static_cast<i32>(static_cast<u32>(e) << 23)));
  const f64 s = (m - 1.0) / (m + 1.0);
  const f64 z = s * s;
  f64 q = 0x1.de0b02165e769p-4;  // (atanh(s) / s - 1) / s^2 for s^2 up to 0.03
  q = multiply_add(q, z, 0x1.245b27112cd29p-3);
  q = multiply_add(q, z, 0x1.9999ede294843p-3);
  q = multiply_add(q, z, 0x1.5555554b4d3ccp-2);
  const f64 exponent = static_cast<f64>(e - (tiny ? 23 : 0));
  const f64 result = multiply_add(exponent, unit, scale * multiply_add(q * z, s, s));
  f32 out = static_cast<f32>(result);
  out = x == 0.0f ? -__builtin_inff() : out;
  out = x < 0.0f ? __builtin_nanf("") : out;
  out = x == __builtin_inff() ? x : out;
  return x != x ? x : out;
}
TILEOPS_INLINE f32 fn_log(f32 x) {
  return logarithm(x, 0x1.62e42fefa39efp-1, 2.0);
}
TILEOPS_INLINE f32 fn_log2(f32 x) {
  return logarithm(x, 1.0, 0x1.71547652b82fep1);
}
TILEOPS_INLINE f32 fn_log10(f32 x) {
  return logarithm(x, 0x1.34413509f79ffp-2, 0x1.bcb7b1526e50ep-1);
}

TILEOPS_INLINE f32 fn_tanh(f32 x) {
  const f64 a = __builtin_fabs(static_cast<f64>(x));
  const f64 capped = a > 20.0 ? 20.0 : a;
  const f64 t = exp_inner(-2.0 * capped);
  const f64 large = (1.0 - t) / (1.0 + t);
  const f64 z = a * a;
  f64 q = 0x1.9366dc06bde62p-9;  // (tanh(a) / a - 1) / a^2 for a up to 0.36
  q = multiply_add(q, z, -0x1.200cb547293e2p-7);
  q = multiply_add(q, z, 0x1.663b1b69ccbd0p-6);
  q = multiply_add(q, z, -0x1.ba1b53e422ca7p-5);
  q = multiply_add(q, z, 0x1.111110d9eff9ep-3);
  q = multiply_add(q, z, -0x1.5555555548a41p-2);
  const f64 small = multiply_add(q * z, a, a);
  const f32 out = static_cast<f32>(a < 0.35 ? small : large);
  return x != x ? x : __builtin_copysignf(out, x);
}

TILEOPS_INLINE f32 fn_erf(f32 x) {
  const f64 a = __builtin_fabs(static_cast<f64>(x));
  const f64 z = a * a;
  f64 p = 0x1.1c22044636b1ep-20;  // erf(a) / a for a up to 1
  p = multiply_add(p, z, -0x1.d2a9743488182p-17);
  p = multiply_add(p, z, 0x1.f57bc9c6f0ff4p-14);
  p = multiply_add(p, z, -0x1.bfe1117450466p-11);
  p = multiply_add(p, z, 0x1.5658875581b74p-8);
  p = multiply_add(p, z, -0x1.b82cbaad7b90cp-6);
  p = multiply_add(p, z, 0x1.ce2f20a59af5ap-4);
  p = multiply_add(p, z, -0x1.812746addf34ap-2);
  p = multiply_add(p, z, 0x1.20dd750428c98p0);
  const f64 capped = a > 4.0 ? 4.0 : a;
  const f64 t = 1.0 / (capped + 2.0);
  f64 q = 0x1.a2657cdb0f518p1;  // erfc(a) * e^(a^2) in t for a in [1, 4]
  q = multiply_add(q, t, 0x1.1b626c1eef635p3);
  q = multiply_add(q, t, -0x1.8b099ee815f42p4);
  q = multiply_add(q, t, 0x1.ec77f198615d7p3);
  q = multiply_add(q, t, -0x1.be32d78855d41p-1);
  q = multiply_add(q, t, 0x1.511b641c997c1p1);
  q = multiply_add(q, t, 0x1.0e61fbd019bbcp0);
  q = multiply_add(q, t, 0x1.23287f2a183ddp-1);
  q = multiply_add(q, t, -0x1.fb11b819d9a35p-14);
  const f64 tail = 1.0 - q * exp_inner(-capped * capped);
  const f32 out = static_cast<f32>(a < 1.0 ? p * a : tail);
  return x != x ? x : __builtin_copysignf(out, x);
}

TILEOPS_INLINE f32 fn_sqrt(f32 x) {
  return __builtin_sqrtf(x);
}
TILEOPS_INLINE f64 fn_sqrt(f64 x) {
  return __builtin_sqrt(x);
}
TILEOPS_INLINE f32 fn_rsqrt(f32 x) {
  return 1.0f / __builtin_sqrtf(x);
}
TILEOPS_INLINE f64 fn_rsqrt(f64 x) {
  return 1.0 / __builtin_sqrt(x);
}
TILEOPS_INLINE f64 fn_sigmoid(f64 x) {
  return 1.0 / (1.0 + __builtin_exp(-x));
}

// One C library function for both widths: float32 goes through float64 and is rounded once more.
#define TILEOPS_FUNCTION(NAME)                                      \
  TILEOPS_INLINE f64 fn_##NAME(f64 x) {                             \
    return __builtin_##NAME(x);                                     \
  }                                                                 \
  TILEOPS_INLINE f32 fn_##NAME(f32 x) {                             \
    return static_cast<f32>(__builtin_##NAME(static_cast<f64>(x))); \
  }
#define TILEOPS_FUNCTION64(NAME)        \
  TILEOPS_INLINE f64 fn_##NAME(f64 x) { \
    return __builtin_##NAME(x);         \
  }
#define TILEOPS_FUNCTION2(NAME)                                                          \
  TILEOPS_INLINE f64 fn_##NAME(f64 x, f64 y) {                                           \
    return __builtin_##NAME(x, y);                                                       \
  }                                                                                      \
  TILEOPS_INLINE f32 fn_##NAME(f32 x, f32 y) {                                           \
    return static_cast<f32>(__builtin_##NAME(static_cast<f64>(x), static_cast<f64>(y))); \
  }
// Functions that are exact, or one instruction, in either width.
#define TILEOPS_EXACT(NAME, BUILTIN)    \
  TILEOPS_INLINE f32 fn_##NAME(f32 x) { \
    return __builtin_##BUILTIN##f(x);   \
  }                                     \
  TILEOPS_INLINE f64 fn_##NAME(f64 x) { \
    return __builtin_##BUILTIN(x);      \
  }
TILEOPS_FUNCTION64(exp)
TILEOPS_FUNCTION64(exp2)
TILEOPS_FUNCTION64(exp10)
TILEOPS_FUNCTION64(log)
TILEOPS_FUNCTION64(log2)
TILEOPS_FUNCTION64(log10)
TILEOPS_FUNCTION64(tanh)
TILEOPS_FUNCTION64(erf)
TILEOPS_FUNCTION(log1p)
TILEOPS_FUNCTION(sin)
TILEOPS_FUNCTION(cos)
TILEOPS_FUNCTION(tan)
TILEOPS_FUNCTION(sinh)
TILEOPS_FUNCTION(cosh)
TILEOPS_FUNCTION(asin)
TILEOPS_FUNCTION(acos)
TILEOPS_FUNCTION(atan)
TILEOPS_FUNCTION2(atan2)
TILEOPS_FUNCTION2(pow)
TILEOPS_EXACT(abs, fabs)
TILEOPS_EXACT(floor, floor)
TILEOPS_EXACT(ceil, ceil)
TILEOPS_EXACT(trunc, trunc)
TILEOPS_EXACT(nearbyint, rint)
TILEOPS_EXACT(round, round)
#undef TILEOPS_FUNCTION
#undef TILEOPS_FUNCTION64
#undef TILEOPS_FUNCTION2
#undef TILEOPS_EXACT

TILEOPS_INLINE f32 fn_copysign(f32 x, f32 y) {
  return __builtin_copysignf(x, y);
}
TILEOPS_INLINE f64 fn_copysign(f64 x, f64 y) {
  return __builtin_copysign(x, y);
}
TILEOPS_INLINE f32 fn_fma(f32 x, f32 y, f32 z) {
  return __builtin_fmaf(x, y, z);
}
TILEOPS_INLINE f64 fn_fma(f64 x, f64 y, f64 z) {
  return __builtin_fma(x, y, z);
}
TILEOPS_INLINE bool fn_isnan(f32 x) {
  return x != x;
}
TILEOPS_INLINE bool fn_isnan(f64 x) {
  return x != x;
}
TILEOPS_INLINE bool fn_isinf(f32 x) {
  return __builtin_fabsf(x) == __builtin_inff();
}
TILEOPS_INLINE bool fn_isinf(f64 x) {
  return __builtin_fabs(x) == __builtin_inf();
}
TILEOPS_INLINE bool fn_isfinite(f32 x) {
  return __builtin_fabsf(x) < __builtin_inff();
}
TILEOPS_INLINE bool fn_isfinite(f64 x) {
  return __builtin_fabs(x) < __builtin_inf();
}

}  // namespace tileops

#endif  // TILEOPS_CPU_FUNCTIONS_H_
