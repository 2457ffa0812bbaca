"""Tensors past 2^31 elements: offsets of 64 bits where they are needed, and only there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import tileops
import tileops.language as T
from tests.op import large

# Pages that nothing writes take no memory, but a machine may refuse to promise them.
PROMISED = 4 * 2**30


def _is_promised() -> bool:
    try:
        torch.empty(PROMISED, dtype=torch.int8)
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize("case", large.CASES, ids=lambda case: case.__name__)
def test_cpu(case: Callable[[str], None]) -> None:
    if not _is_promised():
        pytest.skip("the system promises no 4 GiB")
    case("cpu")


def test_the_width_is_part_of_the_key() -> None:
    if not _is_promised():
        pytest.skip("the system promises no 4 GiB")
    small, wide = (torch.empty(n, dtype=torch.int8) for n in (1000, large.LIMIT + 1))
    place = torch.zeros(1, dtype=torch.int64)
    small[0] = wide[0] = 1
    seen: list[bool] = []
    remove = tileops.on_compile(lambda event: seen.append("64-bit offsets" in event.why))
    try:
        for a in (small, wide, small, wide):
            assert large.pick(a, place, block=16).tolist() == [1]
    finally:
        remove()
    assert seen == [False, True]


def test_places_past_the_end_of_a_tensor_do_not_wrap() -> None:
    """A last tile that reaches past 2^31, of a tensor that does not."""
    if not _is_promised():
        pytest.skip("the system promises no 4 GiB")
    seen: list[bool] = []
    remove = tileops.on_compile(lambda event: seen.append("64-bit offsets" in event.why))
    try:
        for n in (large.LIMIT - 2**24 - 1, large.LIMIT - 10):
            a = torch.empty(n, dtype=torch.int8)
            a[-3:] = torch.tensor([1, 2, 3])
            assert large.pick(a, torch.arange(n - 3, n), block=8).tolist() == [1, 2, 3]
    finally:
        remove()
    assert seen == [False, True]


def test_a_kernel_of_32_bit_sizes_says_what_to_declare() -> None:
    if not _is_promised():
        pytest.skip("the system promises no 4 GiB")

    @tileops.jit
    def lazy():
        N = T.dynamic("N")

        @T.prim_func
        def main(A: T.Tensor((N,), T.int8), B: T.Tensor((1,), T.int8)):
            with T.Kernel(1, threads=32):
                B[0] = A[N - 1]

        return main

    b = torch.zeros(1, dtype=torch.int8)
    with pytest.raises(tileops.ArgumentError, match=r"2147483649 does not fit .*T\.int64"):
        lazy()(torch.empty(large.LIMIT + 1, dtype=torch.int8), b)
    a = torch.ones(30, dtype=torch.int8)
    lazy()(a, b)
    assert b.tolist() == [1]


ON_GPU = tileops.jit(name="large_tails_on_gpu", target="cuda:sm_90")(large.tails.func)


@pytest.mark.parametrize("n", [1000, 2**30, large.LIMIT // 3 - 2**20, large.LIMIT + 64])
def test_offsets_on_gpus(n: int) -> None:
    """Only tensors that need them have 64-bit offsets."""
    text = ON_GPU.compile(M=3, N=n).get_kernel_source()
    assert ("tl.int64" in text) == (n > 1000)
