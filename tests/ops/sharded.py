"""A process of two: operators of DTensors, and a module that FSDP2 divides, against whole tensors.

``python -m tests.ops.sharded RANK FILE``: the processes meet at FILE.
"""

from __future__ import annotations

import sys
from itertools import chain

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
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
    for case in (case for case in PLAIN if case.info.sharding):
        with implicit_replication():  # of targets and angles
            check_dtensors(case, mesh)
    check_fsdp(mesh)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
