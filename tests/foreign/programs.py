"""Programs that launch the kernels of ``kernels``."""

from __future__ import annotations

import triton

import tileops
import tileops.language as T
from tests.foreign import kernels

D = T.DTypeVar("D", T.float16, T.bfloat16, T.float32)


def settings(n: int) -> tuple[int, int]:
    """What public libraries compute in Python before a launch."""
    block = triton.next_power_of_2(n)
    if block > 65536:
        raise RuntimeError("a row is too long")
    return block, 4 if block < 1024 else 8


@tileops.jit(name="foreign_rms")
def rms(X, W, eps: T.float32 = 1e-6):
    R, N = T.dynamic("R"), T.const("N")
    X: T.Tensor((R, N), D)
    W: T.Tensor((N,), D)
    Y, rstd = T.empty((R, N), D), T.empty((R,), T.float32)
    with T.Extern():
        BLOCK, warps = settings(N)
        kernels.rms_fwd[(R,)](
            X, Y, W, rstd, X.stride(0), Y.stride(0), N, eps, BLOCK=BLOCK, num_warps=warps
        )
    return Y, rstd


@tileops.jit(name="foreign_matmul")
def matmul(A, B, BM: int = 64, BN: int = 64, BK: int = 32):
    M, N, K = T.dynamic("M, N, K")
    A: T.Tensor((M, K), T.float16)
    B: T.Tensor((K, N), T.float16)
    C = T.empty((M, N), T.float16)
    with T.Extern():
        grid = lambda m: (triton.cdiv(M, m["BM"]), triton.cdiv(N, m["BN"]))  # noqa: E731
        kernels.matmul[grid](
            A, B, C, M, N, K, A.stride(0), A.stride(1), B.stride(0), B.stride(1), C.stride(0),
            C.stride(1), BM, BN, BK, K % BK == 0,
        )  # fmt: skip
    return C


@tileops.jit(name="foreign_add")
def add(X, Y):
    N = T.dynamic("N")
    X: T.Tensor((N,), D)
    Y: T.Tensor((N,), D)
    Z = T.empty((N,), D)
    with T.Extern():
        kernels.add[(triton.cdiv(N, 1024),)](X, Y, Z, N, BLOCK=1024)
    return Z


@tileops.jit(name="foreign_product")
def product(X):
    M, N = T.dynamic("M, N")
    X: T.Tensor((M, N), T.float32)
    Y = T.empty((M, N), T.float32)
    with T.Extern():
        kernels.doubled[(min(M, 4),)](X, Y, M * N, BLOCK=256)
    return Y
