"""Programs and kernels inside torch.compile: no graph break, equal results, few compiles."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch._dynamo.testing import CompileCounter

import tileops
import tileops.language as T
from tests.programs import samples
from tests.programs.samples import vector

BACKENDS = ("eager", "aot_eager", "inductor")


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> None:
    torch._dynamo.reset()


def into_a_new_tensor(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = y * 1
    samples.add_into(x, z)
    return z + x


REGIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "plain": lambda x, y: samples.axpy(x * 2, y, 0.5) + 1,
    "a tunable by name": lambda x, y: samples.axpy(x, y, 0.5, block_N=64),
    "a tunable by position": lambda x, y: samples.axpy(x, y, 0.5, 64),
    "a value to convert": lambda x, y: samples.scaled(x, 3) + y,
    "a dtype of torch": lambda x, y: samples.scaled(x.half(), dtype=torch.float16) + y,
    "a dtype of the language": lambda x, y: samples.scaled(x.half(), dtype=T.float16) + y,
    "a required value": lambda x, y: samples.typed(x, "float32") + y,
    "a bound function": lambda x, y: samples.typed(x, "float32", samples.relu) + y,
    "a size as a scalar": lambda x, y: samples.counted(x.shape[0]) + y,
    "two outputs": lambda x, y: samples.sum_difference(x[None], y[None])[1] * 2,
    "mutation of a new tensor": into_a_new_tensor,
    "a kernel made before": lambda x, y: KERNEL(x, y) * 2,
    "a kernel made inside": lambda x, y: samples.lazy_add(100, 64)(x, y) * 2,
    "a kernel of the tensor's size": lambda x, y: samples.lazy_add(x.shape[0])(x, y) * 2,
    "the op": lambda x, y: torch.ops.tileops.sample_axpy(x, y, 2.0),
}
KERNEL = samples.lazy_add(100, 32)


@pytest.mark.parametrize("name", REGIONS)
def test_equals_eager(name: str) -> None:
    region = REGIONS[name]
    x, y = vector(100), vector(100)
    for backend in BACKENDS[:2]:
        compiled = torch.compile(region, fullgraph=True, backend=backend)
        assert torch.equal(compiled(x, y), region(x, y)), backend


def test_inductor() -> None:
    x, y = vector(100), vector(100)

    def region(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        z = into_a_new_tensor(x, y)
        d, s = samples.sum_difference(z[None], y[None])
        return samples.axpy(x, s[0], 0.5, 64) + 1, d

    compiled = torch.compile(region, fullgraph=True)
    for got, expected in zip(compiled(x, y), region(x, y), strict=True):
        assert torch.equal(got, expected)


def test_mutation_of_an_argument() -> None:
    x, y = vector(100), vector(100)
    expected = x + y

    def region(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        samples.add_into(x, y)
        return y * 2

    out = torch.compile(region, fullgraph=True, backend="aot_eager")(x, y)
    assert torch.equal(y, expected)
    assert torch.equal(out, expected * 2)


def test_dynamic_sizes_compile_at_most_three_times() -> None:
    counter = CompileCounter()
    region = torch.compile(
        lambda x, y: samples.axpy(x, y, 0.5) * 2, fullgraph=True, dynamic=True, backend=counter
    )
    for n in (1, 2, 5, 6, 17, 4096):
        x, y = vector(n), vector(n)
        assert torch.equal(region(x, y), (0.5 * x + y) * 2)
    assert counter.frame_count <= 3


def test_const_sizes_do_not_recompile_the_graph() -> None:
    counter = CompileCounter()
    region = torch.compile(
        lambda x: samples.scaled(x, 2.0) + 1, fullgraph=True, dynamic=True, backend=counter
    )
    for n in (5, 6, 17):
        x = vector(n)
        assert torch.equal(region(x), x * 2 + 1)
    assert counter.frame_count <= 2


def test_a_program_first_called_in_a_region() -> None:
    @tileops.jit(name="compile_first")
    def program(X, dtype):
        N = T.const("N")
        X: T.Tensor((N,), dtype)
        Y = T.empty((N,), dtype)
        with T.Kernel(T.ceildiv(N, 64)) as bx:
            for i in T.Parallel(64):
                Y[bx * 64 + i] = X[bx * 64 + i] * 2
        return Y

    counter = CompileCounter()
    x = vector(50)
    region = torch.compile(lambda x: program(x, "float32") + 1, fullgraph=True, backend=counter)
    for _ in range(3):
        assert torch.equal(region(x), x * 2 + 1)
    assert torch.equal(program(x, "float32"), x * 2)
    assert torch.equal(region(x), x * 2 + 1)
    assert counter.frame_count == 1


def test_export() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return samples.axpy(x, y, 0.5) + 1

    size = torch.export.Dim("n", min=2, max=10_000)
    x, y = vector(100), vector(100)
    exported = torch.export.export(Model(), (x, y), dynamic_shapes=({0: size}, {0: size}))
    assert "sample_axpy" in str(exported.graph)
    x, y = vector(333), vector(333)
    assert torch.equal(exported.module()(x, y), 0.5 * x + y + 1)


def test_a_wrong_shape_is_refused_when_the_region_is_traced() -> None:
    region = torch.compile(lambda x, y: samples.axpy(x, y, 1.0), fullgraph=True, backend="eager")
    with pytest.raises(Exception, match=r"argument \\*'Y\\*'.*expected dimension 0 to be 4"):
        region(vector(4), vector(5))


@tileops.jit(name="compile_sum_of_sizes")
def sum_of_sizes(X, sizes: tuple[int, ...] = (1, 2)):
    N = T.dynamic("N")
    X: T.Tensor((N,), T.float32)
    Y = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, 64)) as bx:
        for i in T.Parallel(64):
            Y[bx * 64 + i] = X[bx * 64 + i] + sizes[0] + sizes[1]
    return Y


@tileops.jit
def lazy_sum_of_sizes(sizes):
    @T.prim_func
    def main(X: T.Tensor((8,), T.float32), Y: T.Tensor((8,), T.float32)):
        with T.Kernel(1):
            for i in T.Parallel(8):
                Y[i] = X[i] + sizes[0] + sizes[1]

    return main


SIZES: list[Callable[[torch.Tensor], object]] = [
    lambda y: y.shape,
    lambda y: y.size(),
    lambda y: (y.shape[0], 5),
    lambda y: [y.shape[0], y.shape[1]],
    lambda y: torch.Size((3, 5)),
]


@pytest.mark.parametrize("is_dynamic", [None, True])
def test_sizes_as_compile_time_values(is_dynamic: bool | None) -> None:
    x, y = torch.zeros(8), torch.zeros(3, 5)
    for sizes in SIZES:
        torch._dynamo.reset()

        def model(x: torch.Tensor, y: torch.Tensor, sizes: object = sizes) -> torch.Tensor:
            out = torch.empty_like(x)
            lazy_sum_of_sizes(sizes(y))(sum_of_sizes(x, sizes=sizes(y)), out)
            return out

        for call in (
            model,
            torch.compile(model, fullgraph=True, dynamic=is_dynamic, backend="eager"),
        ):
            assert call(x, y).tolist() == [16.0] * 8
