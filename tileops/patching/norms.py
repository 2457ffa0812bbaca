"""Norms: modules with a one-dimensional weight and an epsilon."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from tileops import ops
from tileops.patching import fingerprint
from tileops.patching.sites import Match, Skip

Forward = Callable[[Any, torch.Tensor], torch.Tensor]
_EPSILONS = ("eps", "variance_epsilon")
# Rounding and offset of each variant of RMSNorm.
VARIANTS = {
    "torch": ("torch", 0.0),
    "llama": ("llama", 0.0),
    "gemma": ("torch", 1.0),
    "llama, 1 + weight": ("llama", 1.0),
}


def recognise(module: nn.Module) -> Match | Skip | None:
    """The norm that ``module`` computes; None if it does not look like one."""
    epsilon = next((n for n in _EPSILONS if isinstance(getattr(module, n, None), float)), None)
    if isinstance(module, nn.RMSNorm) and module.eps is None:
        epsilon = "eps"
    parameters = dict(module._parameters)
    weight = parameters.get("weight")
    if (
        epsilon is None
        or module._modules
        or module._buffers
        or set(parameters) - {"weight", "bias"}
    ):
        return None
    if weight is None or weight.dim() != 1:
        return None
    if isinstance(module, nn.LayerNorm) or parameters.get("bias") is not None:
        return _matched("layer_norm", module, {"torch": partial(layer_norm, epsilon)})
    makers = {name: partial(rms_norm, epsilon, *variant) for name, variant in VARIANTS.items()}
    return _matched("rms_norm", module, makers)


def rms_norm(epsilon: str, rounding: str, offset: float, mixed: bool) -> Forward:
    """A ``forward`` that is ``ops.rms_norm``; the module's own where ``keeps`` says so."""

    def forward(module: Any, hidden_states: torch.Tensor) -> torch.Tensor:
        if keeps(module, hidden_states, mixed):
            return type(module).forward(module, hidden_states)  # type: ignore[no-any-return]
        weight = module.weight
        return ops.rms_norm(
            hidden_states, weight.shape, weight, getattr(module, epsilon),
            weight_offset=offset, rounding=rounding,
        )  # fmt: skip

    return forward


def layer_norm(epsilon: str, mixed: bool) -> Forward:
    """A ``forward`` that is ``ops.layer_norm``; the module's own where ``keeps`` says so."""

    def forward(module: Any, hidden_states: torch.Tensor) -> torch.Tensor:
        if keeps(module, hidden_states, mixed):
            return type(module).forward(module, hidden_states)  # type: ignore[no-any-return]
        weight = module.weight
        return ops.layer_norm(
            hidden_states, weight.shape, weight, module.bias, getattr(module, epsilon)
        )

    return forward


def keeps(module: Any, x: torch.Tensor, mixed: bool) -> bool:
    """Whether its own forward gives another dtype: for mixed dtypes, or under autocast."""
    if not mixed and x.dtype != module.weight.dtype:
        return True
    is_torchs = isinstance(module, (nn.LayerNorm, nn.RMSNorm))
    return is_torchs and torch.is_autocast_enabled(x.device.type)


def _probe(module: nn.Module, columns: int, dtype: torch.dtype) -> tuple[nn.Module, torch.Tensor]:
    """The module with random weights, and rows of several magnitudes, some near its epsilon."""
    device = fingerprint.device_of(module)
    weights = {
        name: None
        if value is None
        else fingerprint.random(columns, dtype=dtype, device=device, seed=n + 1)
        for n, (name, value) in enumerate(module._parameters.items())
    }
    x = fingerprint.random(fingerprint.ROWS, columns, dtype=torch.bfloat16, device=device)
    scales = 10.0 ** -(torch.arange(fingerprint.ROWS, device=device) % 4)
    return fingerprint.stand_in(module, weights, {}), x * scales.to(x.dtype).unsqueeze(-1)


def _matched(
    operator: str, module: nn.Module, makers: Mapping[str, Callable[[bool], Forward]]
) -> Match | Skip:
    columns = int(module._parameters["weight"].numel())  # type: ignore[union-attr]
    probe, x = _probe(module, columns, torch.bfloat16)
    with torch.no_grad():
        try:
            own = type(probe).forward(probe, x)
        except Exception as error:  # whatever a foreign forward raises is a reason to leave it
            return Skip(operator, f"its forward does not take rows alone: {error}")
        name, share = fingerprint.best(
            own, {name: partial(make(True), probe, x) for name, make in makers.items()}
        )
    if share < fingerprint.EQUAL:
        return Skip(operator, f"no variant agrees with its forward (best {name}: {share:.1%})")
    mixed = _agrees_mixed(module, columns, makers[name](True))
    return Match(operator, name, makers[name](mixed), share)


def _agrees_mixed(module: nn.Module, columns: int, forward: Forward) -> bool:
    """Whether 16-bit rows with float32 weights give what the module makes of them."""
    probe, x = _probe(module, columns, torch.float32)
    with torch.no_grad():
        try:
            own = type(probe).forward(probe, x)
        except Exception:  # it takes no such rows: its own forward is to say so
            return False
        return fingerprint.agreement(own, forward(probe, x)) >= fingerprint.EQUAL
