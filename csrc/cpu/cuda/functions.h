// The mathematical functions of kernels in CUDA C++: those of CUDA's own library, whose errors its
// programming guide lists, and arithmetic in a rounding mode of its own.
#ifndef TILEOPS_CUDA_FUNCTIONS_H_
#define TILEOPS_CUDA_FUNCTIONS_H_

#include "convert.h"
#include "integer.h"

namespace tileops {

#define TILEOPS_FUNCTION(NAME, CUDA)    \
  TILEOPS_INLINE f32 fn_##NAME(f32 x) { \
    return CUDA##f(x);                  \
  }                                     \
  TILEOPS_INLINE f64 fn_##NAME(f64 x) { \
    return CUDA(x);                     \
  }
#define TILEOPS_FUNCTION2(NAME)                \
  TILEOPS_INLINE f32 fn_##NAME(f32 x, f32 y) { \
    return NAME##f(x, y);                      \
  }                                            \
  TILEOPS_INLINE f64 fn_##NAME(f64 x, f64 y) { \
    return NAME(x, y);                         \
  }
TILEOPS_FUNCTION(exp, exp)
TILEOPS_FUNCTION(exp2, exp2)
TILEOPS_FUNCTION(exp10, exp10)
TILEOPS_FUNCTION(log, log)
TILEOPS_FUNCTION(log2, log2)
TILEOPS_FUNCTION(log10, log10)
TILEOPS_FUNCTION(log1p, log1p)
TILEOPS_FUNCTION(sqrt, sqrt)
TILEOPS_FUNCTION(rsqrt, rsqrt)
TILEOPS_FUNCTION(sin, sin)
TILEOPS_FUNCTION(cos, cos)
TILEOPS_FUNCTION(tan, tan)
TILEOPS_FUNCTION(sinh, sinh)
TILEOPS_FUNCTION(cosh, cosh)
TILEOPS_FUNCTION(tanh, tanh)
TILEOPS_FUNCTION(asin, asin)
TILEOPS_FUNCTION(acos, acos)
TILEOPS_FUNCTION(atan, atan)
TILEOPS_FUNCTION(erf, erf)
TILEOPS_FUNCTION(abs, fabs)
TILEOPS_FUNCTION(floor, floor)
TILEOPS_FUNCTION(ceil, ceil)
TILEOPS_FUNCTION(trunc, trunc)
TILEOPS_FUNCTION(nearbyint, rint)
TILEOPS_FUNCTION(round, round)
TILEOPS_FUNCTION2(atan2)
TILEOPS_FUNCTION2(pow)
TILEOPS_FUNCTION2(copysign)
#undef TILEOPS_FUNCTION
#undef TILEOPS_FUNCTION2

TILEOPS_INLINE f32 fn_sigmoid(f32 x) {
  return 1.0f / (1.0f + expf(-x));
}
TILEOPS_INLINE f64 fn_sigmoid(f64 x) {
  return 1.0 / (1.0 + exp(-x));
}
TILEOPS_INLINE f32 fn_fma(f32 x, f32 y, f32 z) {
  return fmaf(x, y, z);
}
TILEOPS_INLINE f64 fn_fma(f64 x, f64 y, f64 z) {
  return fma(x, y, z);
}
TILEOPS_INLINE bool fn_isnan(f32 x) {
  return x != x;
}
TILEOPS_INLINE bool fn_isnan(f64 x) {
  return x != x;
}
TILEOPS_INLINE bool fn_isinf(f32 x) {
  return fabsf(x) == __builtin_inff();
}
TILEOPS_INLINE bool fn_isinf(f64 x) {
  return fabs(x) == __builtin_inf();
}
TILEOPS_INLINE bool fn_isfinite(f32 x) {
  return fabsf(x) < __builtin_inff();
}
TILEOPS_INLINE bool fn_isfinite(f64 x) {
  return fabs(x) < __builtin_inf();
}

enum Rounding { kNearest, kDown, kUp, kToZero };

#define TILEOPS_ROUNDED(NAME, SINGLE, DOUBLE, PARAMS, ARGS) \
  template <Rounding mode>                                  \
  TILEOPS_INLINE f32 rounded_##NAME PARAMS(f32) {           \
    return mode == kNearest ? SINGLE##_rn ARGS              \
           : mode == kDown  ? SINGLE##_rd ARGS              \
           : mode == kUp    ? SINGLE##_ru ARGS              \
                            : SINGLE##_rz ARGS;             \
  }                                                         \
  template <Rounding mode>                                  \
  TILEOPS_INLINE f64 rounded_##NAME PARAMS(f64) {           \
    return mode == kNearest ? DOUBLE##_rn ARGS              \
           : mode == kDown  ? DOUBLE##_rd ARGS              \
           : mode == kUp    ? DOUBLE##_ru ARGS              \
                            : DOUBLE##_rz ARGS;             \
  }
#define TILEOPS_ONE(T) (T x)
#define TILEOPS_TWO(T) (T x, T y)
#define TILEOPS_THREE(T) (T x, T y, T z)
TILEOPS_ROUNDED(add, __fadd, __dadd, TILEOPS_TWO, (x, y))
TILEOPS_ROUNDED(sub, __fsub, __dsub, TILEOPS_TWO, (x, y))
TILEOPS_ROUNDED(mul, __fmul, __dmul, TILEOPS_TWO, (x, y))
TILEOPS_ROUNDED(div, __fdiv, __ddiv, TILEOPS_TWO, (x, y))
TILEOPS_ROUNDED(fma, __fmaf, __fma, TILEOPS_THREE, (x, y, z))
TILEOPS_ROUNDED(sqrt, __fsqrt, __dsqrt, TILEOPS_ONE, (x))
#undef TILEOPS_ROUNDED
#undef TILEOPS_ONE
#undef TILEOPS_TWO
#undef TILEOPS_THREE
template <Rounding mode>
TILEOPS_INLINE f32 rounded_rsqrt(f32 x) {
  return __frsqrt_rn(x);
}

}  // namespace tileops

#endif  // TILEOPS_CUDA_FUNCTIONS_H_
