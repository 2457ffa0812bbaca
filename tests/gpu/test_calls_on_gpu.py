"""Calls as users make them, on the GPU (see ``tests/op/calls_on``), and under CUDA graph capture."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import tileops
import tileops.language as T
from tests.op import backward_first, calls_on
from tests.programs import samples
from tileops.errors import ArgumentError, CompileMissError

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path) -> Iterator[None]:
    torch._dynamo.reset()
    with tileops.option.cache_dir(tmp_path / "cache"):
        yield


@pytest.mark.parametrize("case", calls_on.CASES, ids=lambda case: case.__name__)
def test_gpu(case: Callable[[str], None]) -> None:
    case("cuda")


def fresh(name: str):
    """A program that no other test has called."""

    @tileops.jit(name=name)
    def program(X, factor: float = 3.0, block: int = 128):
        N = T.const("N")
        X: T.Tensor((N,), T.float32)
        Y = T.empty((N,), T.float32)
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            for i in T.Parallel(block):
                Y[bx * block + i] = X[bx * block + i] * factor
        return Y

    return program


def test_the_first_call_ever_inside_a_capture_says_warm_up_and_harms_nothing() -> None:
    program = fresh("capture_first")
    x = torch.randn(1000, device="cuda")
    torch.cuda.synchronize()
    before = tileops.stats()
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(CompileMissError, match="warm") as caught, torch.cuda.graph(graph):
        program(x)
    assert isinstance(caught.value, RuntimeError)
    after = tileops.stats()
    assert (after["compiles"], after["loads"]) == (before["compiles"], before["loads"])
    assert torch.equal(program(x), x * 3)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = program(x)
    for _ in range(100):
        x.normal_()
        graph.replay()
        assert torch.equal(out, x * 3)


def test_capture_directly_after_a_warm_up_in_strict_mode() -> None:
    program, kernel = fresh("capture_warmed"), samples.lazy_add(512)
    made = tileops.warmup(
        [(program, {"N": 1000}), calls_on.half, calls_on.matmul, kernel], target="cuda"
    )
    assert made == 8
    x = torch.randn(1000, device="cuda")
    h = torch.randn(2000, device="cuda").half()
    a, b = (torch.randn(64, 64, device="cuda").half() for _ in range(2))
    v = torch.randn(513, device="cuda")
    torch.cuda.synchronize()
    before = tileops.stats()
    graph = torch.cuda.CUDAGraph()
    with tileops.option.strict(), torch.cuda.graph(graph):
        outs = [
            program(x),
            calls_on.half(h[1:], h[1:]),
            calls_on.matmul(a, b),
            kernel(v[1:], v[1:]),
            kernel(v[:512], v[:512]),
        ]
    after = tileops.stats()
    assert (after["compiles"], after["loads"]) == (before["compiles"], before["loads"])
    for _ in range(3):
        for tensor in (x, h, a, b, v):
            tensor.normal_()
        graph.replay()
        assert torch.equal(outs[0], x * 3)
        assert torch.equal(outs[1], h[1:] + h[1:])
        # Sums of 64 exact products of float16 in float32, each sum at most 2^10 in size.
        torch.testing.assert_close(outs[2], a.float() @ b.float(), rtol=0, atol=64 * 2.0**-13)
        assert torch.equal(outs[3], v[1:] * 2)
        assert torch.equal(outs[4], v[:512] * 2)


CAPTURED_FROM_A_BUNDLE = """
import sys, torch, tileops
from tests.programs import samples
torch.zeros(1, device="cuda")
with tileops.option.strict():
    tileops.warmup([samples.axpy], target="cuda")
    x = torch.randn(1000, device="cuda")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = torch.ops.tileops.sample_axpy(x, x, 1.0)
x.normal_()
graph.replay()
torch.cuda.synchronize()
assert torch.equal(y, x + x)
print("good", tileops.stats()["compiles"])
"""


def test_what_was_built_before_and_loaded_is_captured_directly(tmp_path: Path) -> None:
    major, minor = torch.cuda.get_device_capability()
    bundle = tileops.bundle(tmp_path / "bundle", samples.axpy, f"cuda:sm_{major}{minor}")
    environment = os.environ | {
        "PYTHONPATH": str(backward_first.ROOT),
        "TILEOPS_BUNDLE": str(bundle),
        "TILEOPS_CACHE_DIR": str(tmp_path / "none"),
    }
    done = subprocess.run(
        [sys.executable, "-c", CAPTURED_FROM_A_BUNDLE],
        env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == "good 0", done.stderr


def test_the_first_launch_of_a_process_in_backward(tmp_path: Path) -> None:
    backward_first.check("cuda", tmp_path / "full")


@pytest.mark.two_gpus
def test_the_device_of_the_tensors_and_not_the_current_one() -> None:
    torch.cuda.set_device(0)
    program = fresh("device_of_tensors")
    here, there = (torch.randn(1000, device=f"cuda:{n}") for n in range(2))
    assert torch.equal(program(here), here * 3)
    assert torch.equal(calls_on.rows(here.view(10, 100)), here.view(10, 100) + 1)
    for call in (program, torch.compile(program, fullgraph=True, backend="aot_eager")):
        out = call(there)
        assert out.device == there.device
        assert torch.equal(out, there * 3)
        assert torch.cuda.current_device() == 0
    assert torch.equal(calls_on.rows(there.view(10, 100)), there.view(10, 100) + 1)
    with torch.cuda.device(1):
        assert torch.equal(program(here), here * 3)
        assert torch.cuda.current_device() == 1


@pytest.mark.two_gpus
def test_tensors_of_two_gpus_are_named() -> None:
    here, there = (torch.randn(8, device=f"cuda:{n}") for n in range(2))
    for call in (samples.axpy, samples.axpy.op):
        with pytest.raises(ArgumentError, match=r"'X' on cuda:0 and 'Y' on cuda:1") as caught:
            call(here, there, 1.0)
        assert isinstance(caught.value, ValueError)
    assert torch.cuda.current_device() == 0


@pytest.mark.two_gpus
def test_sixteen_threads_on_two_gpus_compile_once_and_load_once_each() -> None:
    import threading

    program = fresh("two_gpus_sixteen_threads")
    inputs = [torch.randn(160, device=f"cuda:{n % 2}") for n in range(16)]
    gate = threading.Barrier(16)
    found: list[object] = []

    def work(x: torch.Tensor) -> None:
        gate.wait()
        try:
            found.append(torch.equal(program(x), x * 3))
        except Exception as error:
            found.append(error)

    before = tileops.stats()
    threads = [threading.Thread(target=work, args=(x,)) for x in inputs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after = tileops.stats()
    assert found == [True] * 16
    assert after["compiles"] - before["compiles"] == 1
    assert after["loads"] - before["loads"] == 2
