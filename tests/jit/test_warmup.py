"""warmup: afterwards calls compile and load nothing, whatever their alignment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import tileops
import tileops.language as T
from tileops import counters, option
from tileops.cache import store
from tileops.errors import ArgumentError, ArgumentTypeError, CompileMissError
from tileops.target import host_cpu_level


@tileops.jit
def warm_scaled(A, factor: float = 2.0, block: int = 64):
    N = T.const("N")
    A: T.Tensor((N,), T.float32)
    B = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block), threads=64) as bx:
        for i in T.Parallel(block):
            B[bx * block + i] = A[bx * block + i] * factor
    return B


@tileops.jit
def warm_any(A, block: int = 64):
    N = T.dynamic("N")
    A: T.Tensor((N,), T.float32)
    B = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block), threads=64) as bx:
        for i in T.Parallel(block):
            B[bx * block + i] = A[bx * block + i] + 1.0
    return B


@tileops.jit(out_idx=[-1])
def warm_lazy(N, block=64):
    @T.prim_func
    def main(A: T.Tensor((N,), T.float32), B: T.Tensor((N,), T.float32)):
        with T.Kernel(T.ceildiv(N, block), threads=64) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] - 1.0

    return main


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    store().clear_memory()
    with option.cache_dir(tmp_path):
        counters.stats(reset=True)
        yield tmp_path
    store().clear_memory()


def _two(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """An aligned vector, and one whose address is no multiple of 16."""
    base = torch.randn(count + 1)
    return torch.randn(count), base[1:]


def test_after_it_strict_mode_allows_every_alignment() -> None:
    lazy = warm_lazy.func(103)
    made = tileops.warmup([(warm_scaled, {"N": 100}), warm_any, (warm_lazy, 102), lazy])
    assert made == 8
    before = counters.stats(reset=True)
    assert (before["compiles"], before["loads"]) == (4, 8)  # on the CPU one code serves both forms
    assert {"trace", "key", "lookup", "generate", "compile", "store", "load"} <= set(before["ms"])  # type: ignore[call-overload]
    with option.strict():
        for x in _two(100):
            assert torch.equal(warm_scaled(x), x * 2.0)
        for count in (1, 64, 77):
            for x in _two(count):
                assert torch.equal(warm_any(x), x + 1.0)
        for x in _two(102):
            assert torch.equal(warm_lazy(102)(x), x - 1.0)
    after = counters.stats()
    assert (after["compiles"], after["loads"]) == (0, 0)


def test_strict_mode_still_refuses_what_was_not_warmed() -> None:
    tileops.warmup([(warm_scaled, {"N": 104})])
    with option.strict(), pytest.raises(CompileMissError, match=r"warm_scaled.*N=105.*key"):
        warm_scaled(torch.randn(105))


@pytest.mark.parametrize("how", ["tensor", "meta", "keyword"])
def test_sizes_may_come_from_tensors(how: str) -> None:
    count = {"tensor": 110, "meta": 111, "keyword": 112}[how]
    item = {
        "tensor": (warm_scaled, torch.empty(count)),
        "meta": (warm_scaled, torch.empty(count, device="meta")),
        "keyword": (warm_scaled, {"N": count}),
    }[how]
    tileops.warmup([item])
    counters.stats(reset=True)
    x = torch.randn(count)
    assert torch.equal(warm_scaled(x), x * 2.0)
    assert counters.stats()["compiles"] == 0


def test_compile_time_values_are_those_of_the_call() -> None:
    tileops.warmup([(warm_scaled, {"N": 120, "factor": 5.0, "block": 32})])
    counters.stats(reset=True)
    x = torch.randn(120)
    with option.strict():
        assert torch.equal(warm_scaled(x, factor=5.0, block=32), x * 5.0)
    with option.strict(), pytest.raises(CompileMissError):
        warm_scaled(x, factor=6.0)


def test_a_gpu_cache_is_filled_without_a_gpu(folder: Path) -> None:
    items = [(warm_scaled, {"N": 130}), warm_any, (warm_lazy, 131), warm_lazy.func(132)]
    assert tileops.warmup(items, target="cuda:sm_90") == 8
    stats = counters.stats(reset=True)
    assert (stats["compiles"], stats["loads"]) == (8, 0)
    assert len(list(folder.glob("programs/*/launch0.cubin"))) == 8
    store().clear_memory()
    assert tileops.warmup(items, target="cuda:sm_90") == 8
    assert counters.stats()["compiles"] == 0


def test_a_kernel_that_exists_gets_its_other_form() -> None:
    kernel = tileops.compile(warm_lazy.get_tir(140), target="cuda:sm_80")
    assert counters.stats(reset=True)["compiles"] == 1
    tileops.warmup([kernel])
    assert counters.stats()["compiles"] == 1


def test_wrong_items_are_named() -> None:
    with pytest.raises(ArgumentTypeError, match="got int"):
        tileops.warmup([3])
    with pytest.raises(ArgumentTypeError, match="takes no arguments"):
        tileops.warmup([(warm_lazy.func(150), 3)])
    with pytest.raises(ArgumentError, match="'N' is not given"):
        tileops.warmup([warm_scaled])


def test_hooks_and_log_tell_each_compile_and_why(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[counters.CompileEvent] = []
    remove = tileops.on_compile(seen.append)
    try:
        with caplog.at_level("INFO", logger="tileops"):
            for count in (160, 161):
                tileops.warmup([(warm_scaled, {"N": count})], target="cuda:sm_90", num_workers=1)
    finally:
        remove()
    lines = [m for m in caplog.messages if m.startswith("compiled ")]
    assert len(lines) == len(seen) == 4
    assert [dict(event.sizes) for event in seen] == [{"N": 160}] * 2 + [{"N": 161}] * 2
    assert [event.why.partition("; ")[2] for event in seen] == [
        "first compile of this op",
        "changed: specialization",
        "changed: ir",
        "changed: specialization",
    ]


OTHER = "cpu:x86-64-v3" if host_cpu_level() != "x86-64-v3" else "cpu:x86-64-v2"


@pytest.mark.skipif(not host_cpu_level().startswith("x86"), reason="levels of x86 processors")
def test_a_call_runs_its_own_target_whatever_target_is_warmed_up() -> None:
    """The code for another target is stored, and calls run what they ask for."""
    pinned = tileops.jit(warm_scaled.func, name="warm_pinned", target="cpu:x86-64-v2")
    free = tileops.jit(warm_scaled.func, name="warm_free")
    tileops.warmup([(pinned, {"N": 40}), (free, {"N": 40})], target=OTHER)
    a = torch.randn(40)
    with option.strict():
        assert torch.equal(pinned(a), a * 2)
        assert torch.equal(free(a), a * 2)
    assert targets_of(pinned) == {"cpu:x86-64-v2"}
    assert targets_of(free) == {f"cpu:{host_cpu_level()}"}
    free.unload()
    with option.strict():  # it is in the cache
        free.compile(N=40)
        tileops.compile(free.get_tir(N=40), target=OTHER)


def targets_of(program: tileops.JITImpl) -> set[str]:
    return {target for _, (target, *_) in program._eager.op._entries}
