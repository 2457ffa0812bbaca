"""Lazy functions: kernels by arguments, out_idx, options of the body, and compile."""

from __future__ import annotations

import pytest
import torch

import tileops
import tileops.language as T
from tests.programs import samples
from tests.programs.samples import vector
from tileops.errors import ArgumentError, ArgumentTypeError


def test_mode_is_known_from_the_source() -> None:
    assert samples.lazy_add.is_lazy_mode()
    assert samples.lazy_add.mode == "lazy"
    assert samples.axpy.mode == "eager"
    assert samples.axpy.initialize_jit_mode() == "eager"


def test_the_function_is_not_run_to_find_the_mode() -> None:
    ran = []

    @tileops.jit
    def program(N):
        ran.append(N)

        @T.prim_func
        def main(A: T.Tensor((N,), T.float32)):
            with T.Kernel(1):
                A[0] = 1.0

        return main

    assert ran == []
    program(4)
    program(4)
    assert ran == [4]


def test_kernels_are_kept_by_normalised_arguments() -> None:
    first = samples.lazy_add(40)
    assert samples.lazy_add(N=40, block_N=128) is first
    assert samples.lazy_add(40, 128, "float32") is first
    assert samples.lazy_add(40, 64) is not first


def test_one_true_and_one_point_zero_are_three_arguments() -> None:
    @tileops.jit(out_idx=[0])
    def program(value):
        @T.prim_func
        def main(A: T.Tensor((1,), T.float32)):
            with T.Kernel(1):
                A[0] = 10.0 if value is True else 20.0 if isinstance(value, float) else 30.0

        return main

    assert [program(v)().item() for v in (1, True, 1.0)] == [30.0, 10.0, 20.0]


def test_arguments_must_be_hashable_or_frozen() -> None:
    assert samples.lazy_add.parse_cache_key(8) == samples.lazy_add.parse_cache_key(N=8)
    assert samples.lazy_add.parse_cache_key([8]) != samples.lazy_add.parse_cache_key((8,))
    with pytest.raises(ArgumentTypeError, match="hashable"):
        samples.lazy_add.parse_cache_key(bytearray(b"x"))


def test_outputs_are_passed_or_returned() -> None:
    x = vector(50)
    p, q = torch.empty(50), torch.empty(50)
    assert samples.lazy_split(50)(x, p, q) is None
    assert torch.equal(p, x.relu())
    assert torch.equal(p + q, x)
    kernel = tileops.compile(samples.lazy_split.func(50), out_idx=[1, -1])
    result = kernel(x)
    assert isinstance(result, list)
    assert torch.equal(result[0], p)
    assert torch.equal(result[1], q)
    assert kernel.out_idx == [1, 2]


def test_out_idx_belongs_to_lazy_functions() -> None:
    with pytest.raises(ArgumentError, match="out_idx belongs to lazy functions"):

        @tileops.jit(out_idx=[0])
        def program(X):
            N = T.const("N")
            X: T.Tensor((N,), T.float32)
            with T.Kernel(1):
                X[0] = 1.0


def test_a_lazy_function_must_return_a_prim_func() -> None:
    @tileops.jit
    def program(N):
        @T.prim_func
        def main(A: T.Tensor((N,), T.float32)):
            with T.Kernel(1):
                A[0] = 1.0

        return 5

    with pytest.raises(ArgumentTypeError, match=r"returns a T\.prim_func, got int"):
        program(3)


def test_one_dynamic_kernel_for_all_sizes() -> None:
    @tileops.jit(out_idx=[-1])
    def program(block_N):
        N = T.dynamic("N")

        @T.prim_func
        def main(A: T.Tensor((N,), T.float32), B: T.Tensor((N,), T.float32)):
            with T.Kernel(T.ceildiv(N, block_N)) as bx:
                for i in T.Parallel(block_N):
                    B[bx * block_N + i] = A[bx * block_N + i] * 3.0

        return main

    kernel = program(32)
    before = tileops.stats()
    for n in (1, 7, 16, 1000):
        x = vector(n)
        assert torch.equal(kernel(x), x * 3)
    after = tileops.stats()
    assert sum(after[k] - before[k] for k in ("compiles", "disk_hits")) <= 1


def test_options_of_jit_reach_the_program() -> None:
    @tileops.jit(
        out_idx=[0], pass_configs={"tl.gemm_f32_precision": "ieee"}, compile_flags="-g0 -O1"
    )
    def program(N):
        @T.prim_func
        def main(A: T.Tensor((N,), T.float32)):
            with T.Kernel(1):
                A[0] = 1.0

        return main

    options = dict(program.get_tir(4).options)
    assert options == {"tl.gemm_f32_precision": "ieee", "compile_flags": "-g0 -O1"}


def test_compile_gives_the_kernel_of_a_call() -> None:
    assert samples.lazy_add.compile(60) is samples.lazy_add(60)
    text = samples.lazy_add.get_kernel_source(60)
    assert text == samples.lazy_add(60).get_kernel_source()
    assert "lazy_add" in text


def test_a_call_of_a_kernel_names_the_argument_that_is_too_much_or_lacks() -> None:
    kernel = samples.lazy_add(48)
    a = vector(48)
    for call, message in (
        (lambda: kernel(a, a, a), "expected at most 2 arguments, got 3; C: made and returned by"),
        (lambda: kernel(a), "missing argument 'B'"),
        (lambda: kernel(), "missing argument 'A'"),
        (lambda: kernel(B=a), "missing argument 'A'"),
        (lambda: kernel(a, a, B=a), "argument 'B' given twice"),
        (lambda: kernel(a, a, block=64), "unexpected argument 'block'"),
    ):
        with pytest.raises(ArgumentTypeError) as caught:
            call()
        assert str(caught.value).startswith(f"kernel {kernel.name}: {message}")
    assert torch.equal(kernel(B=a, A=a), a + a)
