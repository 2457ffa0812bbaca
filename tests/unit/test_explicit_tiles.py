"""What programs with roles do by threads, by pieces and by parts becomes copies and products of tiles."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tileops.language as T
from tests.kit.traced import lines
from tests.unit.test_order_roles import order_of


# -- copies that threads share out -----------------------------------------------------------------
def by_threads(row: Callable, column: Callable, *, rows: int = 64) -> Callable[..., None]:
    """256 threads copy 8 neighbours each, ``rows`` by 64 elements in all."""

    def program(A, B):
        A: T.Tensor((128, 128), T.float16)
        B: T.Tensor((64, 64), T.float16)
        with T.Kernel(2, threads=256) as bx:
            tile = T.alloc_shared((64, 64), T.float16)
            tx = T.get_thread_binding()
            for r in T.serial(rows // 32):
                to = T.access_ptr(tile[row(r, tx), column(tx)], "w", 8)
                T.ptx_cp_async(
                    to, T.access_ptr(A[bx * 64 + r * 32 + tx // 8, tx % 8 * 8], "r", 8), 8
                )
            T.ptx_commit_group()
            T.ptx_wait_group(0)
            T.sync_threads()
            T.copy(tile, B)

    return program


def test_threads_that_share_out_a_tile_copy_the_tile() -> None:
    program = by_threads(lambda r, tx: r * 32 + tx // 8, lambda tx: tx % 8 * 8)
    assert order_of(program) == lines("""
        copy %A.0[(bx.2 * 64) : +64, 0 : +64] -> %tile.3[0 : +64, 0 : +64]
        copy %tile.3[0 : +64, 0 : +64] -> %B.1[0 : +64, 0 : +64]
    """)


def test_half_a_tile_is_a_part() -> None:
    program = by_threads(lambda r, tx: r * 32 + tx // 8, lambda tx: tx % 8 * 8, rows=32)
    assert "-> %tile.3[0 : +32, 0 : +64]" in order_of(program)


@pytest.mark.parametrize(
    ("row", "column"),
    [
        (lambda r, tx: r * 32 + tx // 8, lambda tx: 56 - tx % 8 * 8),  # from right to left
        (lambda r, tx: r * 16 + tx // 8, lambda tx: tx % 8 * 8),  # rows that overlap
        (lambda r, tx: r + tx // 8 * 2, lambda tx: tx % 8 * 8),  # rows in another order
        (lambda r, tx: r * 32 + tx // 8, lambda tx: 0),  # all in one place
    ],
    ids=["backwards", "overlapping", "interleaved", "one place"],
)
def test_what_is_not_one_tile_stays_with_the_threads(row: Callable, column: Callable) -> None:
    text = order_of(by_threads(row, column))
    assert "parallel tx" in text
    assert text.count("copy") == 1


# -- pieces ----------------------------------------------------------------------------------------
def in_pieces(columns: Callable, *, first: int = 0, reads: str = "piece") -> Callable[..., None]:
    """A tile is loaded and multiplied in four pieces, each with a barrier."""

    def program(A, C):
        A: T.Tensor((64, 256), T.float16)
        C: T.Tensor((64, 64), T.float32)
        with T.Kernel(1, threads=256):
            tile = T.alloc_shared((64, 256), T.float16)
            acc = T.alloc_fragment((64, 64), T.float32)
            full = T.alloc_barrier([128] * 4)
            with T.ws(1):
                for j in T.unroll(4):
                    T.tma_copy(
                        A[:, columns(j) : columns(j) + 64], tile[:, j * 64 : j * 64 + 64],
                        barrier=full[j],
                    )  # fmt: skip
                    T.barrier_arrive(full[j])
            with T.ws(0):
                for j in T.unroll(4):
                    T.barrier_wait(full[j], 0)
                    part = tile[:, j * 64 : j * 64 + 64]
                    other = part if reads == "piece" else tile[:, 0:64]
                    T.wgmma_gemm(part, other, acc, transpose_B=True, clear_accum=(j == first))
                T.wait_wgmma(0)
                T.copy(acc, C)

    return program


def test_pieces_become_whole_again() -> None:
    assert order_of(in_pieces(lambda j: j * 64)) == lines("""
        copy %A.0[0 : +64, 0 : +256] -> %tile.3[0 : +64, 0 : +256]
        gemm %tile.3[0 : +64, 0 : +256], %tile.3[0 : +64, 0 : +256], %acc.4[0 : +64, 0 : +64] tb clear true square
        copy %acc.4[0 : +64, 0 : +64] -> %C.1[0 : +64, 0 : +64]
    """)


@pytest.mark.parametrize(
    "program",
    [
        in_pieces(lambda j: 192 - j * 64),  # other pieces of the source
        in_pieces(lambda j: j * 32),  # pieces that overlap
        in_pieces(lambda j: j * 64, first=1),  # a product that starts again
        in_pieces(lambda j: j * 64, reads="first"),  # an operand that is not in pieces
    ],
    ids=["turned round", "overlapping", "starts again", "one piece"],
)
def test_what_is_not_whole_stays_in_pieces(program: Callable[..., None]) -> None:
    assert "unroll j" in order_of(program)


# -- parts -----------------------------------------------------------------------------------------
def in_parts(*bounds: int, whole: bool = False) -> Callable[..., None]:
    """A tile of 128 columns is loaded whole and multiplied in parts."""

    def program(A, C):
        A: T.Tensor((64, 128), T.float16)
        C: T.Tensor((64, 64), T.float32)
        with T.Kernel(1):
            tile = T.alloc_shared((64, 128), T.float16)
            acc = T.alloc_fragment((64, 64), T.float32)
            T.clear(acc)
            T.async_copy(A, tile)
            T.ptx_wait_group(0)
            left, right = tile[:, bounds[0] : bounds[1]], tile[:, bounds[1] : bounds[2]]
            T.gemm(left, left, acc, transpose_B=True)
            T.gemm(right, right, acc, transpose_B=True)
            if whole:
                T.gemm(tile, tile, acc, transpose_B=True)
            T.copy(acc, C)

    return program


def test_a_tile_that_is_used_in_two_parts_is_two_tiles() -> None:
    text = order_of(in_parts(0, 64, 128))
    assert "copy %A.0[0 : +64, 0 : +64] -> %tile_0.5[0 : +64, 0 : +64]" in text
    assert "copy %A.0[0 : +64, 64 : +64] -> %tile_64.6[0 : +64, 0 : +64]" in text
    assert "gemm %tile_64.6[0 : +64, 0 : +64], %tile_64.6[0 : +64, 0 : +64]" in text


def test_a_tile_that_a_product_takes_whole_stays_one() -> None:
    assert "tile_64" not in order_of(in_parts(0, 64, 128, whole=True))
