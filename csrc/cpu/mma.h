// Products of tiles by the matrix instructions of a warp, mma.sync.m16n8, of whatever thread has
// `mma`.
//
// A word of 32 bits holds neighbours in depth, `pack` of them. With row = lane / 4 and pair =
// lane % 4, word w of the left operand is of row + 8 (w % 2), and of depth (pair + 4 (w / 2)) pack
// and what follows. Word w of the right one is of column `row` and depth (pair + 4 w) pack. Sum s
// is that of row + 8 (s / 2) and column 2 pair + s % 2. (PTX ISA, the matrix fragments of m16n8.)
#ifndef TILEOPS_CPU_MMA_H_
#define TILEOPS_CPU_MMA_H_

#include "arith.h"

namespace tileops {

// What an operand's elements are multiplied as: floats of 8 bits are halves without any rounding.
template <class S>
struct Factor {
  typedef S type;
};
template <>
struct Factor<f8e4m3fn> {
  typedef f16 type;
};
template <>
struct Factor<f8e5m2> {
  typedef f16 type;
};
// What products are summed in.
template <class S>
struct SumOf {
  typedef f32 type;
};
template <>
struct SumOf<i8> {
  typedef i32 type;
};
template <>
struct SumOf<u8> {
  typedef i32 type;
};

// The bits of an element as a factor. Of float32 they are those of the nearest tfloat32, which has
// 10 bits of fraction; halfway it is the one away from zero.
template <class S>
TILEOPS_INLINE u32 factor_bits(S x) {
  if constexpr (IsSame<S, f32>::value) {
    const u32 bits = bit_cast<u32>(x);
    return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & ~0x1fffu;
  } else if constexpr (sizeof(S) == 2) {
    return x.bits;
  } else if constexpr (!IsSame<S, typename Factor<S>::type>::value) {
    return encode<f16>(widen(x)).bits;
  } else {
    return static_cast<u8>(x);
  }
}

// One word of elements that are `step` apart, zeros from `count` on.
template <class S>
TILEOPS_INLINE u32 factors(const S* at, i64 step, i32 count) {
  constexpr int bytes = static_cast<int>(sizeof(typename Factor<S>::type));
  u32 word = 0;
  for (int n = 0; n < 4 / bytes; ++n) {
    if (n < count) word |= factor_bits(at[n * step]) << (8 * bytes * n);
  }
  return word;
}

// A sum and the products of the elements of two words.
template <class A, class B, class Sum>
TILEOPS_INLINE Sum add_products(Sum sum, u32 x, u32 y) {
  constexpr int bits = 8 * static_cast<int>(sizeof(A));
  typedef typename Word<sizeof(A)>::type W;
  for (int n = 0; n < 32 / bits; ++n) {
    const Sum left = static_cast<Sum>(widen(bit_cast<A>(static_cast<W>(x >> (bits * n)))));
    const Sum right = static_cast<Sum>(widen(bit_cast<B>(static_cast<W>(y >> (bits * n)))));
    if constexpr (IsSame<Sum, i32>::value) {
      sum = wrapping_add(sum, left * right);
    } else {
      sum += left * right;
    }
  }
  return sum;
}

// The matrix of an operand: rows `row` apart of elements `depth` apart, both in elements.
template <class S, int kRows, int kDepth>
struct Matrix {
  typedef typename Factor<S>::type E;
  static constexpr int pack = 4 / static_cast<int>(sizeof(E));
  const S* start;
  i64 row, depth;
  bool has_words;  // words can be loaded as they are

  TILEOPS_INLINE_MEMBER Matrix(const S* at, i64 stride, bool is_transposed)
      : start(at), row(is_transposed ? 1 : stride), depth(is_transposed ? stride : 1) {
    has_words = IsSame<S, E>::value && !IsSame<S, f32>::value && depth == 1 && kDepth % pack == 0 &&
                (reinterpret_cast<u64>(at) | static_cast<u64>(row) * sizeof(S)) % 4 == 0;
  }
  TILEOPS_INLINE_MEMBER u32 word(i32 i, i32 k) const {
    if (i >= kRows || k >= kDepth) return 0;
    const S* at = start + i * row + k * depth;
    if (has_words) {
      u32 found;
      __builtin_memcpy(&found, __builtin_assume_aligned(at, 4), 4);
      return found;
    }
    return factors(at, depth, kDepth - k);
  }
};

// c (+)= op(a) op(b) by the whole warps of a block: a warp has tiles of 16 rows and 32 columns.
template <class A, class B, class C, int kRows, int kColumns, int kDepth, bool kTransA,
          bool kTransB, class Me>
TILEOPS_INLINE void warp_gemm(Me& me, const A* a, i64 lda, const B* b, i64 ldb, C* c, i64 ldc,
                              bool clear) {
  typedef typename SumOf<A>::type Sum;
  typedef Matrix<A, kRows, kDepth> Left;
  const Left left(a, lda, kTransA);
  const Matrix<B, kColumns, kDepth> right(b, ldb, !kTransB);
  constexpr i32 strips = (kColumns + 31) / 32, tiles = (kRows + 15) / 16 * strips;
  const i32 warps = me.warps(), row = (me.index & 31) >> 2, pair = me.index & 3;
  if (me.index / 32 >= warps) return;
  TILEOPS_LOOP
  for (i32 tile = me.index / 32; tile < tiles; tile += warps) {
    const i32 first_row = tile / strips * 16 + row, first_column = tile % strips * 32;
    const auto place = [&](int n, int s) -> C* {
      const i32 i = first_row + 8 * (s / 2), j = first_column + 8 * n + 2 * pair + s % 2;
      return i < kRows && j < kColumns ? c + i * ldc + j : nullptr;
    };
    Sum sums[4][4];
    for (int n = 0; n < 4; ++n) {
      for (int s = 0; s < 4; ++s) {
        const C* at = place(n, s);
        sums[n][s] = clear || at == nullptr ? Sum(0) : static_cast<Sum>(widen(*at));
      }
    }
    TILEOPS_LOOP
    for (i32 k = 0; k < kDepth; k += 8 * Left::pack) {
      u32 rows[4];
      for (int w = 0; w < 4; ++w)
        rows[w] = left.word(first_row + 8 * (w % 2), k + (pair + 4 * (w / 2)) * Left::pack);
      for (int n = 0; n < 4; ++n) {
        u32 columns[2];
        for (int w = 0; w < 2; ++w)
          columns[w] = right.word(first_column + 8 * n + row, k + (pair + 4 * w) * Left::pack);
        me.template mma<typename Factor<A>::type, typename Factor<B>::type>(sums[n], rows, columns);
      }
    }
    for (int n = 0; n < 4; ++n) {
      for (int s = 0; s < 4; ++s) {
        C* at = place(n, s);
        if (at != nullptr) *at = encode<C>(sums[n][s]);
      }
    }
  }
}

// One instruction on what each thread of a warp has of a (4 words), b (2 words) and c (4 sums).
// Floats of 8 bits go in two halves, of the elements that each word has first and of the others.
template <class A, class B, class C, class Me>
TILEOPS_INLINE void warp_mma(Me& me, const A* a, const B* b, C* c) {
  typedef typename SumOf<A>::type Sum;
  typedef typename Factor<A>::type E;
  constexpr int elements = 4 / static_cast<int>(sizeof(A));
  constexpr int pack = 4 / static_cast<int>(sizeof(E));
  Sum sums[4];
  for (int s = 0; s < 4; ++s) sums[s] = static_cast<Sum>(widen(c[s]));
  for (int part = 0; part < elements; part += pack) {
    u32 left[4], right[2];
    for (int w = 0; w < 4; ++w) left[w] = factors(a + w * elements + part, 1, pack);
    for (int w = 0; w < 2; ++w) right[w] = factors(b + w * elements + part, 1, pack);
    me.template mma<E, typename Factor<B>::type>(sums, left, right);
  }
  for (int s = 0; s < 4; ++s) c[s] = encode<C>(sums[s]);
}

// Words of matrices in shared memory into a thread's own array.
template <int count, bool transposed, class S, class Me>
TILEOPS_INLINE void load_matrix(Me& me, S* out, const S* row) {
  u32 words[count];
  me.template load_matrix<count, transposed>(words, row);
  __builtin_memcpy(out, words, sizeof(words));
}

}  // namespace tileops

#endif  // TILEOPS_CPU_MMA_H_
