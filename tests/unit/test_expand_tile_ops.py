"""Tile operations as elementwise nests, and nests of run-time extents as loops."""

from __future__ import annotations

from typing import Any

import pytest

from tileops.frontend.trace import trace
from tileops.ir.printer import print_program
from tileops.ir.program import Program
from tileops.ir.stmt import Atomic, Copy, Fill, For, Im2col, Parallel
from tileops.ir.verifier import verify
from tileops.ir.walk import walk
from tileops.passes.context import Context
from tileops.passes.expand_tile_ops import expand_tile_ops
from tileops.target import parse_target

import tileops.language as T  # isort: skip

CPU, GPU = Context(parse_target("cpu")), Context(parse_target("cuda:sm_90"))


def traced(program: Any) -> Program:
    return trace(program, name="program", static={}, consts={})


def expanded(program: Any, context: Context) -> Program:
    out = expand_tile_ops(traced(program), context)
    verify(out)
    return out


def gathered(X, Y):
    X: T.Tensor((2, 7, 6, 3), T.float16)
    Y: T.Tensor((8, 16), T.float32)
    with T.Kernel(1, threads=32):
        t = T.alloc_shared((8, 16), T.float32)
        T.im2col(X, t, 0, 0, 3, 1, 1, 1)
        T.atomic_add(Y, t)


def moved(X, Y, n: T.int32, many: T.int64):
    X: T.Tensor((64, 8), T.float32)
    Y: T.Tensor((64, 8), T.float32)
    with T.Kernel(1, threads=32):
        t = T.alloc_shared((64, 8), T.float32)
        T.copy(X[n : n + 5, 0:8], t[0:5, 0:8])
        T.copy(X[0:n, 0:8], t[0:n, 0:8])
        T.copy(t[0:many, 0:8], Y[0:many, 0:8])
        for i, j in T.Parallel(many, 8):
            Y[i, j] += X[i, j]


def test_the_cpu_gets_nests_for_gathers_and_atomics() -> None:
    out = expanded(gathered, CPU)
    assert not any(isinstance(s, Im2col) for s in walk(out.launches))
    assert not any(isinstance(s, Atomic) and s.dst.squeezed() for s in walk(out.launches))
    text = print_program(out)
    assert "parallel i.-1, j.-2 in [8, 16]" in text
    assert "parallel e0.-3, e1.-4 in [8, 16]" in text


def test_copies_over_run_time_extents_cover_a_tile_whole() -> None:
    out = expanded(moved, GPU)
    copies = [s for s in walk(out.launches) if isinstance(s, Copy)]
    assert len(copies) == 1  # that of constant extents
    nests = [s for s in walk(out.launches) if isinstance(s, Parallel)]
    assert [tuple(e.value for e in nest.extents) for nest in nests] == [(64, 8), (64, 8), (128, 8)]


def test_a_64_bit_extent_is_counted_in_64_bits() -> None:
    (loop,) = (s for s in walk(expanded(moved, GPU).launches) if isinstance(s, For))
    assert loop.var.dtype == loop.stop.dtype == "int64"


@pytest.mark.parametrize(("program", "context"), [(moved, CPU), (gathered, GPU)])
def test_what_a_generator_writes_itself_is_left_alone(program: Any, context: Context) -> None:
    before = traced(program)
    assert expand_tile_ops(before, context) is before


def test_statements_keep_their_origin() -> None:
    for program, context in ((gathered, CPU), (moved, GPU)):
        before = {s.origin for s in walk(traced(program).launches)}
        after = expanded(program, context)
        assert {s.origin for s in walk(after.launches)} == before


def test_a_fill_of_a_run_time_length_is_a_guarded_store() -> None:
    def filled(X, n: T.int32):
        X: T.Tensor((64,), T.float32)
        with T.Kernel(1, threads=32):
            t = T.alloc_shared((64,), T.float32)
            T.fill(t[0:n], 1.0)
            T.copy(t, X)

    out = expanded(filled, GPU)
    assert not any(isinstance(s, Fill) for s in walk(out.launches))
    assert "if " in print_program(out)
