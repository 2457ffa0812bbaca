"""Nests whose extents are no powers of two: the lanes that only pad a tile take no part in anything."""

from __future__ import annotations

import torch

import tileops.language as T
from tests.kit.interpreted import run


def test_a_condition_that_holds_for_padding() -> None:
    """What masks give for the padding, 0, satisfies the condition that no element satisfies."""

    def program(A):
        A: T.Tensor((12,), T.float32)
        B = T.empty((2,), T.float32)
        with T.Kernel(1, threads=32):
            B[0] = 5.0
            B[1] = 5.0
            for i in T.Parallel(12):
                if A[i] == 0:
                    B[0] = 1.0
        return B

    (out,) = run(program, torch.arange(12.0) + 1)
    assert out.tolist() == [5, 5]


def test_atomics_of_padding() -> None:
    def program(A):
        A: T.Tensor((12,), T.float32)
        B = T.empty((3,), T.float32)
        with T.Kernel(1, threads=32):
            for i in T.Parallel(3):
                B[i] = 0
            for i in T.Parallel(12):
                T.atomic_add(B[0], A[i] + 1)
                if A[i] == 0:
                    T.atomic_add(B[1], 1.0)
                T.atomic_add(B[2], 1.0)
        return B

    (out,) = run(program, torch.arange(12.0) + 1)
    assert out.tolist() == [90, 0, 12]
