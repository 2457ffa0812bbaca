// The scalar types of generated CPU kernels: fixed-width integers, storage of narrow floats,
// vectors.
//
// A narrow float is stored as its bits and computed with as a `float` that holds one of its values:
// every sum, product and quotient of two such values, and every square root, rounded first to float
// and then to the narrow type equals the directly rounded one, because 24 >= 2 p + 2 for each
// narrow precision p.
#ifndef TILEOPS_CPU_TYPES_H_
#define TILEOPS_CPU_TYPES_H_

#define TILEOPS_INLINE static inline __attribute__((always_inline, unused))
#define TILEOPS_INLINE_MEMBER inline __attribute__((always_inline))

// A loop that stays one: unrolled, it would need more registers than there are.
#ifdef __CUDACC_RTC__
#define TILEOPS_LOOP _Pragma("unroll 1")
#else
#define TILEOPS_LOOP _Pragma("GCC unroll 1")
#endif

namespace tileops {

typedef __INT8_TYPE__ i8;
typedef __INT16_TYPE__ i16;
typedef __INT32_TYPE__ i32;
typedef __INT64_TYPE__ i64;
typedef __UINT8_TYPE__ u8;
typedef __UINT16_TYPE__ u16;
typedef __UINT32_TYPE__ u32;
typedef __UINT64_TYPE__ u64;
typedef float f32;
typedef double f64;

struct f16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};
struct f8e4m3fn {
  u8 bits;
};
struct f8e5m2 {
  u8 bits;
};
struct f8e8m0fnu {
  u8 bits;
};
// Storage of bool, one byte: 0 is false, anything else true.
struct b8 {
  u8 bits;
};

#ifndef __CUDACC_RTC__
// The widest vector that the target level has one instruction for.
#if defined(__AVX512F__)
#define TILEOPS_VECTOR_BYTES 64
#elif defined(__AVX2__)
#define TILEOPS_VECTOR_BYTES 32
#else
#define TILEOPS_VECTOR_BYTES 16
#endif

// Element counts of the full vector of a type, and that vector.
template <class T>
struct Vector {
  typedef T type __attribute__((vector_size(TILEOPS_VECTOR_BYTES)));
  typedef T unaligned
      __attribute__((vector_size(TILEOPS_VECTOR_BYTES), aligned(sizeof(T)), may_alias));
  static constexpr int lanes = TILEOPS_VECTOR_BYTES / static_cast<int>(sizeof(T));
};
#endif

template <class To, class From>
TILEOPS_INLINE To bit_cast(From value) {
  static_assert(sizeof(To) == sizeof(From), "a bit cast keeps the width");
  To out;
  __builtin_memcpy(&out, &value, sizeof(To));
  return out;
}

template <class T>
struct Value {
  typedef T type;  // what expressions of this storage type are computed in
};
template <>
struct Value<f16> {
  typedef f32 type;
};
template <>
struct Value<bf16> {
  typedef f32 type;
};
template <>
struct Value<f8e4m3fn> {
  typedef f32 type;
};
template <>
struct Value<f8e5m2> {
  typedef f32 type;
};
template <>
struct Value<f8e8m0fnu> {
  typedef f32 type;
};
template <>
struct Value<b8> {
  typedef bool type;
};
template <class T>
using ValueOf = typename Value<T>::type;

template <class T>
struct Unsigned {
  typedef T type;
};
template <>
struct Unsigned<i8> {
  typedef u8 type;
};
template <>
struct Unsigned<i16> {
  typedef u16 type;
};
template <>
struct Unsigned<i32> {
  typedef u32 type;
};
template <>
struct Unsigned<i64> {
  typedef u64 type;
};

// The unsigned integer of so many bytes.
template <unsigned long kBytes>
struct Word;
template <>
struct Word<1> {
  typedef u8 type;
};
template <>
struct Word<2> {
  typedef u16 type;
};
template <>
struct Word<4> {
  typedef u32 type;
};
template <>
struct Word<8> {
  typedef u64 type;
};

template <class A, class B>
struct IsSame {
  static constexpr bool value = false;
};
template <class A>
struct IsSame<A, A> {
  static constexpr bool value = true;
};

}  // namespace tileops

#endif  // TILEOPS_CPU_TYPES_H_
