"""A function that gives the configs is asked at the first call: what was said before it counts."""

from __future__ import annotations

import torch

import tileops
import tileops.language as T


@tileops.autotune(configs=lambda A: [{"block": 64}], timer=lambda config, kernel, inputs: 1.0)
@tileops.jit(name="configs_of_a_call")
def doubled(A, block=None):
    N = T.const("N")
    A: T.Tensor((N,), T.float32)
    B = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block), threads=64) as bx:
        for i in T.Parallel(block):
            B[bx * block + i] = A[bx * block + i] * 2
    return B


def test_rules_registered_before_the_first_call() -> None:
    doubled.register_autograd(lambda ctx, grad: grad * 2)
    doubled.register_vmap(lambda info, dims, a: (torch.stack([doubled(x) for x in a]), 0))
    x = torch.randn(64, requires_grad=True)
    doubled(x).sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, torch.full((64,), 2.0))
    a = torch.randn(3, 64)
    assert torch.equal(torch.vmap(doubled)(a), a * 2)


def test_warmup_where_the_default_is_refused() -> None:
    @tileops.autotune(
        configs=[{"block": 32}, {"block": 96}], timer=lambda config, kernel, inputs: 1.0
    )
    @tileops.jit(name="default_is_refused")
    def divided(A, block: int = 64):
        N = T.const("N")
        assert N % block == 0
        A: T.Tensor((N,), T.float32)
        B = T.empty((N,), T.float32)
        with T.Kernel(N // block, threads=64) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] / 2
        return B

    a = torch.randn(96)
    tileops.warmup([(divided, a)])
    with tileops.option.strict():
        assert torch.equal(divided(a), a / 2)
