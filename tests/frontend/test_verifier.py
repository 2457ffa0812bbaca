"""The verifier refuses each kind of malformed IR, and says where."""

from __future__ import annotations

import dataclasses

import pytest

from tests.programs.printed import matmul_relu
from tileops.dtypes import DType
from tileops.errors import InternalError
from tileops.frontend import trace
from tileops.ir import fold
from tileops.ir.expr import Binary, Buffer, Const, Load, Region, Var
from tileops.ir.program import Program
from tileops.ir.stmt import (
    Alloc,
    Bind,
    Break,
    Copy,
    Fill,
    Gemm,
    Launch,
    Parallel,
    Reduce,
    Stmt,
    Store,
)
from tileops.ir.verifier import verify

F32, I32, BOOL = DType("float32"), DType("int32"), DType("bool")
ZERO, ONE = fold.const(0), fold.const(1)


def tile(
    number: int, shape: tuple[int, ...], dtype: DType = F32, scope: str = "fragment"
) -> Buffer:
    return Buffer(number, f"t{number}", tuple(map(fold.const, shape)), dtype, scope)


def whole(buffer: Buffer) -> Region:
    return Region(buffer, (ZERO,) * buffer.ndim, buffer.shape)


def program(*body: Stmt) -> Program:
    launch = Launch((ONE,), (Var(I32, 0, "bx"),), 128, body)
    return Program("p", (), (), (), (launch,), ())


A, B, C = tile(1, (4, 8)), tile(2, (8, 4)), tile(3, (4, 4))
LOOSE = Var(I32, 9, "loose")
ONE_F = fold.const(1.0)

FAULTS: dict[str, tuple[Program, str]] = {
    "buffer that is not allocated": (program(Fill(whole(A), ONE_F)), "not defined here"),
    "buffer allocated twice": (program(Alloc(A), Alloc(A)), "defined twice"),
    "buffer that differs from its definition": (
        program(Alloc(A), Fill(whole(dataclasses.replace(A, dtype=I32)), ZERO)),
        "differs from its definition",
    ),
    "unknown variable": (
        program(Alloc(A), Store(A, (LOOSE, ZERO), ONE_F)),
        "loose.9 is not defined",
    ),
    "wrong number of indices": (
        program(Alloc(A), Store(A, (ZERO,), ONE_F)),
        "2 dimensions, 1 indices",
    ),
    "stored value of another dtype": (
        program(Alloc(A), Store(A, (ZERO, ZERO), ZERO)),
        "expected float32",
    ),
    "operands of two dtypes": (
        program(Alloc(A), Store(A, (ZERO, ZERO), Binary(F32, "add", ONE_F, ZERO))),
        "have dtypes float32 and int32",
    ),
    "float index": (program(Alloc(A), Store(A, (ONE_F, ZERO), ONE_F)), "has dtype float32"),
    "constant of the wrong kind": (program(Bind(LOOSE, Const(I32, 1.5))), "constant 1.5"),
    "copy of different extents": (
        program(Alloc(A), Alloc(C), Copy(whole(A), whole(C))),
        "extents differ",
    ),
    "gemm of different extents": (
        program(
            Alloc(A), Alloc(C), Gemm(whole(A), whole(A), whole(C), False, False, fold.const(False))
        ),
        "gemm extents disagree",
    ),
    "reduction into another shape": (
        program(Alloc(A), Alloc(C), Reduce("sum", whole(A), whole(C), 1, True)),
        "reduction of",
    ),
    "tile operation inside parallel": (
        program(Alloc(A), Parallel((Var(I32, 5, "i"),), (ONE,), (Fill(whole(A), ONE_F),))),
        "inside a parallel nest",
    ),
    "break outside a loop": (program(Break()), "outside a sequential loop"),
    "load of another dtype": (
        program(Alloc(A), Store(A, (ZERO, ZERO), Load(I32, A, (ZERO, ZERO)))),
        "load of t1 has dtype",
    ),
    "allocated parameter that is not returned": (
        dataclasses.replace(trace(matmul_relu, name="m", static={}, consts=None), returns=()),
        "is not returned",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_and_named(fault: str) -> None:
    malformed, message = FAULTS[fault]
    with pytest.raises(InternalError, match=message):
        verify(malformed)


def test_a_variable_ends_with_its_loop() -> None:
    i = Var(I32, 5, "i")
    loop = Parallel((i,), (ONE,), (Store(A, (i, ZERO), ONE_F),))
    verify(program(Alloc(A), loop))
    with pytest.raises(InternalError, match=r"i\.5 is not defined"):
        verify(program(Alloc(A), loop, Store(A, (i, ZERO), ONE_F)))


def test_the_message_names_the_statement() -> None:
    with pytest.raises(InternalError, match=r"in: copy %t1\.1"):
        verify(program(Alloc(A), Alloc(B), Copy(whole(A), whole(B))))
