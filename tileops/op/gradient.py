"""Owns which calls take the op with a gradient, and the rule of ops that have none."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.autograd import forward_ad
from torch.fx._symbolic_trace import is_fx_symbolic_tracing

from tileops.errors import ArgumentError, NotDifferentiableError


def is_kept() -> bool:
    """True where a call is recorded for others, of which some may want the gradient.

    An exported graph runs with other tensors than it was recorded with; graphs of ``torch.compile``
    do not, which guards on what requires grad. Under ``torch.no_grad()`` no gradient is wanted.
    """
    if not torch.is_grad_enabled():
        return False
    if torch.compiler.is_compiling():
        return torch.compiler._is_exporting_flag  # its getter is always True to older Dynamos
    # make_fx. AOTAutograd uses it, too, for graphs of torch.compile.
    return is_fx_symbolic_tracing() and torch._guards.TracingContext.try_get() is None


def refuse(op: str, argument: str, *, differentiable: bool | None, writes_leaf: bool) -> None:
    """Raise for an argument that requires grad while grad mode is on, where it must not.

    NotDifferentiableError where a gradient would be lost. Under ``differentiable=False`` the user
    has said that none is wanted, and only a leaf that the op writes is refused (ArgumentError); for
    other tensors autograd's version check finds what a write has spoilt.
    """
    if differentiable is not False:
        raise NotDifferentiableError(
            f"{op}: argument '{argument}' requires grad, and the op has no registered gradient; "
            "call it under torch.no_grad(), detach the argument, or declare "
            "@tileops.jit(differentiable=False)"
        )
    if writes_leaf:
        raise ArgumentError(
            f"{op}: argument '{argument}' is a leaf that requires grad, and the op writes into it; "
            "call it under torch.no_grad() or pass a detached tensor"
        )


def refuse_tangents(op: str, inputs: Iterable[object]) -> None:
    """NotDifferentiableError for an input with a tangent: torch would give a result without one.

    Only inside ``forward_ad.dual_level``, and so inside ``torch.func.jvp``, can there be one:
    callers look at the level first, which costs nothing.
    """
    for value in inputs:
        if not isinstance(value, torch.Tensor):
            continue
        dual = forward_ad.unpack_dual(value)  # type: ignore[no-untyped-call,unused-ignore]
        if dual.tangent is not None:
            raise NotDifferentiableError(
                f"{op}: an argument has a tangent, and the op has no rule for forward-mode "
                "differentiation; use reverse mode, or pass the primal value"
            )
