"""Whether a patched model computes what it did: loss, logits and gradients of a sample."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tileops.patching.report import Difference
from tileops.patching.sites import Place

# Relative differences that other roundings make in a model of some layers: about eight units in the
# last place of its dtype; float32 models also sum in another order.
ALLOWED = {torch.bfloat16: 2.0**-4, torch.float16: 2.0**-7, torch.float32: 2.0**-14}
STRICTEST = 2.0**-30
# A gradient whose terms cancel is noise: its norm is judged as if it were this part of the largest.
SMALLEST_PART = 2.0**-5
Sample = Mapping[str, Any]


@dataclass(frozen=True)
class Results:
    """What a model made of the sample."""

    loss: torch.Tensor
    logits: torch.Tensor
    norms: tuple[float, ...]  # of the gradients; 0 without one


def sample_of(model: nn.Module) -> Sample | None:
    """Random tokens, which are also the labels, for a language model of ``transformers``."""
    config = getattr(model, "config", None)
    words = getattr(config, "vocab_size", None)
    if words is None or not hasattr(model, "get_input_embeddings"):
        return None
    generator = torch.Generator().manual_seed(7)
    device = next(model.parameters()).device
    tokens = torch.randint(words, (2, 12), generator=generator).to(device)
    return {"input_ids": tokens, "labels": tokens}


def run(model: nn.Module, sample: Sample) -> Results:
    """Results of the sample, with the same random numbers each time; no ``.grad`` changes."""
    wanted = [p for p in model.parameters() if p.requires_grad]
    devices = sorted({p.device.index or 0 for p in model.parameters() if p.is_cuda})
    with torch.random.fork_rng(devices), torch.enable_grad():
        torch.manual_seed(11)
        out = model(**sample)
        out = out[0] if isinstance(out, tuple) else out
        logits = out.logits if hasattr(out, "logits") else out
        loss = getattr(out, "loss", None)
        if loss is None:
            # Not their squares: the gradients of those cancel behind a norm.
            weights = torch.rand(logits.shape, device="cpu").to(logits.device)
            loss = (logits.float() * weights).mean()
        grads = torch.autograd.grad(loss, wanted, allow_unused=True) if wanted else ()
    return Results(
        loss.detach().double(),
        logits.detach().double(),
        tuple(0.0 if g is None else float(g.double().norm()) for g in grads),
    )


def compare(before: Results, after: Results, dtype: torch.dtype) -> Difference:
    """Relative differences of two results."""
    least = max(SMALLEST_PART * max(before.norms, default=0.0), torch.finfo(dtype).tiny)
    norms = [abs(a - b) / max(a, least) for a, b in zip(before.norms, after.norms, strict=True)]
    return Difference(
        _apart(before.loss, after.loss),
        _apart(before.logits, after.logits),
        float(torch.tensor([0.0, *norms], dtype=torch.float64).max()),  # NaN stays
        ALLOWED.get(dtype, STRICTEST),
    )


def _apart(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).norm() / a.norm().clamp_min(1e-12))


def worst_of(model: nn.Module, sample: Sample, sites: Sequence[Place], before: Results) -> Place:
    """The site that changes the results most: the half with the larger difference, again and again.

    No site is applied before and after.
    """
    left = list(sites)
    while len(left) > 1:
        halves = left[: len(left) // 2], left[len(left) // 2 :]
        differences = []
        for half in halves:
            for site in half:
                site.apply()
            after = run(model, sample)
            for site in reversed(half):
                site.undo()
            found = compare(before, after, torch.float64)
            apart = found.loss + found.logits + found.gradients  # NaN stays
            differences.append(float("inf") if math.isnan(apart) else apart)
        left = halves[int(differences[1] > differences[0])]
    return left[0]
