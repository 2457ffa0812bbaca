"""The loss of a language model: ``loss_function`` of models of ``transformers``."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tileops import ops
from tileops.patching import fingerprint
from tileops.patching.sites import Match, Skip

_CLASSES = 11


def causal_loss(
    logits: torch.Tensor, labels: torch.Tensor | None, vocab_size: int,
    num_items_in_batch: Any = None, ignore_index: int = -100,
    shift_labels: torch.Tensor | None = None, **options: Any,
) -> torch.Tensor:  # fmt: skip
    """Cross entropy of each position and the next label, without a float32 copy of the logits."""
    if shift_labels is None:
        shift_labels = F.pad(labels, (0, 1), value=ignore_index)[..., 1:]  # type: ignore[arg-type]
    target = shift_labels.reshape(-1).to(logits.device)
    reduction = "mean" if num_items_in_batch is None else "sum"
    loss: Any = ops.cross_entropy(
        logits.reshape(-1, vocab_size), target, ignore_index=ignore_index, reduction=reduction
    )
    if num_items_in_batch is not None:
        if isinstance(num_items_in_batch, torch.Tensor):
            num_items_in_batch = num_items_in_batch.to(loss.device)
        loss = loss / num_items_in_batch
    return loss  # type: ignore[no-any-return]


def recognise(module: nn.Module) -> Match | Skip | None:
    """The loss of a model; None if it has no function for it."""
    if not isinstance(getattr(type(module), "loss_function", None), property):
        return None
    if getattr(module, "loss_type", None) is None:  # the body of a model
        return None
    own: Any = module.loss_function
    cpu: Any = {"dtype": torch.float32, "device": torch.device("cpu")}
    logits = fingerprint.random(2, 6, _CLASSES, **cpu)
    labels = torch.tensor([[1, 2, -100, 4, 5, 6], [10, -100, 8, 7, 0, 1]])
    for options in ({}, {"num_items_in_batch": 7}, {"shift_labels": labels.flip(0)}):
        given: Any = {"logits": logits, "labels": labels, "vocab_size": _CLASSES, **options}
        try:
            apart = float((own(**given) - causal_loss(**given)).abs())
        except Exception as error:  # whatever a foreign loss raises is a reason to leave it
            return Skip("cross_entropy", str(error).splitlines()[0])
        if not apart < 1e-5:
            return Skip("cross_entropy", f"its loss differs by {apart:.1e} with {options}")
    return Match("cross_entropy", "causal", _function(), 1.0, "_loss_function")


def _function() -> Any:
    def loss(*given: Any, **options: Any) -> torch.Tensor:
        return causal_loss(*given, **options)

    return loss
