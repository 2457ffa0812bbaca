"""The list of broken programs, and the decorators that add to it."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import NamedTuple

from tileops.frontend import trace


class BadProgram(NamedTuple):
    error: type[Exception]
    run: Callable[[], object]


BAD: dict[str, BadProgram] = {}


def bad(error: type[Exception], **static: object) -> Callable[[FunctionType], FunctionType]:
    """Register an eager program that must fail with ``error`` when it is traced."""

    def register(func: FunctionType) -> FunctionType:
        def run() -> object:
            return trace(func, name=func.__name__, static=static, consts=None)

        BAD[func.__name__] = BadProgram(error, run)
        return func

    return register


def bad_definition(error: type[Exception]) -> Callable[[FunctionType], FunctionType]:
    """Register a plain function that must fail with ``error`` when it is called."""

    def register(func: FunctionType) -> FunctionType:
        BAD[func.__name__] = BadProgram(error, func)
        return func

    return register
