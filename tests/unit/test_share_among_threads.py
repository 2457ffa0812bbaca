"""Tile operations of launches of threads become loops of each thread; other launches stay."""

from __future__ import annotations

from typing import Any

import tileops
import tileops.language as T
from tileops.ir.printer import print_body
from tileops.passes.context import Context
from tileops.passes.share_among_threads import share_among_threads
from tileops.target import parse_target

CPU = Context(parse_target("cpu"))


def lowered(func: Any) -> list[str]:
    """The lines of the launch, without the names of the threads."""
    program = share_among_threads(tileops.jit(func).get_tir(), CPU)
    return [line.strip() for line in print_body(program.launches[0].body)[2:]]


def test_points_are_dealt_to_the_threads() -> None:
    def program():
        A = T.empty((3, 40), T.int32)
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            while A[0, tx] > 0:
                A[0, tx] -= 1
            for i, j in T.Parallel(3, 40):
                A[i, j] = i
        return A

    assert lowered(program)[-6:] == [
        "serial turn.6: i32 in 0 .. 4:",
        "let point.7: i32 = ((turn.6 * 32) + thread.5)",
        "if (point.7 < 120):",
        "let j.4: i32 = (point.7 % 40)",
        "let i.3: i32 = (point.7 // 40)",
        "%A.0[i.3, j.4] = i.3",
    ]


def test_what_a_thread_has_for_itself_it_does_alone() -> None:
    def program():
        A = T.empty((64,), T.int32)
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            own = T.alloc_local((2,), T.int32)
            T.copy(A[tx * 2 : tx * 2 + 2], own)
            while own[0] > 0:
                own[0] -= own[1]
            A[tx] = own[0]
        return A

    lines = lowered(program)
    assert "turn" not in " ".join(lines)
    assert any(line.startswith("serial e0") and line.endswith("in 0 .. 2:") for line in lines)


def test_a_reduction_is_dealt_by_lines() -> None:
    def program():
        A = T.empty((4, 64), T.float32)
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            tile = T.alloc_shared((4, 64), T.float32)
            sums = T.alloc_shared((4,), T.float32)
            T.copy(A, tile)
            T.reduce_sum(tile, sums, dim=1)
            while A[0, tx] > sums[0]:
                A[0, tx] -= 1.0
        return A

    text = " ".join(lowered(program))
    assert "serial k" in text
    assert "in 0 .. 64:" in text
    assert "< 4):" in text


def test_launches_of_tiles_stay() -> None:
    def program():
        A = T.empty((64,), T.int32)
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                A[i] = i
        return A

    traced = tileops.jit(program).get_tir()
    assert share_among_threads(traced, CPU) is traced
