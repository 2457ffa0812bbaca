// One thread of a block: what its statements ask of the others. The fibers of kernels for CPUs have
// the same functions.
#ifndef TILEOPS_CUDA_THREADS_H_
#define TILEOPS_CUDA_THREADS_H_

#include "arith.h"
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

}  // namespace tileops

#endif  // TILEOPS_CUDA_THREADS_H_
