"""Streaming softmax over the last dimension: one pass for maximum and sum, one to write.

After Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.
"""

import tileops
import tileops.language as T

LOG2_E = 1.4426950408889634


@tileops.jit
def softmax(X, block_M: int = 1, block_N: int = 1024, threads: int = 128):
    M = T.dynamic("M")
    N = T.const("N")
    X: T.Tensor((M, N), T.float32)
    Y = T.empty((M, N), T.float32)
    with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
        x = T.alloc_fragment((block_M, block_N), T.float32)
        top = T.alloc_fragment((block_M,), T.float32)
        top_before = T.alloc_fragment((block_M,), T.float32)
        part = T.alloc_fragment((block_M,), T.float32)
        total = T.alloc_fragment((block_M,), T.float32)
        T.fill(top, -T.infinity(T.float32))
        T.clear(total)
        for k in T.Pipelined(T.ceildiv(N, block_N), num_stages=2):
            T.copy(X[bx * block_M, k * block_N], x)
            for i, j in T.Parallel(block_M, block_N):
                x[i, j] = T.if_then_else(
                    k * block_N + j < N, x[i, j] * LOG2_E, -T.infinity(T.float32)
                )
            T.copy(top, top_before)
            T.reduce_max(x, top, dim=1, clear=False)
            for i, j in T.Parallel(block_M, block_N):
                x[i, j] = T.exp2(x[i, j] - top[i])
            T.reduce_sum(x, part, dim=1)
            for i in T.Parallel(block_M):
                total[i] = total[i] * T.exp2(top_before[i] - top[i]) + part[i]
        for k in T.serial(T.ceildiv(N, block_N)):
            T.copy(X[bx * block_M, k * block_N], x)
            for i, j in T.Parallel(block_M, block_N):
                x[i, j] = T.exp2(x[i, j] * LOG2_E - top[i]) / total[i]
            T.copy(x, Y[bx * block_M, k * block_N])
    return Y


@tileops.jit(out_idx=[-1])
def softmax_lazy(M, N, block_M=1, block_N=1024, threads=128):
    @T.prim_func
    def main(X: T.Tensor((M, N), T.float32), Y: T.Tensor((M, N), T.float32)):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
            x = T.alloc_fragment((block_M, block_N), T.float32)
            top = T.alloc_fragment((block_M,), T.float32)
            top_before = T.alloc_fragment((block_M,), T.float32)
            part = T.alloc_fragment((block_M,), T.float32)
            total = T.alloc_fragment((block_M,), T.float32)
            T.fill(top, -T.infinity(T.float32))
            T.clear(total)
            for k in T.Pipelined(T.ceildiv(N, block_N), num_stages=2):
                T.copy(X[bx * block_M, k * block_N], x)
                for i, j in T.Parallel(block_M, block_N):
                    x[i, j] = T.if_then_else(
                        k * block_N + j < N, x[i, j] * LOG2_E, -T.infinity(T.float32)
                    )
                T.copy(top, top_before)
                T.reduce_max(x, top, dim=1, clear=False)
                for i, j in T.Parallel(block_M, block_N):
                    x[i, j] = T.exp2(x[i, j] - top[i])
                T.reduce_sum(x, part, dim=1)
                for i in T.Parallel(block_M):
                    total[i] = total[i] * T.exp2(top_before[i] - top[i]) + part[i]
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx * block_M, k * block_N], x)
                for i, j in T.Parallel(block_M, block_N):
                    x[i, j] = T.exp2(x[i, j] * LOG2_E - top[i]) / total[i]
                T.copy(x, Y[bx * block_M, k * block_N])

    return main
