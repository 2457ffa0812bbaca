// One thread of a block: what its statements ask of the others. The fibers of kernels for CPUs have
// the same functions.
#ifndef TILEOPS_CUDA_THREADS_H_
#define TILEOPS_CUDA_THREADS_H_

#include "arith.h"
#include "mma.h"
#include "warp_reductions.h"

namespace tileops {

// CUDA's function for values of 32 and 64 bits; narrower integers go through the former.
#define TILEOPS_SHUFFLE(NAME, CUDA)                                                      \
  template <class T>                                                                     \
  TILEOPS_INLINE_MEMBER T NAME(T value, i32 lane, i32 width, u32 mask) const {           \
    if constexpr (sizeof(T) < 4) {                                                       \
      return static_cast<T>(CUDA(mask & lanes(), static_cast<i32>(value), lane, width)); \
    } else {                                                                             \
      return CUDA(mask & lanes(), value, lane, width);                                   \
    }                                                                                    \
  }

// One instruction, for the types of its factors and sums; its text names the latter on both sides.
#define TILEOPS_MMA(A, B, SHAPE, FACTORS, SUM, REGISTER)                                        \
  if constexpr (IsSame<Left, A>::value && IsSame<Right, B>::value && IsSame<Sum, SUM>::value) { \
    asm volatile("mma.sync.aligned." SHAPE ".row.col." FACTORS                                  \
                 " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"             \
                 : REGISTER(c[0]), REGISTER(c[1]), REGISTER(c[2]), REGISTER(c[3])               \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));           \
  } else
// The matrices of a warp, as they are or transposed.
#define TILEOPS_LOAD_MATRIX(COUNT, WORDS, AT, ...)                                            \
  if constexpr (transposed) {                                                                 \
    asm volatile("ldmatrix.sync.aligned.m8n8." COUNT ".trans.shared.b16 " WORDS ", [" AT "];" \
                 : __VA_ARGS__                                                                \
                 : "r"(at)                                                                    \
                 : "memory");                                                                 \
  } else {                                                                                    \
    asm volatile("ldmatrix.sync.aligned.m8n8." COUNT ".shared.b16 " WORDS ", [" AT "];"       \
                 : __VA_ARGS__                                                                \
                 : "r"(at)                                                                    \
                 : "memory");                                                                 \
  }

struct Thread {
  i32 index;

  // Waits for all threads of the block that have not ended.
  TILEOPS_INLINE_MEMBER void sync_block() const { __syncthreads(); }
  // Waits for `count` threads at one of the block's barriers; without `waits`, arrives alone.
  TILEOPS_INLINE_MEMBER void sync_named(i32 number, i32 count, bool waits) const {
    if (waits) {
      asm volatile("bar.sync %0, %1;" : : "r"(number), "r"(count) : "memory");
    } else {
      asm volatile("bar.arrive %0, %1;" : : "r"(number), "r"(count) : "memory");
    }
  }
  TILEOPS_INLINE_MEMBER void sync_warp(u32 mask) const { __syncwarp(mask & lanes()); }

  TILEOPS_SHUFFLE(shfl_sync, __shfl_sync)
  TILEOPS_SHUFFLE(shfl_up, __shfl_up_sync)
  TILEOPS_SHUFFLE(shfl_down, __shfl_down_sync)
  TILEOPS_SHUFFLE(shfl_xor, __shfl_xor_sync)
  TILEOPS_INLINE_MEMBER i32 any_sync(bool holds, u32 mask) const {
    return __any_sync(mask & lanes(), holds) != 0;
  }
  TILEOPS_INLINE_MEMBER i32 all_sync(bool holds, u32 mask) const {
    return __all_sync(mask & lanes(), holds) != 0;
  }
  TILEOPS_INLINE_MEMBER u64 ballot_sync(bool holds, u32 mask) const {
    return __ballot_sync(mask & lanes(), holds);
  }
  TILEOPS_INLINE_MEMBER u64 activemask() const { return __activemask(); }
  template <class T>
  TILEOPS_INLINE_MEMBER u32 match_any_sync(T value, u32 mask) const {
    return __match_any_sync(mask & lanes(), bits_of(value));
  }
  template <class T>
  TILEOPS_INLINE_MEMBER u32 match_all_sync(T value, u32 mask) const {
    int agree = 0;
    __match_all_sync(mask & lanes(), bits_of(value), &agree);
    return agree != 0 ? mask : 0;
  }
  TILEOPS_INLINE_MEMBER i32 syncthreads_count(bool holds) const {
    return __syncthreads_count(holds);
  }
  TILEOPS_INLINE_MEMBER i32 syncthreads_and(bool holds) const {
    return __syncthreads_and(holds) != 0;
  }
  TILEOPS_INLINE_MEMBER i32 syncthreads_or(bool holds) const {
    return __syncthreads_or(holds) != 0;
  }

  // Waits for all threads of all blocks, which run at once. `arrivals` counts blocks and was 0 when
  // the launch began: a block waits until those of its round are there.
  TILEOPS_INLINE_MEMBER void sync_grid(u32* arrivals) const {
    __syncthreads();
    if (index == 0) {
      __threadfence();
      const u32 blocks = gridDim.x;
      const u32 round = atomicAdd(arrivals, 1u) / blocks;
      while (*static_cast<volatile u32*>(arrivals) / blocks == round) {
      }
      __threadfence();
    }
    __syncthreads();
  }

  // The whole warps of the block.
  TILEOPS_INLINE_MEMBER i32 warps() const { return static_cast<i32>(blockDim.x) / 32; }
  // Adds products of a warp's matrices to its sums; mma.h says which thread has what.
  template <class Left, class Right, class Sum>
  TILEOPS_INLINE_MEMBER void mma(Sum (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) const {
    TILEOPS_MMA(f16, f16, "m16n8k16", "f32.f16.f16.f32", f32, "+f")
    TILEOPS_MMA(bf16, bf16, "m16n8k16", "f32.bf16.bf16.f32", f32, "+f")
    TILEOPS_MMA(f32, f32, "m16n8k8", "f32.tf32.tf32.f32", f32, "+f")
    TILEOPS_MMA(i8, i8, "m16n8k32", "s32.s8.s8.s32", i32, "+r")
    TILEOPS_MMA(i8, u8, "m16n8k32", "s32.s8.u8.s32", i32, "+r")
    TILEOPS_MMA(u8, i8, "m16n8k32", "s32.u8.s8.s32", i32, "+r")
    TILEOPS_MMA(u8, u8, "m16n8k32", "s32.u8.u8.s32", i32, "+r") {
      static_assert(sizeof(Sum) == 0, "no instruction multiplies these types");
    }
  }
  // Rows of 16 bytes of matrices of 8 x 8 halves from shared memory: lane 8 n + i has the address
  // of row i of matrix n. Word n of a thread is of row lane / 4, or column with `transposed`,
  // halves 2 (lane % 4) and the next.
  template <int count, bool transposed>
  TILEOPS_INLINE_MEMBER void load_matrix(u32 (&out)[count], const void* row) const {
    const u32 at = static_cast<u32>(__cvta_generic_to_shared(row));
    if constexpr (count == 1) {
      TILEOPS_LOAD_MATRIX("x1", "{%0}", "%1", "=r"(out[0]))
    } else if constexpr (count == 2) {
      TILEOPS_LOAD_MATRIX("x2", "{%0, %1}", "%2", "=r"(out[0]), "=r"(out[1]))
    } else {
      TILEOPS_LOAD_MATRIX("x4", "{%0, %1, %2, %3}", "%4", "=r"(out[0]), "=r"(out[1]), "=r"(out[2]),
                          "=r"(out[3]))
    }
  }

  // The barrier of the cluster.
  TILEOPS_INLINE_MEMBER void cluster_arrive() const {
    asm volatile("barrier.cluster.arrive.release;" : : : "memory");
  }
  TILEOPS_INLINE_MEMBER void cluster_wait() const {
    asm volatile("barrier.cluster.wait.acquire;" : : : "memory");
  }
  // The same place in shared memory of another block of the cluster.
  template <class T>
  TILEOPS_INLINE_MEMBER T* in_block(T* place, i32 block) const {
    u64 found;
    asm("mapa.u64 %0, %1, %2;" : "=l"(found) : "l"(place), "r"(block));
    return reinterpret_cast<T*>(found);
  }

  // Ends the kernel, and with it the use of the device by this process.
  TILEOPS_INLINE_MEMBER void fail(i64 block, const char* what) const {
    printf("an assertion failed in block %lld, thread %d: %s\n", block, index, what);
    __trap();
  }

 private:
  // The lanes that the thread's warp has; the last one of a block may have fewer than 32.
  TILEOPS_INLINE_MEMBER u32 lanes() const {
    const i32 rest = static_cast<i32>(blockDim.x) - (index & ~31);
    return rest >= 32 ? ~u32{0} : (u32{1} << rest) - 1;
  }
  template <class T>
  TILEOPS_INLINE_MEMBER static u64 bits_of(T value) {
    u64 bits = 0;
    memcpy(&bits, &value, sizeof(T));
    return bits;
  }
};
#undef TILEOPS_SHUFFLE
#undef TILEOPS_MMA
#undef TILEOPS_LOAD_MATRIX

}  // namespace tileops

#endif  // TILEOPS_CUDA_THREADS_H_
