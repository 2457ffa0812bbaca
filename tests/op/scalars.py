"""Run-time scalars of every dtype: a program that stores them, values that fit, and values that do not."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import torch

import tileops
import tileops.language as T
from tileops.errors import ArgumentError, ArgumentTypeError


@tileops.jit(name="every_scalar")
def every_scalar(
    int8: T.int8 = 0,
    int16: T.int16 = 0,
    int32: T.int32 = 0,
    int64: T.int64 = 0,
    uint8: T.uint8 = 0,
    uint16: T.uint16 = 0,
    uint32: T.uint32 = 0,
    uint64: T.uint64 = 0,
    float16: T.float16 = 0.0,
    bfloat16: T.bfloat16 = 0.0,
    float32: T.float32 = 0.0,
    float64: T.float64 = 0.0,
    bool: T.bool = False,
):
    """Each value in a tensor of its own dtype; the parameters are called as their dtypes."""
    i8, i16 = T.empty((1,), T.int8), T.empty((1,), T.int16)
    i32, i64 = T.empty((1,), T.int32), T.empty((1,), T.int64)
    u8, u16 = T.empty((1,), T.uint8), T.empty((1,), T.uint16)
    u32, u64 = T.empty((1,), T.uint32), T.empty((1,), T.uint64)
    f16, bf16 = T.empty((1,), T.float16), T.empty((1,), T.bfloat16)
    f32, f64 = T.empty((1,), T.float32), T.empty((1,), T.float64)
    flag = T.empty((1,), T.bool)
    with T.Kernel(1, threads=32):
        i8[0] = int8
        i16[0] = int16
        i32[0] = int32
        i64[0] = int64
        u8[0] = uint8
        u16[0] = uint16
        u32[0] = uint32
        u64[0] = uint64
        f16[0] = float16
        bf16[0] = bfloat16
        f32[0] = float32
        f64[0] = float64
        flag[0] = bool
    return i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64, flag


DTYPES = tuple(every_scalar.definition.inputs)


def stored(device: str, dtype: str, value: Any) -> torch.Tensor:
    """What the kernel made of ``value``, as a tensor of one element."""
    out = every_scalar(**{dtype: value}, device=device)[DTYPES.index(dtype)]
    assert out.dtype == getattr(torch, dtype)
    return out.cpu()


def _limits(dtype: str) -> tuple[int, int]:
    info = torch.iinfo(getattr(torch, dtype))
    return int(info.min), int(info.max)


def _good() -> list[tuple[str, Any, Any]]:
    found: list[tuple[str, Any, Any]] = []
    for dtype in DTYPES[:8]:
        low, high = _limits(dtype)
        # The schema has signed integers of 64 bits alone.
        high = min(high, 2**63 - 1)
        kind = np.dtype(dtype).type
        found += [(dtype, v, v) for v in (low, low + 1, 0, 1, high - 1, high)]
        found += [(dtype, True, 1), (dtype, np.bool_(True), 1), (dtype, kind(high), high)]
        found += [(dtype, torch.tensor(low, dtype=getattr(torch, dtype)), low)]
        found += [(dtype, np.array(7), 7), (dtype, torch.tensor(False), 0)]
    # 1 + 2^-11 lies halfway between two float16, 1 + 2^-8 between two bfloat16: a little more goes
    # up, where two roundings would go down to the even one.
    reals = [0.1, 0.125, 42.0, -0.0, 1e-300, 65504.0, 65519.0, 65520.0, 3.4e38, 1e39, -1e309, math.pi,
             1 + 2**-11 + 2**-40, 1 + 2**-8 + 2**-40, 2.0**-25, 2.0**-24, math.inf, -math.inf, math.nan]  # fmt: skip
    for dtype in DTYPES[8:12]:
        found += [(dtype, v, v) for v in reals]
        found += [(dtype, v, float(v)) for v in (3, -(2**31), 2**63, 2**70, True)]
        found += [(dtype, np.float16(0.1), float(np.float16(0.1))), (dtype, np.float64(0.1), 0.1)]
        found += [(dtype, np.int64(5), 5.0), (dtype, torch.tensor(0.1), float(torch.tensor(0.1)))]
    found += [("bool", v, True) for v in (True, 1, np.bool_(True), np.int8(1), torch.tensor(True))]
    found += [("bool", v, False) for v in (False, 0, np.bool_(False), torch.tensor(0))]
    return found


def _bad() -> list[tuple[str, Any, type[Exception]]]:
    found: list[tuple[str, Any, type[Exception]]] = []
    for dtype in DTYPES[:8]:
        low, high = _limits(dtype)
        outside = (low - 1, high + 1, -(10**400), 10**400, 2**64)
        found += [(dtype, v, ArgumentError) for v in outside]
        kinds = (1.0, math.nan, np.float16(1), np.float32(0.5), torch.tensor(0.5), 1j)
        found += [(dtype, v, ArgumentTypeError) for v in kinds]
    found += [("uint64", 2**63, ArgumentError), ("uint64", np.uint64(2**63), ArgumentError)]
    found += [(dtype, 10**400, ArgumentError) for dtype in DTYPES[8:12]]
    found += [(dtype, 1j, ArgumentTypeError) for dtype in DTYPES[8:12]]
    found += [("bool", v, ArgumentError) for v in (2, -1, np.int32(5), torch.tensor(3), 2**70)]
    found += [("bool", v, ArgumentTypeError) for v in (0.0, 1.0, np.float32(1), torch.tensor(1.0))]
    for dtype in DTYPES:
        others = (None, "1", [1], torch.tensor([1]), np.array([1]), Fraction(1, 2), object())
        found += [(dtype, v, ArgumentTypeError) for v in others]
    return found


GOOD, BAD = _good(), _bad()


def check_good(device: str) -> None:
    """Every value that fits is stored as one rounding to the dtype makes it, to the bit."""
    for dtype, value, number in GOOD:
        got = stored(device, dtype, value)
        expected = rounded(number, dtype) if isinstance(number, float) else number
        assert _same(got.item(), expected), (dtype, value, got, expected)


# Significant bits, the exponent of the least subnormal, and the largest value.
_FORMATS = {
    "float16": (11, -24, 65504.0),
    "bfloat16": (8, -133, float(torch.finfo(torch.bfloat16).max)),
    "float32": (24, -149, float(torch.finfo(torch.float32).max)),
}


def rounded(value: float, dtype: str) -> float:
    """``value`` rounded once to nearest, ties to even; torch's own casts go through float32."""
    if dtype == "float64" or not math.isfinite(value) or value == 0:
        return value
    digits, least, most = _FORMATS[dtype]
    exponent = max(math.frexp(value)[1] - digits, least)
    result = math.ldexp(round(math.ldexp(value, -exponent)), exponent)
    return math.copysign(result if abs(result) <= most else math.inf, value)


def _same(a: float, b: float) -> bool:
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (
            a == b and math.copysign(1, a) == math.copysign(1, b)
        )
    return type(a) is type(b) and a == b
