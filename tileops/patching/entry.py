"""``tileops.patch``: the modules of one model call operators that compute the same."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import nn

from tileops.errors import ArgumentError, ArgumentTypeError
from tileops.log import TileopsWarning
from tileops.patching import attention, gates, losses, norms, rotary, verifying
from tileops.patching.report import Report, Row
from tileops.patching.sites import Match, Place, Site, Skip, held_by

Recogniser = Callable[[nn.Module], Match | Skip | None]
RECOGNISERS: dict[str, Recogniser] = {
    "norm": norms.recognise,
    "gate": gates.recognise,
    "rope": rotary.recognise,
    "loss": losses.recognise,
}
ATTENTION = "attention"
KINDS = (*RECOGNISERS, ATTENTION)
AUTO = "auto"


def patch(
    model: nn.Module, *, ops: str | Sequence[str] = AUTO, verify: bool = True,
    sample: dict[str, Any] | None = None, dry_run: bool = False,
) -> Report:  # fmt: skip
    """Let modules of ``model`` call the operators of ``tileops.ops``; returns a ``Report``.

    A module is recognised by its parts. It is then compared with the operator on random numbers, in
    each rounding that the operator has, and replaced only if they agree. Instances are changed:
    neither a class nor another model. Weights, hooks and ``state_dict`` stay as they are.

    model:   any module. Norms, gated layers, rotary embeddings and losses of language models are
             looked for, and attention of models of ``transformers``; what is not recognised keeps
             its code.
    ops:     "auto" or some of "norm", "gate", "rope", "loss", "attention". Attention by "auto" is
             that of eager models on a GPU: otherwise torch's own kernels are kept.
    verify:  compare loss, logits and norms of gradients on ``sample`` before and after. If they
             differ too much, everything is undone, with a warning that names the worst module.
    sample:  keyword arguments of the model; None for random tokens if it is a language model of
             ``transformers``, else nothing is verified.
    dry_run: recognise and compare only.

    ``report.undo()`` puts everything back; so does the end of ``with tileops.patch(model):``. What
    was patched before stays as it is. ArgumentError (ArgumentTypeError) names what does not fit.
    """
    if not isinstance(model, nn.Module):
        raise ArgumentTypeError(
            f"patch: model: expected a torch.nn.Module, got {type(model).__name__}"
        )
    chosen = _chosen(ops)
    rows, sites = _found(model, [RECOGNISERS[n] for n in chosen if n != ATTENTION], dry_run)
    if ATTENTION in chosen:
        _add_attention(model, rows, sites, is_asked_for=ops != AUTO, dry_run=dry_run)
    report = Report(rows, sites)
    if dry_run or not sites:
        return report
    given = (sample or verifying.sample_of(model)) if verify else None
    before = None if given is None else verifying.run(model, given)
    for site in sites:
        site.apply()
    if given is None or before is None:
        return report
    try:
        after = verifying.run(model, given)
    except Exception:
        report.undo()
        raise
    dtype = next(model.parameters()).dtype
    report.difference = verifying.compare(before, after, dtype)
    if not report.difference.is_small:
        report.undo()
        report.worst = verifying.worst_of(model, given, sites, before).path or "the model"
        warnings.warn(
            f"tileops.patch changed the results of the model and was undone: {report.worst} makes "
            f"the largest difference\n{report}",
            TileopsWarning,
            stacklevel=2,
        )
    return report


def _chosen(ops: str | Sequence[str]) -> list[str]:
    names = list(KINDS) if ops == AUTO else [ops] if isinstance(ops, str) else list(ops)
    for name in names:
        if name not in KINDS:
            raise ArgumentError(
                f"patch: ops: expected 'auto' or some of {', '.join(KINDS)}, got {name!r}"
            )
    return names


def _add_attention(
    model: nn.Module, rows: list[Row], sites: list[Place], *, is_asked_for: bool, dry_run: bool
) -> None:
    """Add rows and sites of the configs that name an implementation of attention."""
    for found in attention.find(model, is_asked_for=is_asked_for):
        state = "left alone"
        if isinstance(found.result, Match):
            state = "would be patched" if dry_run else "patched"
            if found.is_patched:
                state = "patched before"
            elif not dry_run:
                sites.append(attention.ConfigSite(found.path, found.holders, found.result))
        rows.append(Row(found.path, found.kind, found.result, state))


def _found(
    model: nn.Module, recognisers: Iterable[Recogniser], dry_run: bool
) -> tuple[list[Row], list[Place]]:
    rows: list[Row] = []
    sites: list[Place] = []
    for path, module in model.named_modules():
        for recognise in recognisers:
            found = recognise(module)
            if found is None:
                continue
            held = getattr(found, "attribute", "forward")
            state = "left alone"
            if isinstance(found, Match):
                state = "would be patched" if dry_run else "patched"
                before = held_by(module, held)
                if before is not None:
                    found, state = before, "patched before"
                elif "forward" in module.__dict__ and held == "forward":
                    found = Skip(found.operator, "its forward is replaced by somebody else")
                    state = "left alone"
                elif not dry_run:
                    sites.append(Site(path, module, found))
            rows.append(Row(path, type(module).__name__, found, state))
    return rows, sites
