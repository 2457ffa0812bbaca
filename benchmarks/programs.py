"""The measured tile programs that are not among the examples."""

import tileops
import tileops.language as T


@tileops.jit(differentiable=False)
def bench_matmul(
    A,
    B,
    block_M: int = 128,
    block_N: int = 256,
    block_K: int = 64,
    threads: int = 256,
    num_stages: int = 3,
    panel: int = 8,
    dtype: str = "float16",
    target_dtype: str = "float16",
):
    M, N, K = T.const("M, N, K")
    A: T.Tensor((M, K), dtype)
    B: T.Tensor((K, N), dtype)
    C = T.empty((M, N), target_dtype)
    with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
        A_s = T.alloc_shared((block_M, block_K), dtype)
        B_s = T.alloc_shared((block_K, block_N), dtype)
        acc = T.alloc_fragment((block_M, block_N), T.float32)
        T.use_swizzle(panel_size=panel, enable=panel > 0)
        T.clear(acc)
        for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
            T.copy(A[by * block_M, k * block_K], A_s)
            T.copy(B[k * block_K, bx * block_N], B_s)
            T.gemm(A_s, B_s, acc)
        T.copy(acc, C[by * block_M, bx * block_N])
    return C


@tileops.jit(differentiable=False)
def bench_add(A, B, block_N: int = 1024):
    """Two inputs, one output: the smallest op whose call is worth timing."""
    N = T.const("N")
    A: T.Tensor((N,), T.float32)
    B: T.Tensor((N,), T.float32)
    C = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block_N), threads=128) as bx:
        for i in T.Parallel(block_N):
            C[bx * block_N + i] = A[bx * block_N + i] + B[bx * block_N + i]
    return C


@tileops.jit
def bench_add_grad(A, B, block_N: int = 1024):
    """``bench_add`` with a gradient."""
    N = T.const("N")
    A: T.Tensor((N,), T.float32)
    B: T.Tensor((N,), T.float32)
    C = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block_N), threads=128) as bx:
        for i in T.Parallel(block_N):
            C[bx * block_N + i] = A[bx * block_N + i] + B[bx * block_N + i]
    return C


bench_add_grad.register_autograd(lambda ctx, grad: (grad, grad))


@tileops.jit(differentiable=False)
def bench_wide(
    A, B, C, D, E, F, G, p: T.float32, q: T.float32, r: T.float32, s: T.float32, block_N: int = 1024
):
    """Eight tensors, the output among them, and four scalars."""
    N = T.const("N")
    A: T.Tensor((N,), T.float32)
    B: T.Tensor((N,), T.float32)
    C: T.Tensor((N,), T.float32)
    D: T.Tensor((N,), T.float32)
    E: T.Tensor((N,), T.float32)
    F: T.Tensor((N,), T.float32)
    G: T.Tensor((N,), T.float32)
    Y = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block_N), threads=128) as bx:
        for i in T.Parallel(block_N):
            n = bx * block_N + i
            Y[n] = p * A[n] + q * B[n] + r * C[n] + s * D[n] + E[n] + F[n] + G[n]
    return Y
