"""The comparison of results with a reference program, and the identity of users' functions."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import torch

from tileops import forks
from tileops.errors import TileopsError
from tileops.profiler import assert_close

if TYPE_CHECKING:
    from tileops.autotuner.param import TuningOptions

# References are the user's code, which was not written for several threads.
_turn = forks.renewed_lock()


class ReferenceFailedError(TileopsError):
    """The reference program raised: no config can be blamed, and none can be compared."""


class Checker:
    """Compares results with those of ``ref_prog``, which runs once on inputs from ``inputs``."""

    def __init__(self, options: TuningOptions, inputs: Callable[[], list[Any]]) -> None:
        self._options = options
        self._inputs = inputs
        self._expected: tuple[list[torch.Tensor], list[Any]] | None = None

    def check(self, results: Sequence[torch.Tensor], op: Mapping[str, Any]) -> None:
        """Raise where ``results`` (returned, then written tensors) are wrong.

        ``op`` says which arguments the kernel writes. AssertionError, or what ``manual_check_prog``
        raises.
        """
        with _turn:
            options, found = self._options, list(results)
            expected, arguments = self._run_reference()
            if expected:
                found = found[: len(expected)]
            else:
                args = [a for a in op["args"] if a["role"] in ("tensor", "scalar")]
                expected = [v for a, v in zip(args, arguments, strict=True) if a["mutated"]]
            if options.manual_check_prog is not None:
                if options.manual_check_prog(found, expected) is False:
                    raise AssertionError("manual_check_prog returned False")
                return
            if len(found) != len(expected):
                raise AssertionError(
                    f"the kernel gives {len(found)} tensors, the reference {len(expected)}"
                )
            for number, (got, want) in enumerate(zip(found, expected, strict=True)):
                assert_close(
                    got.to(want.device),
                    want,
                    options.atol,
                    options.rtol,
                    options.max_mismatched_ratio,
                    f"output {number}",
                )

    def _run_reference(self) -> tuple[list[torch.Tensor], list[Any]]:
        """The tensors that the reference returned, and its arguments after the call."""
        if self._expected is None:
            arguments = self._inputs()
            assert self._options.ref_prog is not None
            try:
                result = self._options.ref_prog(*arguments)
            except Exception as error:
                raise ReferenceFailedError(
                    f"ref_prog raised {type(error).__name__}: {error}"
                ) from error
            values = list(result) if isinstance(result, (tuple, list)) else [result]
            tensors = [value for value in values if isinstance(value, torch.Tensor)]
            if result is not None and not tensors and self._options.manual_check_prog is None:
                raise ReferenceFailedError(
                    f"ref_prog gave {type(result).__name__}, expected a tensor, several, or None "
                    "where it writes into its arguments"
                )
            # A reference may return what it was given, or a view that later runs would change.
            self._expected = [t.detach().clone() for t in tensors], arguments
        return self._expected


# -- identity --------------------------------------------------------------------------------------
_DEPTH = 4  # functions within captured values and partial applications
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def identity(function: object) -> str:
    """Module, name and, of Python functions, 12 digits of what they do and captured.

    Never a repr: it may hold an address. What a function calls by a global name is not followed.
    """
    named: Any = function if hasattr(function, "__qualname__") else type(function)
    name = f"{named.__module__}.{named.__qualname__}"
    parts = _parts(function, _DEPTH)
    if not parts:
        return name
    return f"{name}:{hashlib.sha256(parts.encode()).hexdigest()[:12]}"


def _parts(value: object, depth: int) -> str:
    """What tells functions apart, empty for what has no code of Python."""
    if depth == 0:
        return ""
    if isinstance(value, functools.partial):
        given = [*value.args, *(v for _, v in sorted(value.keywords.items()))]
        return ";".join([_parts(value.func, depth - 1), *(_value(v, depth - 1) for v in given)])
    if isinstance(value, MethodType):
        return _parts(value.__func__, depth)
    if not isinstance(value, FunctionType):
        return ""
    captured = []
    for cell in value.__closure__ or ():
        with suppress(ValueError):  # a name that is not bound yet
            captured.append(cell.cell_contents)
    held = [*captured, *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    return ";".join([_code(value.__code__), *(_value(v, depth - 1) for v in held)])


def _code(code: CodeType) -> str:
    constants = [_code(c) if isinstance(c, CodeType) else _value(c, 1) for c in code.co_consts]
    return f"{code.co_code.hex()}{code.co_names}{constants}"


def _value(value: object, depth: int) -> str:
    if isinstance(value, _PLAIN):
        return f"{type(value).__name__}:{value!r}"
    if isinstance(value, tuple) and depth > 0:
        return f"[{','.join(_value(v, depth - 1) for v in value)}]"
    # What can change, such as a list that a timer fills, tells nothing.
    return _parts(value, depth) or type(value).__qualname__
