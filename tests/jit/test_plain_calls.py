"""Plain calls of a program run no Python code of its own; every other call takes ``__call__``."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode

import tileops
import tileops.language as T
from tests.programs import samples
from tests.programs.samples import vector
from tileops.errors import (
    ArgumentError,
    ArgumentTypeError,
    NotDifferentiableError,
    RedefinedOpError,
)


def frames_of(call: Callable[[], Any]) -> list[str]:
    """The Python functions of tileops and torch that a call enters."""
    entered: list[str] = []

    def profile(frame: Any, event: str, argument: object) -> None:
        if event == "call":
            entered.append(f"{frame.f_globals.get('__name__')}.{frame.f_code.co_name}")

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return [name for name in entered if name.startswith(("tileops", "torch"))]


def plain_sum(X, Y, block_N: int = 64):
    N = T.dynamic("N")
    X: T.Tensor((N,), T.float32)
    Y: T.Tensor((N,), T.float32)
    Z = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block_N)) as bx:
        for i in T.Parallel(block_N):
            Z[bx * block_N + i] = X[bx * block_N + i] + Y[bx * block_N + i]
    return Z


plain_graded = tileops.jit(name="plain_graded")(plain_sum)
plain_graded.register_autograd(lambda ctx, grad: (grad, grad))


def test_a_plain_call_enters_no_python_function() -> None:
    x, y = vector(100), vector(100)
    samples.axpy(x, y, 0.5), plain_graded(x, y)
    assert frames_of(lambda: samples.axpy(x, y, 0.5)) == []
    assert frames_of(lambda: plain_graded(x, y)) == []
    weight = torch.nn.Parameter(y)

    def without_grad() -> None:
        with torch.no_grad():
            plain_graded(x, weight)

    assert not [f for f in frames_of(without_grad) if f.startswith("tileops")]
    assert "tileops.jit.impl.__call__" in frames_of(lambda: plain_graded(x, weight))
    assert "tileops.jit.impl.__call__" in frames_of(lambda: samples.axpy(x, y, alpha=0.5))


def test_gradients_still_flow() -> None:
    x, y = vector(100).requires_grad_(), vector(100)
    plain_graded(y, y)
    plain_graded(x, y).sum().backward()
    assert torch.equal(x.grad, torch.ones(100))
    with torch.no_grad():
        assert not plain_graded(x, y).requires_grad
    with torch.inference_mode():
        assert torch.equal(plain_graded(x, y), x + y)


def test_a_gradient_that_is_not_there_is_refused() -> None:
    x, y = vector(100), vector(100)
    samples.axpy(x, y, 1.0)
    with pytest.raises(NotDifferentiableError, match="sample_axpy"):
        samples.axpy(x.requires_grad_(), y, 1.0).sum().backward()
    with pytest.raises(NotDifferentiableError, match="tangent"), forward_ad.dual_level():
        plain_graded(y, forward_ad.make_dual(y, torch.ones(100)))


def test_scalars_of_other_types_go_the_general_way() -> None:
    x, y = vector(100), vector(100)
    assert torch.equal(samples.axpy(x, y, 2), samples.axpy(x, y, 2.0))
    assert torch.equal(samples.axpy(x, y, torch.tensor(2.0)), samples.axpy(x, y, 2.0))
    with pytest.raises(ArgumentTypeError, match="alpha"):
        samples.axpy(x, y, "2")


def test_subclasses_of_tensors_go_the_general_way() -> None:
    seen = []

    class Marked(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            seen.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    x = vector(100)
    marked = x.as_subclass(Marked)
    assert type(plain_graded(marked, x)) is Marked
    assert seen


def test_modes_of_torch_see_the_op() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Log(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    x = vector(100)
    with Log():
        samples.axpy(x, x, 1.0)
    assert seen == ["tileops.sample_axpy.default"]


def test_a_mode_may_change_the_program_that_is_called() -> None:
    """What a call reads is kept, even where looking at its first tensor replaces it."""
    plain_changed = tileops.jit(name="plain_changed")(plain_sum)
    changes = []

    class Change(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            if not changes:
                changes.append(func)
                plain_changed.register_autograd(lambda ctx, grad: (grad, grad))
            return func(*args, **(kwargs or {}))

    x, y = vector(100), vector(100)
    assert torch.equal(plain_changed(x, y), x + y)
    with Change():
        z = plain_changed(x, y)
    assert changes
    assert torch.equal(z, x + y)


REDEFINED = """
import tileops
import tileops.language as T

@tileops.jit
def plain_redefined(X, block_N: int = 64):
    N = T.dynamic("N")
    X: T.Tensor((N,), T.float32)
    Z = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block_N)) as bx:
        for i in T.Parallel(block_N):
            Z[bx * block_N + i] = {factor} * X[bx * block_N + i]
    return Z
"""


def test_a_redefined_program_keeps_running_its_own(tmp_path: Path) -> None:
    def define(factor: int) -> Any:
        path = tmp_path / f"cell{factor}.py"
        path.write_text(REDEFINED.format(factor=factor))
        names: dict[str, Any] = {"__name__": "plain_cells"}
        exec(compile(path.read_text(), str(path), "exec"), names)
        return names["plain_redefined"]

    x = vector(100)
    first = define(2)
    for _ in range(2):
        assert torch.equal(first(x), 2 * x)
    old = first.op
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        second = define(3)
    for _ in range(2):
        assert torch.equal(first(x), 2 * x)
        assert torch.equal(second(x), 3 * x)
    with pytest.raises(RedefinedOpError):
        old(x)


def test_the_class_is_not_bound_to_its_slot() -> None:
    """An assignment to ``__call__`` takes effect, as for every class of Python."""
    x = vector(100)
    samples.axpy(x, x, 1.0)
    kind = type(samples.axpy)
    original = kind.__call__
    try:
        kind.__call__ = lambda self, *args: "replaced"  # type: ignore[method-assign]
        assert samples.axpy(x, x, 1.0) == "replaced"

        @tileops.jit
        def plain_after_replacement(X, block_N: int = 64):
            N = T.dynamic("N")
            X: T.Tensor((N,), T.float32)
            Z = T.empty((N,), T.float32)
            with T.Kernel(T.ceildiv(N, block_N)) as bx:
                for i in T.Parallel(block_N):
                    Z[bx * block_N + i] = X[bx * block_N + i]
            return Z

        assert samples.axpy(x, x, 1.0) == "replaced"
        assert plain_after_replacement(x) == "replaced"
    finally:
        kind.__call__ = original  # type: ignore[method-assign]
    assert torch.equal(samples.axpy(x, x, 1.0), 2 * x)


def test_a_program_that_wants_no_gradient_gives_results_without() -> None:
    @tileops.jit(differentiable=False)
    def plain_undifferentiated(X, block_N: int = 64):
        N = T.dynamic("N")
        X: T.Tensor((N,), T.float32)
        Z = T.empty((N,), T.float32)
        with T.Kernel(T.ceildiv(N, block_N)) as bx:
            for i in T.Parallel(block_N):
                Z[bx * block_N + i] = 2 * X[bx * block_N + i]
        return Z

    x = vector(100).requires_grad_()
    assert not plain_undifferentiated(x).requires_grad
    assert not torch.ops.tileops.plain_undifferentiated(x).requires_grad
    torch.library.opcheck(torch.ops.tileops.plain_undifferentiated.default, (x,))


def test_a_write_into_a_leaf_is_refused() -> None:
    x, y = vector(100), vector(100)

    @tileops.jit(differentiable=False)
    def plain_writing(X, Y, block_N: int = 64):
        N = T.dynamic("N")
        X: T.Tensor((N,), T.float32)
        Y: T.Tensor((N,), T.float32)
        with T.Kernel(T.ceildiv(N, block_N)) as bx:
            for i in T.Parallel(block_N):
                Y[bx * block_N + i] = X[bx * block_N + i]

    plain_writing(x, y)
    assert torch.equal(x, y)
    with pytest.raises(ArgumentError, match="leaf"):
        plain_writing(x, torch.zeros(100, requires_grad=True))
    with pytest.raises(ArgumentError, match="leaf"):
        torch.ops.tileops.plain_writing(x, torch.zeros(100, requires_grad=True))
