"""Lowering of encoded dtypes: IR in, IR out; programs without them stay; statements keep origins."""

from __future__ import annotations

import tileops.language as T
from tileops.dtypes import DType
from tileops.ir import fold
from tileops.ir.expr import Var
from tileops.ir.printer import print_program
from tileops.ir.verifier import verify
from tileops.ir.walk import walk
from tileops.passes.analyze_index import half, parity
from tileops.passes.context import Context
from tileops.passes.lower_encoded import lower_encoded
from tileops.target import parse_target

CPU, SM_80 = Context(parse_target("cpu")), Context(parse_target("cuda:sm_80"))


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


@T.prim_func
def shown(A: T.Tensor((32,), T.float8_e4m3fn)):
    with T.Kernel(1):
        tile = T.alloc_fragment((32,), T.float8_e4m3fn)
        T.copy(A, tile)
        T.print(tile, "tile")
        T.print(A[0], "first")


@T.prim_func
def addressed(P: T.Tensor((4,), T.int64), C: T.Tensor((32,), T.float32)):
    with T.Kernel(1):
        a = T.make_tensor(P[0], (32,), T.float8_e4m3fn)
        for i in T.Parallel(32):
            C[i] = a[i]


@T.prim_func
def transposed(A: T.Tensor((16, 32), T.float8_e5m2), C: T.Tensor((32, 16), T.float16)):
    with T.Kernel(1):
        a = T.alloc_shared((16, 32), T.float8_e5m2)
        c = T.alloc_shared((32, 16), T.float16)
        T.copy(A, a)
        T.transpose(a, c)
        T.copy(c, C)


def lowered(prim_func: object, context: Context = CPU) -> str:
    out = lower_encoded(prim_func.program, context)  # type: ignore[attr-defined]
    verify(out, made_by="lower_encoded")
    return print_program(out)


def test_a_program_without_packed_dtypes_is_left_alone() -> None:
    assert lower_encoded(ordinary.program, CPU) is ordinary.program


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


def test_printed_8_bit_floats_are_values_where_they_are_held_as_bytes() -> None:
    text = lowered(shown, SM_80)
    assert "print 'tile' %tile_wide" in text
    assert "print 'first' e4m3_value:f32(%A.0[0])" in text


def test_8_bit_floats_at_an_address_are_bytes_where_the_target_has_none() -> None:
    text = lowered(addressed, SM_80)
    assert "f8e4m3fn" not in text
    assert "e4m3_value:f32(%a." in text


def test_a_transpose_of_8_bit_floats_converts_where_they_are_held_as_bytes() -> None:
    text = lowered(transposed, SM_80)
    assert "e5m2_value:f32(%a." in text
    assert "transpose %a_wide" in text


def test_statements_keep_their_origin() -> None:
    before = [s.loc.line for s in walk(stored.program.launches)]
    after = list(walk(lower_encoded(stored.program, CPU).launches))
    assert [before[s.origin] for s in after] == [s.loc.line for s in after]


def test_parity_and_half() -> None:
    v = Var(DType("int32"), 0, "v")
    two, three = fold.const(2), fold.const(3)
    even = fold.add(fold.mul(v, two), fold.const(6))
    assert parity(even) == 0
    assert parity(fold.add(even, three)) == 1
    assert parity(v) is None
    assert parity(v, {0}) == 0
    assert half(even) == fold.add(v, three)
    assert half(fold.add(even, three)) == half(fold.add(even, two))
    assert half(fold.const(-3)) == fold.const(-2)
