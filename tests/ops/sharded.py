"""A process of two: operators of DTensors, and a module that FSDP2 divides, against whole tensors.

``python -m tests.ops.sharded RANK FILE``: the processes meet at FILE.
"""

from __future__ import annotations

import sys
from itertools import chain

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.experimental import implicit_replication

from tests.ops.cases import PLAIN, Case
from tests.ops.exactness import results
from tileops import ops

Tensors = list[torch.Tensor]


def gradients(case: Case, inputs: Tensors) -> tuple[Tensors, Tensors]:
    outputs = list(results(case.call(*inputs)))
    if not case.info.has_gradients:
        return outputs, []
    total = sum((y.square() * 0.5).sum() for y in outputs if y.is_floating_point())
    return outputs, list(torch.autograd.grad(total, [x for x in inputs if x.requires_grad]))


def check_dtensors(case: Case, mesh: DeviceMesh) -> None:
    """Rows divided: nothing is sent in the forward pass, and all results are those of one process."""
    torch.manual_seed(3)
    made = case.inputs(8, 6, torch.float64, "cpu")
    whole = list(case.form.leaves(made) if case.info.has_gradients else made)
    expected = gradients(case, whole)
    row_dim = whole[0].dim() + case.info.rows
    inputs = [
        distribute_tensor(x.detach(), mesh, [Shard(row_dim) if x.dim() > 1 else Replicate()])
        for x in whole
    ]
    with CommDebugMode() as sent:
        case.call(*inputs)
    assert case.info.name == "cross_entropy" or sent.get_total_counts() == 0, case
    found = gradients(
        case, [a.requires_grad_(b.requires_grad) for a, b in zip(inputs, whole, strict=True)]
    )
    for n, (a, b) in enumerate(zip(chain(*found), chain(*expected), strict=True)):
        assert isinstance(a, DTensor), case
        torch.testing.assert_close(a.full_tensor(), b, msg=f"{case}: result {n}")
    if case.info.name != "cross_entropy":
        assert found[0][0].placements == (Shard(row_dim),), case


def check_refusal(case: Case, mesh: DeviceMesh) -> None:
    """An operator without a rule names itself."""
    inputs = [
        distribute_tensor(x, mesh, [Shard(0)]) for x in case.inputs(8, 6, torch.float64, "cpu")
    ]
    with pytest.raises((NotImplementedError, RuntimeError), match=case.info.name):
        case.call(*inputs)


def part_of(tensor: torch.Tensor, placement: Placement) -> torch.Tensor:
    """What this process has of a tensor."""
    if not isinstance(placement, Shard):
        return tensor
    return tensor.chunk(dist.get_world_size(), placement.dim)[dist.get_rank()]


def check_quantised(mesh: DeviceMesh) -> None:
    """Rows divided, and features of products: nothing is sent, which gloo could not of 8-bit floats."""
    torch.manual_seed(5)
    x, up, one = torch.randn(8, 12), torch.randn(8, 12), torch.ones(1)
    w, codes, scales = torch.randn(6, 12), torch.randint(0, 16, (6, 12)), torch.rand(6, 3)
    packed, a, b = ops.pack_int4(codes), *(t.to(torch.float8_e4m3fn) for t in (x, w))
    of_rows, of_columns = torch.rand(8, 1), torch.rand(1, 6)
    whole, rows, columns = Replicate(), Shard(0), Shard(1)
    wide = {"out_dtype": torch.float32}
    for call, given, placements, result, options in (
        (ops.rms_norm_quant, (x, (12,)), (rows,), rows, {}),
        (ops.silu_mul_quant, (x, up), (rows, rows), rows, {}),
        (ops.scaled_mm, (a, b.t(), one, one), (rows, whole, whole, whole), rows, wide),
        (ops.scaled_mm, (a, b.t(), of_rows, of_columns), (whole, columns, whole, columns), columns, wide),
        (ops.scaled_mm, (a, b.t(), of_rows, of_columns), (rows, whole, rows, whole), rows, wide),
        (ops.int4_linear, (x, packed, scales), (rows, whole, whole), rows, {"group_size": 4}),
        (ops.int4_linear, (x, packed, scales), (whole, rows, rows), columns, {"group_size": 4}),
    ):  # fmt: skip
        tensors = [
            DTensor.from_local(part_of(t, p), mesh, [p], run_check=False)
            for t, p in zip(given, placements, strict=False)
        ]
        with CommDebugMode() as sent:
            found = results(call(*tensors, *given[len(tensors) :], **options))
        assert sent.get_total_counts() == 0, call
        for value, right in zip(found, results(call(*given, **options)), strict=True):
            assert value.shape == right.shape, call
            assert value.placements == (result,), call
            own = part_of(right, result)
            torch.testing.assert_close(value.to_local().float(), own.float())


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.Parameter(torch.rand(16))
        self.gate, self.up = nn.Linear(16, 32, bias=False), nn.Linear(16, 32, bias=False)
        self.out = nn.Linear(32, 10, bias=False)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        y = ops.rms_norm(x, (16,), self.norm, 1e-6)
        return ops.cross_entropy(self.out(ops.silu_mul(self.gate(y), self.up(y))), target)


def check_fsdp(mesh: DeviceMesh) -> None:
    torch.manual_seed(4)
    model, divided = Model(), Model()
    divided.load_state_dict(model.state_dict())
    fully_shard(divided, mesh=mesh)
    x, target = torch.randn(8, 16), torch.arange(8)
    mine = slice(4 * dist.get_rank(), 4 * dist.get_rank() + 4)
    model(x, target).backward()
    divided(x[mine], target[mine]).backward()
    for (name, a), b in zip(divided.named_parameters(), model.parameters(), strict=True):
        assert a.grad is not None
        torch.testing.assert_close(a.grad.full_tensor(), b.grad, msg=name)


def main(rank: int, file: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    # Operators of inference have operands that no rule divides by rows: ``check_quantised``.
    for case in (c for c in PLAIN if c.info.sharding and c.info.has_gradients):
        with implicit_replication():  # of targets and angles
            check_dtensors(case, mesh)
    for case in (c for c in PLAIN if not c.info.sharding):
        with implicit_replication():
            check_refusal(case, mesh)
    check_quantised(mesh)
    check_fsdp(mesh)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
