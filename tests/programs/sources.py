"""Programs that GPUs alone run, each with inputs and its exact result: CUDA C++ of their own, and a
barrier of the grid."""

from __future__ import annotations

import torch

import tileops.language as T
from tests.programs.construct import Construct, ints

DECODE = """
#include <stdint.h>
// Numbers of two bits, four in a byte, as bytes.
template <typename From, typename To>
__device__ void decode(From* packed, To* numbers, const int count = 16) {
  for (int i = 0; i < count; ++i) {
    numbers[i] = static_cast<To>((packed[i / 4] >> (i % 4 * 2)) & 3);
  }
}

__device__ int halves(half* numbers, int count) {
  half sum = __float2half(0.0f);
  for (int i = 0; i < count; ++i) sum = __hadd(sum, numbers[i]);
  return static_cast<int>(__half2float(sum) * 2.0f);
}

__device__ uint32_t reversed(uint x) {
  uint out;
  asm volatile("brev.b32 %0, %1;" : "=r"(out) : "r"(x));
  return out;
}
"""


def decoded_products(A, B):
    """Each thread decodes its bytes and multiplies them by four at once; the threads add up."""
    A: T.Tensor((2, 512), T.int8)
    B: T.Tensor((8, 128), T.int8)
    C = T.empty((2, 8), T.int32)
    with T.Kernel(2, threads=(32, 8)) as row:
        tx, ty = T.get_thread_bindings()
        T.import_source(DECODE)
        packed = T.alloc_local((4,), T.int8)
        numbers = T.alloc_local((16,), T.int8)
        own = T.alloc_local((16,), T.int8)
        total = T.alloc_local((1,), T.int32)
        T.clear(total)
        for v in T.vectorized(4):
            packed[v] = B[ty, tx * 4 + v]
        for v in T.vectorized(16):
            own[v] = A[row, tx * 16 + v]
        T.call_extern("handle", "decode", T.access_ptr(packed, "r"), T.access_ptr(numbers, "w"))
        for k in T.serial(4):
            T.dp4a(own[k * 4], numbers[k * 4], total[0])
        sum_ = T.warp_reduce_sum(total[0])
        if tx == 0:
            C[row, ty] = sum_
    return C


def decoded_products_expected(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    numbers = torch.stack([(b.int() >> (2 * k)) & 3 for k in range(4)], 2).reshape(8, 512)
    return (a.long() @ numbers.long().T).int()


def values_of_functions(A, H):
    """Functions that return numbers: of the source, with assembly in it, and CUDA's own."""
    A: T.Tensor((64,), T.uint32)
    H: T.Tensor((64, 4), T.float16)
    Y = T.empty((3, 64), T.int64)
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        T.import_source(DECODE)
        Y[0, tx] = T.cast(T.call_extern("uint32", "reversed", A[tx]), T.int64)
        Y[1, tx] = T.cast(
            T.call_extern("halves", T.address_of(H[tx, 0]), 4, dtype="int32"), T.int64
        )
        Y[2, tx] = T.cast(T.call_extern("uint32", "__vadd4", A[tx], A[63 - tx]), T.int64)
        T.call_extern("void", "__nanosleep", 10)
    return Y


def values_of_functions_expected(a: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    words = [int(n) for n in a]
    flipped = [int(f"{n:032b}"[::-1], 2) for n in words]
    added = [
        sum((((x >> s) + (y >> s)) & 255) << s for s in (0, 8, 16, 24))
        for x, y in zip(words, words[::-1], strict=True)
    ]
    sums = (h.float().sum(1) * 2).long()
    return torch.stack([torch.tensor(flipped), sums, torch.tensor(added)])


def rounds_of_the_grid(X):
    """Each block writes its part, and reads its neighbour's of the round before."""
    X: T.Tensor((16, 64), T.int32)
    Y = T.empty((16, 64), T.int32)
    W = T.alloc_global((2, 16, 64), T.int32)
    with T.Kernel(16, threads=64) as bx:
        tx = T.get_thread_binding()
        W[0, bx, tx] = X[bx, tx]
        for k in T.serial(20):
            T.sync_grid()
            W[(k + 1) % 2, bx, tx] = W[k % 2, (bx + 1) % 16, tx] + W[k % 2, (bx + 15) % 16, tx] % 7
        Y[bx, tx] = W[0, bx, tx]
    return Y


def rounds_of_the_grid_expected(x: torch.Tensor) -> torch.Tensor:
    for _ in range(20):
        x = x.roll(-1, 0) + x.roll(1, 0) % 7
    return x


SOURCES = [
    Construct(rounds_of_the_grid, lambda: (ints(16, 64, low=0),), rounds_of_the_grid_expected),
    Construct(
        decoded_products,
        lambda: (ints(2, 512).to(torch.int8), ints(8, 128, low=-128, high=128).to(torch.int8)),
        decoded_products_expected,
    ),
    Construct(
        values_of_functions,
        lambda: (
            torch.randint(0, 1 << 32, (64,)).to(torch.uint32),
            ints(64, 4).half(),
        ),
        values_of_functions_expected,
    ),
]
