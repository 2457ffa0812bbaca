"""Lowering of packed dtypes: IR in, IR out; programs without them stay; statements keep their origin."""

from __future__ import annotations

import tileops.language as T
from tileops.dtypes import DType
from tileops.ir import fold
from tileops.ir.expr import Var
from tileops.ir.printer import print_program
from tileops.ir.verifier import verify
from tileops.ir.walk import walk
from tileops.passes.context import Context
from tileops.passes.lower_packed import lower_packed
from tileops.passes.packed_types import half, parity
from tileops.target import parse_target

CPU = Context(parse_target("cpu"))


@T.prim_func
def unpacked(A: T.Tensor((4, 32), T.int4), C: T.Tensor((4, 32), T.int32)):
    with T.Kernel(4, threads=32) as i:
        for j in T.Parallel(32):
            C[i, j] = A[i, j]


@T.prim_func
def copied(A: T.Tensor((4, 32), T.int4), C: T.Tensor((4, 32), T.int4)):
    with T.Kernel(4, threads=32) as i:
        T.copy(A[i, 0:32], C[i, 0:32])


@T.prim_func
def stored(C: T.Tensor((4, 32), T.uint4)):
    with T.Kernel(4, threads=32) as i:
        for j in T.Parallel(32):
            C[i, j] = j


@T.prim_func
def ordinary(A: T.Tensor((4, 32), T.int8)):
    with T.Kernel(4, threads=32) as i:
        T.clear(A[i, 0:32])


def lowered(prim_func: object) -> str:
    out = lower_packed(prim_func.program, CPU)  # type: ignore[attr-defined]
    verify(out, made_by="lower_packed")
    return print_program(out)


def test_a_program_without_packed_dtypes_is_left_alone() -> None:
    assert lower_packed(ordinary.program, CPU) is ordinary.program


def test_a_load_is_the_half_of_a_byte() -> None:
    text = lowered(unpacked)
    assert "u8[4, 16]" in text
    assert "nibble:u8(%A.0[i.2, (j.3 // 2)], j.3)" in text
    assert "i4[" not in text


def test_a_copy_of_whole_bytes_stays_a_copy() -> None:
    text = lowered(copied)
    assert "copy" in text
    assert "parallel" not in text


def test_a_store_holds_two_elements() -> None:
    text = lowered(stored)
    assert "parallel" in text
    assert text.count("<<") == 1
    assert "[i.1, j." in text


def test_statements_keep_their_origin() -> None:
    before = [s.loc.line for s in walk(stored.program.launches)]
    after = list(walk(lower_packed(stored.program, CPU).launches))
    assert [before[s.origin] for s in after] == [s.loc.line for s in after]


def test_parity_and_half() -> None:
    v = Var(DType("int32"), 0, "v")
    two, three = fold.const(2), fold.const(3)
    even = fold.add(fold.mul(v, two), fold.const(6))
    assert parity(even, ()) == 0
    assert parity(fold.add(even, three), ()) == 1
    assert parity(v, ()) is None
    assert parity(v, {0}) == 0
    assert half(even, ()) == fold.add(v, three)
    assert half(fold.add(even, three), ()) == half(fold.add(even, two), ())
    assert half(fold.const(-3), ()) == fold.const(-2)
