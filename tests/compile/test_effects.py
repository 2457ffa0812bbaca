"""T.print and T.device_assert on the Triton path."""

from __future__ import annotations

import pytest
import torch

import tileops.language as T
from tests.kit.interpreted import CUDA, run
from tileops.codegen.kernel_code import Specialization
from tileops.codegen.triton import generate
from tileops.compiler import compile_kernel
from tileops.errors import ArgumentError
from tileops.frontend.trace import trace
from tileops.target import parse_target


def checked(X):
    X: T.Tensor((20,), T.int32)
    C = T.empty((20,), T.int32)
    with T.Kernel(1, threads=32) as _:
        t = T.alloc_shared((20,), T.int32)
        T.copy(X, t)
        T.print(t, "tile")
        T.print(X[0] + 1, "sum")
        for i in T.Parallel(20):
            # Neither the padding beyond 20 nor the points left out are checked.
            T.device_assert(i < 20, "place")
            if i != 3:
                T.device_assert(t[i] >= 0, "negative")
            C[i] = t[i]
    return C


def test_checks_hold_for_the_active_points() -> None:
    x = torch.arange(20).int()
    x[3] = -1
    (out,) = run(checked, x)
    assert torch.equal(out, x)
    x[4] = -1
    with pytest.raises(ArgumentError, match="assertion failed: negative"):
        run(checked, x, compiles=False)


@pytest.mark.parametrize("target", CUDA)
def test_checks_and_prints_compile(target: str) -> None:
    program = trace(checked, name="checked", static={}, consts={})
    built = parse_target(target)
    artifact = compile_kernel(generate(program, built, Specialization()), built, {})
    text = artifact.files["launch0.ptx"].decode()
    assert "vprintf" in text
    assert "__assertfail" in text
