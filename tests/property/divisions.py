"""Integer divisions of run-time values beside Python's integers: programs, operands, exact results.

Operands lie at the ends of their type, beside powers of two, beside 0, and anywhere.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

import tileops.language as T
from tileops.dtypes import DType
from tileops.ir.fold import wrap

SIZE = 512
DTYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


EXACT: dict[str, Callable[[int, int], int]] = {
    "ceildiv": lambda a, b: -(-a // b),
    "align_up": lambda a, b: -(-a // b) * b,
    "floordiv": lambda a, b: a // b,
    "floormod": lambda a, b: a % b,
    "truncdiv": truncated,
    "truncmod": lambda a, b: a - truncated(a, b) * b,
}
# By 0: all bits of a quotient are set, and the remainder is the dividend.
BY_ZERO: dict[str, Callable[[int], int]] = {
    "ceildiv": lambda a: -1,
    "align_up": lambda a: 0,
    "floordiv": lambda a: -1,
    "floormod": lambda a: a,
    "truncdiv": lambda a: -1,
    "truncmod": lambda a: a,
}
NAMES = tuple(EXACT)


def right(name: str, dtype: str, a: int, b: int) -> int:
    """The exact result, reduced to the dtype as all values are."""
    return wrap(EXACT[name](a, b) if b else BY_ZERO[name](a), DType(dtype))


def operands(dtype: str, made: random.Random, count: int = SIZE) -> list[int]:
    """Integers of ``dtype``, most of them where a sum would wrap or a sign changes."""
    least, most = DType(dtype).limits
    bits = DType(dtype).bits
    kinds: list[Callable[[], int]] = [
        lambda: least + made.randrange(4),
        lambda: most - made.randrange(4),
        lambda: made.randrange(-4, 5),
        lambda: made.choice([-1, 1]) * (1 << made.randrange(bits)) + made.randrange(-1, 2),
        lambda: made.randint(least, most),
    ]
    return [max(least, min(most, made.choice(kinds)())) for _ in range(count)]


def by_values(dtype: str) -> Any:
    """A program of both operands in tensors; a row of the result for each name of NAMES."""

    def divided(A, B):
        A: T.Tensor((SIZE,), dtype)
        B: T.Tensor((SIZE,), dtype)
        C = T.empty((len(NAMES), SIZE), dtype)
        with T.Kernel(1, threads=64):
            for i in T.Parallel(SIZE):
                C[0, i] = T.ceildiv(A[i], B[i])
                C[1, i] = T.align_up(A[i], B[i])
                C[2, i] = T.floordiv(A[i], B[i])
                C[3, i] = T.floormod(A[i], B[i])
                C[4, i] = T.truncdiv(A[i], B[i])
                C[5, i] = T.truncmod(A[i], B[i])
        return C

    return divided


def by_constant(dtype: str, constant: int) -> Any:
    """A program with a constant divisor, and with it as the dividend."""

    def divided(A):
        A: T.Tensor((SIZE,), dtype)
        C = T.empty((len(NAMES), SIZE), dtype)
        D = T.empty((len(NAMES), SIZE), dtype)
        with T.Kernel(1, threads=64):
            for i in T.Parallel(SIZE):
                c = T.cast(constant, dtype)
                C[0, i] = T.ceildiv(A[i], c)
                C[1, i] = T.align_up(A[i], c)
                C[2, i] = T.floordiv(A[i], c)
                C[3, i] = T.floormod(A[i], c)
                C[4, i] = T.truncdiv(A[i], c)
                C[5, i] = T.truncmod(A[i], c)
                D[0, i] = T.ceildiv(c, A[i])
                D[1, i] = T.align_up(c, A[i])
                D[2, i] = T.floordiv(c, A[i])
                D[3, i] = T.floormod(c, A[i])
                D[4, i] = T.truncdiv(c, A[i])
                D[5, i] = T.truncmod(c, A[i])
        return C, D

    return divided


def by_known_ranges(size: int) -> Any:
    """Quotients rounded up whose operands are known to lie in a range: sizes, loop variables, bytes."""

    def divided(A, X):
        N = T.dynamic("N")
        A: T.Tensor((256,), T.uint8)
        X: T.Tensor((N,), T.int8)
        C = T.empty((4, 256), T.int32)
        with T.Kernel(2, threads=64) as bx:
            for i in T.Parallel(128):
                n = bx * 128 + i
                C[0, n] = T.ceildiv(T.cast(A[n], T.int32), 7)
                C[1, n] = T.ceildiv(n - 100, size)
                C[2, n] = T.ceildiv(N, n + 1)
                C[3, n] = T.ceildiv(N - 130, 128) + T.ceildiv(N, N)
        return C

    return divided


def known_ranges(size: int, a: list[int], n: int) -> torch.Tensor:
    """What ``by_known_ranges`` gives of bytes ``a`` and a tensor of ``n`` elements."""
    up = EXACT["ceildiv"]
    rows = [
        [up(x, 7) for x in a],
        [up(i - 100, size) for i in range(256)],
        [up(n, i + 1) for i in range(256)],
        [up(n - 130, 128) + up(n, n)] * 256,
    ]
    return torch.tensor(rows, dtype=torch.int32)


def tensor(values: list[int], dtype: str) -> torch.Tensor:
    """``values`` as a tensor; uint64 has no constructor from large Python integers."""
    if dtype == "uint64":
        return torch.tensor([wrap(v, DType("int64")) for v in values]).view(torch.uint64)
    return torch.tensor(values, dtype=getattr(torch, dtype))


def differences(
    dtype: str, got: torch.Tensor, pairs: list[tuple[int, int]], what: str
) -> list[str]:
    """Where the rows of ``got`` differ from the exact results, as text."""
    found = []
    for name, row in zip(NAMES, got, strict=True):
        expected = tensor([right(name, dtype, a, b) for a, b in pairs], dtype)
        wrong = (row.cpu().view(torch.uint8) != expected.view(torch.uint8)).nonzero()
        if wrong.numel():
            at = int(wrong[0]) // row.element_size()
            a, b = pairs[at]
            found.append(
                f"{what}: {name} of {dtype} {a} and {b} is {row.tolist()[at]}, "
                f"right {right(name, dtype, a, b)}"
            )
    return found


Run = Callable[..., Any]


def wrong_by_values(run: Run, dtype: str, seed: int) -> list[str]:
    """The faults of ``run(function, *inputs)`` with both operands at run time."""
    made = random.Random(f"{dtype} {seed}")
    a, b = operands(dtype, made), operands(dtype, made)
    got = run(by_values(dtype), tensor(a, dtype), tensor(b, dtype))
    return differences(dtype, got, list(zip(a, b, strict=True)), "two values")


def wrong_by_constant(run: Run, dtype: str, seed: int) -> list[str]:
    """The faults with a constant operand, another for each seed."""
    made = random.Random(f"constant {dtype} {seed}")
    constant = 0
    while constant == 0:
        (constant,) = operands(dtype, made, 1)
    a = operands(dtype, made)
    got = run(by_constant(dtype, constant), tensor(a, dtype))
    return [
        *differences(dtype, got[0], [(x, constant) for x in a], "a constant divisor"),
        *differences(dtype, got[1], [(constant, x) for x in a], "a constant dividend"),
    ]


def wrong_by_known_ranges(run: Run, seed: int) -> list[str]:
    """The faults where the ranges of the operands are known."""
    made = random.Random(f"ranges {seed}")
    size, n = made.choice([1, 2, 7, 8, 100, 128, 1 << 20]), made.choice([1, 127, 128, 129, 1000])
    a = operands("uint8", made, 256)
    got = run(by_known_ranges(size), tensor(a, "uint8"), torch.zeros(n, dtype=torch.int8))
    expected = known_ranges(size, a, n)
    same = torch.equal(got.cpu(), expected)
    return (
        []
        if same
        else [f"known ranges, size {size}, N {n}: {got.tolist()} for {expected.tolist()}"]
    )
