"""Unloading on the GPU: modules go, kernels in flight finish, the next call loads; not while capturing."""

from __future__ import annotations

import threading

import pytest
import torch

import tileops
from tests.programs import samples

pytestmark = pytest.mark.gpu


def test_the_next_call_loads_and_compiles_nothing() -> None:
    x, y = (torch.randn(1 << 20, device="cuda") for _ in range(2))
    expected = samples.axpy(x, y, 1.0)
    free = tileops.stats()
    torch.cuda._sleep(50_000_000)
    out = samples.axpy(x, y, 1.0)  # waits behind the sleep while it is unloaded
    samples.axpy.unload()
    assert torch.equal(out, expected)
    assert torch.equal(samples.axpy(x, y, 1.0), expected)
    after = tileops.stats()
    assert after["compiles"] == free["compiles"]
    assert after["loads"] - free["loads"] == 1


def test_beside_threads_that_call() -> None:
    stop = threading.Event()
    failures: list[BaseException] = []

    def work(n: int) -> None:
        x = torch.randn(n, device="cuda")
        try:
            while not stop.is_set():
                assert torch.equal(samples.axpy(x, x, 1.0), x + x)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(1000 + n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        samples.axpy.unload()
    stop.set()
    for thread in threads:
        thread.join(timeout=120)
    assert not failures, failures[0]
    assert not any(thread.is_alive() for thread in threads)


def test_not_while_a_graph_is_captured() -> None:
    x = torch.randn(1024, device="cuda")
    samples.axpy(x, x, 1.0)
    kernel = samples.lazy_add(64)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = samples.axpy(x, x, 1.0)
        for unload in (samples.axpy.unload, kernel.unload):
            with pytest.raises(tileops.ArgumentError, match="captured"):
                unload()
    x.normal_()
    graph.replay()
    assert torch.equal(out, x + x)
