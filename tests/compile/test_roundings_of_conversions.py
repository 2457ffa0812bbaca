"""Conversions and extremes as PTX: one rounding where two would differ, one instruction where one does."""

from __future__ import annotations

import re

import pytest

import tileops.language as T
from tileops.codegen.kernel_code import Specialization
from tileops.codegen.triton import generate
from tileops.compiler import compile_kernel
from tileops.frontend.trace import trace
from tileops.target import parse_target

CUDA = ("cuda:sm_80", "cuda:sm_89", "cuda:sm_90", "cuda:sm_100", "cuda:sm_120")
targets = pytest.mark.parametrize("target", CUDA)


def ptx_of(func: object, target: str, **static: object) -> str:
    program = trace(func, name=func.__name__, static=static, consts={})  # type: ignore[attr-defined]
    chosen = parse_target(target)
    code = generate(program, chosen, Specialization())
    return compile_kernel(code, chosen, {}).files["launch0.ptx"].decode()


def rounding_steps(ptx: str) -> list[str]:
    """The instructions that round numbers to floats."""
    pattern = r"\bcvt\.r[nz]\.(?:ftz\.|satfinite\.)*(?:b?f16|f32|e[45]m[23])[\w.]*"
    return sorted(set(re.findall(pattern, ptx)))


def cast(A, source: str, to: str):
    A: T.Tensor((64,), source)
    B = T.empty((64,), to)
    with T.Kernel(1, threads=32):
        for i in T.Parallel(64):
            B[i] = T.cast(A[i], to)
    return B


@targets
@pytest.mark.parametrize("source", ["int32", "uint32", "int64", "uint64"])
def test_integers_to_bfloat16(source: str, target: str) -> None:
    """By way of a float32 that is cut, from which rounding gives what the integer would."""
    short = {"int32": "s32", "uint32": "u32", "int64": "s64", "uint64": "u64"}[source]
    steps = rounding_steps(ptx_of(cast, target, source=source, to="bfloat16"))
    if parse_target(target).capability < 90:
        assert steps == ["cvt.rn.bf16.f32", f"cvt.rz.f32.{short}"]
    else:
        assert steps == [f"cvt.rn.bf16.{short}"]


@targets
@pytest.mark.parametrize("to", ["float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"])
def test_float64_to_eight_bits(to: str, target: str) -> None:
    steps = rounding_steps(ptx_of(cast, target, source="float64", to=to))
    assert [step for step in steps if step.endswith(".f64")] == ["cvt.rz.ftz.f32.f64"]
    assert not [step for step in steps if step.startswith("cvt.rn.f16")]


@pytest.mark.parametrize("target", CUDA[1:])
@pytest.mark.parametrize("to", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("source", ["float32", "bfloat16", "int32"])
def test_float32_to_eight_bits(source: str, to: str, target: str) -> None:
    """By the instruction, or on sm_89 by way of a float16 that is rounded to odd."""
    ptx = ptx_of(cast, target, source=source, to=to)
    by_float16 = "cvt.rz.f16.f32" in ptx
    assert by_float16 == (parse_target(target).capability == 89)
    if by_float16:
        assert re.search(r"\bor\.b16|\bselp\.[bu]16", ptx)


@targets
@pytest.mark.parametrize("source", ["int32", "uint32", "int64", "uint64"])
def test_integers_to_eight_bits_of_exponent(source: str, target: str) -> None:
    steps = rounding_steps(ptx_of(cast, target, source=source, to="float8_e8m0fnu"))
    assert len(steps) == 1
    assert steps[0].startswith("cvt.rz.f32.")


@targets
@pytest.mark.parametrize("to", ["bfloat16", "float16"])
def test_float32_is_converted_by_one_instruction(to: str, target: str) -> None:
    steps = rounding_steps(ptx_of(cast, target, source="float32", to=to))
    short = "bf16" if to == "bfloat16" else "f16"
    assert all(step.startswith(f"cvt.rn.{short}") and step.endswith(".f32") for step in steps)
    assert steps


def literals(A):
    A: T.Tensor((8,), T.float64)
    B = T.empty((8,), T.float8_e4m3fn)
    C = T.empty((8,), T.bfloat16)
    with T.Kernel(1, threads=32):
        B[0] = 0.1
        B[1] = T.cast(T.cast(0.1, "float64"), "float8_e4m3fn")
        B[2] = T.cast(3000000001, "float8_e4m3fn")
        C[0] = T.cast(T.cast(0.1, "float64"), "bfloat16")
        C[1] = T.cast(3000000001, "bfloat16")
        C[2] = T.max(T.cast(float("nan"), "float8_e5m2"), A[0])
        A[1] = 0.1
    return B, C


@targets
def test_literals_compile(target: str) -> None:
    ptx_of(literals, target)


def largest(A, dtype: str, clear: bool):
    A: T.Tensor((8, 64), dtype)
    B = T.empty((8,), dtype)
    with T.Kernel(1, threads=32):
        x = T.alloc_fragment((8, 64), dtype)
        m = T.alloc_fragment((8,), dtype)
        T.copy(A, x)
        T.fill(m, 0)
        T.reduce_max(x, m, dim=1, clear=clear)
        for i, j in T.Parallel(8, 64):
            x[i, j] = T.max(x[i, j] - m[i], -100.0)
        T.copy(x, A)
        T.copy(m, B)
    return B


@targets
@pytest.mark.parametrize("clear", [True, False])
def test_maxima_take_the_plain_instruction(clear: bool, target: str) -> None:
    """``max`` without ``.NaN`` gives the number; no comparison tells NaNs apart."""
    ptx = ptx_of(largest, target, dtype="float32", clear=clear)
    assert re.search(r"\bmax\.f32", ptx)
    assert ".NaN" not in ptx
    assert "setp.nan" not in ptx
    assert "setp.neu" not in ptx


def updated(A, P, Q, dtype: str):
    A: T.Tensor((100,), dtype)
    P: T.Tensor((8,), dtype)
    Q: T.Tensor((8,), dtype)
    R = T.empty((100,), dtype)
    with T.Kernel(1, threads=32):
        for i in T.Parallel(100):
            T.atomic_max(P[i % 8], A[i])
            R[i] = T.atomic_min(Q[i % 8], A[i], return_prev=True)
    return R


@targets
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_atomic_extremes_of_floats_compile(dtype: str, target: str) -> None:
    ptx = ptx_of(updated, target, dtype=dtype)
    assert re.search(r"atom[\w.]*\.max\.[su]", ptx)
    assert re.search(r"atom[\w.]*\.min\.[su]", ptx)


def chosen(A, kind: str):
    A: T.Tensor((8, 5), T.float8_e5m2)
    B = T.empty((8,), T.float8_e5m2)
    with T.Kernel(1, threads=32):
        x = T.alloc_fragment((8, 5), T.float8_e5m2)
        m = T.alloc_fragment((8,), T.float8_e5m2)
        T.copy(A, x)
        T.reduce(x, m, kind, dim=1)
        T.copy(m, B)
    return B


@pytest.mark.parametrize("target", CUDA[1:])
@pytest.mark.parametrize("kind", ["max", "min", "absmax"])
def test_chosen_bytes_compile(kind: str, target: str) -> None:
    ptx_of(chosen, target, kind=kind)
