"""One program that applies every math function, with the interval and the error bound of each.

Bounds are those of CUDA's programming guide for its accurate functions, in units in the last place of
float32; GPUs flush subnormal results to zero.
"""

from __future__ import annotations

from typing import Any

import torch

import tileops.language as T

# name: (low, high, units, float64 reference)
FUNCTIONS: dict[str, tuple[float, float, float, Any]] = {
    "exp": (-80.0, 80.0, 2, torch.exp),
    "exp2": (-120.0, 120.0, 2, torch.exp2),
    "exp10": (-35.0, 35.0, 2, lambda x: torch.pow(torch.tensor(10.0, dtype=torch.float64), x)),
    "log": (1e-30, 1e30, 1, torch.log),
    "log2": (1e-30, 1e30, 1, torch.log2),
    "log10": (1e-30, 1e30, 2, torch.log10),
    "log1p": (-0.99, 1e6, 1, torch.log1p),
    "sqrt": (0.0, 1e30, 0, torch.sqrt),
    "rsqrt": (1e-30, 1e30, 2, torch.rsqrt),
    "sin": (-100.0, 100.0, 2, torch.sin),
    "cos": (-100.0, 100.0, 2, torch.cos),
    "tan": (-100.0, 100.0, 4, torch.tan),
    "sinh": (-80.0, 80.0, 3, torch.sinh),
    "cosh": (-80.0, 80.0, 2, torch.cosh),
    "tanh": (-9.0, 9.0, 2, torch.tanh),
    "asin": (-1.0, 1.0, 2, torch.asin),
    "acos": (-1.0, 1.0, 2, torch.acos),
    "atan": (-1e6, 1e6, 2, torch.atan),
    "erf": (-4.0, 4.0, 2, torch.erf),
    "sigmoid": (-80.0, 80.0, 3, torch.sigmoid),
    "ceil": (-1e6, 1e6, 0, torch.ceil),
    "floor": (-1e6, 1e6, 0, torch.floor),
    "trunc": (-1e6, 1e6, 0, torch.trunc),
    "nearbyint": (-1e6, 1e6, 0, torch.round),
}
# The fast forms answer with what CUDA's intrinsics promise at most, or better.
FAST = ("__exp", "__exp2", "__exp10", "__log", "__log2", "__log10", "__sin", "__cos", "__tan")
NAMES = (*FUNCTIONS, *FAST)
COUNT = 512


def inputs(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A row of arguments for each function, the ends of its interval among them."""
    rows = []
    for name in NAMES:
        low, high, _, _ = FUNCTIONS[name.removeprefix("__")]
        row = low + (high - low) * torch.rand(COUNT, dtype=torch.float64)
        if low > 0:
            row = torch.exp(
                torch.empty_like(row).uniform_(*torch.tensor([low, high]).log().tolist())
            )
        if name.startswith("__") and name[2:] in ("sin", "cos", "tan"):
            row = row * (1.5 / 100)
        row[0], row[1] = (low, high) if not name.startswith("__") else (row[0], row[1])
        info = torch.finfo(dtype)
        rows.append(row.clamp(max=info.max, min=info.tiny if low > 0 else -info.max))
    return torch.stack(rows).to(dtype)


def program(dtype: str) -> Any:
    """The eager program: row ``n`` of its result is function ``n`` of row ``n``."""

    def functions(A):
        A: T.Tensor((len(NAMES), COUNT), dtype)
        C = T.empty((len(NAMES), COUNT), dtype)
        with T.Kernel(1, threads=128) as _:
            for i in T.Parallel(COUNT):
                apply_all(A, C, i)
        return C

    return functions


def apply_all(a: Any, c: Any, i: Any) -> None:
    for n, name in enumerate(NAMES):
        c[n, i] = getattr(T, name)(a[n, i])


def check(a: torch.Tensor, got: torch.Tensor) -> None:
    """AssertionError where a row of ``got`` is further from the float64 value than its bound.

    The unit is that of the dtype of ``got`` at the true value. Half a unit is for the last rounding,
    and one more in float64, where the reference is no better than the function.
    """
    info = torch.finfo(got.dtype)
    slack = 1.5 if got.dtype == torch.float64 else 0.5
    for n, name in enumerate(NAMES):
        _, _, units, reference = FUNCTIONS[name.removeprefix("__")]
        true = reference(a[n].double())
        spacing = torch.ldexp(torch.ones_like(true), torch.frexp(true).exponent - 1) * info.eps
        bound = (units + slack) * spacing
        if name.startswith("__"):
            bound = bound + true.abs() * 2.0**-18 + 2.0**-21
        row = got[n].cpu().double()
        error = torch.where(
            true.abs() > info.max, (row.abs() != torch.inf).double(), row - true
        ).abs()
        bad = error > bound.clamp(min=info.tiny)
        assert not bad.any(), (
            f"{name}({a[n][bad][:4].tolist()}) = {got[n].cpu()[bad][:4].tolist()}, "
            f"expected {true[bad][:4].tolist()}; {float((error / spacing).max()):.2f} units"
        )


def bits(A):
    A: T.Tensor((128,), T.int32)
    C = T.empty((6, 128), T.int32)
    with T.Kernel(1, threads=128) as _:
        for i in T.Parallel(128):
            C[0, i] = T.clz(A[i])
            C[1, i] = T.popcount(A[i])
            C[2, i] = T.floordiv(A[i], 7)
            C[3, i] = T.floormod(A[i], 7)
            C[4, i] = T.truncdiv(A[i], -7)
            C[5, i] = T.clz(T.cast(A[i], "int8"))
    return C


def bits_expected(a: torch.Tensor) -> torch.Tensor:
    def width(values: torch.Tensor, of: int) -> torch.Tensor:
        return torch.tensor([of - (int(v) & ((1 << of) - 1)).bit_length() for v in values])

    count = torch.tensor([(int(v) & 0xFFFFFFFF).bit_count() for v in a])
    rows = [
        width(a, 32), count, a.div(7, rounding_mode="floor"), a.remainder(7),
        a.div(-7, rounding_mode="trunc"), width(a.to(torch.int8), 8),
    ]  # fmt: skip
    return torch.stack([r.int() for r in rows])
