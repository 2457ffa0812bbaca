"""The Python side of an op in torch: its fake, and what its calls pass before the dispatcher."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from tileops import runtime
from tileops.errors import ArgumentError
from tileops.op import call_inputs, compile_cache, gradient
from tileops.op.spec import OpSpec
from tileops.optional_torch import forward_ad, torch

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def packet_of(spec: OpSpec) -> Any:  # noqa: ANN401
    """What ``torch.ops.<namespace>.<name>`` is; its ``default`` is the op."""
    return getattr(getattr(torch.ops, spec.namespace), spec.name)


class Overload:
    """torch's Python class of one op, with its fake and our function in place of torch's own.

    A gradient in torch's dispatcher costs each call 6 us, and its stable interface does not say
    whether a tensor requires grad. So what concerns gradients is decided where Python calls an op.
    Calls from C++ get torch's rule for ops without a gradient, a warning.
    """

    def __init__(
        self, spec: OpSpec, fake: Callable[..., object], *, is_differentiable: bool = True
    ) -> None:
        self.spec = spec
        self.is_differentiable = is_differentiable
        self.has_gradient = False
        self._calls: list[Callable[..., Any]] = []
        torch.library.register_fake(spec.qualified_name, fake)
        packet = packet_of(spec)
        if _is_replaceable(packet):
            for owner in (packet.default, packet):
                self._replace(owner)
        if any(arg.role == "device" for arg in spec.args):
            _follow_default_device(packet)

    def set_gradient(self) -> None:
        """Autograd has a rule in Python for the op, which plain calls pass by."""
        self.has_gradient = True
        for call in self._calls:
            runtime.set_has_gradient(call)

    def _replace(self, owner: Any) -> None:  # noqa: ANN401
        function = owner._op
        is_written = any(a.mutated for a in self.spec.args)
        call = runtime.make_op_call(
            function,
            functools.partial(self._general, function),
            self._explain,
            asks_gradient=self.is_differentiable or is_written,
        )
        owner._op = call
        self._calls.append(call)
        # TorchScript knows an op by the identity of this function.
        builtins: Any = torch.jit._builtins
        name = builtins._find_builtin(function)
        if name is not None:
            builtins._register_builtin(call, name)

    def _general(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        values = (*args, *kwargs.values())
        symbolic = [v for v in values if isinstance(v, _SYMBOLIC)]
        if symbolic:
            compile_cache.note_numbers(self.spec.qualified_name, symbolic)
        tensors = [v for v in values if isinstance(v, torch.Tensor)]
        if forward_ad._current_level >= 0 and self.is_differentiable:
            gradient.refuse_tangents(self.spec.title, tensors)
        if not gradient.is_wanted(tensors):
            return function(*args, **kwargs)
        given = self.spec.named(args, kwargs)
        written = [a.name for a in self.spec.args if a.mutated]
        for name in written:
            gradient.refuse_leaf(self.spec.title, name, given.get(name))
        if not self.is_differentiable or self.has_gradient:
            return function(*args, **kwargs)
        if gradient.has_rule(self.spec.qualified_name):  # a user's
            return function(*args, **kwargs)
        return self._recorded(function, args, kwargs, [given.get(name) for name in written])

    def _recorded(
        self,
        function: Any,  # noqa: ANN401
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        written: list[Any],
    ) -> Any:  # noqa: ANN401
        """The call with a node that refuses a backward pass."""
        tensors = [v for v in (*args, *kwargs.values()) if isinstance(v, torch.Tensor)]
        changed = [t for t in written if isinstance(t, torch.Tensor) and t.requires_grad]
        if not self.spec.returns and not changed:
            return function(*args, **kwargs)

        def call(values: Sequence[torch.Tensor]) -> Any:  # noqa: ANN401
            rest = iter(values)

            def filled(value: Any) -> Any:  # noqa: ANN401
                return next(rest) if isinstance(value, torch.Tensor) else value

            placed = [filled(v) for v in args]
            return function(*placed, **{k: filled(v) for k, v in kwargs.items()})

        places = [n for n, t in enumerate(tensors) if any(t is c for c in changed)]
        return gradient.call_without_rule(self.spec.title, call, tensors, places)

    def _explain(self, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception) -> None:
        if torch.compiler.is_compiling():
            return
        call_inputs.explain_op(self.spec, args, kwargs, error)
        if isinstance(error, ArgumentError) and _SHARED in str(error) and _is_in_a_graph():
            told = str(error).partition("; pass")[0]
            raise ArgumentError(
                f"{told}: torch.compile has removed a copy, such as a clone(), that nothing else "
                "writes. Copy with torch.stack((x,))[0], which it keeps, or let the program return "
                "a tensor of T.empty instead of writing an argument"
            ) from None


_SHARED = "got memory that it shares with"  # what the runtime says of tensors that overlap


def _is_in_a_graph() -> bool:
    """Whether a graph that torch.compile has made calls."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.startswith(("torch._inductor", "torch._functorch._aot_autograd")):
            return True
        frame = frame.f_back
    return False


def _follow_default_device(packet: Any) -> None:  # noqa: ANN401
    """Let an op without tensors create its outputs where torch's factories do."""
    from torch.utils import _device

    # torch.set_default_device and `with torch.device(...)` fill in the device of these functions.
    known: set[Any] = _device._device_constructors()
    known.update((packet, packet.default))


_verdict: list[bool] = []


def _is_replaceable(packet: Any) -> bool:  # noqa: ANN401
    """Whether torch's Python classes of ops call what is in their ``_op``, tried out on one op."""
    if not _verdict:
        _verdict.append(_calls_its_op(packet.default) and _calls_its_op(packet))
    return _verdict[0]


def _calls_its_op(owner: Any) -> bool:  # noqa: ANN401
    function = getattr(owner, "_op", None)
    if not callable(function):
        return False
    token = object()
    owner._op = lambda *args, **kwargs: token
    try:
        return owner() is token
    except RuntimeError:  # torch's own function, which wants arguments
        return False
    finally:
        owner._op = function
