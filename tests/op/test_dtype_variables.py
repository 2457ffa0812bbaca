"""Dtype variables: each dtype that a call brings is a variant of the op, and none is in its schema."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable

import pytest
import torch

import tileops
import tileops.language as T
from tileops.errors import (
    ArgumentError,
    ArgumentTypeError,
    CompileMissError,
    NoBuilderError,
    ProgramTypeError,
    ProgramValueError,
    UnsupportedConstructError,
)
from tileops.op.spec import OpSpec
from tileops.op.variant import Variant

FLOATS = (torch.float16, torch.bfloat16, torch.float32)
MODULE = T.DTypeVar("dt", T.float16, T.bfloat16, T.float32)


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> None:
    torch._dynamo.reset()


@tileops.jit(name="dtyped_add")
def add(A, B, block: int = 64):
    N = T.const("N")
    dt = T.DTypeVar("dt", T.float16, T.bfloat16, T.float32)
    A: T.Tensor((N,), dt)
    B: T.Tensor((N,), dt)
    C = T.empty((N,), dt)
    with T.Kernel(T.ceildiv(N, block)) as bx:
        for i in T.Parallel(block):
            C[bx * block + i] = A[bx * block + i] + B[bx * block + i]
    return C


@tileops.jit(name="dtyped_by_module")
def negated(A, block: int = 64):
    N = T.dynamic("N")
    A: T.Tensor((N,), MODULE)
    C = T.empty((N,), MODULE)
    with T.Kernel(T.ceildiv(N, block)) as bx:
        tile = T.alloc_fragment((block,), MODULE)
        T.copy(A[bx * block], tile)
        for i in T.Parallel(block):
            tile[i] = -tile[i]
        T.copy(tile, C[bx * block])
    return C


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("program", [add, negated], ids=lambda p: p.func.__name__)
def test_each_dtype(program: tileops.JITImpl, dtype: torch.dtype) -> None:
    for n in (1, 64, 100):
        for _ in range(3):
            a, b = torch.randn(n).to(dtype), torch.randn(n).to(dtype)
            got = program(a, b) if program is add else program(a)
            want = a + b if program is add else -a
            assert got.dtype == dtype
            assert torch.equal(got, want)


def test_the_schema_has_no_dtype() -> None:
    schema = "tileops::dtyped_add(Tensor A, Tensor B, *, int? block=None) -> Tensor"
    assert str(add.op._schema) == schema


def build(dt, name):
    @tileops.jit(name=name)
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), dt)
        C = T.empty((N,), dt)
        with T.Kernel(N) as i:
            C[i] = dt(A[i] * 2)
        return C

    return program


def test_a_variable_of_the_function_around() -> None:
    program = build(T.DTypeVar("kind", T.float32, T.int32), "dtyped_by_closure")
    assert torch.equal(program(torch.arange(4)[:3].int()), torch.tensor([0, 2, 4]).int())
    assert torch.equal(program(torch.ones(3)), torch.full((3,), 2.0))
    assert program(torch.ones(3)).dtype == torch.float32


def test_a_variable_in_the_signature() -> None:
    def program(A: T.Tensor((4,), MODULE)):
        C = T.empty((4,), A.dtype)
        with T.Kernel(4) as i:
            C[i] = A[i]
        return C

    jitted = tileops.jit(program, name="dtyped_in_signature")
    for dtype in FLOATS:
        a = torch.randn(4).to(dtype)
        assert torch.equal(jitted(a), a)


# -- what it is inside -----------------------------------------------------------------------------
def everywhere(A, inner=None):
    """Uses a dtype in each place that takes one."""
    N = T.const("N")
    dt = MODULE if inner is None else T.DTypeVar("dt", T.float16, T.bfloat16, T.float32)
    A: T.Tensor((N,), dt)
    C = T.empty(N, dtype=dt)
    D = T.empty((N,), A.dtype)
    work = T.alloc_global((N,), dt)
    widths = {T.float16: 16, T.bfloat16: 17, T.float32: 32}
    assert dt == A.dtype
    assert A.dtype == dt
    assert str(dt) == str(A.dtype) == f"{dt}"
    assert dt in (T.float16, T.bfloat16, T.float32)
    assert dt in widths
    assert dt.bits == (32 if dt == "float32" else 16)
    assert dt.is_float
    assert dt != T.int8
    assert dt.as_torch() == getattr(torch, str(dt))
    with T.Kernel(1):
        s = T.alloc_shared((N,), dt)
        f = T.alloc_fragment((N,), dt)
        local = T.alloc_local((1,), dt)
        v = T.alloc_var(dt, 1.0)
        T.copy(A, s)
        T.copy(s, f)
        T.copy(f, work)
        local[0] = dt(2.0)
        x: dt = 0.5
        for i in T.Parallel(N):
            C[i] = T.cast(f[i] * local[0], dt) + v + T.cast(widths[dt], dt) + x
            D[i] = T.min(T.infinity(dt), T.max_value(dt)) if i == 0 else T.min_value(dt)
    return C, D


EVERYWHERE = tileops.jit(everywhere, name="dtyped_everywhere")


@pytest.mark.parametrize("inner", [None, 1])
@pytest.mark.parametrize("dtype", FLOATS)
def test_it_stands_wherever_a_dtype_may(dtype: torch.dtype, inner: int | None) -> None:
    bound = EVERYWHERE.bind(inner=inner) if inner else EVERYWHERE
    a = torch.randint(-8, 8, (5,)).to(dtype)
    c, d = bound(a)
    width = {torch.float16: 16, torch.bfloat16: 17, torch.float32: 32}[dtype]
    assert torch.equal(c, (a * 2 + 1 + width + 0.5).to(dtype))
    limit = torch.finfo(dtype).max
    assert d.tolist() == [limit, *[-limit] * 4]


@tileops.jit(name="dtyped_branches")
def branches(A):
    N = T.const("N")
    dt = T.DTypeVar("dt", T.int8, T.float32)
    A: T.Tensor((N,), dt)
    C = T.empty((N,), T.float32)
    with T.Kernel(N) as i:
        if dt == T.int8:
            C[i] = T.cast(A[i], T.float32) + T.cast(A[i] >> 1, T.float32)  # no float has >>
        else:
            C[i] = T.exp(A[i])
    return C


def test_an_if_is_decided_when_traced() -> None:
    a = torch.tensor([5, -3], dtype=torch.int8)
    assert torch.equal(branches(a), torch.tensor([7.0, -5.0]))
    torch.testing.assert_close(branches(torch.ones(2)), torch.ones(2).exp())


@tileops.jit(name="dtyped_twice")
def mixed(A, B):
    N = T.const("N")
    a = T.DTypeVar("a", T.float16, T.float32)
    b = T.DTypeVar("b", T.float16, T.int32)
    A: T.Tensor((N,), a)
    B: T.Tensor((N,), b)
    C, D = T.empty((N,), a), T.empty((N,), b)
    with T.Kernel(N) as i:
        C[i] = A[i] + T.cast(B[i], a)
        D[i] = T.cast(A[i], b)
    return C, D


def test_two_variables() -> None:
    for a in (torch.float16, torch.float32):
        for b in (torch.float16, torch.int32):
            x, y = torch.tensor([1.5, 2.0]).to(a), torch.tensor([3, 4]).to(b)
            c, d = mixed(x, y)
            assert (c.dtype, d.dtype) == (a, b)
            assert torch.equal(c, x + y.to(a))
            assert torch.equal(d, x.to(b))


# -- bytes, pairs of four bits, 8-bit floats -------------------------------------------------------
@tileops.jit(name="dtyped_packed")
def unpacked(A):
    M, N = T.const("M, N")
    dt = T.DTypeVar("dt", T.int4, T.uint4, T.float4_e2m1fn, T.float8_e4m3fn, T.bool)
    A: T.Tensor((M, N), dt)
    C = T.empty((M, N), T.float32)
    B = T.empty((M, N), dt)
    with T.Kernel(M) as i:
        for j in T.Parallel(N):
            C[i, j] = T.cast(A[i, j], T.float32)
        for j in T.Parallel(N):
            B[i, j] = A[i, j]
    return C, B


def test_packed_and_narrow_dtypes() -> None:
    byte = torch.tensor([[0x1F, 0x78]], dtype=torch.uint8)
    both = {
        torch.int8: [[-1.0, 1.0, -8.0, 7.0]],  # int4
        torch.uint8: [[15.0, 1.0, 8.0, 7.0]],  # uint4
        torch.float4_e2m1fn_x2: [[-6.0, 0.5, 0.0, 6.0]],
    }
    for dtype, want in both.items():
        for _ in range(3):
            c, b = unpacked(byte.view(dtype))
            assert (c + 0.0).tolist() == want
            assert b.dtype == dtype
            assert b.shape == (1, 2)
            assert torch.equal(b.view(torch.uint8), byte)
    c, b = unpacked(torch.tensor([[1.0, -2.0, 448.0]]).to(torch.float8_e4m3fn))
    assert c.tolist() == [[1.0, -2.0, 448.0]]
    assert b.shape == (1, 3)
    c, b = unpacked(torch.tensor([[True, False]]))
    assert c.tolist() == [[1.0, 0.0]]
    assert b.dtype == torch.bool
    meta = unpacked(byte.view(torch.int8).to("meta"))
    assert [tuple(x.shape) for x in meta] == [(1, 4), (1, 2)]


# -- refusals --------------------------------------------------------------------------------------
def raised(call: Callable[[], object]) -> str:
    with pytest.raises((ArgumentError, ArgumentTypeError)) as caught:
        call()
    return f"{type(caught.value).__name__}: {caught.value}"


def test_a_dtype_that_is_not_allowed() -> None:
    for device in ("cpu", "meta"):
        wrong = torch.ones(4, dtype=torch.float64, device=device)
        assert raised(lambda: add(wrong, wrong)) == (  # noqa: B023
            "ArgumentTypeError: dtyped_add: argument 'A': expected dtype float16, bfloat16 or "
            "float32 (dt), got float64"
        )


def test_tensors_that_disagree() -> None:
    for device in ("cpu", "meta"):
        a = torch.ones(4, dtype=torch.float16, device=device)
        for other in (torch.bfloat16, torch.float64):
            assert raised(lambda: add(a, a.to(other))) == (  # noqa: B023
                "ArgumentTypeError: dtyped_add: argument 'B': expected dtype float16, which 'A' "
                f"has (dt), got {str(other).removeprefix('torch.')}"
            )


def test_outside_a_program() -> None:
    with pytest.raises(NoBuilderError, match="outside a program"):
        T.float16 == MODULE  # noqa: B015
    with pytest.raises(ProgramTypeError, match="not a dtype"):
        T.dtype(MODULE)
    assert repr(MODULE) == "T.DTypeVar('dt', 'float16', 'bfloat16', 'float32')"
    assert MODULE in [MODULE]
    assert {MODULE: 1}[MODULE] == 1
    assert copy.copy(MODULE).dtypes == pickle.loads(pickle.dumps(MODULE)).dtypes == MODULE.dtypes
    assert not hasattr(MODULE, "bits")


@pytest.mark.parametrize(
    ("dtypes", "error", "said"),
    [
        ((), ProgramTypeError, "without the dtypes"),
        (("float17",), ProgramTypeError, "not a dtype"),
        ((T.int4, T.int8), ProgramTypeError, "torch stores int4 and int8 in int8"),
        ((T.float32, T.tfloat32), ProgramTypeError, "cannot tell them apart"),
        ((T.float16, T.float16), ProgramTypeError, "cannot tell them apart"),
        (("float16x2",), UnsupportedConstructError, "vectors of scalars only"),
    ],
)
def test_what_it_takes(dtypes: tuple[object, ...], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        T.DTypeVar("dt", *dtypes)
    with pytest.raises(ProgramValueError, match="takes a name first"):
        T.DTypeVar(T.float16, T.float32)


def test_lazy_programs_take_dtypes_as_parameters() -> None:
    @tileops.jit(out_idx=[-1])
    def lazy(N):
        @T.prim_func
        def main(A: T.Tensor((N,), MODULE), C: T.Tensor((N,), MODULE)):
            with T.Kernel(N) as i:
                C[i] = A[i]

        return main

    with pytest.raises(UnsupportedConstructError, match=r"in a T\.prim_func"):
        lazy(4)


def test_compile_time_arguments_may_not_change_the_variables() -> None:
    @tileops.jit(name="dtyped_by_flag")
    def program(A, flag: bool = False):
        N = T.const("N")
        dt = T.DTypeVar("dt", T.float16, T.float32)
        A: T.Tensor((N,), T.float32 if flag else dt)
        C = T.empty((N,), T.float32)
        with T.Kernel(N) as i:
            C[i] = A[i]
        return C

    assert torch.equal(program(torch.ones(2).half()), torch.ones(2))
    with pytest.raises((ProgramTypeError, ProgramValueError), match="dtype variable"):
        program(torch.ones(2), flag=True)


# -- optional and written tensors ------------------------------------------------------------------
@tileops.jit(name="dtyped_optional")
def scaled(A, S=None, B=None):
    N = T.const("N")
    dt = T.DTypeVar("dt", T.float16, T.float32)
    st = T.DTypeVar("st", T.float16, T.float32)
    A: T.Tensor((N,), dt)
    S: T.Tensor((N,), st)
    B: T.Tensor((N,), dt)
    C = T.empty((N,), dt)
    with T.Kernel(N) as i:
        value = T.cast(A[i], T.float32)
        if S is not None:
            value = value * T.cast(T.cast(S[i], st), T.float32)
        if B is not None:
            value = value + T.cast(B[i], T.float32)
        C[i] = T.cast(value, dt)
    return C


def test_optional_tensors() -> None:
    for dtype in (torch.float16, torch.float32):
        a = torch.tensor([1.0, 2.0]).to(dtype)
        assert torch.equal(scaled(a), a)
        assert torch.equal(scaled(a, B=a), a + a)
        for other in (torch.float16, torch.float32):
            s = torch.tensor([3.0, 0.5]).to(other)
            assert torch.equal(scaled(a, s), torch.tensor([3.0, 1.0]).to(dtype))
            assert torch.equal(scaled(a, s, a), torch.tensor([4.0, 3.0]).to(dtype))
    text = raised(lambda: scaled(torch.ones(2), None, torch.ones(2).half()))
    assert "argument 'B': expected dtype float32, which 'A' has (dt), got float16" in text


def test_programs_without_a_call_leave_tensors_out() -> None:
    half = torch.ones(5).half()
    assert [p.name for p in scaled.get_tir(half, None, None).params] == ["A", "C"]
    assert scaled.get_tir(half, None, half).params[1].buffer.dtype == "float16"
    assert torch.equal(scaled.compile(half, None, half)(half, half), half + half)
    assert tileops.warmup([(scaled, half, None, None), (scaled, half, half.float(), None)]) == 4
    with tileops.option.strict():
        assert torch.equal(scaled(half), half)
        assert torch.equal(scaled(half, half.float()), half)
        with pytest.raises(CompileMissError):
            scaled(half, half)


def test_a_variable_of_a_tensor_that_is_left_out_has_no_value() -> None:
    @tileops.jit(name="dtyped_of_nothing")
    def program(A, S=None):
        N = T.const("N")
        st = T.DTypeVar("st", T.float16, T.float32)
        A: T.Tensor((N,), T.float32)
        S: T.Tensor((N,), st)
        C = T.empty((N,), st)
        with T.Kernel(N) as i:
            C[i] = T.cast(A[i], st)
        return C

    assert program(torch.ones(2), torch.ones(2).half()).dtype == torch.float16
    with pytest.raises(ProgramValueError, match="`st` has no value: no argument that the call"):
        program(torch.ones(2))


@tileops.jit(name="dtyped_in_place", differentiable=False)
def increment(A):
    N = T.const("N")
    dt = T.DTypeVar("dt", T.float16, T.float32, T.int64)
    A: T.StridedTensor((N,), (T.dynamic("S"),), dt)
    with T.Kernel(N) as i:
        A[i] = A[i] + dt(1)


def test_written_tensors() -> None:
    for dtype in (torch.float16, torch.float32, torch.int64):
        whole = torch.arange(8).to(dtype)
        increment(whole[::2])
        assert whole.tolist() == [1, 1, 3, 3, 5, 5, 7, 7]
    text = raised(lambda: increment(torch.ones(2, dtype=torch.int32)))
    assert "expected dtype float16, float32 or int64 (dt), got int32" in text


# -- without a call --------------------------------------------------------------------------------
def test_programs_by_keyword_and_by_tensor() -> None:
    assert str(add.get_tir(N=8, dt=T.bfloat16).params[0].buffer.dtype) == "bfloat16"
    half = torch.ones(8).half()
    assert add.get_tir(half, half) == add.get_tir(N=8, dt="float16")
    assert add.compile(half).name == add.compile(N=8, dt=torch.float16).name
    assert add.compile(half)(half, half).dtype == torch.float16
    said = raised(lambda: add.compile(N=8))
    assert "the dtype 'dt' is not given; pass dt=... (float16, bfloat16 or float32)" in said
    assert "given as float32 and as float16" in raised(lambda: add.get_tir(half, dt=T.float32))
    assert "expected float16, bfloat16 or float32, got int8" in raised(
        lambda: add.get_tir(N=8, dt=T.int8)
    )
    keys = [add.parse_cache_key(N=8, dt=d) for d in (T.float16, T.float32)]
    assert keys[0] != keys[1]


def test_a_bound_dtype_is_the_program_with_that_dtype_written() -> None:
    @tileops.jit(name="dtyped_add")
    def written(A, B, block: int = 64):
        N = T.const("N")
        A: T.Tensor((N,), T.float16)
        B: T.Tensor((N,), T.float16)
        C = T.empty((N,), T.float16)
        with T.Kernel(T.ceildiv(N, block)) as bx:
            for i in T.Parallel(block):
                C[bx * block + i] = A[bx * block + i] + B[bx * block + i]
        return C

    from tileops.ir.printer import print_program

    assert print_program(written.get_tir(N=8)) == print_program(add.get_tir(N=8, dt="float16"))


def test_strict_mode_and_warmup() -> None:
    x = torch.ones(777)
    with tileops.option.strict(), pytest.raises(CompileMissError):
        add(x.half(), x.half())
    assert tileops.warmup([(add, {"N": 777, "dt": "float16"}), (add, x, x)]) == 4
    with tileops.option.strict():
        assert torch.equal(add(x.half(), x.half()), x.half() * 2)
        assert torch.equal(add(x, x), x * 2)
        with pytest.raises(CompileMissError, match="dtyped_add"):
            add(x.bfloat16(), x.bfloat16())


def test_spec_and_variants_survive_their_json() -> None:
    for program in (add, mixed, scaled, unpacked):
        op = program._eager.op
        assert OpSpec.from_json(json.loads(json.dumps(op.spec.to_json()))) == op.spec
        for variant in op._variants.values():
            text = json.loads(json.dumps(variant.to_json()))
            assert Variant.from_json(text, op.spec) == variant
