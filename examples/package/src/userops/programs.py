"""The programs. Importing them needs no torch, so a build does not either."""

import tileops
import tileops.language as T

SLOPE = 0.125


@tileops.jit(name="userops::leaky")
def leaky(X):
    """The leaky rectifier."""
    N = T.dynamic("N")
    X: T.Tensor((N,), T.float32)
    Y = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, 256), threads=128) as bx:
        for i in T.Parallel(256):
            Y[bx * 256 + i] = T.max(X[bx * 256 + i], 0.0) + T.min(X[bx * 256 + i], 0.0) * SLOPE
    return Y


@tileops.jit(name="userops::leaky_grad")
def leaky_grad(X, G):
    N = T.dynamic("N")
    X: T.Tensor((N,), T.float32)
    G: T.Tensor((N,), T.float32)
    D = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, 256), threads=128) as bx:
        for i in T.Parallel(256):
            slope = T.if_then_else(X[bx * 256 + i] > 0.0, 1.0, SLOPE)
            D[bx * 256 + i] = G[bx * 256 + i] * slope
    return D


def _save(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])


def _backward(ctx, grad):
    return leaky_grad(*ctx.saved_tensors, grad)


leaky.register_autograd(_backward, setup_context=_save)


@tileops.jit(name="userops::scores")
def scores(A, B, block: int = 32):
    """A @ B for sizes that the package's wheel has kernels for, and for others compiled anew."""
    M, N, K = T.const("M, N, K")
    A: T.Tensor((M, K), T.float32)
    B: T.Tensor((K, N), T.float32)
    C = T.empty((M, N), T.float32)
    with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=128) as (bx, by):
        A_s = T.alloc_shared((block, 32), T.float32)
        B_s = T.alloc_shared((32, block), T.float32)
        acc = T.alloc_fragment((block, block), T.float32)
        T.clear(acc)
        for k in T.Pipelined(T.ceildiv(K, 32), num_stages=2):
            T.copy(A[by * block, k * 32], A_s)
            T.copy(B[k * 32, bx * block], B_s)
            T.gemm(A_s, B_s, acc)
        T.copy(acc, C[by * block, bx * block])
    return C
