"""Tensors at addresses on every executor: parameters, tables, strides, groups, and their errors."""

from __future__ import annotations

import pytest
import torch

import tileops.language as T
from tests.kit.executors import EXECUTORS, compile_for, run
from tests.kit.formats import random_tensor, values
from tests.programs.pointers import (
    from_pointer,
    gathered_columns,
    grouped_matmul,
    packed_at_address,
    scaled_rows,
)
from tileops.errors import ArgumentTypeError, ProgramTypeError, ProgramValueError

both = pytest.mark.parametrize("executor", EXECUTORS)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def addresses(*tensors: torch.Tensor) -> torch.Tensor:
    return torch.tensor([t.data_ptr() for t in tensors], dtype=torch.int64)


@both
def test_pointer_parameters(executor: str) -> None:
    a, c = torch.randn(11, 50), torch.zeros(11, 50)
    run(executor, from_pointer, a, c, 11, 50)
    assert torch.equal(c, a + 1)


def test_a_written_pointer_is_a_mutated_tensor() -> None:
    a, c = torch.randn(8, 32), torch.zeros(8, 32)
    before = c._version
    from_pointer(a, c, 8, 32)
    assert c._version > before
    assert "Tensor A, Tensor(a!) C" in str(torch.ops.tileops.from_pointer.default._schema)


@both
def test_table_of_rows(executor: str) -> None:
    rows = [torch.randn(n) for n in (1, 31, 70)]
    expected = [2 * r for r in rows]
    sizes = torch.tensor([len(r) for r in rows], dtype=torch.int32)
    run(executor, scaled_rows, addresses(*rows), sizes, reachable=rows)
    for got, want in zip(rows, expected, strict=True):
        assert torch.equal(got, want)


@both
def test_strides(executor: str) -> None:
    parts = [torch.randn(5, 12).half() for _ in range(6)]
    table = addresses(*parts).view(3, 2)
    c = torch.zeros(3, 12, 5).half()
    run(executor, gathered_columns, table, c, pick=1, reachable=parts)
    assert torch.equal(c, torch.stack([p.T for p in parts[1::2]]))


@both
def test_grouped_matmul(executor: str) -> None:
    rows = (1, 40, 77)
    a = [torch.randn(m, 64).half() for m in rows]
    b = [torch.randn(64, 48).half() for _ in rows]
    c = [torch.full((m, 48), float("nan")) for m in rows]
    sizes = torch.tensor(rows, dtype=torch.int32)
    tables = [addresses(*x) for x in (a, b, c)]
    run(executor, grouped_matmul, *tables, sizes, reachable=[*a, *b, *c])
    for x, y, z in zip(a, b, c, strict=True):
        exact = x.double() @ y.double()
        # 64 float32 additions of exact products, each of 2^-22 of the sum of magnitudes at most.
        bound = 66 * 2.0**-22 * (x.double().abs() @ y.double().abs())
        assert ((z.double() - exact).abs() <= bound).all()


@both
def test_packed_memory(executor: str) -> None:
    rows = [random_tensor("int4", 1, 64) for _ in range(2)]
    (c,) = run(executor, packed_at_address, addresses(*rows), reachable=rows)
    assert torch.equal(c.double(), values(torch.cat(rows), "int4"))


def test_compiles_for_sm_90() -> None:
    rows = [torch.randn(32, 64).half()] * 3
    table, sizes = addresses(*rows), torch.full((3,), 32, dtype=torch.int32)
    source = compile_for("cuda:sm_90", grouped_matmul, table, table, table, sizes)
    assert ".to(tl.pointer_type(tl.float16))" in source
    compile_for("cuda:sm_90", from_pointer, rows[0], rows[1], 32, 64)


def test_placeholders_stand_for_pointers_and_scalars() -> None:
    program = from_pointer
    kernel = program.compile(T.ptr, T.ptr(T.float32), T.int32, T.int32)
    a, c = torch.randn(11, 50), torch.zeros(11, 50)
    kernel(a, c, 11, 50)
    assert torch.equal(c, a + 1)
    with pytest.raises(ArgumentTypeError, match="argument 'm': expected"):
        program.compile(T.ptr, T.ptr, T.float32, T.int32)


def test_misuse_is_located() -> None:
    with pytest.raises(ProgramTypeError, match=r"use T\.make_tensor"):

        @T.prim_func
        def indexed(A: T.ptr):
            with T.Kernel(1):
                A[0] = 1

    with pytest.raises(ProgramTypeError, match="an address is an int64"):

        @T.prim_func
        def narrow(A: T.Tensor((4,), T.int32)):
            with T.Kernel(1):
                T.clear(T.make_tensor(A[0], (4,), T.float32))

    with pytest.raises(ProgramValueError, match="one stride a dimension"):

        @T.prim_func
        def short(A: T.ptr):
            with T.Kernel(1):
                T.clear(T.make_tensor(A, (4, 4), T.float32, (1,)))
