"""PrimFunc: the traced program that ``@T.prim_func`` makes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FunctionType

from tileops.errors import ArgumentTypeError
from tileops.frontend.trace import trace_prim_func
from tileops.ir.printer import print_program
from tileops.ir.program import Program
from tileops.language import tracer


@dataclass(eq=False, repr=False)
class PrimFunc:
    """A traced program with its Python function. Tools may use ``attrs`` freely.

    ``names_in_scope`` are the caller's names that annotations use.
    """

    func: FunctionType
    name: str
    program: Program
    names_in_scope: Mapping[str, object]
    attrs: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.__name__ = self.name
        self.__doc__ = self.func.__doc__

    def __call__(self, *args: object, **kwargs: object) -> object:
        """A prim_func cannot be called: ArgumentTypeError saying what to do."""
        raise ArgumentTypeError(
            f"the prim_func `{self.name}` is a program and not a kernel; compile it with "
            f"tileops.compile({self.name}), or return it from a function decorated with "
            "@tileops.jit"
        )

    def with_attr(self, key: str, value: object) -> PrimFunc:
        """This program with one more attribute."""
        return replace(self, attrs={**self.attrs, key: value})

    def for_interpreter(self) -> PrimFunc:
        """This program traced again, with its prints and breakpoints."""
        scope = self.names_in_scope
        with for_interpreter():
            program = trace_prim_func(self.func, name=self.name, names_in_scope=scope)
        return replace(self, program=program, attrs=dict(self.attrs))

    def script(self) -> str:
        """The program's IR as text."""
        return print_program(self.program)

    def __repr__(self) -> str:
        return f"<prim_func {self.name}>"


@contextmanager
def for_interpreter() -> Iterator[None]:
    """Trace the prim_funcs of the block with their prints and breakpoints."""
    token = tracer.for_interpreter.set(True)
    try:
        yield
    finally:
        tracer.for_interpreter.reset(token)


def make_prim_func(func: FunctionType, names_in_scope: Mapping[str, object]) -> PrimFunc:
    """What ``@T.prim_func`` does at a definition.

    ``names_in_scope`` are the caller's names, for annotations under postponed evaluation.
    """
    texts = [a for a in func.__annotations__.values() if type(a) is str]
    used = {name for text in texts for name in compile(text, "", "eval").co_names}
    scope = {n: v for n, v in names_in_scope.items() if n in used}
    name = func.__name__
    return PrimFunc(func, name, trace_prim_func(func, name=name, names_in_scope=scope), scope)
