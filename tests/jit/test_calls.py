"""Calls of eager programs: ways to pass arguments, results, mutation, gradients."""

from __future__ import annotations

import pytest
import torch

import tileops
import tileops.language as T
from tests.programs import samples
from tests.programs.samples import vector
from tileops.errors import ArgumentError, NotDifferentiableError


def test_arguments_by_position_and_by_name() -> None:
    x, y = vector(300), vector(300)
    expected = samples.axpy(x, y, 0.5)
    assert torch.equal(expected, 0.5 * x + y)
    assert torch.equal(samples.axpy(alpha=0.5, Y=y, X=x), expected)
    assert torch.equal(samples.axpy(x, y, 0.5, 64), expected)
    assert torch.equal(samples.axpy(x, y, 0.5, block_N=64), expected)
    assert torch.equal(torch.ops.tileops.sample_axpy(x, y, 0.5), expected)
    assert torch.equal(torch.ops.tileops.sample_axpy(x, y, 0.5, block_N=64), expected)


@pytest.mark.parametrize("n", [0, 1, 7, 256, 257, 1_000_003])
def test_sizes(n: int) -> None:
    x, y = vector(n), vector(n)
    assert torch.equal(samples.axpy(x, y, 2.0), 2 * x + y)


def test_two_outputs_come_in_the_order_of_return() -> None:
    x, y = torch.randn(5, 100), torch.randn(5, 100)
    d, s = samples.sum_difference(x, y)
    assert torch.equal(s, x + y)
    assert torch.equal(d, (x - y).t().half())


@pytest.mark.parametrize("dtype", ["float16", T.float16, torch.float16])
def test_a_dtype_by_any_spelling(dtype: object) -> None:
    x = vector(50, torch.float16)
    assert torch.equal(samples.scaled(x, 3.0, dtype), x * 3)


def test_a_program_without_tensors_takes_a_device() -> None:
    assert samples.counted(5).tolist() == [0, 1, 2, 3, 4]
    assert samples.counted(3, start=7, device="cpu").tolist() == [7, 8, 9]


def test_values_that_no_schema_carries_are_bound() -> None:
    x = vector(100)
    assert torch.equal(samples.typed(x, "float32"), x)
    assert torch.equal(samples.typed(x, "float32", samples.relu), x.relu())
    assert torch.equal(samples.typed(x, "float32", act=samples.negate), -x)
    bound = samples.typed.bind(act=samples.relu)
    assert bound is samples.typed.bind(act=samples.relu)
    assert torch.equal(bound(x, "float32"), x.relu())
    assert torch.equal(samples.typed(x, "float32"), x)


def test_none_for_a_parameter_whose_default_is_none() -> None:
    @tileops.jit
    def scaled(A, scale=None):
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        B = T.empty((N,), T.float32)
        factor = 2.0 if scale is None else scale
        with T.Kernel(T.ceildiv(N, 32)) as bx:
            for i in T.Parallel(32):
                B[bx * 32 + i] = A[bx * 32 + i] * factor
        return B

    a = torch.randn(45)
    assert torch.equal(scaled(a, None), a * 2)
    assert torch.equal(scaled(a, scale=None), a * 2)
    assert torch.equal(scaled(a), a * 2)
    assert torch.equal(scaled(a, 3.0), a * 3)
    assert torch.equal(scaled(a, None), a * 2)
    assert torch.equal(torch.compile(scaled, fullgraph=True, backend="eager")(a, None), a * 2)


def test_bind_takes_compile_time_parameters() -> None:
    with pytest.raises(ArgumentError, match="bind takes compile-time parameters"):
        samples.typed.bind(X=1)


def test_mutation_is_seen_by_autograd() -> None:
    x, y = vector(100), vector(100)
    before, expected = y._version, x + y
    assert samples.add_into(x, y) is None
    assert torch.equal(y, expected)
    assert y._version > before


def test_an_input_that_requires_grad_runs_and_refuses_a_backward_pass() -> None:
    x, y = vector(100).requires_grad_(), vector(100)
    for out in (
        samples.axpy(x, y, 1.0),
        samples.axpy(y, x, 1.0, block_N=64),
        samples.lazy_add(100)(x, y),
        samples.lazy_add(100)(y, B=x),
    ):
        assert torch.equal(out, x + y)
        with pytest.raises(NotDifferentiableError):
            out.sum().backward()
    with torch.no_grad():
        assert torch.equal(samples.axpy(x, y, 1.0), x + y)
    with torch.inference_mode():
        samples.axpy(x, y, 1.0)
    samples.axpy(x.detach(), y, 1.0)


def test_differentiable_false_says_that_no_gradient_is_wanted() -> None:
    @tileops.jit(name="calls_no_gradient", differentiable=False)
    def program(X, Y):
        N = T.const("N")
        X: T.Tensor((N,), T.float32)
        Y: T.Tensor((N,), T.float32)
        with T.Kernel(T.ceildiv(N, 64)) as bx:
            for i in T.Parallel(64):
                Y[bx * 64 + i] = X[bx * 64 + i]

    x, y = vector(10).requires_grad_(), torch.zeros(10)
    program(x, y)
    assert torch.equal(y, x.detach())
    with pytest.raises(ArgumentError, match="leaf that requires grad"):
        program(y, x)


def test_another_size_of_const_is_another_kernel_and_dynamic_is_not() -> None:
    def compiled(call) -> int:
        before = tileops.stats()
        call()
        after = tileops.stats()
        return sum(after[k] - before[k] for k in ("compiles", "disk_hits"))

    assert [compiled(lambda n=n: samples.scaled(vector(n), 7.0)) for n in (33, 34, 33)] == [1, 1, 0]
    sizes = (64, 65, 66, 128, 1000, 64)
    calls = [lambda n=n: samples.axpy(vector(n), vector(n), 1.0, block_N=48) for n in sizes]
    assert sum(compiled(call) for call in calls) <= 2


def test_one_log_line_a_compile(capfd: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setenv("TILEOPS_LOG", "compile")
    tileops.log.logger.handlers.clear()
    events = []
    remove = tileops.counters.on_compile(events.append)
    samples.scaled(vector(777), 11.0)
    samples.scaled(vector(777), 11.0)
    remove()
    assert len(events) == 1
    line = events[0].line()
    assert line.startswith("compiled sample_scaled N=777 for cpu:")
    assert "(first call" in line


def test_a_target_that_is_not_the_tensors_device() -> None:
    @tileops.jit(name="calls_for_hopper", target="cuda:sm_90")
    def program(X):
        N = T.const("N")
        X: T.Tensor((N,), T.float32)
        Y = T.empty((N,), T.float32)
        with T.Kernel(T.ceildiv(N, 64)) as bx:
            for i in T.Parallel(64):
                Y[bx * 64 + i] = X[bx * 64 + i]
        return Y

    with pytest.raises(ArgumentError, match=r"compiled for cuda:sm_90a .* cannot run on cpu"):
        program(vector(10))


def test_a_single_output_returned_as_a_tuple() -> None:
    @tileops.jit(name="calls_tuple")
    def program(X):
        N = T.const("N")
        X: T.Tensor((N,), T.float32)
        Y = T.empty((N,), T.float32)
        with T.Kernel(T.ceildiv(N, 64)) as bx:
            for i in T.Parallel(64):
                Y[bx * 64 + i] = X[bx * 64 + i]
        return (Y,)

    x = vector(10)
    (y,) = program(x)
    assert torch.equal(x, y)


def test_a_program_that_only_arguments_make_valid() -> None:
    @tileops.jit(name="calls_late")
    def program(X, block_N: int = -1):
        N = T.const("N")
        X: T.Tensor((N,), T.float32)
        Y = T.empty((N,), T.float32)
        with T.Kernel(T.ceildiv(N, 64)) as bx:
            tile = T.alloc_shared((block_N,), T.float32)
            T.copy(X[bx * 64 : bx * 64 + 64], tile)
            T.copy(tile, Y[bx * 64 : bx * 64 + 64])
        return Y

    x = vector(100)
    with pytest.raises(tileops.ProgramError, match=r"test_calls\.py"):
        program(x)
    assert torch.equal(program(x, block_N=64), x)
