"""Owns running a rewritten function: binding its arguments, its closure and its hooks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from types import CellType, CodeType, FunctionType
from typing import cast

from tileops.errors import ProgramError, ProgramTypeError
from tileops.frontend.expressions import HOOKS
from tileops.frontend.frame import Frame
from tileops.frontend.rewrite import Rewritten, rewritten
from tileops.language.buffers import Element, RegionRef, VarRef
from tileops.language.parameter_types import Ref, Var
from tileops.language.tracer import Tracer
from tileops.language.value import Value, snapshot
from tileops.location import Location

# Each takes several frames of Python's stack, which holds a thousand.
_DEEPEST = 64


def run(
    tracer: Tracer,
    func: FunctionType,
    arguments: Mapping[str, object],
    declare_parameter: Callable[[str, object], object] | None = None,
    calls: tuple[tuple[str, Location], ...] = (),
) -> object:
    """Run ``func`` rewritten, with one value a parameter; what it returns.

    ``calls`` are the macros that led here, ``func`` first.
    """
    code = rewritten(func)
    frame = Frame(tracer, code.locations, arguments, declare_parameter, calls)
    by_position, by_name = _bound(func.__code__, arguments)
    return _instance(func, code, frame)(*by_position, **by_name)


def _instance(func: FunctionType, code: Rewritten, frame: Frame) -> FunctionType:
    cells = dict(zip(func.__code__.co_freevars, func.__closure__ or (), strict=True))
    cells[HOOKS] = CellType(frame)
    closure = tuple(cells[name] for name in code.code.co_freevars)
    return FunctionType(code.code, func.__globals__, func.__name__, None, closure)


def _bound(
    code: CodeType, arguments: Mapping[str, object]
) -> tuple[list[object], dict[str, object]]:
    """The arguments that a function of ``code`` takes by position and those it takes by name."""
    names = iter(code.co_varnames)
    by_position = [arguments[name] for name in islice(names, code.co_argcount)]
    by_name = {name: arguments[name] for name in islice(names, code.co_kwonlyargcount)}
    if code.co_flags & inspect.CO_VARARGS:
        by_position += cast("tuple[object, ...]", arguments[next(names)])
    if code.co_flags & inspect.CO_VARKEYWORDS:
        by_name.update(cast("Mapping[str, object]", arguments[next(names)]))
    return by_position, by_name


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
