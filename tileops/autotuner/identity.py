"""Owns the identity of users' functions: text that is the same in every process while they are."""

from __future__ import annotations

import functools
import hashlib
from types import CodeType, FunctionType, MethodType
from typing import Any

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
    captured = [cell.cell_contents for cell in value.__closure__ or () if _is_set(cell)]
    held = [*captured, *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    return ";".join([_code(value.__code__), *(_value(v, depth - 1) for v in held)])


def _is_set(cell: Any) -> bool:  # noqa: ANN401
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:  # a name that is not bound yet
        return False
    return True


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
