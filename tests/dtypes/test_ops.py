"""Ops on packed tensors and pointers under torch.compile, their checks, kernels and profiler inputs."""

from __future__ import annotations

import pytest
import torch

import tileops
import tileops.language as T
from tests.kit.formats import PACKED, random_tensor, values
from tests.programs.packed_dtypes import in_place, matmul
from tests.programs.pointers import from_pointer
from tileops.profiler import TensorSupplyType


def test_opcheck_and_compile() -> None:
    a, b = random_tensor("int4", 40, 64), random_tensor("int4", 32, 64)
    torch.library.opcheck(torch.ops.tileops.matmul.default, (a, b))
    compiled = torch.compile(lambda x, y: matmul(x, y) + 1, fullgraph=True, backend="aot_eager")
    exact = values(a, "int4") @ values(b, "int4").T
    assert torch.equal(compiled(a, b).double(), exact + 1)


def test_pointers_in_a_compiled_region() -> None:
    a, c = torch.randn(8, 32), torch.zeros(8, 32)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        from_pointer(x, y, 8, 32)
        return y * 2

    out = torch.compile(step, fullgraph=True, backend="aot_eager")(a, c)
    assert torch.equal(c, a + 1)
    assert torch.equal(out, (a + 1) * 2)


@pytest.mark.parametrize("dtype", PACKED)
def test_writes_are_counted(dtype: str) -> None:
    a = random_tensor(dtype, 4, 32)
    before = a._version
    in_place(a, dt=dtype)
    assert a._version > before


@pytest.mark.parametrize("dtype", PACKED)
def test_kernels_describe_and_supply_packed_tensors(dtype: str) -> None:
    @T.prim_func
    def copied(A: T.Tensor((8, 64), dtype), C: T.Tensor((8, 64), dtype)):
        with T.Kernel(8) as i:
            T.copy(A[i, 0:64], C[i, 0:64])

    kernel = tileops.compile(copied, out_idx=1, target="cpu")
    shapes = [p.shape for p in kernel.params]
    assert shapes == [(8, 32), (8, 32)]
    profiler = kernel.get_profiler(TensorSupplyType.One)
    (given,) = profiler.make_inputs()
    assert torch.equal(kernel(given).view(torch.uint8), given.view(torch.uint8))
