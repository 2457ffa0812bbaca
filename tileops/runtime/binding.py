"""The native module ``tileops._C``: its loading, and what it must be told of torch."""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any

from tileops import errors

if TYPE_CHECKING:
    from tileops._C import *  # noqa: F403
else:

    def __getattr__(name: str) -> object:
        if name.startswith("__"):  # asked for by import, which needs no native code
            raise AttributeError(name)
        return getattr(native(), name)


# Keys of torch's dispatcher: autograd's, and the one by which torch.func's transforms see a call.
_AUTOGRAD_KEYS = ("AutogradFunctionality", "AutogradOther", "AutogradNestedTensor")
_FRONT_KEY = "FuncTorchDynamicLayerFrontMode"


@functools.cache
def native() -> Any:  # noqa: ANN401 - a module
    """The native module, loaded at the first use; raises ToolchainError if it was not built."""
    # libtileops is linked with libtorch, which only torch's own import puts into the process.
    import torch
    from torch.autograd import forward_ad

    try:
        module = importlib.import_module("tileops._C")
    except ImportError as error:
        raise errors.ToolchainError(
            f"tileops' native part cannot be loaded ({error}); reinstall tileops, or in a checkout "
            "run 'pip install --no-build-isolation -e .'"
        ) from error
    module.set_error_classes(
        [
            errors.ArgumentError,
            errors.ArgumentTypeError,
            errors.RedefinedOpError,
            errors.CompileMissError,
            errors.ToolchainError,
            errors.DriverError,
            errors.InternalError,
            torch.OutOfMemoryError,
        ]
    )
    module.set_gradient_source(
        forward_ad,
        torch.is_grad_enabled,
        torch.Tensor,
        torch.nn.Parameter,
        torch.Tensor.requires_grad,
    )
    with torch.inference_mode(False):
        plain, leaf = torch.empty(1, device="cpu"), torch.empty(1, device="cpu", requires_grad=True)
        module.find_tensor_state([plain, leaf, plain[:], leaf[:], torch.nn.Parameter(plain)])
    if not _passes_autograd(module):
        module.forget_dispatch_state()
    return module


def _passes_autograd(module: Any) -> bool:  # noqa: ANN401
    """Whether this torch lets calls pass autograd by, tried out with what it says of itself.

    The functions for it are in no stable interface. If they are missing or do something else, every
    call takes the op's rule in Python, which is right and costs a few microseconds.
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
