"""Mathematical functions: errors in units in the last place, special values, and integer functions."""

import math

import mpmath
import numpy as np
import pytest
import torch

import tileops.language as T
from tests.kit.harness import build_eager


def apply(X, name: str, dtype: str = "float32", block: int = 256):
    N = T.const("N")
    X: T.Tensor((N,), dtype)
    Y = T.empty((N,), dtype)
    with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
        for i in T.Parallel(block):
            Y[bx * block + i] = getattr(T, name)(X[bx * block + i])
    return Y


def predicate(X, name: str, dtype: str = "float32"):
    N = T.const("N")
    X: T.Tensor((N,), dtype)
    Y = T.empty((N,), "bool")
    with T.Kernel(1, threads=128) as bx:
        for i in T.Parallel(N):
            Y[i] = getattr(T, name)(X[i])
    return Y


def run(name, x, dtype="float32"):
    return build_eager(apply, consts={"N": x.numel()}, name=name, dtype=dtype)(x)


# Function, interval of arguments, and the bound in ulp that csrc/cpu/functions.h states.
BOUNDS = [
    ("exp", -104, 89, 1.0),
    ("exp", -1e-3, 1e-3, 1.0),
    ("exp2", -150, 128, 1.0),
    ("exp10", -45, 38.5, 0.51),
    ("log", 1e-45, 1e38, 0.51),
    ("log", 0.5, 2, 0.51),
    ("log2", 0.5, 2, 0.51),
    ("log2", 1e-40, 1e38, 0.51),
    ("log10", 0.5, 2, 0.51),
    ("log1p", -0.999, 10, 0.51),
    ("tanh", -12, 12, 0.51),
    ("tanh", -0.5, 0.5, 0.51),
    ("sigmoid", -100, 30, 0.51),
    ("erf", -5, 5, 0.51),
    ("erf", -1e-2, 1e-2, 0.51),
    ("sqrt", 0, 1e30, 0.5),
    ("rsqrt", 1e-30, 1e30, 1.5),
    ("sin", -1e4, 1e4, 0.51),
    ("cos", -1e4, 1e4, 0.51),
    ("tan", -50, 50, 0.51),
    ("sinh", -80, 80, 0.51),
    ("cosh", -80, 80, 0.51),
    ("asin", -1, 1, 0.51),
    ("acos", -1, 1, 0.51),
    ("atan", -100, 100, 0.51),
]
REFERENCE = {
    "exp2": lambda x: mpmath.mpf(2) ** x,
    "exp10": lambda x: mpmath.mpf(10) ** x,
    "log2": lambda x: mpmath.log(x, 2),
    "log10": mpmath.log10,
    "log1p": mpmath.log1p,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
}


def samples(low: float, high: float, count: int = 1500) -> torch.Tensor:
    """Arguments spread evenly and, where the interval spans decades, evenly in the exponent."""
    even = torch.rand(count, dtype=torch.float64) * (high - low) + low
    if low > 0:
        spread = torch.exp(
            torch.rand(count, dtype=torch.float64) * math.log(high / low) + math.log(low)
        )
        even = torch.cat([even, spread])
    return even.float()


@pytest.mark.parametrize(("name", "low", "high", "bound"), BOUNDS)
def test_error_in_ulp(name, low, high, bound):
    x = samples(low, high)
    got = run(name, x)
    function = REFERENCE.get(name) or getattr(mpmath, name)
    with mpmath.workdps(30):
        for value, result in zip(x.tolist(), got.tolist(), strict=True):
            want = function(mpmath.mpf(value))
            nearest = np.float32(float(want))
            if not np.isfinite(nearest):
                assert not math.isfinite(result)
                continue
            ulp = max(float(np.spacing(np.abs(nearest))), 2.0**-149)
            assert abs(mpmath.mpf(result) - want) <= bound * ulp, (value, result, float(want))


def test_special_values():
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([inf, -inf, nan, 0.0, -0.0])
    want = {
        "exp": [inf, 0.0, nan, 1.0, 1.0],
        "exp2": [inf, 0.0, nan, 1.0, 1.0],
        "exp10": [inf, 0.0, nan, 1.0, 1.0],
        "log": [inf, nan, nan, -inf, -inf],
        "log2": [inf, nan, nan, -inf, -inf],
        "log10": [inf, nan, nan, -inf, -inf],
        "tanh": [1.0, -1.0, nan, 0.0, -0.0],
        "erf": [1.0, -1.0, nan, 0.0, -0.0],
        "sigmoid": [1.0, 0.0, nan, 0.5, 0.5],
        "sqrt": [inf, nan, nan, 0.0, -0.0],
        "rsqrt": [0.0, nan, nan, inf, -inf],
    }
    for name, values in want.items():
        got = run(name, x)
        assert torch.equal(got.isnan(), torch.tensor(values).isnan()), (name, got)
        keep = ~got.isnan()
        assert torch.equal(got[keep], torch.tensor(values)[keep]), (name, got)
        assert torch.equal(got[keep].signbit(), torch.tensor(values)[keep].signbit()), (name, got)


def test_overflow_and_subnormals_of_exp():
    x = torch.tensor([88.72283, 88.8, 100.0, -87.5, -100.0, -103.9, -104.5, -1e30, 1e30])
    got, want = run("exp", x), torch.exp(x.double()).float()
    # One unit in the last place, subnormal results included.
    steps = (got.view(torch.int32) - want.view(torch.int32)).abs()
    assert (steps <= 1).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize(
    "name", ["exp", "exp2", "log2", "tanh", "erf", "sigmoid", "sqrt", "rsqrt", "sin"]
)
def test_other_widths_round_once(name, dtype):
    x = (torch.rand(500) * 3 + 0.1).to(getattr(torch, dtype))
    got = run(name, x, dtype)
    reference = getattr(torch, name)(x.double())
    unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float64": 2.0**-52}[dtype]
    # Half a unit of the dtype, and the float32 result's own error before it.
    assert (
        (got.double() - reference).abs() <= reference.abs() * (unit * 1.01 + 2.0**-45) + 1e-9 * unit
    ).all()


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "nearbyint"])
def test_rounding_functions(name):
    x = torch.cat(
        [torch.randn(500) * 10, torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, -0.0, 1e10, -1e10])]
    )
    want = getattr(torch, "round" if name == "nearbyint" else name)(x)
    assert torch.equal(run(name, x), want)


def test_predicates():
    x = torch.tensor([1.0, float("inf"), -float("inf"), float("nan"), 0.0])
    for name in ("isnan", "isinf", "isfinite"):
        got = build_eager(predicate, consts={"N": 5}, name=name)(x)
        assert torch.equal(got, getattr(torch, name)(x))


def binary(X, Y, name: str, dtype: str):
    N = T.const("N")
    X: T.Tensor((N,), dtype)
    Y: T.Tensor((N,), dtype)
    Z = T.empty((N,), dtype)
    with T.Kernel(1, threads=128) as bx:
        for i in T.Parallel(N):
            Z[i] = getattr(T, name)(X[i], Y[i])
    return Z


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_min_and_max_prefer_numbers(dtype):
    values = [1.0, -2.0, float("nan"), float("inf"), -float("inf"), 3.5]
    pairs = [(a, b) for a in values for b in values]
    x, y = (torch.tensor(column).to(getattr(torch, dtype)) for column in zip(*pairs, strict=True))
    for name, want in (("max", torch.fmax(x, y)), ("min", torch.fmin(x, y))):
        got = build_eager(binary, consts={"N": len(pairs)}, name=name, dtype=dtype)(x, y)
        assert torch.equal(got.nan_to_num(9e9), want.nan_to_num(9e9))


DIVISIONS = {
    "floordiv": lambda a, b: a // b,
    "floormod": lambda a, b: a % b,
    "truncdiv": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "truncmod": lambda a, b: a - b * DIVISIONS["truncdiv"](a, b),
}


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8"])
@pytest.mark.parametrize("name", list(DIVISIONS))
def test_division(name, dtype):
    low = 0 if dtype == "uint8" else -60
    pairs = [(a, b) for a in range(low, 60, 7) for b in range(low, 60, 3) if b != 0]
    x, y = (torch.tensor(c, dtype=getattr(torch, dtype)) for c in zip(*pairs, strict=True))
    got = build_eager(binary, consts={"N": len(pairs)}, name=name, dtype=dtype)(x, y)
    assert got.tolist() == [DIVISIONS[name](a, b) for a, b in pairs]


def constant_division(X, name: str, by: int):
    N = T.const("N")
    X: T.Tensor((N,), "int32")
    Y = T.empty((N,), "int32")
    with T.Kernel(1, threads=128) as bx:
        for i in T.Parallel(N):
            Y[i] = getattr(T, name)(X[i], by)
    return Y


@pytest.mark.parametrize("by", [1, 2, 8, 1024, 3, 7, -2, -5, 2**30])
@pytest.mark.parametrize("name", list(DIVISIONS))
def test_division_by_constants(name, by):
    values = [*range(-40, 41), 2**31 - 1, -(2**31), 2**30, -(2**30) - 1]
    x = torch.tensor(values, dtype=torch.int32)
    got = build_eager(constant_division, consts={"N": len(values)}, name=name, by=by)(x)
    assert got.tolist() == [DIVISIONS[name](v, by) for v in values]


@pytest.mark.parametrize("name", ["floordiv", "truncdiv", "floormod", "truncmod"])
def test_division_never_traps(name):
    x = torch.tensor([5, -(2**31), 0, 7], dtype=torch.int32)
    y = torch.tensor([0, -1, 0, -1], dtype=torch.int32)
    got = build_eager(binary, consts={"N": 4}, name=name, dtype="int32")(x, y).tolist()
    # By zero: -1 and the dividend; the least integer by -1 wraps.
    assert got == ([-1, -(2**31), -1, -7] if name.endswith("div") else [5, 0, 0, 0])


def integer_function(X, name: str, dtype: str):
    N = T.const("N")
    X: T.Tensor((N,), dtype)
    Y = T.empty((N,), "int32")
    with T.Kernel(1, threads=128) as bx:
        for i in T.Parallel(N):
            Y[i] = getattr(T, name)(X[i])
    return Y


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint16"])
def test_bit_counts(dtype):
    info = torch.iinfo(getattr(torch, dtype))
    values = [0, 1, 2, 3, info.max, info.max // 3, info.min, info.min // 2]
    x = torch.tensor(values, dtype=getattr(torch, dtype))
    bits = [v & ((1 << info.bits) - 1) for v in values]
    got = build_eager(integer_function, consts={"N": 8}, name="popcount", dtype=dtype)(x)
    assert got.tolist() == [b.bit_count() for b in bits]
    got = build_eager(integer_function, consts={"N": 8}, name="clz", dtype=dtype)(x)
    assert got.tolist() == [info.bits - b.bit_length() for b in bits]


def shifts(X, S, dtype: str):
    N = T.const("N")
    X: T.Tensor((N,), dtype)
    S: T.Tensor((N,), dtype)
    L = T.empty((N,), dtype)
    R = T.empty((N,), dtype)
    with T.Kernel(1, threads=128) as bx:
        for i in T.Parallel(N):
            L[i] = X[i] << S[i]
            R[i] = X[i] >> S[i]
    return L, R


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8"])
def test_shifts_by_any_count(dtype):
    info = torch.iinfo(getattr(torch, dtype))
    pairs = [
        (v, s)
        for v in (1, 5, info.max, info.min, info.min // 2)
        for s in (0, 1, info.bits - 1, info.bits, 99)
    ]
    x, s = (torch.tensor(c, dtype=getattr(torch, dtype)) for c in zip(*pairs, strict=True))
    left, right = build_eager(shifts, consts={"N": len(pairs)}, dtype=dtype)(x, s)
    mask = (1 << info.bits) - 1
    wrapped = [(v << n) & mask for v, n in pairs]
    assert left.tolist() == [w - mask - 1 if info.min < 0 and w > info.max else w for w in wrapped]
    assert right.tolist() == [v >> n for v, n in pairs]


def test_narrow_arithmetic_rounds_each_operation():
    def program(X, Y):
        N = T.const("N")
        X: T.Tensor((N,), "float16")
        Y: T.Tensor((N,), "float16")
        Z = T.empty((N,), "float16")
        with T.Kernel(1, threads=128) as bx:
            for i in T.Parallel(N):
                Z[i] = (X[i] * Y[i] + X[i]) / Y[i] - Y[i]
        return Z

    x, y = torch.randn(1000).half(), torch.randn(1000).half()
    assert torch.equal(build_eager(program, consts={"N": 1000})(x, y), (x * y + x) / y - y)


def test_no_fusion_outside_gemm():
    def program(X, Y):
        N = T.const("N")
        X: T.Tensor((N,), "float32")
        Y: T.Tensor((N,), "float32")
        Z = T.empty((N,), "float32")
        with T.Kernel(1, threads=128) as bx:
            for i in T.Parallel(N):
                Z[i] = X[i] * Y[i] - X[i]
        return Z

    x, y = torch.randn(1000), torch.randn(1000)
    assert torch.equal(build_eager(program, consts={"N": 1000})(x, y), x * y - x)
