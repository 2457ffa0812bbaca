"""Python functions that stand in for an op's kernels on a device that has none."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tileops.errors import ArgumentError, ArgumentTypeError
from tileops.optional_torch import torch

if TYPE_CHECKING:
    from tileops.op.registration import Op

DEVICES = ("cpu",)


def check(device: str, function: Callable[..., Any]) -> None:
    """ArgumentError for a device that takes no fallback, ArgumentTypeError for no function."""
    if device not in DEVICES:
        raise ArgumentError(f"fallback: expected the device 'cpu', got {device!r}")
    if not callable(function):
        raise ArgumentTypeError(f"fallback: expected a function, got {type(function).__name__}")


def kernel_of(
    op: Op,
    function: Callable[[], Callable[..., Any]],
    static_values: Callable[[tuple[object, ...]], Mapping[str, object]],
) -> Callable[..., Any]:
    """A kernel for torch's dispatcher that calls what ``function`` gives at each call.

    The function gets tensors and scalars in order, and by name the compile-time values that it has
    parameters for. What it returns must be what the op returns.
    """
    spec = op.spec
    names = [arg.name for arg in spec.statics()]

    def kernel(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        expected = _outputs(op.overload(*map(_without_data, args), **kwargs))
        users = function()
        extra: dict[str, object] = {}
        taken = _parameters(users)
        if any(n in taken for n in names):
            values = static_values(tuple(kwargs.get(n) for n in names))
            extra = {n: v for n, v in values.items() if n in taken and n in names}
        found = users(*args, **extra)
        if not spec.returns:
            return None  # it has written its arguments
        outputs = _outputs(found)
        _check_outputs(spec.title, outputs, expected, args)
        return found if len(outputs) == 1 and isinstance(found, torch.Tensor) else _as(outputs)

    return kernel


def _parameters(function: Callable[..., Any]) -> frozenset[str]:
    try:
        return frozenset(inspect.signature(function).parameters)
    except ValueError:  # a built-in function has no signature
        return frozenset()


def _as(outputs: list[Any]) -> Any:  # noqa: ANN401
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _without_data(value: Any) -> Any:  # noqa: ANN401
    return value.detach().to("meta") if isinstance(value, torch.Tensor) else value


def _outputs(value: Any) -> list[Any]:  # noqa: ANN401
    if value is None:
        return []
    return list(value) if isinstance(value, (tuple, list)) else [value]


def _check_outputs(
    title: str, found: list[Any], expected: list[torch.Tensor], args: tuple[Any, ...]
) -> None:
    given = {id(a) for a in args if isinstance(a, torch.Tensor)}
    told = [_text(t) for t in found]
    wanted = [_text(t) for t in expected]
    if told != wanted:
        raise ArgumentError(
            f"{title}: its fallback must return {', '.join(wanted)}; got {', '.join(told)}"
        )
    if any(id(t) in given for t in found):
        raise ArgumentError(f"{title}: its fallback returns one of its arguments; return a copy")


def _text(value: Any) -> str:  # noqa: ANN401
    if not isinstance(value, torch.Tensor):
        return f"a {type(value).__name__}"
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
