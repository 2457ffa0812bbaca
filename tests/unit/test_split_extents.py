"""Which extents are held in parts, and what statements over them become."""

from __future__ import annotations

from typing import Any

import pytest

from tileops.frontend.trace import trace
from tileops.ir.printer import print_body
from tileops.ir.program import Program
from tileops.ir.stmt import Launch
from tileops.passes.context import Context
from tileops.passes.split_extents import choose_parts, powers, split_extents
from tileops.target import parse_target

import tileops.language as T  # isort: skip


SM_90 = Context(parse_target("cuda:sm_90"))


def program_of(body: Any, columns: int = 576) -> Program:
    """A product of two tiles of 32 x ``columns``, then ``body`` with the first of them and a free tile."""
    step = T.macro(body)

    def program(A, I):
        A: T.Tensor((32, columns), T.float16)
        I: T.Tensor((32,), T.int32)
        with T.Kernel(1, threads=32) as _:
            a = T.alloc_shared((32, columns), T.float16)
            s = T.alloc_fragment((32, 32), T.float32)
            o = T.alloc_fragment((32, columns), T.float16)
            T.copy(A, a)
            T.gemm(a, a, s, transpose_B=True, clear_accum=True)
            step(a, o, I)
            T.copy(o, A)

    return trace(program, name="program", static={}, consts={})


def launch_of(body: Any) -> Launch:
    return program_of(body).launches[0]


def split(body: Any) -> list[str]:
    out = split_extents(program_of(body), SM_90)
    return [line.strip() for line in print_body(out.launches[0].body)]


def nothing(a, o, i):
    T.clear(o)


@pytest.mark.parametrize(
    ("extent", "sizes"),
    [
        (576, [512, 64]), (96, [64, 32]), (112, [64, 32, 16]), (80, [64, 16]), (48, [32, 16]),
        (128, []), (100, []), (24, []), (240, []), (1, []),
    ],
)  # fmt: skip
def test_sums_of_few_large_powers_of_two(extent: int, sizes: list[int]) -> None:
    parts = powers(extent)
    assert [size for _, size in parts] == sizes
    assert sum(sizes) in (0, extent)
    assert [offset for offset, _ in parts] == [sum(sizes[:n]) for n in range(len(sizes))]


def test_the_contracted_extent_becomes_two_products() -> None:
    lines = split(nothing)
    products = [line for line in lines if line.startswith("gemm")]
    assert len(products) == 2
    assert "clear true" in products[0]
    assert "clear false" in products[1]
    assert sum(line.startswith("copy") for line in lines) == 4
    assert sum(line.startswith("fill") for line in lines) == 2


def test_extents_without_a_product_stay_whole() -> None:
    def program(A):
        A: T.Tensor((32, 576), T.float16)
        with T.Kernel(1, threads=32) as _:
            a = T.alloc_shared((32, 576), T.float16)
            T.copy(A, a)
            T.copy(a, A)

    before = trace(program, name="program", static={}, consts={})
    assert split_extents(before, SM_90) is before


def test_one_element_of_a_tile_in_parts_is_in_one_part() -> None:
    def body(a, o, i):
        T.copy(a[3:4, 570:571], o[1:2, 5:6])
        T.fill(o[3:4, 570:571], 1)
        T.atomic_add(o[4:5, 570:571], a[3:4, 0:1])

    copy, fill, atomic = split(body)[-5:-2]
    assert "%a_1" in copy
    assert "%o_0" in copy
    assert "%o_1" in fill
    assert "%o_1" in atomic
    assert "%a_0" in atomic


def test_an_atomic_on_a_tile_in_parts_is_one_for_each_part() -> None:
    def body(a, o, i):
        T.atomic_add(o, a)

    lines = [line for line in split(body) if line.startswith("atomic")]
    assert ["_0" in line for line in lines] == [True, False]
    assert ["_1" in line for line in lines] == [False, True]


def test_nests_are_cut_where_parts_end() -> None:
    def body(a, o, i):
        for r, c in T.Parallel(32, 576):
            o[r, c] = a[r, c] + 1

    nests = [line for line in split(body) if "parallel" in line.lower()]
    assert ["512" in line for line in nests] == [True, False]


def test_shifted_places_cut_a_nest_at_both_tiles_ends() -> None:
    def body(a, o, i):
        for r, c in T.Parallel(32, 568):
            o[r, c + 8] = a[r, c]

    nests = [line for line in split(body) if "parallel" in line.lower()]
    # 0..504, 504..512 and 512..568: `o` ends a part at c = 504, `a` at c = 512.
    assert len(nests) == 3


@pytest.mark.parametrize("use", ["place", "slice", "view", "scan"])
def test_a_use_that_cannot_be_cut_keeps_the_extent_whole(use: str) -> None:
    def place(a, o, i):
        for r, c in T.Parallel(32, 288):
            o[r, 2 * c] = a[r, c]

    def slice_(a, o, i):
        T.copy(a[:, i[0] : i[0] + 16], o[:, 0:16])

    def view(a, o, i):
        flat = T.reshape(a, (32 * 576,))
        flat[0] = 1

    def scan(a, o, i):
        T.cumsum(a, o, dim=1)

    body = {"place": place, "slice": slice_, "view": view, "scan": scan}[use]
    assert not choose_parts(launch_of(body))
    assert set(choose_parts(launch_of(nothing))) == {576}
