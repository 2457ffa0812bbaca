// The register-blocked matrix product of tiles: c (+)= op(a) op(b), in the accumulator's
// arithmetic.
//
// op(b) is packed into panels of NR columns, zero padded, so that the inner loop reads it in order
// whatever its layout was; op(a) is broadcast element by element from where it lies (or from a
// widened copy). Operands are widened exactly; float products and sums are fused where the target
// has the instruction.
#ifndef TILEOPS_CPU_GEMM_H_
#define TILEOPS_CPU_GEMM_H_

#include "convert.h"
#include "rows.h"

namespace tileops {

// Rows of accumulators that fit beside a panel row and a broadcast in the vector registers (16, or
// 32 with AVX-512 and on aarch64), two vectors wide.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kGemmRows = 12;
#else
constexpr int kGemmRows = 6;
#endif
constexpr int kGemmVectors = 2;

template <class V>
TILEOPS_INLINE V fused_multiply_add(V a, V b, V c) {
  return a * b + c;
}
#if defined(__AVX512F__)
TILEOPS_INLINE Vector<f32>::type fused_multiply_add(Vector<f32>::type a, Vector<f32>::type b,
                                                    Vector<f32>::type c) {
  return __builtin_ia32_vfmaddps512_mask(a, b, c, static_cast<u16>(-1), 4);
}
TILEOPS_INLINE Vector<f64>::type fused_multiply_add(Vector<f64>::type a, Vector<f64>::type b,
                                                    Vector<f64>::type c) {
  return __builtin_ia32_vfmaddpd512_mask(a, b, c, static_cast<u8>(-1), 4);
}
#elif defined(__FMA__)
TILEOPS_INLINE Vector<f32>::type fused_multiply_add(Vector<f32>::type a, Vector<f32>::type b,
                                                    Vector<f32>::type c) {
  return __builtin_ia32_vfmaddps256(a, b, c);
}
TILEOPS_INLINE Vector<f64>::type fused_multiply_add(Vector<f64>::type a, Vector<f64>::type b,
                                                    Vector<f64>::type c) {
  return __builtin_ia32_vfmaddpd256(a, b, c);
}
#elif defined(__aarch64__)
// Lane loops of this form become one fmla.
TILEOPS_INLINE Vector<f32>::type fused_multiply_add(Vector<f32>::type a, Vector<f32>::type b,
                                                    Vector<f32>::type c) {
  for (int i = 0; i < Vector<f32>::lanes; ++i) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return c;
}
TILEOPS_INLINE Vector<f64>::type fused_multiply_add(Vector<f64>::type a, Vector<f64>::type b,
                                                    Vector<f64>::type c) {
  for (int i = 0; i < Vector<f64>::lanes; ++i) c[i] = __builtin_fma(a[i], b[i], c[i]);
  return c;
}
#endif

template <class T>
struct Panel {
  static constexpr int columns = kGemmVectors * Vector<T>::lanes;
};

// MR rows times one panel over the whole depth; the first `width` columns go to c.
template <class T, int MR>
static void gemm_block(const T* __restrict a, i64 a_row, i64 a_col, const T* __restrict panel,
                       T* __restrict c, i64 ldc, i64 depth, int width, bool clear) {
  typedef typename Vector<T>::type V;
  typedef typename Vector<T>::unaligned U;
  constexpr int lanes = Vector<T>::lanes;
  constexpr int columns = Panel<T>::columns;
  V sum[MR][kGemmVectors];
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kGemmVectors; ++v) sum[i][v] = V{};
  }
  for (i64 k = 0; k < depth; ++k) {
    V row[kGemmVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kGemmVectors; ++v)
      row[v] = *reinterpret_cast<const U*>(panel + k * columns + v * lanes);
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i) {
      const V x = a[i * a_row + k * a_col] - V{};
#pragma GCC unroll 4
      for (int v = 0; v < kGemmVectors; ++v) sum[i][v] = fused_multiply_add(x, row[v], sum[i][v]);
    }
  }
  if (width == columns) {
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < kGemmVectors; ++v) {
        U* out = reinterpret_cast<U*>(c + i * ldc + v * lanes);
        *out = clear ? sum[i][v] : *out + sum[i][v];
      }
    }
    return;
  }
  T lane[MR][columns];
  __builtin_memcpy(lane, sum, sizeof(lane));
  for (int i = 0; i < MR; ++i) {
    for (int j = 0; j < width; ++j)
      c[i * ldc + j] = clear ? lane[i][j] : c[i * ldc + j] + lane[i][j];
  }
}

// A tile widened to the accumulator's type, rows next to each other.
template <class T, class S>
static void widen_tile(T* __restrict out, const S* __restrict in, i64 stride, i64 rows,
                       i64 columns) {
  for (i64 i = 0; i < rows; ++i) copy_row(out + i * columns, in + i * stride, columns);
}

// op(b) as panels [N / columns][K][columns].
template <class T, class S, int N, int K, bool kTransposed>
static void pack_panels(T* __restrict out, const S* __restrict b, i64 ldb) {
  constexpr int columns = Panel<T>::columns;
  for (int j = 0; j < N; j += columns) {
    T* panel = out + static_cast<i64>(j) * K;
    const int width = N - j < columns ? N - j : columns;
    if (width < columns) __builtin_memset(panel, 0, sizeof(T) * K * columns);
    if (kTransposed) {
      for (int n = 0; n < width; ++n) {
        const S* row = b + (j + n) * ldb;
        for (int k = 0; k < K; ++k) panel[k * columns + n] = convert_element<T>(row[k]);
      }
    } else if (width == columns) {
      for (int k = 0; k < K; ++k) copy_row(panel + k * columns, b + k * ldb + j, columns);
    } else {
      for (int k = 0; k < K; ++k) copy_row(panel + k * columns, b + k * ldb + j, width);
    }
  }
}

// The a operand where it lies when its type is the accumulator's, else a widened copy in `space`.
template <class T, class S>
TILEOPS_INLINE const T* widened_a(const S* a, i64& lda, i64 rows, i64 columns, T* space) {
  if constexpr (IsSame<T, S>::value) {
    return a;
  } else {
    widen_tile(space, a, lda, rows, columns);
    lda = columns;
    return space;
  }
}

// Accumulators that are no narrow floats. `space` holds the panels, then the widened a; 64-byte
// aligned.
template <class T, int M, int N, int K, bool kTransA, bool kTransB, class A, class B>
static void gemm(const A* a, i64 lda, const B* b, i64 ldb, T* c, i64 ldc, bool clear, char* space) {
  constexpr int columns = Panel<T>::columns;
  constexpr i64 padded = (N + columns - 1) / columns * columns;
  T* panels = reinterpret_cast<T*>(space);
  pack_panels<T, B, N, K, kTransB>(panels, b, ldb);
  const T* wide = widened_a<T>(a, lda, kTransA ? K : M, kTransA ? M : K, panels + padded * K);
  const i64 a_row = kTransA ? 1 : lda;
  const i64 a_col = kTransA ? lda : 1;
  constexpr int rest = M % kGemmRows;
  for (int j = 0; j < N; j += columns) {
    const int width = N - j < columns ? N - j : columns;
    const T* panel = panels + static_cast<i64>(j) * K;
    for (int i = 0; i + kGemmRows <= M; i += kGemmRows) {
      gemm_block<T, kGemmRows>(wide + i * a_row, a_row, a_col, panel, c + i * ldc + j, ldc, K,
                               width, clear);
    }
    if (rest != 0) {
      constexpr int i = M - rest;
      gemm_block<T, rest == 0 ? 1 : rest>(wide + i * a_row, a_row, a_col, panel, c + i * ldc + j,
                                          ldc, K, width, clear);
    }
  }
}

// Narrow float accumulators: every product and every sum is rounded to the accumulator's type.
template <class T, int M, int N, int K, bool kTransA, bool kTransB, class A, class B>
static void gemm_rounding(const A* a, i64 lda, const B* b, i64 ldb, T* c, i64 ldc, bool clear) {
  f32 sum[N];
  for (int i = 0; i < M; ++i) {
    for (int j = 0; j < N; ++j) sum[j] = clear ? 0.0f : widen(c[i * ldc + j]);
    for (int k = 0; k < K; ++k) {
      const f32 x = static_cast<f32>(widen(kTransA ? a[k * lda + i] : a[i * lda + k]));
      for (int j = 0; j < N; ++j) {
        const f32 y = static_cast<f32>(widen(kTransB ? b[j * ldb + k] : b[k * ldb + j]));
        sum[j] = round_to<T>(sum[j] + round_to<T>(x * y));
      }
    }
    for (int j = 0; j < N; ++j) c[i * ldc + j] = convert<T>(sum[j]);
  }
}

}  // namespace tileops

#endif  // TILEOPS_CPU_GEMM_H_
