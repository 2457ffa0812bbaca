"""Host programs: the value of the expression they came from, for ints and for symbolic sizes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import tileops
import tileops.language as T
from tileops.dtypes import DType
from tileops.errors import UnsupportedConstructError
from tileops.ir import fold
from tileops.ir.expr import Buffer, Expr, HostAttr, Load, Var
from tileops.op.host_program import HostProgram, HostProgramBuilder

INT32 = DType("int32")
M, N = Var(INT32, 0, "M"), Var(INT32, 1, "N")
NAMES = {0: "size:0", 1: "size:1"}


def lowered(expr: Expr) -> tuple[HostProgram, int]:
    builder = HostProgramBuilder(NAMES)
    for name in NAMES.values():
        builder.reserve(name)
    reference = builder.add(expr)
    return builder.finish(), builder.slot(reference)


def value_of(expr: Expr, m: object, n: object) -> object:
    program, slot = lowered(expr)
    return program.evaluate({"size:0": m, "size:1": n})[slot]


def literal(value: int) -> Expr:
    return fold.const(value, INT32)


CASES = [
    (fold.ceildiv(M, literal(128)), lambda m, n: -(-m // 128)),
    (fold.mul(fold.add(M, N), literal(3)), lambda m, n: (m + n) * 3),
    (fold.binary("floormod", M, literal(7)), lambda m, n: m % 7),
    (fold.binary("truncdiv", fold.sub(M, N), literal(4)), lambda m, n: int((m - n) / 4)),
    (
        fold.binary("truncmod", fold.sub(M, N), literal(4)),
        lambda m, n: (m - n) - 4 * int((m - n) / 4),
    ),
    (fold.binary("min", M, N), min),
    (fold.binary("max", M, N), max),
    (
        fold.select(fold.binary("lt", M, N), M, fold.mul(N, literal(2))),
        lambda m, n: m if m < n else 2 * n,
    ),
    (fold.binary("shl", M, literal(3)), lambda m, n: m << 3),
    (fold.binary("xor", M, N), lambda m, n: m ^ n),
    (fold.unary("invert", M), lambda m, n: ~m),
    (fold.unary("neg", M), lambda m, n: -m),
    (fold.call("abs", fold.sub(M, N)), lambda m, n: abs(m - n)),
    (
        fold.select(
            fold.binary("land", fold.binary("gt", M, literal(2)), fold.unary("not", N)), M, N
        ),
        lambda m, n: m if m > 2 and not n else n,
    ),
    (fold.cast(fold.binary("eq", M, N), INT32), lambda m, n: int(m == n)),
]


@pytest.mark.parametrize(("expr", "expected"), CASES)
@settings(max_examples=30, deadline=None)
@given(m=st.integers(0, 2**20), n=st.integers(0, 2**20))
def test_integers(expr, expected, m: int, n: int) -> None:
    assert value_of(expr, m, n) == expected(m, n)


@pytest.mark.parametrize("number", [0, 1, 2, 5, 6, 7])
def test_symbolic_sizes(number: int) -> None:
    expr, expected = CASES[number]
    real = torch.empty(300, 77)
    with FakeTensorMode(shape_env=ShapeEnv()) as mode:
        m, n = mode.from_tensor(real, static_shapes=False).shape
        assert not isinstance(m, int)
        got = value_of(expr, m, n)
        assert not isinstance(got, int)
        assert got == expected(300, 77)


def rounded_up(X, n: T.int64, d: T.int64):
    N = T.const("N")
    X: T.Tensor((N,), T.int32)
    n: T.int64
    d: T.int64
    Out = T.empty((T.ceildiv(n, d), T.ceildiv(N, 4) + T.align_up(N, 4)), T.int32)
    with T.Kernel(T.ceildiv(n, d), threads=32) as bx:
        for j in T.Parallel(T.ceildiv(N, 4) + T.align_up(N, 4)):
            Out[bx, j] = bx
    return Out


@settings(max_examples=60, deadline=None)
@given(rows=st.integers(0, 9), d=st.integers(-(2**62), 2**62).filter(bool), part=st.integers(0))
def test_a_call_rounds_up_exactly(rows: int, d: int, part: int) -> None:
    """Grids and shapes of calls, in C++ and for fake tensors: -(-n // d) for any n and d."""
    n = (rows - 1) * d + (1 if d > 0 else -1) * (1 + part % abs(d)) if rows else 0
    if not -(2**63) <= n < 2**63:
        return
    x = torch.empty(7, dtype=torch.int32)
    expected = torch.arange(-(-n // d), dtype=torch.int32)[:, None].expand(-1, 10)
    assert torch.equal(ROUNDED(x, n, d), expected)
    with FakeTensorMode():
        assert ROUNDED(torch.empty(7, dtype=torch.int32), n, d).shape == expected.shape


ROUNDED = tileops.jit(rounded_up)


@settings(max_examples=200, deadline=None)
@given(m=st.integers(-(2**63), 2**63 - 1), n=st.integers(-(2**63), 2**63 - 1).filter(bool))
def test_quotients_are_those_of_python(m: int, n: int) -> None:
    for name, right in (("ceildiv", -(-m // n)), ("floordiv", m // n), ("floormod", m % n)):
        assert value_of(fold.binary(name, M, N), m, n) == right


def test_equal_expressions_share_a_slot() -> None:
    twice = fold.mul(fold.add(M, N), fold.add(M, N))
    program, _ = lowered(twice)
    assert [step[0] for step in program.code] == ["add", "mul"]


def test_json_round_trip() -> None:
    program, slot = lowered(fold.ceildiv(M, N))
    again = HostProgram.from_json(program.to_json())
    assert again == program
    assert again.evaluate({"size:0": 10, "size:1": 4})[slot] == 3


def test_host_facts_are_inputs() -> None:
    program, slot = lowered(fold.binary("min", M, HostAttr(INT32, "sm_count")))
    assert program.inputs == ("size:0", "size:1", "host:sm_count")
    assert program.evaluate({"size:0": 500, "size:1": 1, "host:sm_count": 132})[slot] == 132


def test_renamed_inputs_may_swap() -> None:
    program, slot = lowered(fold.sub(M, N))
    swapped = program.rename_inputs({"size:0": "size:1", "size:1": "size:0"})
    assert swapped.evaluate({"size:0": 1, "size:1": 10})[slot] == 9


@pytest.mark.parametrize(
    "expr",
    [
        Load(INT32, Buffer(9, "A", (literal(4),), INT32, "global"), (literal(0),)),
        Var(INT32, 77, "bx"),
        fold.cast(fold.call("exp", fold.cast(M, DType("float32"))), INT32),
    ],
)
def test_what_is_not_known_before_the_launch_is_refused(expr: Expr) -> None:
    with pytest.raises(UnsupportedConstructError):
        lowered(expr)
