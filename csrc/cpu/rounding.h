// Arithmetic in a rounding mode of its own. The processor's own mode is set around each
// operation, so that the result is IEEE 754's for every operand, subnormals, zeros and overflow
// included.
#ifndef TILEOPS_CPU_ROUNDING_H_
#define TILEOPS_CPU_ROUNDING_H_

#include "types.h"

namespace tileops {

enum Rounding { kNearest, kDown, kUp, kToZero };

#if defined(__aarch64__)
#define TILEOPS_FLOAT_REGISTER "+w"
// FPCR bits 23 and 22: nearest 0, up 1, down 2, to zero 3.
constexpr u64 kModeBits = u64{3} << 22;
constexpr u64 kModes[] = {0, u64{2} << 22, u64{1} << 22, u64{3} << 22};
TILEOPS_INLINE u64 read_mode() {
  u64 value;
  asm volatile("mrs %0, fpcr" : "=r"(value));
  return value;
}
TILEOPS_INLINE void write_mode(u64 value) {
  asm volatile("msr fpcr, %0" : : "r"(value));
}
#else
#define TILEOPS_FLOAT_REGISTER "+x"
// MXCSR bits 14 and 13: nearest 0, down 1, up 2, to zero 3.
constexpr u32 kModeBits = 3u << 13;
constexpr u32 kModes[] = {0, 1u << 13, 2u << 13, 3u << 13};
TILEOPS_INLINE u32 read_mode() {
  u32 value;
  asm volatile("stmxcsr %0" : "=m"(value));
  return value;
}
TILEOPS_INLINE void write_mode(u32 value) {
  asm volatile("ldmxcsr %0" : : "m"(value));
}
#endif

// The compiler may neither compute a pinned value beforehand nor move it past a change of the mode:
// volatile assembly keeps its order.
template <class T>
TILEOPS_INLINE void pin(T& value) {
  asm volatile("" : TILEOPS_FLOAT_REGISTER(value));
}

template <Rounding mode, class Operation, class... T>
TILEOPS_INLINE auto in_mode(Operation operation, T... args) {
  if constexpr (mode == kNearest) {
    return operation(args...);
  } else {
    const auto before = read_mode();
    write_mode((before & ~kModeBits) | kModes[mode]);
    (pin(args), ...);
    auto result = operation(args...);
    pin(result);
    write_mode(before);
    return result;
  }
}

TILEOPS_INLINE f32 fused(f32 a, f32 b, f32 c) {
  return __builtin_fmaf(a, b, c);
}
TILEOPS_INLINE f64 fused(f64 a, f64 b, f64 c) {
  return __builtin_fma(a, b, c);
}
TILEOPS_INLINE f32 root(f32 a) {
  return __builtin_sqrtf(a);
}
TILEOPS_INLINE f64 root(f64 a) {
  return __builtin_sqrt(a);
}

template <Rounding mode, class T>
TILEOPS_INLINE T rounded_add(T a, T b) {
  return in_mode<mode>([](T x, T y) { return x + y; }, a, b);
}
template <Rounding mode, class T>
TILEOPS_INLINE T rounded_sub(T a, T b) {
  return in_mode<mode>([](T x, T y) { return x - y; }, a, b);
}
template <Rounding mode, class T>
TILEOPS_INLINE T rounded_mul(T a, T b) {
  return in_mode<mode>([](T x, T y) { return x * y; }, a, b);
}
template <Rounding mode, class T>
TILEOPS_INLINE T rounded_div(T a, T b) {
  return in_mode<mode>([](T x, T y) { return x / y; }, a, b);
}
template <Rounding mode, class T>
TILEOPS_INLINE T rounded_fma(T a, T b, T c) {
  return in_mode<mode>([](T x, T y, T z) { return fused(x, y, z); }, a, b, c);
}
template <Rounding mode, class T>
TILEOPS_INLINE T rounded_sqrt(T a) {
  return in_mode<mode>([](T x) { return root(x); }, a);
}

// 1 / sqrt(x) to the nearest float32. The float64 value is within two of its own units of the true
// one, and decides unless it lies that near a midpoint; x * m^2 < 1 then tells on which side of the
// midpoint m the true value is, exactly: m has 25 bits and m * m 50.
template <Rounding mode>
TILEOPS_INLINE f32 rounded_rsqrt(f32 x) {
  const f64 wide = 1.0 / __builtin_sqrt(static_cast<f64>(x));
  f32 near = static_cast<f32>(wide);
  if (!(x > 0.0f) || x > 0x1.fffffep127f) return near;
  const f32 other = static_cast<f64>(near) < wide ? __builtin_nextafterf(near, 0x1p127f)
                                                  : __builtin_nextafterf(near, 0.0f);
  const f64 middle = (static_cast<f64>(near) + static_cast<f64>(other)) * 0.5;
  const f64 side = __builtin_fma(static_cast<f64>(x), middle * middle, -1.0);
  const bool is_above = side < 0.0;  // the true value is above the midpoint
  return is_above == (other > near) ? other : near;
}

}  // namespace tileops

#endif  // TILEOPS_CPU_ROUNDING_H_
