// Copies and fills of rows: the inner dimension of tile copies, with conversion where dtypes
// differ.
#ifndef TILEOPS_CPU_ROWS_H_
#define TILEOPS_CPU_ROWS_H_

#include "convert.h"

namespace tileops {

template <class To, class From>
TILEOPS_INLINE To convert_element(From x) {
  if constexpr (IsSame<To, From>::value) {
    return x;
  } else {
    return convert<To>(widen(x));
  }
}

#if defined(__F16C__)
// The hardware converts eight values an instruction; the portable code takes about twelve.
TILEOPS_INLINE i64 convert_head(f32* dst, const f16* src, i64 n) {
  typedef i16 V8 __attribute__((vector_size(16), aligned(2), may_alias));
  typedef i16 V8Reg __attribute__((vector_size(16)));
  typedef f32 F8 __attribute__((vector_size(32), aligned(4), may_alias));
  i64 i = 0;
  for (; i + 8 <= n; i += 8) {
    const V8Reg bits = *reinterpret_cast<const V8*>(src + i);
    *reinterpret_cast<F8*>(dst + i) = __builtin_ia32_vcvtph2ps256(bits);
  }
  return i;
}
TILEOPS_INLINE i64 convert_head(f16* dst, const f32* src, i64 n) {
  typedef i16 V8 __attribute__((vector_size(16), aligned(2), may_alias));
  typedef f32 F8 __attribute__((vector_size(32), aligned(4), may_alias));
  typedef f32 F8Reg __attribute__((vector_size(32)));
  i64 i = 0;
  for (; i + 8 <= n; i += 8) {
    const F8Reg wide = *reinterpret_cast<const F8*>(src + i);
    *reinterpret_cast<V8*>(dst + i) = (V8)__builtin_ia32_vcvtps2ph256(wide, 0);
  }
  return i;
}
#endif
template <class To, class From>
TILEOPS_INLINE i64 convert_head(To*, const From*, i64) {
  return 0;
}

// Elements next to each other on both sides.
template <class To, class From>
TILEOPS_INLINE void copy_row(To* __restrict dst, const From* __restrict src, i64 n) {
  if constexpr (IsSame<To, From>::value) {
    if (n > 0) __builtin_memcpy(dst, src, static_cast<u64>(n) * sizeof(To));
  } else {
    for (i64 i = convert_head(dst, src, n); i < n; ++i) dst[i] = convert_element<To>(src[i]);
  }
}

// Elements `dst_step` and `src_step` apart.
template <class To, class From>
TILEOPS_INLINE void copy_strided(To* __restrict dst, i64 dst_step, const From* __restrict src,
                                 i64 src_step, i64 n) {
  for (i64 i = 0; i < n; ++i) dst[i * dst_step] = convert_element<To>(src[i * src_step]);
}

template <class T>
TILEOPS_INLINE void fill_row(T* dst, i64 step, T value, i64 n) {
  if (step == 1) {
    for (i64 i = 0; i < n; ++i) dst[i] = value;
  } else {
    for (i64 i = 0; i < n; ++i) dst[i * step] = value;
  }
}

}  // namespace tileops

#endif  // TILEOPS_CPU_ROWS_H_
