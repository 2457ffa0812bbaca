"""A program whose configs are good or fail, each in its own way, on a GPU."""

from __future__ import annotations

import torch

import tileops
import tileops.language as T
from tileops.ir.program import Program

UNSAFE = {"tl.disable_safe_memory_legalize": True}
FAILURES = {
    "too_large": "shared_memory",
    "outside": "illegal_access",
    "loop": "timeout",
    "wrong": "wrong_result",
    "refused": "compile_error",
}


@tileops.jit(name="gpu_risky", pass_configs=UNSAFE)
def risky(A, B, how: str = "good", block: int = 64):
    """``A @ B`` for 64 x 1024 and 1024 x 64."""
    A: T.Tensor((64, 1024), T.float16)
    B: T.Tensor((1024, 64), T.float16)
    C = T.empty((64, 64), T.float32)
    with T.Kernel(1, threads=128) as bx:
        left = T.alloc_shared((64, block), T.float16)
        right = T.alloc_shared((block, 64), T.float16)
        acc = T.alloc_fragment((64, 64), T.float32)
        T.clear(acc)
        for k in T.serial(1024 // block):
            T.copy(A[0, k * block], left)
            T.copy(B[k * block, 0], right)
            T.gemm(left, right, acc)
        if how == "wrong":
            for i, j in T.Parallel(64, 64):
                acc[i, j] = acc[i, j] + 100.0
        if how == "refused":
            # More elements than a tile may have.
            huge = T.alloc_fragment((4096, 1024), T.float32)
            T.clear(huge)
            for i, j in T.Parallel(64, 64):
                acc[i, j] = acc[i, j] + huge[i, j]
        if how == "outside":
            # 4 GiB past the end, where a process that holds a few tensors has nothing.
            for i, j in T.Parallel(64, 64):
                C[i + bx + (1 << 24), j] = acc[i, j]
        if how == "loop":
            turns = T.alloc_var(T.int32, 1)
            while turns != 0:
                C[0, 0] = acc[0, 0]
                turns = turns * 3  # odd, and so never 0
        T.copy(acc, C)
    return C


@tileops.jit(name="gpu_in_place")
def scale_in_place(A, block: int = 1024):
    """Doubles ``A``: wrong at once if a tuning run touches the caller's tensor."""
    N = T.const("N")
    A: T.Tensor((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
        for i in T.Parallel(block):
            A[bx * block + i] = A[bx * block + i] * 2.0


def program(how: str, a: torch.Tensor, b: torch.Tensor) -> Program:
    """The traced program of one way."""
    return risky.get_tir(a, b, how=how, block=1024 if how == "too_large" else 64)
