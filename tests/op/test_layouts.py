"""Shapes, strides and memory of arguments: what is taken, copied, or refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import tileops
import tileops.language as T
from tests.programs import samples
from tileops.errors import ArgumentError


@tileops.jit(name="layouts_affine")
def affine(X, Y, block_N: int = 64):
    M, N = T.dynamic("M, N")
    X: T.Tensor((M, N), T.float32)
    Y: T.Tensor((M, N), T.float32)
    Z = T.empty((M, N), T.float32)
    with T.Kernel(M, T.ceildiv(N, block_N)) as (bx, by):
        for i in T.Parallel(block_N):
            Z[bx, by * block_N + i] = X[bx, by * block_N + i] * 2 + Y[bx, by * block_N + i]
    return Z


@tileops.jit(name="layouts_copying", contiguous="copy")
def copying(X, Y, block_N: int = 64):
    M, N = T.dynamic("M, N")
    X: T.Tensor((M, N), T.float32)
    Y: T.Tensor((M, N), T.float32)
    Z = T.empty((M, N), T.float32)
    with T.Kernel(M, T.ceildiv(N, block_N)) as (bx, by):
        for i in T.Parallel(block_N):
            Z[bx, by * block_N + i] = X[bx, by * block_N + i] * 2 + Y[bx, by * block_N + i]
    return Z


@tileops.jit(name="layouts_copying_add_into", contiguous="copy")
def copying_add_into(X, Y, block_N: int = 64):
    M, N = T.dynamic("M, N")
    X: T.Tensor((M, N), T.float32)
    Y: T.Tensor((M, N), T.float32)
    with T.Kernel(M, T.ceildiv(N, block_N)) as (bx, by):
        for i in T.Parallel(block_N):
            Y[bx, by * block_N + i] = Y[bx, by * block_N + i] + X[bx, by * block_N + i]


@tileops.jit(name="layouts_strided_into")
def strided_into(X, Y, block_N: int = 64):
    """Writes ``Y``; both of any strides."""
    M, N = T.dynamic("M, N")
    xm, xn, ym, yn = T.dynamic("xm, xn, ym, yn")
    X: T.StridedTensor((M, N), (xm, xn), T.float32)
    Y: T.StridedTensor((M, N), (ym, yn), T.float32)
    with T.Kernel(M, T.ceildiv(N, block_N)) as (bx, by):
        for i in T.Parallel(block_N):
            Y[bx, by * block_N + i] = X[bx, by * block_N + i] + 1


def at_offset(offset: int) -> torch.Tensor:
    return torch.randn(6 * 8 + offset)[offset:].view(6, 8)


# From torch 2.14 on a compiled region gives errors of its trace as the repr of a text.
NOT_CONTIGUOUS = r"argument \\*'X\\*': expected a contiguous tensor"

# Contiguous in torch's sense, whatever the strides of extents 0 and 1.
TAKEN: dict[str, Callable[[], torch.Tensor]] = {
    "contiguous": lambda: torch.randn(6, 8),
    "an offset of one element": lambda: at_offset(1),
    "an offset of 16 bytes": lambda: at_offset(4),
    "rows of a larger tensor": lambda: torch.randn(20, 8)[3:9],
    "one row with an odd stride": lambda: torch.randn(6, 9)[:1, :8],
    "one column of a matrix": lambda: torch.randn(6, 1).expand(6, 1),
    "size-1 dimensions of any stride": lambda: torch.randn(9).as_strided((1, 8), (77, 1)),
    "one element with odd strides": lambda: torch.randn(9).as_strided((1, 1), (5, 7)),
    "no rows": lambda: torch.randn(0, 8),
    "no columns, transposed": lambda: torch.randn(0, 6).t(),
}
COPIED: dict[str, Callable[[], torch.Tensor]] = {
    "transposed": lambda: torch.randn(8, 6).t(),
    "expanded rows": lambda: torch.randn(1, 8).expand(6, 8),
    "expanded from one element": lambda: torch.randn(1, 1).expand(6, 8),
    "every other column": lambda: torch.randn(6, 16)[:, ::2],
    "columns of a larger matrix": lambda: torch.randn(6, 11)[:, 2:10],
    "channels last": lambda: torch.randn(1, 3, 2, 8).to(memory_format=torch.channels_last)[0, 1],
}


@pytest.mark.parametrize("name", TAKEN)
def test_taken_as_they_are(name: str) -> None:
    x = TAKEN[name]()
    y = torch.randn(x.shape)
    assert torch.equal(affine(x, y), x * 2 + y)
    assert torch.equal(affine(y, x), y * 2 + x)
    torch.library.opcheck(affine.op, (x, y))


@pytest.mark.parametrize("name", COPIED)
def test_refused_or_copied(name: str) -> None:
    x = COPIED[name]()
    y = torch.randn(x.shape)
    for call in (affine, torch.compile(affine, backend="eager", fullgraph=True)):
        with pytest.raises(Exception, match=NOT_CONTIGUOUS):
            call(x, y)
    out = copying(x, y)
    assert torch.equal(out, x * 2 + y)
    assert out.is_contiguous()
    assert torch.equal(copying(x, x), x * 2 + x)
    torch.library.opcheck(copying.op, (x, y))


@pytest.mark.parametrize("name", COPIED)
def test_what_is_written_is_copied_back_or_refused(name: str) -> None:
    y = COPIED[name]()
    x = torch.randn(y.shape)
    if 0 in y.stride():
        with pytest.raises(ArgumentError, match="whose elements lie apart"):
            copying_add_into(x, y)
        return
    expected, version = x + y, y._version
    assert copying_add_into(x, y) is None
    assert torch.equal(y, expected)
    assert y._version > version
    torch.library.opcheck(copying_add_into.op, (x, y))


def test_copying_in_one_graph() -> None:
    x, y = torch.randn(8, 6).t(), torch.randn(6, 16)[:, ::2]
    region = torch.compile(lambda x, y: copying(x, y) + 1, fullgraph=True, backend="aot_eager")
    assert torch.equal(region(x, y), x * 2 + y + 1)


def test_contiguous_takes_two_words() -> None:
    with pytest.raises(
        ArgumentError, match="contiguous: expected one of require, copy, got 'always'"
    ):
        tileops.jit(contiguous="always")

    with pytest.raises(ArgumentError, match="contiguous belongs to eager programs"):

        @tileops.jit(contiguous="copy")
        def lazy(N):
            @T.prim_func
            def main(A: T.Tensor((N,), T.float32)):
                with T.Kernel(1):
                    A[0] = 1.0

            return main


# -- memory that tensors share -----------------------------------------------------------------


def interleaved() -> tuple[torch.Tensor, torch.Tensor]:
    base = torch.zeros(6, 16)
    return base[:, ::2], base[:, 1::2]


def halves() -> tuple[torch.Tensor, torch.Tensor]:
    base = torch.zeros(6, 16)
    return base[:, :8], base[:, 8:]


def shifted_halves() -> tuple[torch.Tensor, torch.Tensor]:
    base = torch.zeros(6, 16)
    return base[:, :8], base[:, 7:15]


def diagonal_blocks() -> tuple[torch.Tensor, torch.Tensor]:
    base = torch.zeros(12, 16)
    return base[:6, 8:], base[6:, :8]


def transposed_self() -> tuple[torch.Tensor, torch.Tensor]:
    base = torch.zeros(8, 8)
    return base, base.t()


def crossing() -> tuple[torch.Tensor, torch.Tensor]:
    base = torch.zeros(64, 8)
    return base[::8], base.view(8, 8, 8)[:, 3, :]


APART = {
    "interleaved columns": interleaved,
    "halves of rows": halves,
    "diagonal blocks": diagonal_blocks,
    "other rows of one matrix": crossing,
}


@pytest.mark.parametrize("name", APART)
def test_views_of_one_tensor_that_share_no_element(name: str) -> None:
    x, y = APART[name]()
    x.fill_(3)
    strided_into(x, y)
    assert torch.equal(y, torch.full_like(y, 4))
    assert torch.equal(x, torch.full_like(x, 3))


@pytest.mark.parametrize("make", [shifted_halves, transposed_self, lambda: (torch.ones(4, 4),) * 2])
def test_shared_elements_are_refused(make: Callable[[], tuple[torch.Tensor, torch.Tensor]]) -> None:
    x, y = make()
    before = y.clone()
    with pytest.raises(
        ArgumentError, match=r"layouts_strided_into: argument 'Y': .* shares with 'X'"
    ):
        strided_into(x, y)
    assert torch.equal(y, before)


def test_neighbours_in_one_buffer() -> None:
    base = torch.randn(200)
    x, y = base[:100].clone(), base[100:]
    samples.add_into(base[:100], base[100:])
    assert torch.equal(base[100:], y)
    with pytest.raises(ArgumentError, match="shares with 'X'"):
        samples.add_into(base[:100], base[99:199])
    assert torch.equal(base[:100], x)


def test_inputs_that_are_only_read_may_share() -> None:
    x = torch.randn(4, 8)
    assert torch.equal(affine(x, x), x * 2 + x)
    assert torch.equal(samples.axpy(x[0], x[0], 2.0), x[0] * 3)


def test_an_expanded_tensor_is_not_written() -> None:
    x, y = torch.ones(4, 8), torch.zeros(1, 8).expand(4, 8)
    with pytest.raises(
        ArgumentError, match=r"got strides \(0, 1\) for shape \(4, 8\) \(expanded\)"
    ):
        strided_into(x, y)
    strided_into(y, x)
    assert torch.equal(x, torch.ones(4, 8))


@pytest.mark.parametrize("seed", range(40))
def test_overlap_against_the_set_of_addresses(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)

    def pick(high: int) -> int:
        return int(torch.randint(1, high + 1, (1,), generator=generator))

    base = torch.zeros(400)
    shape = (pick(4), pick(4))
    views = []
    for _ in range(2):
        strides = (pick(25), pick(25))
        room = 400 - 1 - sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        views.append(base.as_strided(shape, strides, pick(min(room, 60))))
    x, y = views
    places = [
        {
            v.storage_offset() + i * v.stride(0) + j * v.stride(1)
            for i in range(shape[0])
            for j in range(shape[1])
        }
        for v in views
    ]
    if places[0] & places[1]:
        with pytest.raises(ArgumentError, match="shares"):
            strided_into(x, y)
    else:
        strided_into(x, y)


def test_zero_dimensional_tensors() -> None:
    @tileops.jit(name="layouts_scalar_tensor")
    def program(X, S):
        N = T.dynamic("N")
        X: T.Tensor((N,), T.float32)
        S: T.Tensor((), T.float32)
        Y = T.empty((N,), T.float32)
        with T.Kernel(T.ceildiv(N, 64)) as bx:
            for i in T.Parallel(64):
                Y[bx * 64 + i] = X[bx * 64 + i] * S[()]
        return Y

    x, s = torch.randn(100), torch.tensor(3.0)
    assert torch.equal(program(x, s), x * s)
    torch.library.opcheck(program.op, (x, s))


def test_pointers_aligned_to_two_bytes() -> None:
    @tileops.jit(name="layouts_halves")
    def program(X):
        N = T.dynamic("N")
        X: T.Tensor((N,), T.float16)
        Y = T.empty((N,), T.float16)
        with T.Kernel(T.ceildiv(N, 64)) as bx:
            for i in T.Parallel(64):
                Y[bx * 64 + i] = X[bx * 64 + i] * 2
        return Y

    for offset in range(9):
        x = torch.randn(160 + offset).half()[offset:]
        assert torch.equal(program(x), x * 2), offset
