"""The import path ``tileops.transform``, which programs use: ``PassConfigKey`` and one pass."""

from __future__ import annotations

from typing import TypeVar

from tileops.jit import PassConfigKey

__all__ = ["PassConfigKey", "simplify_prim_func"]

Program = TypeVar("Program")


def simplify_prim_func(func: Program) -> Program:
    """The program itself, also as a decorator: every compile simplifies."""
    return func
