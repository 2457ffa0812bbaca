"""Split-K matrix product in two launches: partial products in a workspace, then their sum."""

import tileops
import tileops.language as T


@tileops.jit
def matmul_split_k(A, B, splits: int = 4, block_M: int = 64, block_N: int = 64, block_K: int = 32):
    M, N, K = T.const("M, N, K")
    A: T.Tensor((M, K), T.float16)
    B: T.Tensor((K, N), T.float16)
    C = T.empty((M, N), T.float32)
    chunk = T.ceildiv(T.ceildiv(K, splits), block_K)
    partial = T.alloc_global((splits, M, N), T.float32)
    with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), splits, threads=128) as (
        bx,
        by,
        bz,
    ):
        A_s = T.alloc_shared((block_M, block_K), T.float16)
        B_s = T.alloc_shared((block_K, block_N), T.float16)
        acc = T.alloc_fragment((block_M, block_N), T.float32)
        T.clear(acc)
        for k in T.Pipelined(chunk, num_stages=2):
            T.copy(A[by * block_M, (bz * chunk + k) * block_K], A_s)
            T.copy(B[(bz * chunk + k) * block_K, bx * block_N], B_s)
            T.gemm(A_s, B_s, acc)
        T.copy(acc, partial[bz, by * block_M, bx * block_N])
    with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
        total = T.alloc_fragment((block_M, block_N), T.float32)
        part = T.alloc_fragment((block_M, block_N), T.float32)
        T.clear(total)
        for s in range(splits):
            T.copy(partial[s, by * block_M, bx * block_N], part)
            for i, j in T.Parallel(block_M, block_N):
                total[i, j] += part[i, j]
        T.copy(total, C[by * block_M, bx * block_N])
    return C


@tileops.jit(out_idx=[-1])
def matmul_split_k_lazy(M, N, K, splits=4, block_M=64, block_N=64, block_K=32):
    chunk = T.ceildiv(T.ceildiv(K, splits), block_K)

    @T.prim_func
    def main(
        A: T.Tensor((M, K), T.float16),
        B: T.Tensor((K, N), T.float16),
        C: T.Tensor((M, N), T.float32),
    ):
        partial = T.alloc_global((splits, M, N), T.float32)
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), splits, threads=128) as (
            bx,
            by,
            bz,
        ):
            A_s = T.alloc_shared((block_M, block_K), T.float16)
            B_s = T.alloc_shared((block_K, block_N), T.float16)
            acc = T.alloc_fragment((block_M, block_N), T.float32)
            T.clear(acc)
            for k in T.Pipelined(chunk, num_stages=2):
                T.copy(A[by * block_M, (bz * chunk + k) * block_K], A_s)
                T.copy(B[(bz * chunk + k) * block_K, bx * block_N], B_s)
                T.gemm(A_s, B_s, acc)
            T.copy(acc, partial[bz, by * block_M, bx * block_N])
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            total = T.alloc_fragment((block_M, block_N), T.float32)
            part = T.alloc_fragment((block_M, block_N), T.float32)
            T.clear(total)
            for s in range(splits):
                T.copy(partial[s, by * block_M, bx * block_N], part)
                for i, j in T.Parallel(block_M, block_N):
                    total[i, j] += part[i, j]
            T.copy(total, C[by * block_M, bx * block_N])

    return main
