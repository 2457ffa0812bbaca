"""Programs that hand out work to groups of threads and order it by barriers of their own."""

from __future__ import annotations

from collections.abc import Iterator

import torch

import tileops
import tileops.language as T
from tests.programs.attention import attend
from tests.programs.family_case import FamilyCase, exact, product, randn, rounded


@tileops.jit
def matmul_in_bodies(A, B, slots: int = 2, block_M: int = 64, block_N: int = 64, block_K: int = 32):
    """``T.ws`` bodies in one loop: group 1 fills slots, group 0 multiplies."""
    M, N, K = T.const("M, N, K")
    A: T.Tensor((M, K), T.float16)
    B: T.Tensor((K, N), T.float16)
    C = T.empty((M, N), T.float16)
    with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=256) as (bx, by):
        A_s = T.alloc_shared((slots, block_M, block_K), T.float16)
        B_s = T.alloc_shared((slots, block_K, block_N), T.float16)
        acc = T.alloc_fragment((block_M, block_N), T.float32)
        full = T.alloc_barrier([128] * slots)
        empty = T.alloc_barrier([128] * slots)
        with T.ws(0):
            T.clear(acc)
        for k in T.serial(T.ceildiv(K, block_K)):
            slot = k % slots
            with T.ws(1):
                T.mbarrier_wait_parity(empty[slot], (k // slots) % 2 ^ 1)
                T.tma_copy(
                    A[by * block_M : (by + 1) * block_M, k * block_K : (k + 1) * block_K],
                    A_s[slot, :, :],
                    barrier=full[slot],
                )
                T.tma_copy(
                    B[k * block_K : (k + 1) * block_K, bx * block_N : (bx + 1) * block_N],
                    B_s[slot, :, :],
                    barrier=full[slot],
                )
                T.mbarrier_arrive(full[slot])
            with T.ws(0):
                T.mbarrier_wait_parity(full[slot], (k // slots) % 2)
                T.gemm(A_s[slot, :, :], B_s[slot, :, :], acc)
                T.mbarrier_arrive(empty[slot])
        with T.ws(0):
            T.copy(acc, C[by * block_M, bx * block_N])
    return C


@tileops.jit
def matmul_in_branches(
    A, B, slots: int = 3, block_M: int = 64, block_N: int = 64, block_K: int = 32
):
    """Branches on the thread index with loops of their own; one product stays in flight."""
    M, N, K = T.dynamic("M, N, K")
    A: T.Tensor((M, K), T.float16)
    B: T.Tensor((N, K), T.float16)
    C = T.empty((M, N), T.float16)
    with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=256) as (bx, by):
        A_s = T.alloc_shared((slots, block_M, block_K), T.float16)
        B_s = T.alloc_shared((slots, block_N, block_K), T.float16)
        C_s = T.alloc_shared((block_M, block_N), T.float16)
        acc = T.alloc_fragment((block_M, block_N), T.float32)
        full = T.alloc_barrier([1] * slots)
        empty = T.alloc_barrier([128] * slots)
        tx = T.get_thread_binding()
        steps = T.ceildiv(K, block_K)
        if tx < 128:
            T.dec_max_nreg(24)
            if T.shuffle_elect(128):
                for k in T.serial(steps):
                    T.barrier_wait(empty[k % slots], ((k // slots) & 1) ^ 1)
                    T.tma_copy(
                        A[by * block_M : (by + 1) * block_M, k * block_K : (k + 1) * block_K],
                        A_s[k % slots, :, :],
                        barrier=full[k % slots],
                    )
                    T.tma_copy(
                        B[bx * block_N : (bx + 1) * block_N, k * block_K : (k + 1) * block_K],
                        B_s[k % slots, :, :],
                        barrier=full[k % slots],
                    )
                    T.barrier_arrive(full[k % slots])
        else:
            T.inc_max_nreg(240)
            T.clear(acc)
            for k in T.serial(steps):
                T.barrier_wait(full[k % slots], (k // slots) & 1)
                T.wgmma_gemm(A_s[k % slots, :, :], B_s[k % slots, :, :], acc, transpose_B=True)
                T.wait_wgmma(1)
                if k > 0:
                    T.barrier_arrive(empty[(k - 1) % slots])
            T.wait_wgmma(0)
            if steps > 0:
                T.barrier_arrive(empty[(steps - 1) % slots])
            T.copy(acc, C_s)
            T.fence_proxy_async()
            T.sync_threads(1, 128)
            T.tma_copy(C_s, C[by * block_M, bx * block_N])
            T.tma_store_arrive()
            T.tma_store_wait(0)
    return C


@tileops.jit
def matmul_of_threads(A, B, block_M: int = 64, block_N: int = 64, block_K: int = 64):
    """Each thread of group 1 copies 8 elements at a time; the barrier counts its copies."""
    M, N, K = T.const("M, N, K")
    A: T.Tensor((M, K), T.float16)
    B: T.Tensor((N, K), T.float16)
    C = T.empty((M, N), T.float32)
    with T.Kernel(N // block_N, M // block_M, threads=256) as (bx, by):
        A_s = T.alloc_shared((2, block_M, block_K), T.float16)
        B_s = T.alloc_shared((2, block_N, block_K), T.float16)
        acc = T.alloc_fragment((block_M, block_N), T.float32)
        full = T.alloc_barrier([128] * 2)
        empty = T.alloc_barrier([128] * 2)
        tx = T.get_thread_binding()
        if tx < 128:
            T.clear(acc)
            for k in T.serial(K // block_K):
                T.barrier_wait(full[k % 2], (k // 2) % 2)
                T.gemm(A_s[k % 2, :, :], B_s[k % 2, :, :], acc, transpose_B=True)
                T.barrier_arrive(empty[k % 2])
            T.copy(acc, C[by * block_M, bx * block_N])
        else:
            for k in T.serial(K // block_K):
                T.barrier_wait(empty[k % 2], (k // 2) % 2 ^ 1)
                for r in T.serial(block_M // 16):
                    row, column = r * 16 + (tx - 128) // 8, (tx - 128) % 8 * 8
                    T.ptx_cp_async(
                        T.access_ptr(A_s[k % 2, row, column], "w", 8),
                        T.access_ptr(A[by * block_M + row, k * block_K + column], "r", 8),
                        8,
                    )
                for r in T.serial(block_N // 16):
                    row, column = r * 16 + (tx - 128) // 8, (tx - 128) % 8 * 8
                    T.ptx_cp_async(
                        T.access_ptr(B_s[k % 2, row, column], "w", 8),
                        T.access_ptr(B[bx * block_N + row, k * block_K + column], "r", 8),
                        8,
                    )
                T.cp_async_barrier_noinc(full[k % 2])
    return C


@tileops.jit
def matmul_in_groups(A, B, block_M: int = 64, block_N: int = 64, block_K: int = 32):
    """No roles: copies by cp.async, one group ahead of the products."""
    M, N, K = T.const("M, N, K")
    A: T.Tensor((M, K), T.float16)
    B: T.Tensor((K, N), T.float16)
    C = T.empty((M, N), T.float32)
    with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
        A_s = T.alloc_shared((block_M, block_K), T.float16)
        B_s = T.alloc_shared((block_K, block_N), T.float16)
        acc = T.alloc_fragment((block_M, block_N), T.float32)
        T.clear(acc)
        for k in T.serial(T.ceildiv(K, block_K)):
            T.async_copy(A[by * block_M, k * block_K], A_s)
            T.async_copy(B[k * block_K, bx * block_N], B_s)
            T.ptx_wait_group(0)
            T.gemm(A_s, B_s, acc)
        T.copy(acc, C[by * block_M, bx * block_N])
    return C


@tileops.jit
def attention_in_roles(
    Q, K, V, scale: float = 64**-0.5 * 1.44269504, block_M: int = 64, block_N: int = 64
):
    """One group loads K and V into two slots each, the other one computes."""
    B, S, H, D = T.const("B, S, H, D")
    Q: T.Tensor((B, S, H, D), T.float16)
    K: T.Tensor((B, S, H, D), T.float16)
    V: T.Tensor((B, S, H, D), T.float16)
    O = T.empty((B, S, H, D), T.float16)
    with T.Kernel(T.ceildiv(S, block_M), H, B, threads=256) as (bx, by, bz):
        Q_s = T.alloc_shared((block_M, D), T.float16)
        K_s = T.alloc_shared((2, block_N, D), T.float16)
        V_s = T.alloc_shared((2, block_N, D), T.float16)
        s = T.alloc_fragment((block_M, block_N), T.float32)
        p = T.alloc_fragment((block_M, block_N), T.float16)
        acc = T.alloc_fragment((block_M, D), T.float32)
        top = T.alloc_fragment((block_M,), T.float32)
        before = T.alloc_fragment((block_M,), T.float32)
        part = T.alloc_fragment((block_M,), T.float32)
        total = T.alloc_fragment((block_M,), T.float32)
        q_full = T.alloc_barrier(128)
        k_full = T.alloc_barrier([128, 128])
        k_empty = T.alloc_barrier([128, 128])
        v_full = T.alloc_barrier([128, 128])
        v_empty = T.alloc_barrier([128, 128])
        tx = T.get_thread_binding()
        if tx >= 128:
            T.set_max_nreg(24, 0)
            T.tma_copy(Q[bz, bx * block_M : (bx + 1) * block_M, by, :], Q_s, barrier=q_full)
            T.barrier_arrive(q_full)
            for k in T.serial(T.ceildiv(S, block_N)):
                T.barrier_wait(k_empty[k % 2], (k // 2) % 2 ^ 1)
                T.tma_copy(
                    K[bz, k * block_N : (k + 1) * block_N, by, :],
                    K_s[k % 2, :, :],
                    barrier=k_full[k % 2],
                )
                T.barrier_arrive(k_full[k % 2])
                T.barrier_wait(v_empty[k % 2], (k // 2) % 2 ^ 1)
                T.tma_copy(
                    V[bz, k * block_N : (k + 1) * block_N, by, :],
                    V_s[k % 2, :, :],
                    barrier=v_full[k % 2],
                )
                T.barrier_arrive(v_full[k % 2])
        else:
            T.set_max_nreg(240, 1)
            T.clear(acc)
            T.clear(total)
            T.fill(top, -T.infinity("float32"))
            T.barrier_wait(q_full, 0)
            for k in T.serial(T.ceildiv(S, block_N)):
                for i, j in T.Parallel(block_M, block_N):
                    s[i, j] = T.if_then_else(k * block_N + j < S, 0, -T.infinity("float32"))
                T.barrier_wait(k_full[k % 2], (k // 2) % 2)
                T.gemm(Q_s, K_s[k % 2, :, :], s, transpose_B=True)
                T.barrier_arrive(k_empty[k % 2])
                T.copy(top, before)
                T.reduce_max(s, top, dim=1, clear=False)
                for i, j in T.Parallel(block_M, block_N):
                    s[i, j] = T.exp2(s[i, j] * scale - top[i] * scale)
                T.reduce_sum(s, part, dim=1)
                for i in T.Parallel(block_M):
                    total[i] = total[i] * T.exp2((before[i] - top[i]) * scale) + part[i]
                for i, j in T.Parallel(block_M, D):
                    acc[i, j] *= T.exp2((before[i] - top[i]) * scale)
                T.copy(s, p)
                T.barrier_wait(v_full[k % 2], (k // 2) % 2)
                T.gemm(p, V_s[k % 2, :, :], acc)
                T.barrier_arrive(v_empty[k % 2])
            for i, j in T.Parallel(block_M, D):
                acc[i, j] /= total[i]
            T.copy(acc, O[bz, bx * block_M : (bx + 1) * block_M, by, :])
    return O


@tileops.jit
def halves_of_columns(A, B, C, block_M: int = 64, block_N: int = 64):
    """Two groups multiply what one of them made: ``(A B) C``, each for half of the columns."""
    M, K, N, P = T.const("M, K, N, P")
    A: T.Tensor((M, K), T.float16)
    B: T.Tensor((K, N), T.float16)
    C: T.Tensor((N, P), T.float16)
    D = T.empty((M, P), T.float32)
    half = P // 2
    with T.Kernel(T.ceildiv(M, block_M), threads=256) as bx:
        A_s = T.alloc_shared((block_M, K), T.float16)
        B_s = T.alloc_shared((K, block_N), T.float16)
        C_s = T.alloc_shared((block_N, P), T.float16)
        S_s = T.alloc_shared((block_M, block_N), T.float16)
        s = T.alloc_fragment((block_M, block_N), T.float32)
        left = T.alloc_fragment((block_M, half), T.float32)
        right = T.alloc_fragment((block_M, half), T.float32)
        loaded = T.alloc_barrier(128)
        made = T.alloc_barrier(256)
        read = T.alloc_barrier(128)
        T.copy(A[bx * block_M, 0], A_s)
        tx = T.get_thread_binding()
        if tx < 128:
            T.clear(left)
            for n in T.serial(T.ceildiv(N, block_N)):
                if n > 0:
                    T.barrier_wait(read, (n - 1) % 2)
                T.tma_copy(B[0, n * block_N], B_s, barrier=loaded)
                T.tma_copy(C[n * block_N, 0], C_s, barrier=loaded)
                T.barrier_arrive(loaded)
                T.barrier_wait(loaded, n % 2)
                T.gemm(A_s, B_s, s, clear_accum=True)
                T.copy(s, S_s)
                T.barrier_arrive(made)
                T.gemm(S_s, C_s[:, 0:half], left)
            T.copy(left, D[bx * block_M, 0])
        else:
            T.clear(right)
            for n in T.serial(T.ceildiv(N, block_N)):
                T.barrier_arrive(made)
                T.barrier_wait(made, n % 2)
                T.gemm(S_s, C_s[:, half:P], right)
                T.barrier_arrive(read)
            T.copy(right, D[bx * block_M, half])
    return D


@tileops.jit
def handed_over(A, rows: int = 512):
    """Barriers of the hardware: one group copies rows, thread by thread, the other one doubles."""
    N = T.const("N")
    A: T.Tensor((N,), T.float32)
    B = T.empty((N,), T.float32)
    with T.Kernel(1, threads=256):
        tile = T.alloc_shared((rows,), T.float32)
        twice = T.alloc_fragment((rows,), T.float32)
        done = T.alloc_barrier(arrive_count=256)
        tx = T.get_thread_binding()
        count = N // rows
        if tx >= 128:
            for k in T.serial(count):
                if k > 0:
                    T.sync_threads(2, 256)
                place = (tx - 128) * 4
                T.ptx_cp_async(
                    T.access_ptr(tile[place], "w", 4),
                    T.access_ptr(A[k * rows + place], "r", 4),
                    4,
                )
                T.ptx_commit_group()
                T.ptx_wait_group(0)
                T.named_barrier_arrive(1, 256)
            T.mbarrier_arrive_expect_tx(done, 0)
        else:
            for k in T.serial(count):
                T.sync_threads(1, 256)
                for i in T.Parallel(rows):
                    twice[i] = tile[i] * 2
                if k < count - 1:
                    T.named_barrier_arrive(2, 256)
                T.copy(twice, B[k * rows])
            T.mbarrier_expect_tx(done, 0)
            T.mbarrier_arrive(done)
        T.mbarrier_wait_parity(done, 0)
    return B


# -- cases -----------------------------------------------------------------------------------------
def _pair(m: int, n: int, k: int, *, transposed: bool = False) -> tuple[torch.Tensor, ...]:
    b = randn(n, k, dtype=torch.float16) if transposed else randn(k, n, dtype=torch.float16)
    return randn(m, k, dtype=torch.float16), b


def _halves_reference(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> list:
    value, bound = product(a, b)
    middle, lost = rounded((value, bound), torch.float16)
    total, own = product(middle, c.double())
    return [(total, own + lost @ c.double().abs())]


def _attention_reference(*given: torch.Tensor) -> list:
    value, bound = attend(*(x.transpose(1, 2) for x in given))
    return [rounded((value.transpose(1, 2), bound.transpose(1, 2)), torch.float16)]


def _cases() -> Iterator[FamilyCase]:
    for name, k in (("long", 200), ("short", 20)):
        yield FamilyCase(
            f"explicit_bodies_{name}",
            matmul_in_bodies,
            lambda k=k: _pair(70, 130, k),
            lambda a, b: [rounded(product(a, b), torch.float16)],
        )
    yield FamilyCase(
        "explicit_branches",
        matmul_in_branches,
        lambda: _pair(80, 144, 208, transposed=True),
        lambda a, b: [rounded(product(a, b.T), torch.float16)],
    )
    yield FamilyCase(
        "explicit_threads",
        matmul_of_threads,
        lambda: _pair(64, 128, 192, transposed=True),
        lambda a, b: [product(a, b.T)],
    )
    yield FamilyCase(
        "explicit_groups",
        matmul_in_groups,
        lambda: _pair(70, 130, 100),
        lambda a, b: [product(a, b)],
    )
    yield FamilyCase(
        "explicit_attention",
        attention_in_roles,
        lambda: tuple(randn(1, 100, 2, 64, dtype=torch.float16) for _ in range(3)),
        _attention_reference,
    )
    yield FamilyCase(
        "explicit_halves",
        halves_of_columns,
        lambda: tuple(randn(*s, dtype=torch.float16) for s in ((70, 64), (64, 160), (160, 128))),
        _halves_reference,
    )
    yield FamilyCase(
        "explicit_handed_over", handed_over, lambda: (randn(2048),), lambda a: [exact(a * 2)]
    )


CASES = tuple(_cases())
