"""What stands between Python and the ops: short ways of calls, and calls below autograd."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tileops.runtime.binding import native

# Keys of torch's dispatcher: autograd's, and the one by which torch.func's transforms see a call.
_AUTOGRAD_KEYS = ("AutogradFunctionality", "AutogradOther", "AutogradNestedTensor")
_FRONT_KEY = "FuncTorchDynamicLayerFrontMode"


@functools.cache
def _prepared() -> Any:  # noqa: ANN401 - a module without type information
    """The binding module, told where torch keeps what calls ask about gradients."""
    import torch
    from torch.autograd import forward_ad

    module = native()
    module.set_gradient_source(
        forward_ad,
        torch.is_grad_enabled,
        torch.Tensor,
        torch.nn.Parameter,
        torch.Tensor.requires_grad,
    )
    if not _passes_autograd(module):
        module.forget_dispatch_state()
    return module


def _passes_autograd(module: Any) -> bool:  # noqa: ANN401
    """Whether this torch lets calls pass autograd by, tried out with what it says of itself.

    The functions for it are in no stable interface. Where they are missing or do something else,
    every call takes the op's rule in Python, which is right and costs a few microseconds.
    """
    import torch

    state = torch._C
    is_excluded = getattr(state, "_dispatch_tls_is_dispatch_key_excluded", None)
    key_class = getattr(state, "DispatchKey", None)
    names = (*_AUTOGRAD_KEYS, _FRONT_KEY, "Python")
    if is_excluded is None or any(not hasattr(key_class, name) for name in names):
        return False
    keys = {name: getattr(key_class, name) for name in names}
    bits = 0
    for name in _AUTOGRAD_KEYS:
        bits |= int(state.DispatchKeySet(keys[name]).raw_repr())
    if not module.find_dispatch_state(bits, int(keys[_FRONT_KEY])):
        return False

    def excluded() -> list[bool]:
        return [is_excluded(keys[name]) for name in (*_AUTOGRAD_KEYS, "Python")]

    outside = excluded()
    inside = [True] * len(_AUTOGRAD_KEYS) + outside[-1:]
    if module.below_autograd(excluded) != inside or excluded() != outside:
        return False
    with state._IncludeDispatchKeyGuard(keys[_FRONT_KEY]):
        return bool(module.below_autograd(excluded) == outside)


def direct_call(
    cls: type,
    op: object,
    count: int,
    tensors: Sequence[int],
    scalars: Sequence[tuple[int, type]],
    *,
    asks_gradient: bool,
) -> object:
    """What an object of ``cls`` keeps as ``_direct`` so that plain calls of it run no Python code.

    A call with ``count`` positional arguments, plain tensors at the positions ``tensors`` and
    values of exactly the types ``scalars``, goes to ``op`` at once; with ``asks_gradient`` not
    where a tensor requires grad in grad mode. ``cls`` has a ``__call__`` in Python, which takes all
    other calls, ``_direct`` among its ``__slots__``, and ``_explain(args, error)``, which may raise
    better words for an error of the op.
    """
    module = _prepared()
    module.set_direct(cls.__dict__["_direct"])
    module.install_direct(cls)
    return module.make_direct(op, count, list(tensors), list(scalars), asks_gradient)


class OpCall:
    """What stands in torch's Python class of an op before torch's own ``function`` for it.

    ``callable`` goes to ``function`` at once with plain tensors and numbers. With
    ``asks_gradient``, where a tensor requires grad in grad mode, and where an argument is anything
    else, ``general(args, kwargs)`` takes the call. ``explain(args, kwargs, error)`` may raise
    better words for a RuntimeError of either.
    """

    def __init__(
        self,
        function: object,
        general: Callable[[tuple[Any, ...], dict[str, Any]], Any],
        explain: Callable[[tuple[Any, ...], dict[str, Any], Exception], None],
        *,
        asks_gradient: bool,
    ) -> None:
        self.callable = _prepared().make_op_call(function, general, explain, asks_gradient)

    def set_gradient(self) -> None:
        """Autograd has a rule in Python for the op: calls that need no gradient pass it by."""
        _prepared().set_has_gradient(self.callable, True)
