"""Threads that read what other threads of their block wrote, with no barrier in the program."""

from __future__ import annotations

import torch

import tileops
import tileops.language as T


@tileops.jit
def turned(A):
    N = T.const("N")
    A: T.Tensor((N,), T.float32)
    B = T.empty((N,), T.float32)
    with T.Kernel(N // 64, threads=64) as bx:
        tx = T.get_thread_binding(0)
        tile = T.alloc_shared((64,), T.float32)
        tile[tx] = A[bx * 64 + tx]
        B[bx * 64 + tx] = tile[63 - tx]
    return B


@tileops.jit
def sums_by_halves(A):
    N = T.const("N")
    A: T.Tensor((N, 64), T.int32)
    B = T.empty((N, 64), T.int32)
    with T.Kernel(N, threads=64) as bx:
        tx = T.get_thread_binding(0)
        tile = T.alloc_shared((64,), T.int32)
        tile[tx] = A[bx, tx]
        for i in T.serial(6):
            both = tile[tx] + tile[tx ^ (1 << i)]
            tile[tx] = both
        B[bx, tx] = tile[tx]
    return B


@tileops.jit
def products_of_rows(A, B, rows: int = 8, parts: int = 4):
    N, K = T.const("N, K")
    A: T.Tensor((K,), T.float32)
    B: T.Tensor((N, K), T.float32)
    C = T.empty((N,), T.float32)
    with T.Kernel(N // rows, threads=(rows, parts)) as bx:
        tn = T.get_thread_binding(0)
        tk = T.get_thread_binding(1)
        own = T.alloc_local((1,), T.float32)
        total = T.alloc_shared((rows,), T.float32)
        if tk == 0:
            total[tn] = 0
        own[0] = 0.0
        for k in T.serial(K // parts):
            own[0] += A[k * parts + tk] * B[bx * rows + tn, k * parts + tk]
        T.atomic_add(total[tn], own[0])
        C[bx * rows + tn] = total[tn]
    return C


def test_elements_of_other_threads() -> None:
    a = torch.randn(192)
    assert torch.equal(turned(a), a.view(3, 64).flip(1).flatten())


def test_exchanges_in_a_loop() -> None:
    a = torch.randint(-1000, 1000, (3, 64), dtype=torch.int32)
    assert torch.equal(sums_by_halves(a), a.sum(1, keepdim=True).int().expand(3, 64))


def test_sums_of_threads() -> None:
    a, b = torch.randn(40), torch.randn(24, 40)
    exact = b.double() @ a.double()
    # 40 products and as many sums in float32.
    bound = 41 * 2.0**-23 * (b.double().abs() @ a.double().abs())
    assert ((products_of_rows(a, b).double() - exact).abs() <= bound).all()


def test_they_compile_for_gpus() -> None:
    for program, sizes in ((turned, {"N": 64}), (sums_by_halves, {"N": 2})):
        source = tileops.compile(program.get_tir(**sizes), target="cuda:sm_90").get_kernel_source()
        assert "tl.gather" in source


def test_iterations_that_meet_in_a_tile_wait_for_each_other() -> None:
    """Thread 0 touches in one iteration what thread 1 touched in the one before."""

    @tileops.jit(name="threads_meet_in_iterations")
    def met(A):
        A: T.Tensor((80,), T.float32)
        B = T.empty((80,), T.float32)
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((80,), T.float32)
            tx = T.get_thread_binding()
            for r in T.serial(2):
                if r * 64 + tx < 80:
                    s[r * 64 + tx] = A[r * 64 + tx]
            T.sync_threads()
            for i in T.serial(4):
                s[tx + i] = 2 * s[tx + i] + tx
            T.sync_threads()
            for r in T.serial(2):
                if r * 64 + tx < 80:
                    B[r * 64 + tx] = s[r * 64 + tx]
        return B

    given = torch.arange(80, dtype=torch.float32)
    expected = given.clone()
    for i in range(4):
        expected[i : i + 64] = 2 * expected[i : i + 64] + torch.arange(64)
    assert torch.equal(met(given), expected)
