"""Dtype variables under torch's machinery: compiled, exported, differentiated, cast, sharded."""

from __future__ import annotations

import pytest
import torch

import tileops
import tileops.language as T
from tests.op.test_dtype_variables import FLOATS, add, build, increment, negated


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> None:
    torch._dynamo.reset()


@pytest.mark.parametrize("dtype", FLOATS)
def test_opcheck(dtype: torch.dtype) -> None:
    torch.library.opcheck(add.op, (torch.randn(8).to(dtype), torch.randn(8).to(dtype)))
    torch.library.opcheck(increment.op, (torch.arange(4, dtype=torch.int64),))


def test_compiled_and_exported() -> None:
    def model(a: torch.Tensor) -> torch.Tensor:
        return negated(a * 2) + 1

    compiled = torch.compile(model, fullgraph=True, dynamic=True)
    for dtype in FLOATS:
        for n in (5, 9):
            a = torch.randn(n).to(dtype)
            torch.testing.assert_close(compiled(a), model(a))

    class Model(torch.nn.Module):
        def forward(self, a: torch.Tensor) -> torch.Tensor:
            return negated(a)

    a = torch.randn(6).half()
    program = torch.export.export(Model(), (a,), dynamic_shapes={"a": {0: torch.export.Dim("n")}})
    assert torch.equal(program.module()(torch.randn(9).half() * 0 + 1), -torch.ones(9).half())


def test_gradients_of_each_dtype() -> None:
    program = build(T.DTypeVar("kind", T.float16, T.float32), "dtyped_gradient")
    program.register_autograd(lambda ctx, grad: program(grad))
    for dtype in (torch.float16, torch.float32):
        a = torch.ones(3, dtype=dtype, requires_grad=True)
        program(a).sum().backward()
        assert a.grad.dtype == dtype
        assert a.grad.tolist() == [2.0] * 3


def test_autocast() -> None:
    @tileops.jit(name="dtyped_autocast", autocast=torch.bfloat16)
    def program(A):
        N = T.const("N")
        dt = T.DTypeVar("dt", T.bfloat16, T.float32)
        A: T.Tensor((N,), dt)
        C = T.empty((N,), dt)
        with T.Kernel(N) as i:
            C[i] = A[i]
        return C

    a = torch.randn(4)
    assert program(a).dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(program(a), a.bfloat16())
    assert torch.equal(program(a), a)
    assert program.get_tir(a).params[0].buffer.dtype == "float32"


class Norm(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bias = torch.nn.Parameter(torch.randn(8), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return add(x, self.bias)


def test_modules_change_their_dtype() -> None:
    module, x = Norm(), torch.randn(8)
    assert torch.equal(module(x), x + module.bias)
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        module.to(dtype)
        assert torch.equal(module(x.to(dtype)), x.to(dtype) + module.bias)


def test_sharded_mixed_precision(tmp_path) -> None:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        mesh = torch.distributed.init_device_mesh("cpu", (1,))
        module = Norm()
        bias = module.bias.detach().clone()
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, output_dtype=torch.float32)
        fully_shard(module, mesh=mesh, mp_policy=policy)
        x = torch.randn(8)
        got = module(x)
        assert got.dtype == torch.float32
        assert torch.equal(got, (x.bfloat16() + bias.bfloat16()).float())
    finally:
        torch.distributed.destroy_process_group()
