"""Every conversion between dtypes: exhaustively where the source has 16 bits or fewer, else at all ties."""

from fractions import Fraction

import pytest
import torch

import tileops.language as T
from tests.kit.harness import build_eager

FLOATS = ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
# precision in bits, least exponent of a normal number, largest finite value
FORMATS = {
    "float64": (53, -1022, torch.finfo(torch.float64).max),
    "float32": (24, -126, torch.finfo(torch.float32).max),
    "float16": (11, -14, 65504.0),
    "bfloat16": (8, -126, torch.finfo(torch.bfloat16).max),
    "float8_e4m3fn": (4, -6, 448.0),
    "float8_e5m2": (3, -14, 57344.0),
}
SATURATING = ("float8_e4m3fn", "float8_e5m2")


def cast_in_nest(X, target: str, source: str, block: int = 256):
    N = T.const("N")
    X: T.Tensor((N,), source)
    Y = T.empty((N,), target)
    with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
        for i in T.Parallel(block):
            Y[bx * block + i] = T.cast(X[bx * block + i], target)
    return Y


def cast_in_copy(X, target: str, source: str, block: int = 250):
    N = T.const("N")
    X: T.Tensor((N,), source)
    Y = T.empty((N,), target)
    with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
        wide = T.alloc_fragment((block,), source)
        narrow = T.alloc_fragment((block,), target)
        T.copy(X[bx * block], wide)
        T.copy(wide, narrow)
        T.copy(narrow, Y[bx * block])
    return Y


def rounded(value: Fraction, fmt: str) -> float:
    """``value`` rounded to nearest even in a format: the definition, in exact arithmetic."""
    precision, least, largest = FORMATS[fmt]
    if value == 0:
        return 0.0
    magnitude = abs(value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** exponent > magnitude:
        exponent -= 1
    step = Fraction(2) ** (max(exponent, least) - precision + 1)
    count, rest = divmod(magnitude, step)
    if rest * 2 > step or (rest * 2 == step and count % 2):
        count += 1
    result = count * step
    if result > Fraction(largest):
        result = Fraction(largest) if fmt in SATURATING else None
    if result is None:
        return float("inf") if value > 0 else float("-inf")
    return float(result) if value > 0 else -float(result)


def all_values(dtype: str) -> torch.Tensor:
    """All bit patterns of a dtype of at most 16 bits."""
    kind = getattr(torch, dtype)
    width = kind.itemsize
    bits = torch.arange(0, 1 << (8 * width), dtype=torch.int64)
    return bits.to(torch.uint8 if width == 1 else torch.uint16).view(kind)


def ties(target: str, source: str) -> torch.Tensor:
    """Values of ``source`` at and next to every number of ``target`` and every tie between two of them."""
    exact = (
        all_values(target).to(torch.float64)
        if target in FLOATS[2:]
        else torch.randn(20000).double()
    )
    exact = exact[exact.isfinite()].sort().values
    middle = (exact[1:] + exact[:-1]) / 2
    # Exact fractions take 20 us a value: of the 16-bit formats, a random 3000 numbers and ties.
    exact, middle = (t[torch.randperm(t.numel())[:3000]] for t in (exact, middle))
    centre = torch.cat([exact, middle, torch.tensor([3e38, -3e38, 1e-46, 500.0, 7e4, 0.0, -0.0])])
    centre = centre.to(getattr(torch, source))
    step = torch.tensor(float("inf"), dtype=centre.dtype)
    around = [centre, torch.nextafter(centre, step), torch.nextafter(centre, -step)]
    special = torch.tensor([float("inf"), -float("inf"), float("nan")], dtype=centre.dtype)
    return torch.cat([*around, special])


def check(source: torch.Tensor, got: torch.Tensor, target: str) -> None:
    wide = got.to(torch.float64).tolist()
    for value, result in zip(source.to(torch.float64).tolist(), wide, strict=True):
        if value != value:
            assert result != result
        elif value in (float("inf"), -float("inf")):
            limit = FORMATS[target][2] if target in SATURATING else float("inf")
            assert result == (limit if value > 0 else -limit)
        else:
            want = rounded(Fraction(value), target)
            assert result == want, (value, result, want)


@pytest.mark.parametrize("target", FLOATS)
@pytest.mark.parametrize("source", FLOATS[2:])
def test_every_narrow_float(source, target):
    x = all_values(source)
    for program in (cast_in_nest, cast_in_copy):
        got = build_eager(program, consts={"N": x.numel()}, source=source, target=target)(x)
        if source == target:
            same = got.view(torch.uint8) == x.view(torch.uint8)
            assert (same.view(-1, x.element_size()).all(1) | x.float().isnan()).all()
        else:
            wide = x.to(torch.float32)  # exact for every source here
            if target in SATURATING:
                wide = wide.clamp(-FORMATS[target][2], FORMATS[target][2])
            want = wide.to(getattr(torch, target))
            nan = want.isnan()
            assert torch.equal(nan, got.isnan())
            assert torch.equal(got[~nan], want[~nan])
        # The sign of zero survives.
        zero = (x.float() == 0).nonzero().flatten()
        assert torch.equal(got[zero].float().signbit(), x[zero].float().signbit())


@pytest.mark.parametrize("target", FLOATS[2:])
@pytest.mark.parametrize("source", ["float32", "float64"])
def test_ties_and_neighbours(source, target):
    x = ties(target, source)
    got = build_eager(cast_in_nest, consts={"N": x.numel()}, source=source, target=target)(x)
    copied = build_eager(cast_in_copy, consts={"N": x.numel()}, source=source, target=target)(x)
    check(x, got, target)
    check(x, copied, target)


@pytest.mark.parametrize("target", FLOATS)
@pytest.mark.parametrize("source", INTS)
def test_integers_to_floats(source, target):
    info = torch.iinfo(getattr(torch, source))
    values = {info.min, info.max, 0, 1, -1, 3, 17}
    for power in range(info.bits):
        for near in (-1, 0, 1):
            for factor in (1, 3, 5, 257, 513, 2049, 4097):
                values |= {(1 << power) * factor + near, -(1 << power) * factor + near}
    values = sorted(v for v in values if info.min <= v <= info.max)
    x = torch.tensor(values, dtype=torch.int64 if info.max < 2**63 else torch.uint64).to(
        getattr(torch, source)
    )
    got = build_eager(cast_in_nest, consts={"N": len(values)}, source=source, target=target)(x)
    want = [rounded(Fraction(v), target) for v in values]
    assert got.to(torch.float64).tolist() == want


@pytest.mark.parametrize("target", [*INTS, "bool"])
@pytest.mark.parametrize("source", ["float64", "float32", "float16", "bfloat16", "float8_e5m2"])
def test_floats_to_integers_saturate(source, target):
    if source in ("float16", "bfloat16", "float8_e5m2"):
        x = all_values(source)
    else:
        edges = [
            s * (2.0**p + d) for p in range(66) for s in (1, -1) for d in (-1, -0.5, 0, 0.5, 1)
        ]
        special = [float("inf"), -float("inf"), float("nan"), 0.0, -0.0, 1e30, -1e30]
        x = torch.cat([torch.tensor(edges + special).double(), torch.randn(1000).double() * 1e3])
        x = x.to(getattr(torch, source))
    got = build_eager(cast_in_nest, consts={"N": x.numel()}, source=source, target=target)(x)
    values = x.to(torch.float64).tolist()
    if target == "bool":
        assert got.tolist() == [v != 0 for v in values]
        return
    info = torch.iinfo(getattr(torch, target))
    want = []
    for v in values:
        if v != v:
            want.append(0)
        elif v in (float("inf"), -float("inf")):
            want.append(info.max if v > 0 else info.min)
        else:
            want.append(max(info.min, min(info.max, int(v))))
    assert got.tolist() == want


@pytest.mark.parametrize("target", [*INTS, "bool"])
@pytest.mark.parametrize("source", [*INTS, "bool"])
def test_integers_wrap(source, target):
    if source == "bool":
        values = [True, False]
    else:
        info = torch.iinfo(getattr(torch, source))
        values = sorted({info.min, info.max, 0, 1, 5, info.max // 2, info.max // 3, info.min // 2})
    x = torch.tensor(values, dtype=getattr(torch, source))
    got = build_eager(cast_in_nest, consts={"N": len(values)}, source=source, target=target)(x)
    if target == "bool":
        assert got.tolist() == [bool(v) for v in values]
        return
    info = torch.iinfo(getattr(torch, target))
    mask = (1 << info.bits) - 1
    wrapped = [int(v) & mask for v in values]
    assert got.tolist() == [w - mask - 1 if info.min < 0 and w > info.max else w for w in wrapped]


def test_power_of_two_scales():
    x = all_values("float8_e8m0fnu")
    got = build_eager(cast_in_nest, consts={"N": 256}, source="float8_e8m0fnu", target="float32")(x)
    want = x.to(torch.float32)
    assert torch.equal(got[:255], want[:255])
    assert got[255].isnan()
    y = torch.cat(
        [torch.rand(5000) * 2.0 ** torch.randint(-120, 120, (5000,)), want[:255], want[:255] * 1.5]
    )
    got = build_eager(
        cast_in_nest, consts={"N": y.numel()}, source="float32", target="float8_e8m0fnu"
    )(y)
    assert torch.equal(got.view(torch.uint8), y.to(torch.float8_e8m0fnu).view(torch.uint8))
