"""What a call on the GPU promises: streams, devices, alignment, empty tensors, graphs, threads, names."""

from __future__ import annotations

import threading

import pytest
import torch

import tileops
from examples import elementwise_add, matmul
from tests.programs.cases import add_reference, matmul_reference, matmul_relu_reference
from tileops.errors import ArgumentError, CompileMissError


def randn(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=dtype)


def within(out: torch.Tensor, reference: tuple[torch.Tensor, torch.Tensor]) -> bool:
    value, bound = reference
    return bool(((out.cpu().double() - value).abs() <= bound).all())


def test_the_op_is_the_function() -> None:
    a, b = randn(96, 64), randn(64, 80)
    out = matmul.matmul_relu(a, b)
    assert torch.equal(torch.ops.tileops.matmul_relu(a, b), out)
    assert within(out, matmul_relu_reference(a.cpu(), b.cpu()))


def test_torch_compile_equals_eager() -> None:
    a, b = randn(96, 64), randn(64, 80)

    def model(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return matmul.matmul_relu(x * 2, y).sum(0)

    # Inductor may sum in another order and in float32: one float16 rounding of a sum of 96 values apart.
    got, expected = torch.compile(model, fullgraph=True)(a, b), model(a, b)
    assert torch.allclose(got, expected, rtol=2.0**-9, atol=2.0**-9 * float(expected.abs().max()))


def test_opcheck() -> None:
    torch.library.opcheck(torch.ops.tileops.matmul_relu.default, (randn(64, 32), randn(32, 48)))
    torch.library.opcheck(
        torch.ops.tileops.add.default,
        (randn(100, dtype=torch.float32), randn(100, dtype=torch.float32)),
    )


def test_dynamic_sizes_need_at_most_two_kernels() -> None:
    before = tileops.stats()["compiles"] + tileops.stats()["disk_hits"]
    for m, n, k in (
        (16, 16, 16),
        (17, 33, 40),
        (128, 64, 96),
        (1, 1, 1),
        (200, 300, 50),
        (64, 64, 64),
    ):
        a, b = randn(m, k), randn(k, n)
        out = matmul.matmul_dynamic(a, b, block_K=64)
        assert within(out, matmul_reference(a.cpu(), b.cpu())), (m, n, k)
    assert tileops.stats()["compiles"] + tileops.stats()["disk_hits"] - before <= 2


@pytest.mark.parametrize("offset", [0, 1, 2, 4, 5])
def test_pointers_of_any_alignment(offset: int) -> None:
    n = 5000
    x, y = (randn(n + 8, dtype=torch.float32)[offset : offset + n] for _ in range(2))
    assert within(elementwise_add.add(x, y), add_reference(x.cpu(), y.cpu()))


def test_a_misaligned_half_precision_matrix() -> None:
    a = randn(64 * 64 + 1)[1:].view(64, 64)
    b = randn(64, 64)
    assert a.data_ptr() % 16 == 2
    assert within(matmul.matmul_relu(a, b), matmul_relu_reference(a.cpu(), b.cpu()))


def test_empty_tensors_launch_nothing() -> None:
    launches = tileops.stats()["launches"]
    out = elementwise_add.add(randn(0, dtype=torch.float32), randn(0, dtype=torch.float32))
    assert out.shape == (0,)
    assert tileops.stats()["launches"] == launches


def test_an_empty_inner_dimension_gives_zeros() -> None:
    out = matmul.matmul_dynamic(randn(64, 0), randn(0, 64))
    assert torch.equal(out, torch.zeros_like(out))


def test_a_side_stream_is_used() -> None:
    stream = torch.cuda.Stream()
    x, y = (randn(1 << 20, dtype=torch.float32) for _ in range(2))
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        late = x * 2
        out = elementwise_add.add(late, y)
    stream.synchronize()
    assert torch.equal(out, x * 2 + y)


def test_a_captured_graph_replays_on_new_data() -> None:
    x, y = (randn(4096, dtype=torch.float32) for _ in range(2))
    elementwise_add.add(x, y)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = elementwise_add.add(x, y)
    for _ in range(10):
        x.normal_()
        graph.replay()
        assert torch.equal(out, x + y)


def test_a_first_call_inside_a_capture_says_what_to_do() -> None:
    x, y = (randn(256, dtype=torch.float32) for _ in range(2))
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(CompileMissError, match="warm"), torch.cuda.graph(graph):
        elementwise_add.add(x, y, block_N=64)
    assert torch.equal(elementwise_add.add(x, y, block_N=64), x + y)


def test_sixteen_threads_make_the_first_call() -> None:
    x, y = (randn(1000, dtype=torch.float32) for _ in range(2))
    before = tileops.stats()
    results: list[torch.Tensor] = []
    barrier = threading.Barrier(16)

    def work() -> None:
        barrier.wait()
        results.append(elementwise_add.add(x, y, block_N=32))

    threads = [threading.Thread(target=work) for _ in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(results) == 16
    assert all(torch.equal(r, x + y) for r in results)
    after = tileops.stats()
    assert after["compiles"] + after["disk_hits"] - before["compiles"] - before["disk_hits"] == 1
    assert after["loads"] - before["loads"] == 1


def test_tensors_on_two_kinds_of_device_are_refused() -> None:
    x = randn(8, dtype=torch.float32)
    with pytest.raises(ArgumentError, match="device"):
        elementwise_add.add(x, x.cpu())


def test_profilers_show_the_name_of_the_op() -> None:
    x, y = (randn(64, dtype=torch.float32) for _ in range(2))
    elementwise_add.add(x, y)
    activities = [torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profile:
        elementwise_add.add(x, y)
        torch.cuda.synchronize()
    names = [event.key for event in profile.key_averages()]
    assert any(name == "add" for name in names), names
