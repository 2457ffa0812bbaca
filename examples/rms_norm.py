"""RMSNorm over the last dimension: ``y = x * rsqrt(mean(x^2) + eps) * w``.

After Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
"""

import tileops
import tileops.language as T


@tileops.jit
def rms_norm(X, W, eps, block_M: int = 1, threads: int = 128, dtype: str = "bfloat16"):
    M = T.dynamic("M")
    N = T.const("N")
    X: T.Tensor((M, N), dtype)
    W: T.Tensor((N,), dtype)
    eps: T.float32
    Y = T.empty((M, N), dtype)
    with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
        x = T.alloc_fragment((block_M, N), T.float32)
        squares = T.alloc_fragment((block_M, N), T.float32)
        scale = T.alloc_fragment((block_M,), T.float32)
        T.copy(X[bx * block_M, 0], x)
        for i, j in T.Parallel(block_M, N):
            squares[i, j] = x[i, j] * x[i, j]
        T.reduce_sum(squares, scale, dim=1)
        for i in T.Parallel(block_M):
            scale[i] = T.rsqrt(scale[i] / N + eps)
        for i, j in T.Parallel(block_M, N):
            x[i, j] = x[i, j] * scale[i] * W[j]
        T.copy(x, Y[bx * block_M, 0])
    return Y


@tileops.jit(out_idx=[-1])
def rms_norm_lazy(N, block_M=1, threads=128, dtype="bfloat16"):
    M = T.dynamic("M")

    @T.prim_func
    def main(
        X: T.Tensor((M, N), dtype),
        W: T.Tensor((N,), dtype),
        eps: T.float32,
        Y: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
            x = T.alloc_fragment((block_M, N), T.float32)
            squares = T.alloc_fragment((block_M, N), T.float32)
            scale = T.alloc_fragment((block_M,), T.float32)
            T.copy(X[bx * block_M, 0], x)
            for i, j in T.Parallel(block_M, N):
                squares[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(squares, scale, dim=1)
            for i in T.Parallel(block_M):
                scale[i] = T.rsqrt(scale[i] / N + eps)
            for i, j in T.Parallel(block_M, N):
                x[i, j] = x[i, j] * scale[i] * W[j]
            T.copy(x, Y[bx * block_M, 0])

    return main
