"""Conversions between dtypes by their definition, with Python's integers and fractions alone.

An element is a Fraction, a bool, or a float that is infinite or NaN. Rounding is to nearest, ties to
even. Beyond the range 8-bit and 4-bit floats give their largest number, other floats infinity.
"""

from __future__ import annotations

import math
import random
from fractions import Fraction

import torch

from tests.kit.formats import PACKED, packed, storage, values
from tileops.dtypes import DType

Element = Fraction | float
# precision in bits, least exponent of a normal number, largest number
FORMATS = {
    "float64": (53, -1022, Fraction(torch.finfo(torch.float64).max)),
    "float32": (24, -126, Fraction(torch.finfo(torch.float32).max)),
    "tfloat32": (24, -126, Fraction(torch.finfo(torch.float32).max)),  # held and rounded as float32
    "float16": (11, -14, Fraction(65504)),
    "bfloat16": (8, -126, Fraction(torch.finfo(torch.bfloat16).max)),
    "float8_e4m3fn": (4, -6, Fraction(448)),
    "float8_e5m2": (3, -14, Fraction(57344)),
    "float4_e2m1fn": (2, 0, Fraction(6)),
}
SATURATING = ("float8_e4m3fn", "float8_e5m2", "float4_e2m1fn")
EXPONENTS = "float8_e8m0fnu"


def is_number(value: Element) -> bool:
    return isinstance(value, Fraction)


def converted(value: Element, source: str, target: str) -> Element:
    """The element of ``target`` that a conversion of one of ``source`` gives."""
    kind = DType(target)
    if kind.is_bool:
        return Fraction(value != 0)
    if kind.is_float:
        return to_float(value, target)
    if DType(source).is_float:
        return _to_integer(value, *kind.limits)
    least, most = kind.limits
    return Fraction((int(value) - least) % (most - least + 1) + least)


def _to_integer(value: Element, least: int, most: int) -> Fraction:
    if not is_number(value):
        return Fraction(0 if math.isnan(value) else most if value > 0 else least)
    return Fraction(max(least, min(math.trunc(value), most)))


def to_float(value: Element, target: str) -> Element:
    """``value`` rounded to nearest even in a float format."""
    if target == EXPONENTS:
        return _power_of_two(value)
    precision, least, largest = FORMATS[target]
    if not is_number(value):
        if math.isnan(value):
            return largest if target == "float4_e2m1fn" else math.nan
        return math.copysign(1, value) * largest if target in SATURATING else value
    step = Fraction(2) ** (max(exponent_of(value), least) - precision + 1)
    found = Fraction(round(value / step)) * step  # Python rounds fractions to even
    if abs(found) <= largest:
        return found
    sign = 1 if found > 0 else -1
    return sign * largest if target in SATURATING else sign * math.inf


def exponent_of(value: Fraction) -> int:
    """The greatest power of two that is not above the magnitude; 0 has a very small one."""
    if value == 0:
        return -(10**6)
    magnitude = abs(value)
    found = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    return found if Fraction(2) ** found <= magnitude else found - 1


def _power_of_two(value: Element) -> Element:
    """The magnitude's nearest exponent as torch rounds to it: by the float32 encoding, half upwards.

    Below 2**-126 that encoding has one exponent, so that all above 2**-127 become 2**-126.
    """
    if not is_number(value):
        return math.nan
    magnitude = abs(value)
    if magnitude < Fraction(2) ** -126:
        return Fraction(2) ** (-126 if magnitude > Fraction(2) ** -127 else -127)
    power = Fraction(2) ** exponent_of(magnitude)
    found = power * 2 if magnitude * 2 >= power * 3 else power
    return found if found < Fraction(2) ** 128 else math.nan


# -- elements of tensors ---------------------------------------------------------------------------
def elements(tensor: torch.Tensor, dtype: str) -> list[Element]:
    """The elements of a stored tensor, exactly."""
    found = values(tensor, dtype).flatten().tolist()
    if dtype == "uint64":
        return [Fraction(x % 2**64) for x in found]
    return [Fraction(x) if math.isfinite(x) else x for x in found]


def tensor_of(numbers: list[Element], dtype: str, length: int) -> torch.Tensor:
    """A tensor of ``dtype`` that holds ``numbers``, which are its own, and zeros up to ``length``."""
    some = [*numbers, *[Fraction(0 if dtype != EXPONENTS else 1)] * (length - len(numbers))]
    kind = DType(dtype)
    if dtype in PACKED:
        codes = [int(x) & 15 for x in some] if kind.is_integer else [_fp4_code(x) for x in some]
        return packed(torch.tensor(codes), dtype)
    if kind.is_float:
        wide = torch.tensor([float(x) for x in some], dtype=torch.float64)
        return wide.float().to(storage(dtype)) if dtype == EXPONENTS else wide.to(storage(dtype))
    raw = [int(x) - 2**64 if int(x) >= 2**63 else int(x) for x in some]
    return torch.tensor(raw, dtype=torch.int64).to(storage(dtype))


def _fp4_code(x: Element) -> int:
    return [0, 1, 2, 3, 4, 6, 8, 12].index(int(abs(x) * 2)) | (8 if x < 0 else 0)


# -- what to try -----------------------------------------------------------------------------------
def points(source: str, target: str, count: int, rng: random.Random) -> list[Element]:
    """Elements of ``source`` at numbers of ``target``, midway between two, and just beside these."""
    wanted: list[Element] = []
    for low, high in _neighbours(target, count, rng):
        middle = (low + high) / 2
        for x in (low, middle, high):
            beside = [x * (1 + s * Fraction(2) ** -n) for s in (1, -1) for n in (30, 51)]
            wanted += [x, x + 1, x - 1, *beside]
    sign = [1, -1] if DType(source).is_signed and source != EXPONENTS else [1]
    found = {_own(s * x, source) for x in wanted for s in sign}
    if DType(source).is_float:
        found |= {math.inf, -math.inf} if _has_infinity(source) else set()
    some = sorted(found)
    return [*some, math.nan] if _has_nan(source) else some


def _has_infinity(dtype: str) -> bool:
    return dtype in FORMATS and dtype not in ("float8_e4m3fn", "float4_e2m1fn")


def _has_nan(dtype: str) -> bool:
    return DType(dtype).is_float and dtype != "float4_e2m1fn"


def _own(value: Fraction, dtype: str) -> Element:
    """An element of ``dtype`` near ``value``."""
    kind = DType(dtype)
    if kind.is_bool:
        return Fraction(value != 0)
    if kind.is_float:
        found = to_float(value, dtype)
        return found if is_number(found) else Fraction(1)
    return _to_integer(value, *kind.limits)


def _neighbours(target: str, count: int, rng: random.Random) -> list[tuple[Fraction, Fraction]]:
    """Pairs of neighbouring numbers of ``target``: the ends of its range and ``count`` random ones."""
    if target in FORMATS:
        precision, least, largest = FORMATS[target]
        most = exponent_of(largest)
        step = Fraction(2) ** (least - precision + 1)
        normal = Fraction(2) ** least
        ends = [Fraction(0), step, normal - step, normal, largest]
        # Integers of every size are among the numbers as well.
        exponents = [rng.randint(least, most) for _ in range(count)]
        exponents += [rng.randint(0, min(most, 63)) for _ in range(count)]
        for e in exponents:
            low, high = 1 << (precision - 1), (1 << precision) - 1
            ends.append(rng.randint(low, high) * Fraction(2) ** (e - precision + 1))
        return [(x, x + Fraction(2) ** (max(exponent_of(x), least) - precision + 1)) for x in ends]
    if target == EXPONENTS:
        powers = [-127, -126, 126, 127, *(rng.randint(-126, 126) for _ in range(count))]
        powers += [rng.randint(0, 63) for _ in range(count)]
        return [(Fraction(2) ** n, Fraction(2) ** (n + 1)) for n in powers]
    least, most = DType(target).limits if not DType(target).is_bool else (0, 1)
    some = [
        least - 1,
        least,
        -1,
        0,
        most,
        most + 1,
        *(rng.randint(least, most) for _ in range(count)),
    ]
    return [(Fraction(a), Fraction(a + 1)) for a in some]


def all_elements(dtype: str) -> list[Element]:
    """Every element of a dtype of at most 8 bits."""
    if dtype in PACKED:
        return elements(packed(torch.arange(16), dtype), dtype)
    stored = torch.arange(2 if dtype == "bool" else 256).to(torch.uint8)
    return elements(stored.view(storage(dtype)), dtype)
