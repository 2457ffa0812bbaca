"""Calls of ops without a gradient, whose results have a node that refuses a backward pass."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tileops.errors import ArgumentError, NotDifferentiableError
from tileops.optional_torch import forward_ad, torch

# What a backward pass runs in place of a gradient. It is an op so that torch.compile takes it into
# the graph of the backward pass, where it raises when that graph runs.
_NAMESPACE, _NAME = "tileops_autograd", "refuse"
_KEYS = ("CompositeImplicitAutograd", "Autograd", "AutogradOther")
_DEVICES = ("CPU", "CUDA", "Meta", "XPU", "HPU", "MPS", "PrivateUse1")

# Puts the tensors of a call in their places and calls the op.
Call = Callable[[Sequence[torch.Tensor]], Any]


def has_rule(name: str) -> bool:
    """Whether autograd has a rule for the op of this qualified name: ours, or a user's."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return any(has_kernel(name, k) for k in (*_KEYS, *(f"Autograd{d}" for d in _DEVICES)))


def is_wanted(tensors: Iterable[torch.Tensor]) -> bool:
    """True where torch would record a call with these arguments for a backward pass."""
    if not torch.is_grad_enabled() or not any(map(_requires_grad, tensors)):
        return False
    # Below autograd, or with its fallback for ops without a rule off, torch records nothing.
    if torch._C._dispatch_tls_is_dispatch_key_excluded(torch._C.DispatchKey.AutogradFunctionality):
        return False
    return torch._C._get_autograd_fallback_mode() != "nothing"


def _requires_grad(tensor: torch.Tensor) -> bool:
    """Whether a tensor requires grad, inside of a transform of torch.func or outside of it."""
    functorch: Any = torch._C._functorch
    while not tensor.requires_grad and functorch.is_functorch_wrapped_tensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
    return tensor.requires_grad


def refuse_leaf(op: str, argument: str, value: object) -> None:
    """ArgumentError for a tensor that may not be written in grad mode.

    That is a leaf that requires grad, a view of one, and a view whose gradient torch cannot follow.
    torch itself would raise only after the op has written.
    """
    if not isinstance(value, torch.Tensor) or not value.requires_grad:
        return
    base = value._base if value._is_view() else value
    reason = ""
    if base is not None and base.is_leaf and base.requires_grad:
        reason = (
            "a leaf that requires grad" if base is value else "a view of a leaf that requires grad"
        )
    elif base is not value and _creation_of(value) != "DEFAULT":
        reason = f"a view that may not be written in grad mode ({_creation_of(value)})"
    if reason:
        raise ArgumentError(
            f"{op}: argument '{argument}' is {reason}, and the op writes into it; "
            "call it under torch.no_grad() or pass a detached tensor"
        )


def _creation_of(view: torch.Tensor) -> str:
    """How torch says that a view was made."""
    ask = getattr(torch._C._autograd, "_get_creation_meta", None)
    return "DEFAULT" if ask is None else str(ask(view).name)


def call_without_rule(
    op: str, call: Call, tensors: Sequence[torch.Tensor], written: Sequence[int]
) -> Any:  # noqa: ANN401
    """The result of ``call(tensors)``, with a node that raises when a backward pass reaches it.

    ``written`` are the positions among ``tensors`` of those that the call writes and that require
    grad: their new content has such a node, too.
    """
    _register()
    apply: Any = _Undifferentiable.apply
    if written:
        results = apply(op, call, tuple(written), *tensors)
        kept = results[: -len(written)]
        return None if not kept else kept[0] if len(kept) == 1 else kept
    errors: list[Exception] = []

    # An error that passes through torch's function after a warning in C++, such as torch.vmap
    # gives, becomes a SystemError without text: torch makes a Python warning while it is set.
    def guarded(tensors: Sequence[torch.Tensor]) -> Any:  # noqa: ANN401
        try:
            return call(tensors)
        except Exception as error:
            errors.append(error)
            return tensors[0].new_empty(0)

    results = apply(op, guarded, (), *tensors)
    if errors:
        raise errors[0]
    return results


class _Undifferentiable(torch.autograd.Function):
    @staticmethod
    def forward(op: str, call: Call, written: tuple[int, ...], *tensors: torch.Tensor) -> Any:  # noqa: ANN401
        result = call(tensors)
        if not written:
            return result
        results = () if result is None else result if isinstance(result, tuple) else (result,)
        return (*results, *(tensors[n] for n in written))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: object) -> None:  # noqa: ANN401
        ctx.op, _, written, *tensors = inputs
        ctx.set_materialize_grads(False)
        ctx.looks = [(tuple(t.shape), t.dtype) for t in tensors]
        if written:
            ctx.mark_dirty(*(tensors[n] for n in written))

    @staticmethod
    def vmap(info: Any, in_dims: Any, op: str, call: Call, written: Any, *tensors: Any) -> Any:  # noqa: ANN401
        if written:
            raise ArgumentError(
                f"{op}: torch.vmap cannot batch a write to a tensor that needs grad"
            )
        batched = torch.vmap(
            lambda *values: call(values), in_dims=tuple(in_dims[3:]), randomness=info.randomness
        )
        # A tensor that requires grad outside of this level gets its node there.
        if is_wanted(t for t in tensors if isinstance(t, torch.Tensor)):
            result = call_without_rule(op, lambda values: batched(*values), tensors, ())
        else:
            result = batched(*tensors)
        return result, tuple(0 for _ in result) if isinstance(result, tuple) else 0

    @staticmethod
    def jvp(ctx: Any, *tangents: object) -> Any:  # noqa: ANN401
        raise _no_forward_mode(ctx.op)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> Any:  # noqa: ANN401
        grad = next((g for g in grads if g is not None), None)
        refuse = getattr(torch.ops, _NAMESPACE).refuse
        refused = [
            refuse(grad, list(shape), dtype, ctx.op) if is_needed and grad is not None else None
            for is_needed, (shape, dtype) in zip(ctx.needs_input_grad[3:], ctx.looks, strict=True)
        ]
        return None, None, None, *refused


@functools.cache
def _register() -> None:
    library: Any = torch.library.Library(_NAMESPACE, "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define(f"{_NAME}(Tensor grad, SymInt[] shape, ScalarType dtype, str op) -> Tensor")
    library.impl(_NAME, _refuse, "CompositeExplicitAutograd")
    torch.library.register_vmap(
        f"{_NAMESPACE}::{_NAME}", lambda info, in_dims, *args: _refuse(*args), lib=library
    )
    torch.library.register_fake(
        f"{_NAMESPACE}::{_NAME}",
        lambda grad, shape, dtype, op: grad.new_empty(shape, dtype=dtype),
        lib=library,
    )
    _libraries.append(library)


_libraries: list[Any] = []  # a Library takes its registrations along when it is destroyed


def _refuse(grad: torch.Tensor, shape: Sequence[int], dtype: torch.dtype, op: str) -> torch.Tensor:
    raise NotDifferentiableError(
        f"{op}: a backward pass has come to this op, which has no registered gradient; give it one "
        "with register_autograd, call it under torch.no_grad() or with detached arguments, or "
        "declare @tileops.jit(differentiable=False)"
    )


def refuse_tangents(op: str, inputs: Iterable[object]) -> None:
    """NotDifferentiableError for an input with a tangent: torch would give a result without one.

    Callers look first whether they are inside a ``forward_ad.dual_level``, which costs nothing.
    """
    for value in inputs:
        if not isinstance(value, torch.Tensor):
            continue
        dual = forward_ad.unpack_dual(value)  # type: ignore[no-untyped-call,unused-ignore]
        if dual.tangent is not None:
            raise _no_forward_mode(op)


def _no_forward_mode(op: str) -> NotDifferentiableError:
    return NotDifferentiableError(
        f"{op}: an argument has a tangent, and the op has no rule for forward-mode "
        "differentiation; use reverse mode, or pass the primal value"
    )
