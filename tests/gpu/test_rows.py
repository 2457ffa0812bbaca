"""Rows of the language on the GPU: functions, integers, every argument by position, printing, and
the small programs of the Triton path's tests."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch

import tests.compile.test_constructs as small
import tileops
import tileops.language as T
from tests.gpu.collected import gathered
from tests.programs import functions
from tests.programs.constructs import Construct
from tests.programs.positional import POSITIONAL

pytestmark = pytest.mark.gpu


def test_functions() -> None:
    x = functions.arguments()
    functions.check(x, tileops.jit(functions.functions)(x.cuda()))


def test_integer_functions() -> None:
    a, b = functions.integers()
    got = tileops.jit(functions.integer_functions)(a.cuda(), b.cuda())
    functions.check_integers(a, b, got)


@pytest.mark.parametrize("case", POSITIONAL, ids=lambda c: c.id)
def test_positional(case: Construct) -> None:
    inputs = case.inputs()
    case.check(inputs, tileops.jit(case.func)(*(x.cuda() for x in inputs)))


def printed(X):
    X: T.Tensor((2,), T.float32)
    with T.Kernel(1, threads=32):
        t = T.alloc_fragment((2,), T.float32)
        T.copy(X, t)
        T.print(t, "tile")
        T.print(X[0] + 1, "sum")


def test_print(capfd: pytest.CaptureFixture[str]) -> None:
    tileops.jit(printed)(torch.tensor([1.5, -2.0]).cuda())
    torch.cuda.synchronize()  # the driver writes what kernels printed when it waits for them
    ctypes.CDLL(None).fflush(None)
    lines = capfd.readouterr().out.splitlines()
    for name, value in (("tile", "1.5"), ("tile", "-2.0"), ("sum", "2.5")):
        assert any(name in line and value in line for line in lines), (name, value, lines)


def run_on_gpu(
    func: Any, *args: Any, compiles: bool = True, **static: Any
) -> tuple[torch.Tensor, ...]:
    """Stands for ``tests.kit.interpreted.run``: the tensors change in place as they do there.

    Products are not in TF32: the tests have the interpreter's bounds.
    """
    del compiles
    moved = [x.cuda() if isinstance(x, torch.Tensor) else x for x in args]
    exact = {"tl.gemm_f32_precision": "ieee"}
    out = tileops.jit(func, pass_configs=exact)(*moved, **static)
    for before, after in zip(args, moved, strict=True):
        if isinstance(before, torch.Tensor):
            before.copy_(after)
    outs = () if out is None else (out,) if isinstance(out, torch.Tensor) else tuple(out)
    return tuple(x.cpu() for x in outs)


@pytest.mark.parametrize("test", gathered(small, calling="run"))
def test_small_program(test: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small, "run", run_on_gpu)
    test()
