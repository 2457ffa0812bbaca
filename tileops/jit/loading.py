"""Owns how programs pickle: by module and name, like functions."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tileops.errors import ArgumentTypeError

if TYPE_CHECKING:
    from tileops.jit.impl import JITImpl


def reduce_program(program: JITImpl) -> tuple[Any, ...]:
    """How a program is pickled; ArgumentTypeError where its name does not lead to it."""
    module, qualname = program.func.__module__, program.func.__qualname__
    bound = dict(program.definition.bound)
    try:
        found = find_program(module, qualname)
    except (ImportError, AttributeError):
        found = None
    if getattr(found, "func", None) is not program.func:
        raise ArgumentTypeError(
            f"program {module}.{qualname} cannot be pickled: its name does not lead to it; define "
            "it at the top of a module"
        )
    return load_program, (module, qualname, bound)


def load_program(module: str, qualname: str, bound: Mapping[str, object]) -> JITImpl:
    """The program of this name in this process, with its bound values."""
    found = find_program(module, qualname)
    return found.bind(**bound) if bound else found


def find_program(module: str, qualname: str) -> JITImpl:
    """What ``module.qualname`` is; ImportError or AttributeError where there is nothing."""
    found: Any = importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    return found  # type: ignore[no-any-return]
