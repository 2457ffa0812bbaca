"""What help() and inspect say of programs and kernels."""

from __future__ import annotations

import dataclasses
import inspect
import pydoc
import types
from typing import Any

import pytest
import torch

import tileops
import tileops.language as T
from tests.programs import samples


@tileops.jit(name="help_scaled")
def scaled(X, factor: float = 2.0, block_N: int = 64):
    """Scale a vector."""
    N = T.dynamic("N")
    X: T.Tensor((N,), T.float32)
    Y = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block_N), threads=64) as bx:
        for i in T.Parallel(block_N):
            Y[bx * block_N + i] = X[bx * block_N + i] * factor
    return Y


def test_a_program_shows_its_own_signature_and_docstring() -> None:
    assert list(inspect.signature(scaled).parameters) == ["X", "factor", "block_N"]
    assert (scaled.__name__, scaled.__doc__) == ("scaled", "Scale a vector.")
    if torch.__version__ >= "2.13":
        text = pydoc.plain(pydoc.render_doc(scaled))
        assert "scaled(X, factor: 'float' = 2.0, block_N: 'int' = 64)" in text
        assert "Scale a vector." in text
        assert "par_compile" not in text
    assert list(inspect.signature(scaled.bind(factor=3.0)).parameters) == ["X", "block_N"]
    assert "get_kernel_source" in pydoc.plain(pydoc.render_doc(type(scaled)))


def test_a_kernel_shows_what_its_call_takes() -> None:
    assert list(inspect.signature(samples.lazy_add(96, 32)).parameters) == ["A", "B"]


@dataclasses.dataclass(frozen=True)
class Holder:
    program: object


class Holding(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.program = scaled

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.program(x)


@pytest.mark.parametrize(
    "holder", [Holder(scaled), Holding(), types.SimpleNamespace(program=scaled)]
)
def test_torch_compile_takes_a_program_from_what_holds_it(holder: Any) -> None:
    x = torch.randn(10)
    compiled = torch.compile(lambda x: holder.program(x) + 1, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), x * 2 + 1)


class Model(torch.nn.Module):
    program = scaled

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.program(x) + Model.program(x, 3.0)


def test_a_program_in_a_class_is_not_a_method() -> None:
    x = torch.randn(10)
    assert torch.equal(Model()(x), x * 2 + x * 3)
    compiled = torch.compile(Model(), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), x * 2 + x * 3)
