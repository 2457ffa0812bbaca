"""Configs that the program's own code refuses: each is one failure, and the others are tuned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import tileops
import tileops.language as T
from tests.autotuner.tuned_programs import FakeTimer

pytestmark = pytest.mark.usefixtures("tuning_cache")

TIMES = {8: 1.0, 16: 3.0, 32: 2.0, 64: 0.5}


def eager(refuse: Any, **default: int) -> Any:
    """A program whose body calls ``refuse(block, N)``; ``block=`` gives a default."""

    def double(A, block=None):  # type: ignore[no-untyped-def]
        N = T.const("N")
        refuse(block, N)
        A: T.Tensor((N,), T.float32)
        B = T.empty((N,), T.float32)
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] * 2
        return B

    double.__defaults__ = (default.get("block"),)
    return tileops.jit(name="tuned_refusing")(double)


def lazy(refuse: Any) -> Any:
    @tileops.jit(out_idx=[-1], name="tuned_refusing_lazy")
    def double(N, block=None):  # type: ignore[no-untyped-def]
        refuse(block, N)

        @T.prim_func
        def main(A: T.Tensor((N,), T.float32), B: T.Tensor((N,), T.float32)):  # type: ignore[no-untyped-def]
            with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
                for i in T.Parallel(block):
                    B[bx * block + i] = A[bx * block + i] * 2

        return main

    return double


def not_eight(block: int, n: Any) -> None:
    assert block != 8, "block is 8"


def value_error(block: int, n: Any) -> None:
    if block == 8:
        raise ValueError("block is 8")


def divides(block: int, n: Any) -> None:
    if isinstance(n, int) and n % block:
        raise RuntimeError("block must divide N")


SPACE = [{"block": 8}, {"block": 16}, {"block": 32}]


@pytest.mark.parametrize("refuse", [not_eight, value_error])
@pytest.mark.parametrize("default", [{}, {"block": 16}])
def test_an_eager_program(refuse: Any, default: dict[str, int], tuning_cache: Path) -> None:
    timer = FakeTimer(TIMES)
    program = tileops.autotune(configs=SPACE, timer=timer)(eager(refuse, **default))
    a = torch.randn(96)
    assert torch.equal(program(a), a * 2)
    assert program.compile(a).config == {"block": 32}
    assert sorted(timer.calls) == [16, 32]
    rows = [json.loads(line) for f in tuning_cache.rglob("configs.jsonl") for line in f.open()]
    (failed,) = [row for row in rows if row["config"] == {"block": 8}]
    assert failed["status"] == "compile_error"
    assert "Error: block is 8" in failed["reason"]


@pytest.mark.parametrize("refuse", [not_eight, value_error])
def test_a_lazy_program(refuse: Any) -> None:
    kernel = tileops.autotune(configs=SPACE, timer=FakeTimer(TIMES))(lazy(refuse))(96)
    a = torch.randn(96)
    assert torch.equal(kernel(a), a * 2)
    assert kernel.config == {"block": 32}


@pytest.mark.parametrize("default", [{}, {"block": 64}])
def test_a_default_that_is_wrong_for_a_size(default: dict[str, int]) -> None:
    space = [{"block": 64}, {"block": 32}, {"block": 16}]
    program = tileops.autotune(configs=space, timer=FakeTimer(TIMES))(eager(divides, **default))
    a = torch.randn(96)
    assert program.compile(a).config == {"block": 32}
    assert torch.equal(program(a), a * 2)
    assert torch.equal(program(a, block=16), a * 2)
    with pytest.raises(RuntimeError, match="block must divide N"):
        program(a, block=64)
    with pytest.raises(tileops.TileopsError, match="no config of 3 works") as caught:
        program(torch.randn(97))
    assert "block=32: compile_error: RuntimeError: block must divide N" in str(caught.value)


def test_the_automatic_space_leaves_out_what_is_refused() -> None:
    times = FakeTimer(dict.fromkeys(range(1, 1000), 1.0))
    program = tileops.autotune(timer=times)(eager_tile())
    a = torch.randn(96)
    assert torch.equal(program(a), a * 2)
    assert times.calls
    assert all(96 % block == 0 for block in times.calls)


def eager_tile() -> Any:
    @tileops.jit(name="tuned_refusing_tile")
    def double(A, block: int = 32):  # type: ignore[no-untyped-def]
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        B = T.empty((N,), T.float32)
        assert N % block == 0
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            tile = T.alloc_shared((block,), T.float32)
            T.copy(A[bx * block : (bx + 1) * block], tile)
            for i in T.Parallel(block):
                B[bx * block + i] = tile[i] * 2
        return B

    return double
