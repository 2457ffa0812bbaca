"""Matrix products added to accumulators of any width, with their exact results."""

from __future__ import annotations

from typing import Any

import torch

import tileops.language as T

# The dtypes of the operands and of the accumulator.
ACCUMULATED = (
    ("uint8", "int32"), ("uint8", "int64"), ("uint8", "uint8"), ("int8", "int64"),
    ("int8", "int16"), ("uint8", "uint64"), ("float32", "float64"), ("float64", "float32"),
    ("float64", "float16"),
)  # fmt: skip
Shape = tuple[int, int, int]


def product(dtype: str, acc: str, shape: Shape) -> Any:
    """The program ``A @ B.T + C``: A is M by K, B is N by K, C and the result are M by N."""
    M, N, K = shape

    def program(A, B, C):
        A: T.Tensor((M, K), dtype)
        B: T.Tensor((N, K), dtype)
        C: T.Tensor((M, N), acc)
        D = T.empty((M, N), acc)
        with T.Kernel(1, threads=128) as _:
            a = T.alloc_shared((M, K), dtype)
            b = T.alloc_shared((N, K), dtype)
            c = T.alloc_fragment((M, N), acc)
            T.copy(A, a)
            T.copy(B, b)
            T.copy(C, c)
            T.gemm(a, b, c, transpose_B=True)
            T.copy(c, D)
        return D

    return program


def operands(dtype: str, acc: str, shape: Shape) -> tuple[torch.Tensor, ...]:
    """Integers over the whole of 8 bits, or few bits of floats; sums need more than 32 bits."""
    M, N, K = shape
    stored, summed = T.dtype(dtype).as_torch(), T.dtype(acc).as_torch()
    low, high = {"uint8": (0, 256), "int8": (-128, 128)}.get(dtype, (-3, 4))
    a, b = (torch.randint(low, high, (rows, K)).to(stored) for rows in (M, N))
    start = 2**33 + 5 if summed.itemsize == 8 else 5
    return a, b, torch.full((M, N), start, dtype=torch.int64).to(summed)


def expected(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    exact = torch.float64 if c.is_floating_point() else torch.int64
    return (a.to(exact) @ b.to(exact).T + c.to(exact)).to(c.dtype)
