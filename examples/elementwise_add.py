"""Elementwise addition of two vectors, eager and lazy."""

import tileops
import tileops.language as T


@tileops.jit
def add(A, B, block_N: int = 1024):
    N = T.dynamic("N")
    A: T.Tensor((N,), T.float32)
    B: T.Tensor((N,), T.float32)
    C = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block_N), threads=128) as bx:
        for i in T.Parallel(block_N):
            C[bx * block_N + i] = A[bx * block_N + i] + B[bx * block_N + i]
    return C


@tileops.jit(out_idx=[-1])
def add_lazy(N, block_N=1024):
    @T.prim_func
    def main(
        A: T.Tensor((N,), T.float32), B: T.Tensor((N,), T.float32), C: T.Tensor((N,), T.float32)
    ):
        with T.Kernel(T.ceildiv(N, block_N), threads=128) as bx:
            for i in T.Parallel(block_N):
                C[bx * block_N + i] = A[bx * block_N + i] + B[bx * block_N + i]

    return main
