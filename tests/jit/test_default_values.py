"""An argument given its default's value is one that is left out: one trace, one kernel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tileops
import tileops.language as T


def twice(x: object) -> object:
    return x * 2  # type: ignore[operator]


@tileops.jit(name="default_values")
def program(
    X, block: int = 64, dtype: str = "float32", factor: float = 2.0, flip: bool = False,
    offsets: tuple[int, ...] = (1, 2), act=twice,
):  # fmt: skip
    N = T.dynamic("N")
    X: T.Tensor((N,), dtype)
    Y = T.empty((N,), dtype)
    with T.Kernel(T.ceildiv(N, block), threads=64) as bx:
        for i in T.Parallel(block):
            j = bx * block + i
            Y[j] = act(X[j]) * factor * (-1 if flip else 1) + offsets[0] + offsets[1]
    return Y


X = torch.randn(100)
OP = torch.ops.tileops.default_values
SAME: dict[str, Callable[[], Any]] = {
    "int by keyword": lambda: program(X, block=64),
    "int by position": lambda: program(X, 64),
    "text": lambda: program(X, dtype="float32"),
    "a dtype of torch": lambda: program(X, dtype=torch.float32),
    "float": lambda: program(X, factor=2.0),
    "bool": lambda: program(X, flip=False),
    "a tuple": lambda: program(X, offsets=(1, 2)),
    "a function": lambda: program(X, act=twice),
    "all": lambda: program(X, 64, "float32", 2.0, False, (1, 2), twice),
    "the op": lambda: OP(X, block=64, dtype="float32", factor=2.0, flip=False, offsets=[1, 2]),
    "the overload": lambda: OP.default(X, block=64),
    "compiled": lambda: torch.compile(
        lambda x: program(x, block=64, factor=2.0), fullgraph=True, backend="aot_eager"
    )(X),
}


def work() -> dict[str, int]:
    stats = tileops.stats()
    return {name: stats[name] for name in ("compiles", "disk_hits", "loads")}


@pytest.mark.parametrize("name", SAME)
def test_no_second_kernel(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from tileops import frontend

    expected, before = program(X), work()
    traced: list[str] = []
    trace = frontend.trace

    def counted(*args: Any, **kwargs: Any) -> Any:
        traced.append(name)
        return trace(*args, **kwargs)

    monkeypatch.setattr(frontend, "trace", counted)
    assert torch.equal(SAME[name](), expected)
    assert (work(), traced) == (before, [])


def test_another_value_is_another_kernel() -> None:
    program(X)
    before = work()["compiles"] + work()["disk_hits"]
    for values in ({"block": 32}, {"factor": -0.0}, {"flip": True}, {"offsets": (2, 1)}):
        program(X, **values)
    assert work()["compiles"] + work()["disk_hits"] == before + 4
    assert torch.equal(program(X, factor=0.0), torch.full((100,), 3.0))


def test_strict_mode_after_a_call_with_the_defaults_value() -> None:
    warmed = tileops.jit(name="default_values_warm")(program.func)
    warmed(X, block=64)
    with tileops.option.strict():
        assert torch.equal(warmed(X), program(X))
        assert torch.equal(torch.ops.tileops.default_values_warm(X, factor=2.0), program(X))


def test_a_bundle(tmp_path: Path) -> None:
    folder = tileops.bundle(tmp_path / "b", program, "cpu")
    ops = tileops.load_bundle(folder, namespace="default_values_bundled")
    (op,) = ops.values()
    assert torch.equal(op(X, block=64, dtype="float32", offsets=[1, 2]), program(X))
    fake = torch.compile(lambda x: op(x, block=64), fullgraph=True, backend="aot_eager")
    assert torch.equal(fake(X), program(X))


def test_a_tuner_takes_a_given_value_for_given(monkeypatch: pytest.MonkeyPatch) -> None:
    tuned = tileops.autotune(configs=[{"block": 32}, {"block": 128}])(
        tileops.jit(name="default_values_tuned")(program.func)
    )
    chosen: list[object] = []
    choose = type(tuned._eager.tuning).choose

    def noted(self: Any, choice: Any) -> Any:
        chosen.append(sorted(choice.given))
        return {"block": 32} if "block" not in choice.given else choose(self, choice)

    monkeypatch.setattr(type(tuned._eager.tuning), "choose", noted)
    for call in (lambda: tuned(X), lambda: tuned(X, block=64)):
        assert torch.equal(call(), program(X))
    assert chosen[0] == []
    assert ["block"] in chosen
