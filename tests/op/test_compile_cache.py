"""torch's caches of compiled graphs see that an op's shapes or gradient were edited."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch._dynamo.utils import counters

import tileops
import tileops.language as T
from tileops.jit.captured import code_digest


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))


@tileops.jit(name="cache_scaled")
def scaled(X, factor: float = 2.0):
    N = T.dynamic("N")
    X: T.Tensor((N,), T.float32)
    Y = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, 64)) as bx:
        for i in T.Parallel(64):
            Y[bx * 64 + i] = X[bx * 64 + i] * factor
    return Y


@tileops.jit(name="cache_same")
def same(X):
    N = T.dynamic("N")
    X: T.Tensor((N,), T.float32)
    Y = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, 64)) as bx:
        for i in T.Parallel(64):
            Y[bx * 64 + i] = X[bx * 64 + i]
    return Y


def compiled_gradient() -> tuple[float, bool]:
    """The gradient of ``same`` in a freshly compiled region, and whether a cache had its graph."""
    torch._dynamo.reset()
    before = counters["aot_autograd"]["autograd_cache_hit"]
    x = torch.ones(8, requires_grad=True)
    torch.compile(lambda v: same(v), fullgraph=True)(x).sum().backward()
    return x.grad[0].item(), counters["aot_autograd"]["autograd_cache_hit"] > before


def test_an_edited_gradient_is_compiled_anew() -> None:
    for factor, is_cached in ((3.0, False), (3.0, True), (5.0, False), (3.0, True)):
        same.register_autograd(lambda ctx, grad, factor=factor: scaled(grad, factor))
        assert compiled_gradient() == (factor, is_cached)


def marks(program: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, str]:
    torch._dynamo.reset()
    torch.compile(lambda v: program(v), fullgraph=True, backend="eager")(torch.ones(8))
    return dict(torch._inductor.config.unsafe_marked_cacheable_functions)


def test_edited_shapes_and_dtypes_are_other_graphs() -> None:
    def edited(extent: int, dtype: str) -> str:
        @tileops.jit(name=f"cache_edited_{extent}_{dtype}")
        def program(X):
            N = T.dynamic("N")
            X: T.Tensor((N,), T.float32)
            Y = T.empty((N * extent,), dtype)
            with T.Kernel(T.ceildiv(N, 64)) as bx:
                for i in T.Parallel(64):
                    Y[bx * 64 + i] = X[bx * 64 + i]
            return Y

        found = marks(program)
        return next(found[name] for name in found if program.op.name() in name)

    kinds = [(1, "float32"), (2, "float32"), (1, "float64")]
    assert len({edited(*kind) for kind in kinds}) == 3


def helper(x: float) -> float:
    return x * 2


def other_helper(x: float) -> float:
    return x * 3


def through(function: Callable[[float], float]) -> Callable[[float], float]:
    return lambda x: function(x)


def by_name(text: str, **names: object) -> object:
    space = {"__name__": "edited", **names}
    exec(text, space)
    return space["f"]


def module_with(function: object) -> ModuleType:
    module = ModuleType("of_helpers")
    module.helper = function  # type: ignore[attr-defined]
    return module


GLOBAL = "def f(x):\n    return g(x)\n"
MEMBER = "def f(x):\n    return m.helper(x)\n"
PAIRS: dict[str, tuple[object, object]] = {
    "code": (lambda x: x * 2, lambda x: x / 2),
    "a constant": (lambda x: x * 2, lambda x: x * 3),
    "a default": (lambda x, y=2: x * y, lambda x, y=3: x * y),
    "a keyword's default": (lambda x, *, y=2: x * y, lambda x, *, y=3: x * y),
    "a closure": (through(helper), through(other_helper)),
    "a global": (by_name(GLOBAL, g=helper), by_name(GLOBAL, g=other_helper)),
    "a number": (by_name(GLOBAL, g=2.0), by_name(GLOBAL, g=3.0)),
    "a dtype": (by_name(GLOBAL, g=torch.float16), by_name(GLOBAL, g=torch.float32)),
    "a table": (by_name(GLOBAL, g={"a": 1}), by_name(GLOBAL, g={"a": 2})),
    "a function of a module": (
        by_name(MEMBER, m=module_with(helper)),
        by_name(MEMBER, m=module_with(other_helper)),
    ),
    "an inner function": (
        lambda x: (lambda: x * 2)(),
        lambda x: (lambda: x * 3)(),
    ),
    "a partial": (functools.partial(helper, 1), functools.partial(helper, 2)),
    "a function of torch": (by_name(GLOBAL, g=torch.cat), by_name(GLOBAL, g=torch.stack)),
    "an op of torch": (
        by_name(GLOBAL, g=torch.ops.aten.sin),
        by_name(GLOBAL, g=torch.ops.aten.cos),
    ),
    "a class": (by_name(GLOBAL, g=Path), by_name(GLOBAL, g=ModuleType)),
    "a program": (by_name(GLOBAL, g=scaled), by_name(GLOBAL, g=same)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_functions_are_told_apart_by(name: str) -> None:
    one, other = PAIRS[name]
    assert code_digest(one) != code_digest(other)
    assert code_digest(one) == code_digest(one)


def test_equal_functions_are_equal_wherever_they_stand() -> None:
    text = "def f(x):\n    return g(x) in {'a', 'b', 'c'}\n"
    assert code_digest(by_name(text, g=helper)) == code_digest(by_name("\n\n" + text, g=helper))


def test_what_leads_to_itself_ends() -> None:
    def down(x: int) -> int:
        return down(x - 1) if x else 0

    ring: list[object] = [1]
    ring.append(ring)
    for value in (down, ring, by_name(GLOBAL, g=ring)):
        assert code_digest(value) == code_digest(value)
