"""Arguments that an op writes: values, autograd's version counter, tensors that may not be written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import tileops
import tileops.language as T
from tests.kit import descriptions as d
from tests.runtime import cpu_ops
from tileops.errors import ArgumentError

Build = Callable[..., Path]

INCREMENT = """
TILEOPS_CPU_ENTRY tileops_int32 increment(const TileopsValue* p, tileops_int64 first, tileops_int64 last, char*,
                                          TileopsStatus*) {
  float* x = (float*)p[0].p;
  for (tileops_int64 i = first; i < last; ++i) x[i] += 1.0f;
  return TILEOPS_OK;
}
"""


@pytest.fixture
def increment(build_kernel: Build) -> cpu_ops.CpuOp:
    return cpu_ops.CpuOp(
        d.op(d.fresh_name("increment"), "(Tensor(a!) x) -> ()", [d.arg("x", mutated=True)]),
        lambda _: d.variant(tensors=[d.tensor(0, "x", [d.bind(0)])], sizes=[d.size("N")]),
        lambda request: cpu_ops.entry_for(
            request, host=d.host(["size:0"]), tensor_order=[{"arg": 0}],
            launches=[d.launch("kernel_lib.so", "increment", 0, [d.p_tensor(0)])]),
        build_kernel(INCREMENT),
    )  # fmt: skip


def test_the_argument_is_written_and_its_version_grows(increment: cpu_ops.CpuOp) -> None:
    x = torch.zeros(1000)
    assert increment.call(x) is None
    increment.call(x)
    assert torch.equal(x, torch.full((1000,), 2.0))
    assert x._version == 2


def test_a_view_is_written_in_its_base(increment: cpu_ops.CpuOp) -> None:
    base = torch.zeros(4, 6)
    increment.call(base[2])
    assert torch.equal(base, torch.tensor([0.0, 0.0, 1.0, 0.0])[:, None].expand(4, 6))
    assert base._version == 1


def test_tensors_of_any_number_of_dimensions_count_writes() -> None:
    def fill(X):
        X: T.Tensor(shape, T.float32)
        with T.Kernel(1, threads=32):
            tile = T.alloc_fragment(shape, T.float32)
            T.fill(tile, 3.0)
            T.copy(tile, X)

    for rank in range(1, 9):
        shape = (2,) * rank
        op = tileops.jit(fill, name=d.fresh_name(f"rank_{rank}"))
        x = torch.zeros(shape)
        for version in (1, 2):
            op(x)
            assert x._version == version
            assert torch.equal(x, torch.full(shape, 3.0))


def test_a_scalar_tensor_at_an_address_keeps_its_value() -> None:
    @tileops.jit(name=d.fresh_name("address"), differentiable=False)
    def increment(X: T.ptr):
        with T.Kernel(1, threads=32):
            x = T.make_tensor(X, (1,), T.float32)
            x[0] = x[0] + 1.0

    x = torch.tensor(5.0)
    increment(x)
    assert x.item() == 6.0
    assert x._version == 1
    leaf = torch.tensor(5.0, requires_grad=True)
    with pytest.raises(ArgumentError, match="a leaf that requires grad"):
        increment(leaf)
    assert leaf.item() == 5.0


def test_backward_refuses_a_saved_tensor_that_was_written(increment: cpu_ops.CpuOp) -> None:
    w = torch.ones(3, requires_grad=True)
    x = torch.ones(3)
    y = (w * x).sum()
    increment.call(x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_a_leaf_that_requires_grad_is_refused_unwritten(increment: cpu_ops.CpuOp) -> None:
    x = torch.zeros(5, requires_grad=True)
    with pytest.raises(ArgumentError, match=r"argument 'x': torch allows no in-place write to it"):
        increment.call(x)
    assert torch.equal(x.detach(), torch.zeros(5))
    with torch.no_grad():
        increment.call(x)
    assert torch.equal(x.detach(), torch.ones(5))


def test_inference_tensors(increment: cpu_ops.CpuOp) -> None:
    with torch.inference_mode():
        x = torch.zeros(5)
        increment.call(x)
        assert torch.equal(x, torch.ones(5))
    with pytest.raises(ArgumentError, match="inference tensor"):
        increment.call(x)


def test_functionalization_by_torch_compile(increment: cpu_ops.CpuOp) -> None:
    torch.library.register_fake(f"tileops::{increment.name}", lambda x: None)

    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        increment.call(y)
        return y + 1

    x = torch.randn(16)
    compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), x * 2 + 1 + 1)
    torch.library.opcheck(increment.call, (torch.zeros(8),))
