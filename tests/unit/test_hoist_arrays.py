"""Arrays of single points become tiles in front of their nest."""

from __future__ import annotations

from typing import Any

from tileops.frontend.trace import trace
from tileops.ir.program import const_value
from tileops.ir.stmt import Alloc, Launch, Parallel
from tileops.ir.walk import number_statements, walk
from tileops.passes.hoist_arrays import hoist_arrays

import tileops.language as T  # isort: skip


def launch_of(program: Any) -> Launch:
    return trace(program, name="program", static={}, consts={}).launches[0]


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

    launch = launch_of(program)
    numbers = number_statements((launch,))
    out = hoist_arrays(launch, numbers)
    alloc, nest = out.body
    assert isinstance(alloc, Alloc)
    assert [const_value(e) for e in alloc.buffer.shape] == [6, 10, 4]
    assert isinstance(nest, Parallel)
    assert not any(isinstance(s, Alloc) for s in walk(nest.body))
    assert numbers[id(nest)] == numbers[id(launch.body[0])]


def test_scalars_of_points_stay() -> None:
    def program(A):
        A: T.Tensor((6,), T.int32)
        with T.Kernel(1, threads=32) as _:
            for i in T.Parallel(6):
                n = T.alloc_var(T.int32, 0)
                n += A[i]
                A[i] = n

    launch = launch_of(program)
    assert hoist_arrays(launch, number_statements((launch,))) is launch
