"""Programs to tune in tests, and a timer that decides by config and counts what it is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tileops
import tileops.language as T


class FakeTimer:
    """Milliseconds by a parameter's value; ``calls`` are the configs in order."""

    __name__ = __qualname__ = "FakeTimer"

    def __init__(self, times: Mapping[Any, float], name: str = "block") -> None:
        self.times = times
        self.name = name
        self.calls: list[Any] = []

    def __call__(self, config: Mapping[str, Any], kernel: Any, inputs: Sequence[Any]) -> float:
        self.calls.append(config[self.name])
        return self.times[config[self.name]]


def fresh_const():  # type: ignore[no-untyped-def]
    """The program anew, as a process that starts has it."""

    @tileops.jit(name="tuned_double_const")
    def double(A, block: int = 16, scale: int = 2):  # type: ignore[no-untyped-def]
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        B = T.empty((N,), T.float32)
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] * scale
        return B

    return double


def fresh_other():  # type: ignore[no-untyped-def]
    """Another program with the parameters and sizes of ``fresh_const``."""

    @tileops.jit(name="tuned_other_const")
    def other(A, block: int = 16, scale: int = 2):  # type: ignore[no-untyped-def]
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        B = T.empty((N,), T.float32)
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] * scale + 1
        return B

    return other


def fresh_dynamic():  # type: ignore[no-untyped-def]
    """A program of a run-time size."""

    @tileops.jit(name="tuned_double_dynamic")
    def double(A, block: int = 16):  # type: ignore[no-untyped-def]
        N = T.dynamic("N")
        A: T.Tensor((N,), T.float32)
        B = T.empty((N,), T.float32)
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] * 2
        return B

    return double


def fresh_in_place():  # type: ignore[no-untyped-def]
    """A program that adds one to its argument."""

    @tileops.jit(name="tuned_add_one")
    def add_one(A, block: int = 16):  # type: ignore[no-untyped-def]
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            for i in T.Parallel(block):
                A[bx * block + i] = A[bx * block + i] + 1

    return add_one


def fresh_atomic():  # type: ignore[no-untyped-def]
    """A program that adds each element of ``A`` to one of ten sums."""

    @tileops.jit(name="tuned_atomic_sums")
    def sums(A, total, block: int = 16):  # type: ignore[no-untyped-def]
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        total: T.Tensor((10,), T.float32)
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            for i in T.Parallel(block):
                if bx * block + i < N:
                    T.atomic_add(total[(bx * block + i) % 10], A[bx * block + i])

    return sums


def fresh_lazy():  # type: ignore[no-untyped-def]
    """A lazy program whose tunable parameter has no value of its own."""

    @tileops.jit(out_idx=[-1], name="tuned_lazy")
    def lazy(N, block=None):  # type: ignore[no-untyped-def]
        @T.prim_func
        def main(A: T.Tensor((N,), T.float32), B: T.Tensor((N,), T.float32)):  # type: ignore[no-untyped-def]
            with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
                for i in T.Parallel(block):
                    B[bx * block + i] = A[bx * block + i] * 2

        return main

    return lazy
