"""Layouts of tensors: boxes that they fill, and accesses that go where they say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tileops.codegen import cpu
from tileops.codegen.kernel_code import Specialization
from tileops.errors import UnsupportedConstructError
from tileops.frontend.trace import trace
from tileops.ir.printer import print_program
from tileops.ir.program import Program, const_value
from tileops.ir.stmt import Parallel
from tileops.ir.walk import walk
from tileops.passes.context import Context
from tileops.passes.place_tensors import measure_placement, place_tensors
from tileops.target import parse_target

import tileops.language as T  # isort: skip

CPU = Context(parse_target("cpu"))


def traced(program: Any) -> Program:
    return trace(program, name="program", static={}, consts={})


def with_layout(shape: tuple[int, ...], function: Callable[..., Any]) -> Program:
    def program(A):
        extents = shape  # named in an annotation alone, `shape` would not be captured
        A: T.Tensor(extents, T.float32)
        with T.Kernel(1, threads=32):
            T.annotate_layout({A: function})
            T.clear(A)

    return traced(program)


@pytest.mark.parametrize(
    ("shape", "function", "box"),
    [
        ((6, 10), lambda i, j: (j, i), [10, 6]),
        ((6, 10), lambda i, j: i * 10 + j, [60]),
        ((6, 10), lambda i, j: (i // 2, 9 - j, i % 2), [3, 10, 2]),
        ((6, 1), lambda i, j: (0, 5 - i), [1, 6]),
        ((1, 5), lambda i, j: j, [5]),
        ((8, 8), lambda i, j: (i, j ^ i), [8, 8]),
        ((12,), lambda i: ((i % 6) // 2, i // 6, i % 2), [3, 2, 2]),
        # Larger than what is tried point by point: the period of each index is.
        (
            (4, 65536, 32, 128),
            lambda b, s, h, d: [b, s // 8, h, d // 8, d % 2, 4 * (s % 8) + d % 8 // 2],
            [4, 8192, 32, 16, 2, 32],
        ),
    ],
)
def test_boxes(shape: tuple[int, ...], function: Callable[..., Any], box: list[int]) -> None:
    (placement,) = with_layout(shape, function).launches[0].placements
    assert [const_value(e) for e in measure_placement(placement)] == box


@pytest.mark.parametrize(
    ("shape", "function", "why"),
    [
        ((6, 10), lambda i, j: (i, i), "elements share a place"),
        ((6, 10), lambda i, j: i, "elements share a place"),
        ((6, 10), lambda i, j: i + j, "elements share a place"),
        ((6, 10), lambda i, j: (i // 4, j, i % 4), "60 elements are in 2 x 10 x 4 places|6 el"),
        ((6, 10), lambda i, j: (i * 2, j), "6 elements are in 11 places"),
        ((6, 10), lambda i, j: (i - 1, j), "an index is negative"),
        ((6, 10), lambda i, j: (3, i, j), "a constant index other than 0"),
        ((16384, 64), lambda i, j: (i ^ j, j), "too many to be tried"),
        ((64, 64), lambda i, j: (i // 8, i // 8, j, i % 8), "places|share"),
    ],
)
def test_maps_that_fill_no_box(
    shape: tuple[int, ...], function: Callable[..., Any], why: str
) -> None:
    with pytest.raises(UnsupportedConstructError, match=why) as error:
        place_tensors(with_layout(shape, function), CPU)
    assert "T.annotate_layout({A: function})" in str(error.value)


def test_a_divided_dimension_has_a_constant_extent() -> None:
    def program(A):
        N = T.dynamic("N")
        A: T.Tensor((N, 4), T.float32)
        with T.Kernel(1, threads=32):
            T.annotate_layout({A: lambda i, j: (i // 2, j, i % 2)})
            A[0, 0] = 1

    with pytest.raises(UnsupportedConstructError, match="is not a constant"):
        place_tensors(traced(program), CPU)


def test_what_is_inside_needs_no_condition() -> None:
    def program(A, B):
        A: T.Tensor((16, 8), T.float32)
        B: T.Tensor((16, 8), T.float32)
        with T.Kernel(2, threads=32) as bx:
            T.annotate_layout({A: lambda i, j: (i // 8, j, i % 8)})
            t = T.alloc_fragment((8, 8), T.float32)
            T.copy(A[bx * 8, 0], t)
            T.copy(t, B[bx * 8, 0])

    placed = place_tensors(traced(program), CPU)
    text = print_program(placed)
    assert "select" not in text
    assert "place " not in text
    _view, _alloc, nest, copy = placed.launches[0].body
    assert isinstance(nest, Parallel)
    # Lines of the generated text lead to the statements of the program as it was written.
    assert [s.origin for s in walk(placed.launches)] == [0, 0, 1, 2, 2, 3]
    assert copy.loc is not None


def test_programs_without_layouts_stay() -> None:
    def program(A):
        A: T.Tensor((8,), T.float32)
        with T.Kernel(1, threads=32):
            T.clear(A)

    before = traced(program)
    assert place_tensors(before, CPU) is before


def test_what_takes_no_placed_tensor() -> None:
    def view(A):
        A: T.Tensor((8, 8), T.float32)
        with T.Kernel(1, threads=32):
            T.annotate_layout({A: lambda i, j: (j, i)})
            row = T.Tensor((64,), T.float32, A.data)
            row[3] = 1

    def image(A, B):
        A: T.Tensor((1, 8, 8, 4), T.float32)
        B: T.Tensor((64, 4), T.float32)
        with T.Kernel(1, threads=32):
            T.annotate_layout({A: lambda n, h, w, c: (n, w, h, c)})
            s = T.alloc_shared((64, 4), T.float32)
            T.im2col(A, s, 0, 0, 1, 1, 1, 0)
            T.copy(s, B)

    for program, what in ((view, "the view `row` of the tensor `A`"), (image, "T.im2col of")):
        with pytest.raises(UnsupportedConstructError, match=what):
            cpu.generate(traced(program), parse_target("cpu"), Specialization())
