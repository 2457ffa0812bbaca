"""Operators for models, written in the tile language: functions like those of torch.nn.functional.

A family is loaded when one of its names is first used, also as ``torch.ops.tileops.<name>``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tileops.ops.attentions import attention as attention
    from tileops.ops.choosing import compile_mode as compile_mode
    from tileops.ops.explaining import why as why
    from tileops.ops.gates import gelu_mul as gelu_mul
    from tileops.ops.gates import silu_mul as silu_mul
    from tileops.ops.grouped_products import grouped_mm as grouped_mm
    from tileops.ops.linear_losses import linear_cross_entropy as linear_cross_entropy
    from tileops.ops.linears import linear as linear
    from tileops.ops.losses import CrossEntropy as CrossEntropy
    from tileops.ops.losses import cross_entropy as cross_entropy
    from tileops.ops.norms import add_layer_norm as add_layer_norm
    from tileops.ops.norms import add_rms_norm as add_rms_norm
    from tileops.ops.norms import layer_norm as layer_norm
    from tileops.ops.norms import rms_norm as rms_norm
    from tileops.ops.quantised_products import int4_linear as int4_linear
    from tileops.ops.quantised_products import pack_int4 as pack_int4
    from tileops.ops.quantised_products import scaled_mm as scaled_mm
    from tileops.ops.quantised_rows import rms_norm_quant as rms_norm_quant
    from tileops.ops.quantised_rows import silu_mul_quant as silu_mul_quant
    from tileops.ops.rotary import qk_norm_rope as qk_norm_rope
    from tileops.ops.rotary import rope as rope
    from tileops.ops.softmaxes import softmax as softmax
    from tileops.ops.varlen_attentions import varlen_attention as varlen_attention

# Of torch, for the ops. ``torch.ops.tileops`` leads to those whose names no program of a user has.
NAMESPACE = "tileops_ops"
FAMILIES = {
    "attentions": ("attention",),
    "gates": ("gelu_mul", "silu_mul"),
    "grouped_products": ("grouped_mm",),
    "linear_losses": ("linear_cross_entropy",),
    "linears": ("linear",),
    "losses": ("cross_entropy",),
    "norms": ("add_layer_norm", "add_rms_norm", "layer_norm", "rms_norm"),
    "quantised_products": ("int4_linear", "scaled_mm"),
    "quantised_rows": ("rms_norm_quant", "silu_mul_quant"),
    "rotary": ("qk_norm_rope", "rope"),
    "softmaxes": ("softmax",),
    "varlen_attentions": ("varlen_attention",),
}
_HOMES = {name: family for family, names in FAMILIES.items() for name in names}
_HOMES["CrossEntropy"] = "losses"
_HOMES["pack_int4"] = "quantised_products"
_HOMES["compile_mode"] = "choosing"
_HOMES["why"] = "explaining"

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'tileops.ops' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"tileops.ops.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted((*globals(), *_HOMES))
