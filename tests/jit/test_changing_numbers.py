"""Python numbers that change between calls of a compiled region: never the value of before."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

import tileops
import tileops.language as T

Region = Callable[[torch.Tensor, float], torch.Tensor]


@tileops.jit(name="changing_scaled")
def scaled(
    A, s: T.float32, n: T.int32 = 1, flag: T.bool = False,
    factor: float = 1.0, block: int = 64, mode: str = "a",
):  # fmt: skip
    N = T.dynamic("N")
    A: T.Tensor((N,), T.float32)
    B = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block), threads=64) as bx:
        for i in T.Parallel(block):
            B[bx * block + i] = (
                A[bx * block + i] * s * T.cast(n, T.float32) * factor
                + T.if_then_else(flag, 100.0, 0.0)
                + (1.0 if mode == "a" else 2.0)
            )
    return B


@tileops.jit(out_idx=-1)
def lazy_scaled(N):
    @T.prim_func
    def main(A: T.Tensor((N,), T.float32), s: T.float32, n: T.int32, B: T.Tensor((N,), T.float32)):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(N):
                B[i] = A[i] * s * T.cast(n, T.float32)

    return main


OP = torch.ops.tileops.changing_scaled
KERNEL = lazy_scaled(4)
HELD = SimpleNamespace(value=1.0)
BY_KEY = {"value": 1.0}
# Each uses the float in torch's arithmetic too, which is what keeps it symbolic.
REGIONS: dict[str, Region] = {
    "a sum": lambda x, s: scaled(x * s, s + 1.0),
    "used again": lambda x, s: scaled(x, s * 2) * s,
    "an integer of it": lambda x, s: scaled(x * s, 2.0, int(s * 2)),
    "a compile-time integer of it": lambda x, s: scaled(x * s, 2.0, block=32 * int(s * 2)),
    "a maximum": lambda x, s: scaled(x * s, max(s, 2.0)),
    "a compile-time float": lambda x, s: scaled(x * s, 1.0, factor=s + 1),
    "a comparison": lambda x, s: scaled(x * s, 1.0, 1, s > 1.0),
    "text chosen by it": lambda x, s: scaled(x * s, 1.0, mode="a" if s > 1 else "b"),
    "two calls": lambda x, s: scaled(x * s, s + 1.0) + scaled(x * s, s * 2),
    "an attribute": lambda x, s: scaled(x * HELD.value, HELD.value + 1.0),
    "a value of a dict": lambda x, s: scaled(x * BY_KEY["value"], BY_KEY["value"] + 1.0),
    "the op": lambda x, s: OP(x * s, s + 1.0, 1, False),
    "the op, by keyword": lambda x, s: OP(x * s, s=s + 1.0, n=1, flag=False),
    "the op, an integer": lambda x, s: OP(x * s, 1.0, int(s * 2), False),
    "the op, a compile-time float": lambda x, s: OP(x * s, 1.0, 1, False, factor=s),
    "a kernel": lambda x, s: KERNEL(x * s, s + 1.0, 1),
    "a kernel, an integer": lambda x, s: KERNEL(x * s, 1.0, int(s * 2)),
}


@pytest.fixture(autouse=True)
def _own_graphs(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault is one of the cache of graphs on disk, which earlier runs must not have filled."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()


def outcomes(region: Region, run: Region) -> list[float]:
    found = []
    for s in (0.5, 1.5, 2.5):
        HELD.value = BY_KEY["value"] = s
        found.append(run(torch.ones(4), s)[0].item())
    return found


@pytest.mark.parametrize("name", REGIONS)
def test_a_float(name: str) -> None:
    region = REGIONS[name]
    compiled = torch.compile(region, fullgraph=True)
    assert outcomes(region, compiled) == outcomes(region, region)


@pytest.mark.parametrize("is_dynamic", [True, False])
@pytest.mark.parametrize("name", ["a sum", "an integer of it", "the op"])
def test_a_float_under_each_setting(name: str, is_dynamic: bool) -> None:
    region = REGIONS[name]
    compiled = torch.compile(region, fullgraph=False, dynamic=is_dynamic)
    assert outcomes(region, compiled) == outcomes(region, region)


def test_values_in_another_order() -> None:
    """What one process leaves in the cache of graphs is not what another finds under its key."""
    region = REGIONS["a sum"]
    for values in ((0.5, 2.5, 1.5), (0.5, 1.5, 2.5)):
        torch._dynamo.reset()
        compiled = torch.compile(region, fullgraph=True)
        x = torch.ones(4)
        assert [compiled(x, s)[0].item() for s in values] == [
            region(x, s)[0].item() for s in values
        ]


@pytest.mark.parametrize("values", [(1, 2, 3, 4), (True, False, True), ("a", "b", "a")])
def test_other_values(values: tuple[object, ...]) -> None:
    def region(x: torch.Tensor, value: object) -> torch.Tensor:
        if isinstance(value, str):
            return scaled(x * 2, 1.0, mode=value)
        if isinstance(value, bool):
            return scaled(x * value, 1.0, 1, value)
        return scaled(x * value, 1.0, value, block=32 * value)

    compiled = torch.compile(region, fullgraph=True)
    x = torch.ones(4)
    for value in values:
        assert torch.equal(compiled(x, value), region(x, value))
