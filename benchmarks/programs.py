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
def bench_linear(
    X,
    W,
    block_M: int = 128,
    block_N: int = 256,
    block_K: int = 64,
    threads: int = 256,
    num_stages: int = 3,
    panel: int = 8,
):
    """A linear layer in bf16: ``X @ W.T``, as torch has it."""
    M, N, K = T.const("M, N, K")
    X: T.Tensor((M, K), T.bfloat16)
    W: T.Tensor((N, K), T.bfloat16)
    Y = T.empty((M, N), T.bfloat16)
    with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
        X_s = T.alloc_shared((block_M, block_K), T.bfloat16)
        W_s = T.alloc_shared((block_N, block_K), T.bfloat16)
        acc = T.alloc_fragment((block_M, block_N), T.float32)
        T.use_swizzle(panel_size=panel, enable=panel > 0)
        T.clear(acc)
        for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
            T.copy(X[by * block_M, k * block_K], X_s)
            T.copy(W[bx * block_N, k * block_K], W_s)
            T.gemm(X_s, W_s, acc, transpose_B=True)
        T.copy(acc, Y[by * block_M, bx * block_N])
    return Y


def _two_products(A, B, C):
    """``A @ B + A @ C`` in blocks of 64 x 64: by TMA, four tensors with a descriptor each."""
    M, N, K = T.const("M, N, K")
    A: T.Tensor((M, K), T.float16)
    B: T.Tensor((K, N), T.float16)
    C: T.Tensor((K, N), T.float16)
    Y = T.empty((M, N), T.float16)
    with T.Kernel(T.ceildiv(N, 64), T.ceildiv(M, 64), threads=128) as (bx, by):
        A_s = T.alloc_shared((64, 64), T.float16)
        B_s = T.alloc_shared((64, 64), T.float16)
        C_s = T.alloc_shared((64, 64), T.float16)
        acc = T.alloc_fragment((64, 64), T.float32)
        T.clear(acc)
        for k in T.Pipelined(T.ceildiv(K, 64), num_stages=2):
            T.copy(A[by * 64, k * 64], A_s)
            T.copy(B[k * 64, bx * 64], B_s)
            T.copy(C[k * 64, bx * 64], C_s)
            T.gemm(A_s, B_s, acc)
            T.gemm(A_s, C_s, acc)
        T.copy(acc, Y[by * 64, bx * 64])
    return Y


bench_described = tileops.jit(name="bench_described", differentiable=False)(_two_products)
bench_pointers = tileops.jit(
    name="bench_pointers", differentiable=False, pass_configs={"tl.disable_tma_lower": True}
)(_two_products)


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
