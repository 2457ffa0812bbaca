"""Tiny models of transformers with random weights, made from a config."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import nn

_SIZES = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "max_position_embeddings": 64, "pad_token_id": 0,
}  # fmt: skip
# The family, and what its norms and its gate are.
FAMILIES = {
    "Llama": ("llama", "silu"),
    "Gemma2": ("gemma", "gelu, tanh"),
    "Qwen3": ("llama", "silu"),
    "GptOss": ("torch", None),
}
_MORE: dict[str, dict[str, Any]] = {
    "Gemma2": {"sliding_window": 8},
    "GptOss": {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8},
}


def make(family: str, dtype: torch.dtype = torch.bfloat16) -> nn.Module:
    """A model whose weights, also those of norms, are random."""
    torch.manual_seed(5)
    config = getattr(transformers, f"{family}Config")(**_SIZES, **_MORE.get(family, {}))
    config._attn_implementation = "eager"
    model: nn.Module = getattr(transformers, f"{family}ForCausalLM")(config)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model.to(dtype)


def sample() -> dict[str, torch.Tensor]:
    tokens = torch.randint(64, (2, 7))
    return {"input_ids": tokens, "labels": tokens}
