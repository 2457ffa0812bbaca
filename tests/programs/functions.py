"""Every function of one number, one row each, in one program that all executors run.

Bounds in units in the last place of float32: CUDA's table of single-precision functions gives at
most 4 for the accurate forms over these ranges. The fast forms (``__exp``) may lose an absolute
2^-21 beyond that, and exponentials one unit for each unit of the exponent.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

import tileops.language as T

ULP = 2.0**-23
FAST = 2.0**-21
# name, lowest and highest argument, reference in float64
ROWS: tuple[tuple[str, float, float, Callable[[torch.Tensor], torch.Tensor]], ...] = (
    ("exp", -20, 20, torch.exp),
    ("exp2", -20, 20, torch.exp2),
    ("exp10", -8, 8, lambda x: torch.pow(10.0, x)),
    ("log", 0.01, 99, torch.log),
    ("log2", 0.01, 99, torch.log2),
    ("log10", 0.01, 99, torch.log10),
    ("log1p", -0.9, 99, torch.log1p),
    ("sqrt", 0, 99, torch.sqrt),
    ("rsqrt", 0.01, 99, torch.rsqrt),
    ("sin", -3, 3, torch.sin),
    ("cos", -3, 3, torch.cos),
    ("tan", -1.4, 1.4, torch.tan),
    ("sinh", -5, 5, torch.sinh),
    ("cosh", -5, 5, torch.cosh),
    ("tanh", -5, 5, torch.tanh),
    ("asin", -1, 1, torch.asin),
    ("acos", -1, 1, torch.acos),
    ("atan", -9, 9, torch.atan),
    ("erf", -3, 3, torch.erf),
    ("sigmoid", -9, 9, torch.sigmoid),
    ("abs", -9, 9, torch.abs),
    ("floor", -9, 9, torch.floor),
    ("ceil", -9, 9, torch.ceil),
    ("trunc", -9, 9, torch.trunc),
    ("nearbyint", -9, 9, torch.round),
    ("round", -9, 9, torch.round),
    ("__exp", -9, 9, torch.exp),
    ("__exp2", -9, 9, torch.exp2),
    ("__exp10", -4, 4, lambda x: torch.pow(10.0, x)),
    ("__log", 0.01, 99, torch.log),
    ("__log2", 0.01, 99, torch.log2),
    ("__log10", 0.01, 99, torch.log10),
    ("__sin", -3, 3, torch.sin),
    ("__cos", -3, 3, torch.cos),
    ("__tan", -1.2, 1.2, torch.tan),
)  # fmt: skip
COLUMNS = 64
# name, operands as integers, reference on Python's integers
INTEGERS = {
    "floordiv": lambda a, b: a // b,
    "floormod": lambda a, b: a % b,
    "truncdiv": lambda a, b: abs(a) // b * (1 if a >= 0 else -1),
    "truncmod": lambda a, b: abs(a) % b * (1 if a >= 0 else -1),
    "ceildiv": lambda a, b: -(-a // b),
    "popcount": lambda a, _: (a % 2**32).bit_count(),
    "clz": lambda a, _: 32 - (a % 2**32).bit_length(),
}


def _each_row(X, Y, i):
    for row, (name, *_) in enumerate(ROWS):
        Y[row, i] = getattr(T, name)(X[row, i])


def functions(X):
    X: T.Tensor((len(ROWS), COLUMNS), T.float32)
    Y = T.empty((len(ROWS), COLUMNS), T.float32)
    with T.Kernel(1, threads=64):
        for i in T.Parallel(COLUMNS):
            _each_row(X, Y, i)
    return Y


def _each_integer(A, B, Y, i):
    for row, name in enumerate(INTEGERS):
        operands = (A[i],) if name in ("popcount", "clz") else (A[i], B[i])
        Y[row, i] = getattr(T, name)(*operands)


def integer_functions(A, B):
    A: T.Tensor((COLUMNS,), T.int32)
    B: T.Tensor((COLUMNS,), T.int32)
    Y = T.empty((len(INTEGERS), COLUMNS), T.int32)
    with T.Kernel(1, threads=64):
        for i in T.Parallel(COLUMNS):
            _each_integer(A, B, Y, i)
    return Y


def arguments() -> torch.Tensor:
    unit = torch.linspace(0, 1, COLUMNS, dtype=torch.float64)
    return torch.stack([(low + (high - low) * unit).float() for _, low, high, _ in ROWS])


def integers() -> tuple[torch.Tensor, torch.Tensor]:
    a = torch.randint(-(2**31), 2**31 - 1, (COLUMNS,), dtype=torch.int32)
    a[:4] = torch.tensor([-7, 7, 1, -1])
    return a, torch.randint(2, 99, (COLUMNS,), dtype=torch.int32)


def check(x: torch.Tensor, got: torch.Tensor) -> None:
    """Assert that each row of ``functions`` is within its bound."""
    for row, (name, _, _, reference) in enumerate(ROWS):
        argument = x[row].double()
        want = reference(argument)
        bound = 4 * ULP * want.abs()
        if name.startswith("__"):
            bound = (2 + 3 * argument.abs()) * ULP * want.abs() if "exp" in name else bound + FAST
            bound = bound * (1 + want**2) if name == "__tan" else bound
        error = (got[row].cpu().double() - want).abs()
        worst = int((error - bound).argmax())
        assert bool((error <= bound).all()), (
            f"T.{name}({argument[worst]}): got {got[row, worst]}, expected {want[worst]}"
        )


def check_integers(a: torch.Tensor, b: torch.Tensor, got: torch.Tensor) -> None:
    """Assert that each row of ``integer_functions`` is exact."""
    pairs = list(zip(a.tolist(), b.tolist(), strict=True))
    for row, (name, reference) in enumerate(INTEGERS.items()):
        assert got[row].tolist() == [reference(x, y) for x, y in pairs], name
