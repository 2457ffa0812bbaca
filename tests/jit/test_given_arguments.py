"""warmup, compile and get_tir refuse what a call refuses, and sizes that contradict each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tileops
import tileops.language as T
from tileops.errors import ArgumentError, ArgumentTypeError


@tileops.jit
def given_product(A, B, factor: T.float32 = 1.0):
    M, N, K = T.const("M, N, K")
    A: T.Tensor((M, K), T.float32)
    B: T.Tensor((K, N), T.float32)
    C = T.empty((M, N), T.float32)
    with T.Kernel(M, threads=32) as i:
        for j in T.Parallel(N):
            C[i, j] = A[i, 0] * B[0, j] * factor
    return C


@tileops.jit
def given_pair(A):
    A: T.Tensor((2, 8), T.float32)
    B = T.empty((2, 8), T.float32)
    with T.Kernel(1, threads=32):
        T.copy(A, B)
    return B


@tileops.jit(contiguous="copy")
def given_copied(A):
    N = T.dynamic("N")
    A: T.Tensor((N, 4), T.float32)
    with T.Kernel(N, threads=32) as i:
        A[i, 0] = 0.0


@tileops.jit(autocast=torch.float16)
def given_autocast(A):
    N = T.dynamic("N")
    A: T.Tensor((N,), T.float16)
    with T.Kernel(N, threads=32) as i:
        A[i] = 0.0


a, b = torch.zeros(16, 8), torch.zeros(8, 4)

REFUSED = {
    "dtype": (given_product, (a.half(), b), ArgumentTypeError),
    "rank": (given_product, (a[0], b), ArgumentError),
    "strides": (given_product, (a, b.t().contiguous().t()), ArgumentError),
    "no_tensor": (given_product, (3, b), ArgumentTypeError),
    "list": (given_product, ([a], b), ArgumentTypeError),
    "layout": (given_product, (a.to_sparse(), b), ArgumentError),
    "size": (given_product, (a, torch.zeros(9, 4)), ArgumentError),
    "scalar": (given_product, (a, b, "x"), ArgumentTypeError),
    "fixed_extent": (given_pair, (torch.zeros(2, 9),), ArgumentError),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_an_error_of_the_same_argument_as_a_call_makes(name: str) -> None:
    program, arguments, error = REFUSED[name]

    def refusal(run: Callable[..., Any]) -> str:
        """The program and the argument that the error names."""
        with pytest.raises(error) as caught:
            run()
        named, _, _ = str(caught.value).partition(": expected")
        return named

    expected = refusal(lambda: program(*arguments))
    assert expected.startswith(f"{program.definition.name}: argument ")
    assert refusal(lambda: program.compile(*arguments)) == expected
    assert refusal(lambda: program.get_tir(*arguments)) == expected
    assert refusal(lambda: tileops.warmup([(program, *arguments)])) == expected


def test_meta_tensors_and_a_part_of_the_arguments_will_do() -> None:
    assert given_product.get_tir(a.to("meta"), b).name == "given_product"
    assert given_product.get_tir(a, N=4).name == "given_product"
    assert given_product.get_tir(a, None, N=4).name == "given_product"
    assert given_copied.get_tir(torch.zeros(4, 6).t()).name == "given_copied"
    assert given_autocast.get_tir(torch.zeros(4)).name == "given_autocast"


def test_a_size_that_is_given_twice_is_the_same() -> None:
    assert given_product.get_tir(a, b, K=8, N=4).name == "given_product"
    with pytest.raises(ArgumentError, match="size 'K' is given as 8 and as 32"):
        given_product.get_tir(a, b, K=32)
    with pytest.raises(ArgumentError, match=r"argument 'B': expected dimension 0 to be 16 \(K\)"):
        given_product.get_tir(T.Tensor((16, 16)), T.Tensor((32, 16)))
