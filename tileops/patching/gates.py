"""Gated layers: a gate, an activation, a product, a projection back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from tileops import ops
from tileops.patching import fingerprint
from tileops.patching.sites import Match, Skip

_COLUMNS = 64


def _gelu_tanh(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return ops.gelu_mul(gate, up, "tanh")


ACTIVATIONS: dict[str, tuple[str, Callable[..., torch.Tensor]]] = {
    "silu": ("silu_mul", ops.silu_mul),
    "gelu": ("gelu_mul", ops.gelu_mul),
    "gelu, tanh": ("gelu_mul", _gelu_tanh),
}


class _Half(nn.Module):
    """Stands for a projection: the first or the second half of its input."""

    def __init__(self, second: bool) -> None:
        super().__init__()
        self.second = second

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.chunk(2, -1)[int(self.second)]


def recognise(module: nn.Module) -> Match | Skip | None:
    """The gate that ``module`` computes; None if it does not look like one."""
    children = set(module._modules)
    if {"gate_proj", "up_proj", "down_proj"} <= children:
        stands: dict[str, nn.Module] = {"gate_proj": _Half(False), "up_proj": _Half(True)}
        make = separate
    elif {"gate_up_proj", "down_proj"} <= children:
        stands = {"gate_up_proj": nn.Identity()}
        make = joined
    else:
        return None
    if module._parameters:
        return Skip("gate", "it has parameters beside its projections")
    probe = fingerprint.stand_in(module, {}, {**stands, "down_proj": nn.Identity()})
    x = fingerprint.random(
        fingerprint.ROWS, 2 * _COLUMNS, dtype=torch.bfloat16, device=fingerprint.device_of(module)
    )
    forwards = {name: make(function) for name, (_, function) in ACTIVATIONS.items()}
    with torch.no_grad():
        try:
            own = type(probe).forward(probe, x)
        except Exception as error:  # whatever a foreign forward raises is a reason to leave it
            return Skip("gate", f"its forward does not take rows alone: {error}")
        name, share = fingerprint.best(
            own, {name: partial(f, probe, x) for name, f in forwards.items()}
        )
    if share < fingerprint.EQUAL:
        return Skip("gate", f"no activation agrees with its forward (best {name}: {share:.1%})")
    return Match(ACTIVATIONS[name][0], name, forwards[name], share)


def separate(function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """A ``forward`` with two projections. They are called as modules: LoRA and hooks stay."""

    def forward(module: Any, x: torch.Tensor) -> Any:
        gate, up = module.gate_proj(x), module.up_proj(x)
        if gate.dtype != up.dtype:  # an adapter of one of them, say
            gate, up = (y.to(torch.promote_types(gate.dtype, up.dtype)) for y in (gate, up))
        return module.down_proj(function(gate, up))

    return forward


def joined(function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """A ``forward`` with one projection of both."""

    def forward(module: Any, hidden_states: torch.Tensor) -> Any:
        gate, up = module.gate_up_proj(hidden_states).chunk(2, dim=-1)
        return module.down_proj(function(gate, up))

    return forward
