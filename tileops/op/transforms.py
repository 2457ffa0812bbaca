"""The rules of an op for torch's transforms: its gradient, batching and autocast."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tileops.dtypes import dtype_of
from tileops.errors import ArgumentError, ArgumentTypeError
from tileops.op import fallbacks
from tileops.op.spec import OpSpec
from tileops.optional_torch import IS_HERE, torch

if TYPE_CHECKING:
    from tileops.op.registration import Op

# What torch's dispatch keys call a device.
_DEVICE_KEYS = {"cpu": "CPU", "cuda": "CUDA"}

# A destroyed torch.library.Library removes its registrations; ops live as long as the process.
_libraries: dict[str, torch.library.Library] = {}


class Transforms:
    """The rules of one program or kernel, for each op that it becomes.

    ``static_values`` gives every compile-time value by name for those that an op received;
    ``digest`` that of functions and values, which torch's caches of graphs must know.
    """

    def __init__(
        self,
        static_values: Callable[[tuple[object, ...]], Mapping[str, object]],
        digest: Callable[..., str],
        autocast: Mapping[str, torch.dtype] | None = None,
    ) -> None:
        self._static_values = static_values
        self._digest_of = digest
        self._autocast = dict(autocast or {})
        # backward and setup_context, as torch.library.register_autograd takes them
        self._gradient: tuple[Callable[..., Any], Callable[..., Any] | None] | None = None
        self._batching: Callable[..., Any] | None = None
        self._fallbacks: dict[str, Callable[..., Any]] = {}

    def set_gradient(
        self, backward: Callable[..., Any], setup_context: Callable[..., Any] | None
    ) -> None:
        """Set or replace the gradient; ArgumentTypeError for what cannot be called."""
        for name, value in (("backward", backward), ("setup_context", setup_context)):
            if not callable(value) and (name == "backward" or value is not None):
                raise ArgumentTypeError(
                    f"register_autograd: {name} must be a function, got {type(value).__name__}"
                )
        self._gradient = (backward, setup_context)

    def set_batching(self, rule: Callable[..., Any]) -> None:
        """Set or replace the vmap rule; ArgumentTypeError for what cannot be called."""
        if not callable(rule):
            raise ArgumentTypeError(
                f"register_vmap: expected a function, got {type(rule).__name__}"
            )
        self._batching = rule

    def set_fallback(self, device: str, function: Callable[..., Any]) -> None:
        """Set or replace what calls on ``device`` run in place of compiled code."""
        fallbacks.check(device, function)
        self._fallbacks[device] = function

    def install(self, op: Op) -> None:
        """Give ``op`` the rules that it does not have yet."""
        op.rules = self._digest
        if not IS_HERE:
            return
        name = op.spec.qualified_name
        if self._gradient is not None:
            _check_functional(op.spec)
            if op.is_new("gradient"):
                torch.library.register_autograd(
                    name, self._backward, setup_context=self._setup_context(op.spec)
                )
                op.calls.set_gradient()
        if self._batching is not None and op.is_new("vmap"):
            torch.library.register_vmap(name, self._batch)
        if self._autocast and op.is_new("autocast"):
            for device_type, dtype in self._autocast.items():
                _register_autocast(op, device_type, dtype)
        for device in self._fallbacks:
            if op.is_new(f"fallback {device}"):
                self._register_fallback(op, device)
        # torch remembers where the calls of an earlier trace went.
        op.overload._dispatch_cache.clear()

    def _register_fallback(self, op: Op, device: str) -> None:
        kernel = fallbacks.kernel_of(op, lambda: self._fallbacks[device], self._static_values)
        library: Any = _library(op.spec.namespace)
        with warnings.catch_warnings():  # torch says that there was a kernel before
            warnings.simplefilter("ignore")
            library.impl(op.spec.name, kernel, _DEVICE_KEYS[device], allow_override=True)

    def _digest(self) -> str:
        autocast = sorted((device, str(dtype)) for device, dtype in self._autocast.items())
        given = (*(self._gradient or ()), self._batching, autocast)
        others = tuple(function for _, function in sorted(self._fallbacks.items()))
        return self._digest_of(*given, *others)

    def _batch(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        assert self._batching is not None
        return self._batching(*args, **kwargs)

    def _backward(self, ctx: Any, *grads: Any) -> Any:  # noqa: ANN401
        # Programs take contiguous tensors; a gradient may be expanded by a sum or transposed by a
        # product.
        assert self._gradient is not None
        return self._gradient[0](ctx, *map(_contiguous, grads))

    def _setup_context(self, spec: OpSpec) -> Callable[..., None]:
        names = tuple(a.name for a in spec.statics())

        def setup_context(
            ctx: Any,  # noqa: ANN401
            inputs: tuple[Any, ...],
            output: Any,  # noqa: ANN401
            keyword_only_inputs: Mapping[str, object] | None = None,
        ) -> None:
            assert self._gradient is not None
            _, users = self._gradient
            if users is None:
                return
            extra = {}
            parameters = inspect.signature(users).parameters.values()
            if any(p.name == "keyword_only_inputs" or p.kind is p.VAR_KEYWORD for p in parameters):
                given = keyword_only_inputs or {}
                static = self._static_values(tuple(given.get(n) for n in names))
                extra["keyword_only_inputs"] = dict(static)
            users(ctx=ctx, inputs=inputs, output=output, **extra)

        return setup_context


def pass_autograd(spec: OpSpec) -> None:
    """Make calls of an op pass autograd by: their results never require grad.

    torch's own rule for ops without a gradient looks at each input of each call (0.2 us) in order
    to warn in the backward pass; it is for programs that say nothing about gradients.
    """
    if IS_HERE and any(a.role == "tensor" for a in spec.args):
        library: Any = _library(spec.namespace)
        for device in _DEVICE_KEYS.values():
            library.impl(spec.name, torch.library.fallthrough_kernel, f"Autograd{device}")


def _library(namespace: str) -> torch.library.Library:
    if namespace not in _libraries:
        _libraries[namespace] = torch.library.Library(namespace, "FRAGMENT")  # type: ignore[no-untyped-call]
    return _libraries[namespace]


def _contiguous(gradient: Any) -> Any:  # noqa: ANN401
    if not isinstance(gradient, torch.Tensor):
        return gradient
    if gradient.layout != torch.strided and not gradient.is_nested:
        gradient = gradient.to_dense()
    return gradient.contiguous()


def _check_functional(spec: OpSpec) -> None:
    """ArgumentError for an op that has no place for a gradient: it writes its inputs."""
    written = [a.name for a in spec.args if a.mutated]
    if written:
        raise ArgumentError(
            f"{spec.name}: register_autograd needs a program that writes none of its inputs, and "
            f"this one writes '{written[0]}'; make that tensor with T.empty and return it"
        )
    if not spec.returns:
        raise ArgumentError(f"{spec.name}: register_autograd needs a program that returns a tensor")


def autocast_dtypes(value: object) -> dict[str, torch.dtype]:
    """``jit(autocast=...)`` by device type; ArgumentError for others and dtypes not floating."""
    if value is None:
        return {}
    given = value if isinstance(value, Mapping) else dict.fromkeys(_DEVICE_KEYS, value)
    found = {}
    for device_type, dtype in given.items():
        if device_type not in _DEVICE_KEYS:
            raise ArgumentError(
                f"autocast: expected a device type of {', '.join(_DEVICE_KEYS)}, got "
                f"{device_type!r}"
            )
        found[str(device_type)] = dtype_of(dtype).as_torch()
        if not found[str(device_type)].is_floating_point:
            raise ArgumentError(f"autocast: expected a floating dtype, got {dtype}")
    return found


def _register_autocast(op: Op, device_type: str, dtype: torch.dtype) -> None:
    overload = op.overload
    key = f"Autocast{_DEVICE_KEYS[device_type]}"
    below = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

    def kernel(_keys: object, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        with torch._C._ExcludeDispatchKeyGuard(below):
            return overload(*_cast(args, device_type, dtype), **kwargs)

    library: Any = _library(op.spec.namespace)
    library.impl(op.spec.name, kernel, key, with_keyset=True)


def _cast(args: Sequence[Any], device_type: str, dtype: torch.dtype) -> list[Any]:
    # As in torch's own rule, float64 stays: the user asked for it.
    return [
        a.to(dtype)
        if isinstance(a, torch.Tensor)
        and a.is_floating_point()
        and a.device.type == device_type
        and a.dtype != torch.float64
        else a
        for a in args
    ]
