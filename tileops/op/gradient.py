"""Owns the gradient rule of ops that have no registered gradient."""

from __future__ import annotations

from tileops.errors import ArgumentError, NotDifferentiableError


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
