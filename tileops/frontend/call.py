"""Owns running a rewritten function: binding its arguments, its closure and its hooks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import CellType, FunctionType
from typing import cast

from tileops.errors import ProgramTypeError
from tileops.frontend.expressions import HOOKS
from tileops.frontend.frame import Frame
from tileops.frontend.rewrite import Rewritten, rewritten
from tileops.language.annotations import Ref
from tileops.language.buffers import Element, RegionRef, VarRef
from tileops.language.tracer import Tracer
from tileops.language.value import Value, snapshot


def run(
    tracer: Tracer,
    func: FunctionType,
    arguments: Mapping[str, object],
    declare_parameter: Callable[[str, object], object] | None = None,
) -> object:
    """Run ``func`` rewritten, with one value a parameter; what it returns."""
    code = rewritten(func)
    frame = Frame(tracer, code.locations, arguments, declare_parameter)
    return _instance(func, code, frame)(*_positional(func, arguments), **_keywords(func, arguments))


def _instance(func: FunctionType, code: Rewritten, frame: Frame) -> FunctionType:
    cells = dict(zip(func.__code__.co_freevars, func.__closure__ or (), strict=True))
    cells[HOOKS] = CellType(frame)
    closure = tuple(cells[name] for name in code.code.co_freevars)
    return FunctionType(code.code, func.__globals__, func.__name__, None, closure)


def _positional(func: FunctionType, arguments: Mapping[str, object]) -> list[object]:
    out: list[object] = []
    for p in inspect.signature(func).parameters.values():
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
            out.append(arguments[p.name])
        elif p.kind == p.VAR_POSITIONAL:
            out.extend(cast("tuple[object, ...]", arguments[p.name]))
    return out


def _keywords(func: FunctionType, arguments: Mapping[str, object]) -> dict[str, object]:
    out: dict[str, object] = {}
    for p in inspect.signature(func).parameters.values():
        if p.kind == p.KEYWORD_ONLY:
            out[p.name] = arguments[p.name]
        elif p.kind == p.VAR_KEYWORD:
            out.update(cast("Mapping[str, object]", arguments[p.name]))
    return out


def inline_macro(
    tracer: Tracer, func: FunctionType, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> object:
    """Trace a macro into the running program; what it returns.

    Parameters annotated T.Ref are passed by reference; other scalars are bound to what they are
    now.
    """
    caller, names = tracer.location, tracer.take_names()
    signature = inspect.signature(func)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise ProgramTypeError(f"macro {func.__name__}: {error}", location=caller) from error
    bound.apply_defaults()
    arguments: dict[str, object] = {}
    for name, value in bound.arguments.items():
        annotation = signature.parameters[name].annotation
        by_reference = annotation is Ref or (
            isinstance(annotation, str) and annotation.split(".")[-1] == "Ref"
        )
        arguments[name] = (
            _reference(func, name, value, caller) if by_reference else _by_value(name, value)
        )
    result = run(tracer, func, arguments)
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
