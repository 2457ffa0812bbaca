"""The canonical text: what it shows, and what it must not depend on."""

from __future__ import annotations

import dataclasses

from tileops.dtypes import DType
from tileops.ir import fold
from tileops.ir.builder import Builder
from tileops.ir.expr import Load
from tileops.ir.printer import print_program
from tileops.ir.program import Program, Size, TensorParam
from tileops.ir.stmt import Launch, Parallel, Store
from tileops.ir.walk import walk
from tileops.location import Location

F32, I32 = DType("float32"), DType("int32")

TEXT = """\
program double
size N.0: i32 dynamic
tensor %A.1: f32[N.0] global
launch bx.2 in [ceildiv(N.0, 128)] threads 128:
  parallel i.3 in [128]:
    %A.1[((bx.2 * 128) + i.3)] = (%A.1[((bx.2 * 128) + i.3)] * 2.0f32)
return []
"""


def double(location: Location | None = None) -> Program:
    b = Builder("double")
    b.location = location
    n = b.new_var("N", I32)
    a = b.new_buffer("A", (n,), F32, "global")
    b.sizes.append(Size(n, "dynamic"))
    b.params.append(TensorParam("A", a))
    bx = b.new_var("bx", I32)
    with b.body() as body:
        i = b.new_var("i", I32)
        with b.body() as inner:
            index = fold.add(fold.mul(bx, fold.const(128)), i)
            b.emit(Store(a, (index,), fold.mul(Load(F32, a, (index,)), fold.const(2.0))))
        b.emit(Parallel((i,), (fold.const(128),), tuple(inner)))
    b.emit_launch(Launch((fold.ceildiv(n, fold.const(128)),), (bx,), 128, tuple(body)))
    return b.finish((), returns_tuple=False)


def test_the_text_of_a_small_program() -> None:
    assert print_program(double()) == TEXT


def test_locations_are_no_part_of_the_text_or_of_equality() -> None:
    here, there = double(Location("a.py", 1)), double(Location("b.py", 99))
    assert here == there
    assert print_program(here) == print_program(there)
    assert here.launches[0].loc != there.launches[0].loc


def test_buffers_that_look_alike_are_told_apart_by_id() -> None:
    b = Builder("two")
    first, second = (b.new_buffer("x", (fold.const(4),), F32, "shared") for _ in range(2))
    assert first != second
    assert dataclasses.replace(second, id=first.id) == first


def test_statements_are_numbered_outer_first() -> None:
    program = double()
    assert [s.origin for s in walk(program.launches)] == [0, 1, 2]
    assert isinstance(next(iter(walk(program.launches))), Launch)
