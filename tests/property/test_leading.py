"""Leading dimensions of any layout: a call runs where torch can view them as one, and its fake agrees."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tileops
import tileops.language as T
from tileops.errors import ArgumentError

N = 4


@tileops.jit(name="property_leading")
def plain(A):
    A: T.Tensor((..., N), T.float32)
    B = T.empty((..., N), T.float32)
    with T.Kernel(A.shape[0]) as row:
        for j in T.Parallel(N):
            B[row, j] = A[row, j] * 2
    return B


@tileops.jit(name="property_leading_strided")
def strided(A):
    S = T.dynamic("S")
    A: T.StridedTensor((..., N), (S, 1), T.float32)
    B = T.empty((..., N), T.float32)
    with T.Kernel(A.shape[0]) as row:
        for j in T.Parallel(N):
            B[row, j] = A[row, j] * 2
    return B


@tileops.jit(name="property_leading_copied", contiguous="copy")
def copied(A):
    S = T.dynamic("S")
    A: T.StridedTensor((..., N), (S, 1), T.float32)
    B = T.empty((..., N), T.float32)
    with T.Kernel(A.shape[0]) as row:
        for j in T.Parallel(N):
            B[row, j] = A[row, j] * 2
    return B


@tileops.jit(name="property_leading_matrices")
def matrices(A):
    S, U = T.dynamic("S, U")
    M = T.dynamic("M")
    A: T.StridedTensor((..., M, N), (S, U, 1), T.float32)
    B = T.empty((..., M, N), T.float32)
    with T.Kernel(A.shape[0], M) as (b, m):
        for j in T.Parallel(N):
            B[b, m, j] = A[b, m, j] * 2
    return B


@st.composite
def tensors(draw: st.DrawFn, least: int = 0) -> torch.Tensor:
    """A tensor of last extent N whose other dimensions are sliced, permuted, expanded or odd."""
    lead = draw(st.lists(st.sampled_from((0, 1, 1, 2, 2, 3, 3, 3)), min_size=least, max_size=4))
    rank = len(lead)
    steps = draw(st.lists(st.integers(1, 2), min_size=rank, max_size=rank))
    base = torch.randn(*(max(n * s, 1) for n, s in zip(lead, steps, strict=True)), N + 2)
    for d, (n, s) in enumerate(zip(lead, steps, strict=True)):
        base = base.narrow(d, 0, n * s)
        base = base[(slice(None),) * d + (slice(None, None, s),)]
    x = base[..., :N] if draw(st.booleans()) else base[..., :N].contiguous()
    order = draw(st.permutations(range(rank))) if draw(st.booleans()) else range(rank)
    x = x.permute(*order, rank)
    for d in range(rank):
        if x.shape[d] == 1 and draw(st.booleans()):
            if draw(st.booleans()):
                x = x.expand(*x.shape[:d], 2, *x.shape[d + 1 :])
            else:  # the stride of a dimension of one element means nothing
                odd = [*x.stride()[:d], 777, *x.stride()[d + 1 :]]
                x = torch.as_strided(x, x.shape, odd)
    return x


def outcome(program: tileops.JITImpl, x: torch.Tensor) -> torch.Tensor | str:
    try:
        return program(x)
    except ArgumentError as error:
        return str(error)


def is_viewable(x: torch.Tensor, kept: int) -> bool:
    """Whether torch views all dimensions but the last ``kept`` as one."""
    try:
        x.view(x[..., :1].numel() if kept == 1 else x.shape[:-kept].numel(), *x.shape[-kept:])
    except RuntimeError:
        return False
    return True


def check(program: tileops.JITImpl, x: torch.Tensor, fits: bool) -> None:
    for _ in range(2):  # the second call with one layout is remembered
        got = outcome(program, x)
        if not fits:
            assert isinstance(got, str)
            assert str(tuple(x.shape)) in got
            assert str(tuple(x.stride())) in got
        else:
            assert isinstance(got, torch.Tensor), got
            assert got.shape == x.shape
            assert got.is_contiguous()
            assert torch.equal(got, x * 2)
    fake = outcome(
        program,
        torch.empty(0, device="meta").as_strided((0,), (1,)).new_empty_strided(x.shape, x.stride()),
    )
    assert isinstance(fake, str) == (not fits)
    if fits:
        assert fake.shape == x.shape


@settings(deadline=None)
@given(tensors())
def test_any_layout(x: torch.Tensor) -> None:
    check(plain, x, x.is_contiguous())
    check(strided, x, is_viewable(x, 1))
    check(copied, x, True)


@settings(deadline=None)
@given(tensors(least=1))
def test_two_dimensions_after(x: torch.Tensor) -> None:
    check(matrices, x, is_viewable(x, 2))
