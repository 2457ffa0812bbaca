"""Owns PrimFunc: the traced program that ``@T.prim_func`` makes."""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType

from tileops.errors import ArgumentTypeError
from tileops.frontend.trace import trace_prim_func
from tileops.ir.printer import print_program
from tileops.ir.program import Program


class PrimFunc:
    """A traced program with its Python function. ``attrs`` are free for tools to use."""

    def __init__(self, func: FunctionType, name: str, program: Program) -> None:
        self.func = func
        self.name = name
        self.program = program
        self.attrs: dict[str, object] = {}
        self.__name__ = name
        self.__doc__ = func.__doc__

    def __call__(self, *args: object, **kwargs: object) -> object:
        """A prim_func cannot be called: ArgumentTypeError saying what to do."""
        raise ArgumentTypeError(
            f"the prim_func `{self.name}` is a program and not a kernel; compile it with "
            f"tileops.compile({self.name}), or return it from a function decorated with "
            "@tileops.jit"
        )

    def with_attr(self, key: str, value: object) -> PrimFunc:
        """This program with one more attribute."""
        out = PrimFunc(self.func, self.name, self.program)
        out.attrs = {**self.attrs, key: value}
        return out

    def script(self) -> str:
        """The program's IR as text."""
        return print_program(self.program)

    def __repr__(self) -> str:
        return f"<prim_func {self.name}>"


def make_prim_func(
    func: FunctionType, *, name: str, names_in_scope: Mapping[str, object] | None = None
) -> PrimFunc:
    """What ``@T.prim_func`` does at a definition."""
    return PrimFunc(func, name, trace_prim_func(func, name=name, names_in_scope=names_in_scope))
