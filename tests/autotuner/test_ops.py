"""Tuning by a call through torch.ops: the tuner makes inputs as the call's, its scalars included."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tileops
import tileops.language as T
from tests.autotuner.tuned_programs import fresh_const

pytestmark = pytest.mark.usefixtures("tuning_cache")

SPACE = [{"block": 8}, {"block": 32}]


class Seeing:
    """A timer that keeps the inputs that it is given."""

    __qualname__ = "Seeing"

    def __init__(self) -> None:
        self.inputs: list[list[Any]] = []

    def __call__(self, config: Any, kernel: Any, inputs: Any) -> float:
        kernel(*inputs)
        self.inputs.append(list(inputs))
        return 1.0 / config["block"]


def fresh_scalars() -> Any:
    """A program of run-time scalars of all kinds."""

    @tileops.jit(name="tuned_scalars")
    def scalars(A, factor: T.float32, count: T.int64, add: T.bool, block: int = 16):  # type: ignore[no-untyped-def]
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        B = T.empty((N,), T.float32)
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] * factor + T.if_then_else(add, count, 0)
        return B

    return scalars


def fresh_layout() -> Any:
    """A program of free strides and an extent that is an expression."""

    @tileops.jit(name="tuned_layout")
    def layout(A, P, block: int = 16):  # type: ignore[no-untyped-def]
        M, N = T.dynamic("M, N")
        row, column = T.dynamic("row, column")
        A: T.StridedTensor((M, N), (row, column), T.float32)
        P: T.Tensor((M * 2,), T.float32)
        B = T.empty((M, N), T.float32)
        with T.Kernel(T.ceildiv(M, block), threads=128) as bx:
            for i, j in T.Parallel(block, 8):
                if bx * block + i < M and j < N:
                    B[bx * block + i, j] = A[bx * block + i, j] + P[(bx * block + i) * 2]
        return B

    return layout


def test_the_timer_sees_the_scalars_of_the_call() -> None:
    timer = Seeing()
    program = tileops.autotune(configs=SPACE, timer=timer)(fresh_scalars())
    a = torch.randn(50)
    program(a, 2.0, 3, True, block=8)  # registers the op, tunes nothing
    assert timer.inputs == []
    got = torch.ops.tileops.tuned_scalars(a, 2.5, 1 << 40, True)
    torch.testing.assert_close(got, a * 2.5 + float(1 << 40))
    assert len(timer.inputs) == 3
    for tensor, *scalars in timer.inputs:
        assert (tensor.shape, tensor.dtype) == (a.shape, a.dtype)
        assert scalars == [2.5, 1 << 40, True]
        assert [type(s) for s in scalars] == [float, int, bool]
    torch.testing.assert_close(torch.ops.tileops.tuned_scalars(a, 4.0, 1, False), a * 4)
    program(a, 3.0, 1, True)
    assert len(timer.inputs) == 3  # values of scalars tell no two tunings apart
    with tileops.set_autotune_inputs(torch.randn(51), 1.0, 1, False):
        torch.ops.tileops.tuned_scalars(torch.randn(51), 4.0, 1, True)
    assert timer.inputs[-1][1:] == [1.0, 1, False]
    assert len(timer.inputs) == 6


def test_the_measuring_child_gets_the_scalars() -> None:
    seen: list[list[Any]] = []

    def reference(a: torch.Tensor, factor: float, count: int, add: bool) -> torch.Tensor:
        seen.append([factor, count, add])
        return a * factor + (count if add else 0)

    program = tileops.autotune(
        configs=SPACE, warmup=1, rep=2, ref_prog=reference, rtol=1e-5, atol=1e-5
    )(fresh_scalars())
    a = torch.randn(200)
    program(a, 2.0, 3, True, block=8)
    torch.testing.assert_close(program.op(a, 7.0, 1000, True), a * 7 + 1000)
    assert seen
    assert all(values == [7.0, 1000, True] for values in seen)
    assert program.compile(a, 7.0, 1000, True).latency is not None


def test_a_warmup_without_scalars_says_what_it_lacks() -> None:
    program = tileops.autotune(configs=SPACE, timer=Seeing())(fresh_scalars())
    with pytest.raises(tileops.TileopsError, match=r"tuned_scalars.*scalar 'factor'.*supply_prog"):
        tileops.warmup([(program, {"N": 64})])


def test_inputs_have_the_strides_and_the_alignment_of_the_call() -> None:
    timer = Seeing()
    program = tileops.autotune(configs=SPACE, timer=timer, buckets=None)(fresh_layout())
    a, p = torch.randn(7, 40).t()[:, :5], torch.randn(81)[1:]
    program(a, p, block=8)
    assert torch.equal(program.op(a, p), a + p[::2, None])
    assert len(timer.inputs) == 3
    for made_a, made_p in timer.inputs:
        assert (made_a.shape, made_a.stride()) == (a.shape, a.stride())
        assert made_p.shape == p.shape
        assert made_p.data_ptr() % 16 == 4


def test_another_tuned_op_inside_a_timer_is_tuned_on_its_own_inputs() -> None:
    inner, outer = Seeing(), Seeing()
    program = tileops.autotune(configs=SPACE, timer=inner)(fresh_const())
    program(torch.randn(3), block=8)

    def timer(config: Any, kernel: Any, inputs: Any) -> float:
        program.op(torch.randn(17))
        return outer(config, kernel, inputs)

    whole = tileops.autotune(configs=SPACE, timer=timer)(fresh_scalars())
    a = torch.randn(90)
    torch.testing.assert_close(whole(a, 2.0, 1, True), a * 2 + 1)
    assert {tuple(i[0].shape) for i in inner.inputs} == {(17,)}
    assert all(torch.equal(i[0], a) for i in outer.inputs)
