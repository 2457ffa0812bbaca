"""Two GPUs of one host: what is on the second one works as on the first, whichever is current."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

import tileops
import tileops.language as T
from tests.op import differentiable
from tests.programs import samples
from tileops.errors import CompileMissError

pytestmark = [pytest.mark.gpu, pytest.mark.two_gpus]
DEVICES = ("cuda:0", "cuda:1")


def fresh(name: str) -> Any:
    """A program that no other test has called; it has no ``T.const`` sizes."""

    @tileops.jit(name=name)
    def program(X, factor: float = 2.0, block: int = 128):
        N = T.dynamic("N")
        X: T.Tensor((N,), T.float32)
        Y = T.empty((N,), T.float32)
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            for i in T.Parallel(block):
                Y[bx * block + i] = X[bx * block + i] * factor
        return Y

    return program


def test_an_image_for_each_device_and_one_compile() -> None:
    program = fresh("two_gpus_images")
    inputs = [torch.randn(1024, device=device) for device in DEVICES]
    before = tileops.stats()
    for _ in range(2):
        for x in inputs:
            assert torch.equal(program(x), x * 2)
    after = tileops.stats()
    assert after["loads"] - before["loads"] == 2
    made = sum(after[k] - before[k] for k in ("compiles", "disk_hits"))
    assert made == 1
    program.unload()
    for x in inputs:
        assert torch.equal(program(x), x * 2)
    assert tileops.stats()["loads"] - after["loads"] == 2
    assert tileops.stats()["compiles"] == after["compiles"]


@pytest.mark.parametrize("current", [0, 1])
@pytest.mark.parametrize("device", DEVICES)
def test_any_device_with_another_current(device: str, current: int) -> None:
    with torch.cuda.device(current):
        x, y = (torch.randn(100, device=device) for _ in range(2))
        assert samples.axpy(x, y, 1.0).device == torch.device(device)
        assert torch.equal(samples.axpy(x, y, 1.0), x + y)
        into = y.clone()
        samples.add_into(x, into)
        assert torch.equal(into, y + x)
        assert torch.equal(samples.lazy_add(100)(x, y), x + y)
        made = samples.counted(7, device=device)
        assert made.device == torch.device(device)
        assert made.tolist() == list(range(7))
        assert samples.counted(7, device="cuda").device == torch.device("cuda", current)
        assert torch.cuda.current_device() == current


def test_the_current_stream_of_each_device() -> None:
    streams = [torch.cuda.Stream(device) for device in DEVICES]
    inputs = [torch.randn(1 << 20, device=device) for device in DEVICES]
    for device in DEVICES:
        torch.cuda.synchronize(device)
    with torch.cuda.stream(streams[1]), torch.cuda.stream(streams[0]):
        outs = []
        for x in inputs:
            with torch.cuda.device(x.device):
                torch.cuda._sleep(20_000_000)
            outs.append(samples.axpy(x * 2, x, 1.0))
    for stream in streams:
        stream.synchronize()
    for x, out in zip(inputs, outs, strict=True):
        assert torch.equal(out, x * 2 + x)


def test_the_first_call_of_a_thread_is_on_the_second_device() -> None:
    program = fresh("two_gpus_thread")
    x = torch.randn(1000, device="cuda:1")
    found: list[object] = []

    def work() -> None:
        try:
            found.append((torch.equal(program(x), x * 2), torch.cuda.current_device()))
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [(True, 0)]


def test_gradients_on_the_second_device() -> None:
    """The backward thread of a device has that device current, and no call has been there yet."""
    a, b = (torch.randn(5, 70, device="cuda:1", requires_grad=True) for _ in range(2))
    differentiable.scaled_product(a, b, 2.0).sum().backward()
    assert torch.equal(a.grad, 2 * b.detach())
    assert torch.equal(b.grad, 2 * a.detach())
    assert torch.cuda.current_device() == 0


def test_a_graph_on_the_second_device() -> None:
    program = fresh("two_gpus_graph")
    with torch.cuda.device(1):
        x = torch.randn(1024, device="cuda:1")
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with pytest.raises(CompileMissError, match="warm"), torch.cuda.graph(graph):
            program(x)
        # Loaded on the first device, not on this one: as good as a miss.
        y = torch.randn(1024, device="cuda:0")
        assert torch.equal(program(y), y * 2)
        graph = torch.cuda.CUDAGraph()
        with pytest.raises(CompileMissError, match="cuda:1"), torch.cuda.graph(graph):
            program(x)
        assert torch.equal(program(x), x * 2)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = program(x)
            with pytest.raises(tileops.ArgumentError, match="captured"):
                program.unload()
        for _ in range(5):
            x.normal_()
            graph.replay()
            assert torch.equal(out, x * 2)
