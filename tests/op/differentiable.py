"""Programs with gradients: forward and backward are both programs."""

from __future__ import annotations

import torch

import tileops
import tileops.language as T


@tileops.jit(name="grad_scaled_product")
def scaled_product(X, Y, alpha: T.float64 = 1.0, dtype: str = "float32", block_N: int = 128):
    """``alpha * x * y``."""
    M, N = T.dynamic("M, N")
    X: T.Tensor((M, N), dtype)
    Y: T.Tensor((M, N), dtype)
    Z = T.empty((M, N), dtype)
    with T.Kernel(M, T.ceildiv(N, block_N)) as (bx, by):
        for i in T.Parallel(block_N):
            Z[bx, by * block_N + i] = (
                T.cast(alpha, dtype) * X[bx, by * block_N + i] * Y[bx, by * block_N + i]
            )
    return Z


def save_factors(ctx, inputs, keyword_only_inputs, output):
    x, y, alpha = inputs
    ctx.save_for_backward(x, y)
    ctx.alpha, ctx.dtype = alpha, keyword_only_inputs["dtype"]


def scaled_product_backward(ctx, grad):
    x, y = ctx.saved_tensors
    need_x, need_y, _ = ctx.needs_input_grad
    dx = scaled_product(grad, y, ctx.alpha, dtype=ctx.dtype) if need_x else None
    dy = scaled_product(grad, x, ctx.alpha, dtype=ctx.dtype) if need_y else None
    return dx, dy, None


scaled_product.register_autograd(scaled_product_backward, setup_context=save_factors)


@tileops.jit(name="grad_split")
def split(X, block_N: int = 128):
    """Positive and negative part: two outputs."""
    N = T.dynamic("N")
    X: T.Tensor((N,), T.float32)
    P = T.empty((N,), T.float32)
    Q = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block_N)) as bx:
        for i in T.Parallel(block_N):
            P[bx * block_N + i] = T.max(X[bx * block_N + i], 0)
            Q[bx * block_N + i] = T.min(X[bx * block_N + i], 0)
    return P, Q


@tileops.jit(name="grad_split_backward")
def split_backward(X, DP, DQ, block_N: int = 128):
    N = T.dynamic("N")
    X: T.Tensor((N,), T.float32)
    DP: T.Tensor((N,), T.float32)
    DQ: T.Tensor((N,), T.float32)
    DX = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block_N)) as bx:
        for i in T.Parallel(block_N):
            j = bx * block_N + i
            DX[j] = T.if_then_else(X[j] > 0, DP[j], DQ[j])
    return DX


def save_input(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])


split.register_autograd(
    lambda ctx, dp, dq: split_backward(ctx.saved_tensors[0], dp, dq), setup_context=save_input
)


def matrix(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, requires_grad=True)
