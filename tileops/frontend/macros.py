"""Macros: their calls are traced into the running program."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from types import FunctionType

from tileops.errors import ProgramError, ProgramTypeError
from tileops.frontend.frame import run
from tileops.language.buffers import Element, RegionRef, VarRef
from tileops.language.parameter_types import Ref, Var
from tileops.language.tracer import Tracer
from tileops.language.value import Value, snapshot

# Each call takes several frames of Python's stack, which has a thousand.
_DEEPEST = 64


def inline_macro(
    tracer: Tracer, func: FunctionType, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> object:
    """Trace a macro into the running program; what it returns.

    Parameters annotated T.Ref, or T.Var as long as they can be assigned to, are passed by
    reference; other scalars are bound to what they are now.
    """
    caller, names = tracer.location, tracer.take_names()
    calls = () if caller is None else ((func.__name__, replace(caller, calls=())), *caller.calls)
    if len(calls) > _DEEPEST:
        raise ProgramError(
            f"macro {func.__name__}: macros call each other more than {_DEEPEST} deep; a macro "
            "that calls itself needs a condition that Python decides",
            location=caller,
        )
    signature = inspect.signature(func)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise ProgramTypeError(f"macro {func.__name__}: {error}", location=caller) from error
    bound.apply_defaults()
    arguments: dict[str, object] = {}
    for name, value in bound.arguments.items():
        annotation = signature.parameters[name].annotation
        word = annotation.split(".")[-1] if isinstance(annotation, str) else None
        if annotation is Ref or word == "Ref":
            arguments[name] = _reference(func, name, value, caller)
        elif (annotation is Var or word == "Var") and isinstance(value, (Element, RegionRef)):
            arguments[name] = value
        else:
            arguments[name] = _by_value(name, value)
    result = run(tracer, func, arguments, calls=calls)
    tracer.location = caller
    tracer.set_names(names)
    return result


def _reference(func: FunctionType, name: str, value: object, caller: object) -> object:
    if isinstance(value, (Element, RegionRef)) or not isinstance(value, (Value, bool, int, float)):
        return value
    raise ProgramTypeError(
        f"macro {func.__name__}: `{name}` is passed by reference and needs a T.alloc_var, an "
        "element or a slice",
        location=caller,  # type: ignore[arg-type]
    )


def _by_value(name: str, value: object) -> object:
    if isinstance(value, VarRef):
        value.fresh = False
    return snapshot(name, value)
