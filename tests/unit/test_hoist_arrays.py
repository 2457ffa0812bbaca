"""Arrays of single points become tiles in front of their nest."""

from __future__ import annotations

from typing import Any

from tileops.frontend.trace import trace
from tileops.ir.program import Program, const_value
from tileops.ir.stmt import Alloc, Parallel
from tileops.ir.walk import walk
from tileops.passes.context import Context
from tileops.passes.hoist_arrays import hoist_arrays
from tileops.target import parse_target

import tileops.language as T  # isort: skip


def traced(program: Any) -> Program:
    return trace(program, name="program", static={}, consts={})


def hoisted(program: Program) -> Program:
    return hoist_arrays(program, Context(parse_target("cuda:sm_90")))


def test_an_array_gets_the_dimensions_of_its_nest() -> None:
    def program(A):
        A: T.Tensor((6, 10, 4), T.int32)
        with T.Kernel(1, threads=32) as _:
            for i, j in T.Parallel(6, 10):
                mine = T.alloc_local((4,), T.int32)
                for k in T.serial(4):
                    mine[k] = A[i, j, k]
                for k in T.serial(4):
                    A[i, j, k] = mine[3 - k]

    before = traced(program)
    alloc, nest = hoisted(before).launches[0].body
    assert isinstance(alloc, Alloc)
    assert [const_value(e) for e in alloc.buffer.shape] == [6, 10, 4]
    assert isinstance(nest, Parallel)
    assert not any(isinstance(s, Alloc) for s in walk(nest.body))
    assert alloc.origin == nest.origin == before.launches[0].body[0].origin == 1


def test_scalars_of_points_stay() -> None:
    def program(A):
        A: T.Tensor((6,), T.int32)
        with T.Kernel(1, threads=32) as _:
            for i in T.Parallel(6):
                n = T.alloc_var(T.int32, 0)
                n += A[i]
                A[i] = n

    before = traced(program)
    assert hoisted(before) is before
