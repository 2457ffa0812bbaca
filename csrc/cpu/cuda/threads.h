// One thread of a block: what its statements ask of the others. The fibers of kernels for CPUs have
// the same functions.
#ifndef TILEOPS_CUDA_THREADS_H_
#define TILEOPS_CUDA_THREADS_H_

#include "types.h"

namespace tileops {

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
  // Ends the kernel, and with it the use of the device by this process.
  TILEOPS_INLINE_MEMBER void fail(i64 block, const char* what) const {
    printf("an assertion failed in block %lld, thread %d: %s\n", block, index, what);
    __trap();
  }
};

}  // namespace tileops

#endif  // TILEOPS_CUDA_THREADS_H_
