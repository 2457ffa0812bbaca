"""Operands of products that the program makes, in roles: who shares them, when, and what comes out."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tileops.language as T
from tests.compile.test_schedules_compute import in_one_role
from tests.kit.schedules import schedules_of
from tileops.ir.schedule import Issue, Share
from tileops.ir.stmt import For
from tileops.ir.walk import walk
from tileops.passes.hopper.check_schedule import THOROUGH

M, K, N, STEP = 256, 192, 64, 64
Made = Any


def made_before(rows: int) -> Made:
    """What the loop reads is made in front of it: products of two iterations are in flight."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), T.float16), W: T.Tensor((STEP, N), T.float16),
        C: T.Tensor((M, N), T.float32),
    ):  # fmt: skip
        with T.Kernel(M // rows, threads=128) as bx:
            A_s = T.alloc_shared((rows, STEP), T.float16)
            W_f = T.alloc_fragment((STEP, N), T.float16)
            W_s = T.alloc_shared((STEP, N), T.float16)
            acc = T.alloc_fragment((rows, N), T.float32)
            T.copy(W, W_f)
            for i, j in T.Parallel(STEP, N):
                W_s[i, j] = W_f[i, j] * 2
            T.clear(acc)
            for k in T.Pipelined(K // STEP, num_stages=2):
                T.copy(A[bx * rows, k * STEP], A_s)
                T.gemm(A_s, W_s, acc)
            T.copy(acc, C[bx * rows, 0])

    return main


def made_before_expected(a: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return a.double().view(M, K // STEP, STEP).sum(1) @ (2 * w.double())


def changed_between(rows: int) -> Made:
    """Two products of one operand, which changes between them, given as the rows of its columns."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), T.float16), W: T.Tensor((N, STEP), T.float16),
        C: T.Tensor((M, N), T.float32),
    ):  # fmt: skip
        with T.Kernel(M // rows, threads=128) as bx:
            A_s = T.alloc_shared((rows, STEP), T.float16)
            W_f = T.alloc_fragment((N, STEP), T.float16)
            W_s = T.alloc_shared((N, STEP), T.float16)
            acc = T.alloc_fragment((rows, N), T.float32)
            T.copy(W, W_f)
            T.clear(acc)
            for k in T.Pipelined(K // STEP, num_stages=2):
                T.copy(A[bx * rows, k * STEP], A_s)
                for i, j in T.Parallel(N, STEP):
                    W_s[i, j] = W_f[i, j] + T.cast(k, T.float16)
                T.gemm(A_s, W_s, acc, transpose_B=True)
                for i, j in T.Parallel(N, STEP):
                    W_s[i, j] = W_s[i, j] * 2
                T.gemm(A_s, W_s, acc, transpose_B=True)
            T.copy(acc, C[bx * rows, 0])

    return main


def changed_between_expected(a: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    parts = a.double().split(STEP, 1)
    return sum(3 * part @ (w.double() + k).T for k, part in enumerate(parts))  # type: ignore[return-value]


PROGRAMS = {
    "made before": (made_before, made_before_expected, (STEP, N)),
    "changed between": (changed_between, changed_between_expected, (N, STEP)),
}


@pytest.mark.parametrize("rows", [64, 128, 256])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_right(name: str, rows: int) -> None:
    """Small integers: every sum is exact."""
    program, expected, shape = PROGRAMS[name]
    prim = program(rows)
    (scheduled,) = schedules_of(prim.program, name)
    assert scheduled.check(effort=THOROUGH) >= THOROUGH.worlds * THOROUGH.orders
    assert scheduled.schedule.groups == 1
    _, kernel = in_one_role(prim, name)
    a, w = (torch.randint(-3, 4, s).half() for s in ((M, K), shape))
    c = torch.empty(M, N)
    kernel(a, w, c)
    assert torch.equal(c.double(), expected(a, w))


@pytest.mark.parametrize(("name", "inside"), [("made before", 0), ("changed between", 2)])
def test_what_a_loop_does_not_change_is_shared_once(name: str, inside: int) -> None:
    (scheduled,) = schedules_of(PROGRAMS[name][0](64).program, name)
    every = list(walk(scheduled.schedule.math))
    (loop,) = (s for s in every if isinstance(s, For) and any(isinstance(x, Issue) for x in s.body))
    assert sum(isinstance(s, Share) for s in walk(loop.body)) == inside
    assert sum(isinstance(s, Share) for s in every) == max(1, inside)


@pytest.mark.parametrize("rows", [64, 128])
def test_groups_of_warps_that_exchange_an_operand_make_none(rows: int) -> None:
    @T.prim_func
    def main(
        A: T.Tensor((M, 64), T.float16), C: T.Tensor((rows, N), T.float32),
        D: T.Tensor((rows, 64), T.float32),
    ):  # fmt: skip
        with T.Kernel(1, threads=256):
            A_s = T.alloc_shared((rows, 64), T.float16)
            S_s = T.alloc_shared((64, N), T.float16)
            P_s = T.alloc_shared((rows, rows), T.float16)
            P = T.alloc_fragment((rows, rows), T.float32)
            c = T.alloc_fragment((rows, N), T.float32)
            d = T.alloc_fragment((rows, 64), T.float32)
            T.clear(c)
            T.clear(d)
            for i, j in T.Parallel(64, N):
                S_s[i, j] = T.cast(i - j, T.float16)
            for k in T.Pipelined(M // rows, num_stages=2):
                T.copy(A[k * rows, 0], A_s)
                T.gemm(A_s, S_s, c)
                T.gemm(A_s, A_s, P, transpose_B=True, clear_accum=True)
                T.copy(P, P_s)
                T.gemm(P_s, A_s, d, transpose_A=True)
            T.copy(c, C)
            T.copy(d, D)

    found = list(schedules_of(main.program, "exchanged"))
    assert len(found) == (rows == 64)
    for scheduled in found:
        assert scheduled.check(effort=THOROUGH)
