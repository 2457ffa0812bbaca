"""Owns the decorator T.prim_func, the one place where the language meets the front end above it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import FunctionType


def prim_func(func: FunctionType | None = None, **options: object) -> object:
    """Decorator: trace a function with annotated parameters at once and give its PrimFunc.

    Raises located ProgramErrors where the function breaks a rule of the language.
    """
    names_in_scope = sys._getframe(1).f_locals
    if func is None:
        return lambda decorated: _traced(decorated, names_in_scope)
    return _traced(func, names_in_scope)


def _traced(func: FunctionType, names_in_scope: Mapping[str, object]) -> object:
    # Late, as the front end imports the language's other modules.
    from tileops.frontend import make_prim_func

    return make_prim_func(func, name=func.__name__, names_in_scope=names_in_scope)
