"""What a user registers with torch for an op counts for the function and for ``torch.ops``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode, register_flop_formula

import tileops
import tileops.language as T
from tests.programs.samples import vector


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> None:
    torch._dynamo.reset()


def negated(X):
    N = T.dynamic("N")
    X: T.Tensor((N,), T.float32)
    Y = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, 64), threads=64) as bx:
        for i in T.Parallel(64):
            Y[bx * 64 + i] = -X[bx * 64 + i]
    return Y


def program(name: str) -> Any:
    """A program with a gradient: it had a second op once."""
    made = tileops.jit(name=name)(negated)
    made.register_autograd(lambda ctx, grad: made(grad))
    return made


def ways(name: str) -> tuple[Callable[[torch.Tensor], Any], ...]:
    made = program(name)
    packet = getattr(torch.ops.tileops, name)
    return made, packet, packet.default


def test_flops() -> None:
    calls = ways("one_op_flops")
    register_flop_formula(torch.ops.tileops.one_op_flops)(lambda x, *_, out_shape, **__: 7)
    for call in calls:
        for x in (vector(8), vector(8).requires_grad_()):
            with FlopCounterMode(display=False) as counter:
                call(x)
            assert counter.get_total_flops() == 7


def test_names_in_profiles() -> None:
    calls = ways("one_op_profile")
    for call in calls:
        for x in (vector(8), vector(8).requires_grad_()):
            call(x)
            with torch.profiler.profile() as profile:
                call(x)
            found = [e for e in profile.key_averages() if "one_op" in e.key]
            assert [e.key for e in found if e.key.startswith("tileops")] == [
                "tileops::one_op_profile"
            ]


def test_names_of_ops() -> None:
    made = program("one_op_names")
    made(vector(8)), made(vector(8).requires_grad_()).sum().backward()
    names = torch._C._dispatch_get_all_op_names()
    assert [n for n in names if "one_op_names" in n] == ["tileops::one_op_names"]


@pytest.mark.parametrize("key", ["AutocastCPU", "AutogradCPU", "Meta", "CPU"])
def test_a_kernel_for_a_dispatch_key(key: str) -> None:
    made = tileops.jit(name=f"one_op_key_{key.lower()}")(negated)
    library = torch.library.Library("tileops", "FRAGMENT")
    seen = []

    def kernel(x: torch.Tensor) -> torch.Tensor:
        seen.append(key)
        return torch.zeros_like(x)

    library.impl(f"one_op_key_{key.lower()}", kernel, key, allow_override=True)
    x = vector(8).to("meta" if key == "Meta" else "cpu")
    for call in (made, getattr(torch.ops.tileops, f"one_op_key_{key.lower()}")):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=key == "AutocastCPU"):
            call(x)
        assert seen == [key]
        seen.clear()


def test_a_batching_rule_of_torch_library() -> None:
    calls = ways("one_op_vmap")
    torch.library.register_vmap(
        "tileops::one_op_vmap", lambda info, in_dims, x: (x.movedim(in_dims[0], 0) * 3, 0)
    )
    x = torch.randn(4, 5)
    for call in calls:
        assert torch.equal(torch.vmap(call)(x), x * 3)


def test_a_sharding_strategy() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.experimental import register_sharding
    from torch.testing._internal.distributed.fake_pg import FakeStore

    calls = ways("one_op_shards")

    @register_sharding(torch.ops.tileops.one_op_shards.default)
    def strategy(x: Any) -> list[Any]:
        return [([Replicate()], [Replicate()]), ([Shard(0)], [Shard(0)])]

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        mesh = init_device_mesh("cpu", (2,))
        for requires_grad in (False, True):
            x = distribute_tensor(vector(8), mesh, [Shard(0)]).requires_grad_(requires_grad)
            for call in calls:
                out = call(x)
                assert isinstance(out, DTensor)
                assert out.placements == (Shard(0),)
                assert torch.equal(out.to_local(), -x.to_local())
                assert out.requires_grad == requires_grad
    finally:
        torch.distributed.destroy_process_group()


def test_a_gradient_outside_of_vmap_is_kept() -> None:
    """The tensors inside of ``torch.vmap`` do not show that one requires grad outside."""
    made = tileops.jit(name="one_op_outside")(negated)
    made.register_vmap(lambda info, in_dims, x: (made(x.movedim(in_dims[0], 0).reshape(-1)).view(
        info.batch_size, -1), 0))  # fmt: skip
    made.register_autograd(lambda ctx, grad: made(grad))
    x = torch.randn(3, 4, requires_grad=True)
    for call in (made, torch.ops.tileops.one_op_outside):
        (grad,) = torch.autograd.grad(torch.vmap(call)(x).sum(), x)
        assert torch.equal(grad, torch.full((3, 4), -1.0))


def test_script_and_trace() -> None:
    made = program("one_op_script")
    x = vector(8)

    @torch.jit.script
    def scripted(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.tileops.one_op_script(x)

    for graph in (scripted, torch.jit.trace(made, (x,))):
        assert torch.equal(graph(x), -x)


def test_a_function_mode_has_its_gradients() -> None:
    """Its Python code runs where a call passes by autograd."""
    from torch.overrides import TorchFunctionMode

    class Weighted(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            return result * weight if "one_op_mode" in str(func) else result

    for call in ways("one_op_mode"):
        weight = torch.ones(8, requires_grad=True)
        x = vector(8)
        with Weighted():
            out = call(x)
        out.sum().backward()
        assert torch.equal(weight.grad, -x)
