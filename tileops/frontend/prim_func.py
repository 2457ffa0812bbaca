"""PrimFunc: the traced program that ``@T.prim_func`` makes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType

from tileops.errors import ArgumentTypeError
from tileops.frontend.trace import trace_prim_func
from tileops.ir.printer import print_program
from tileops.ir.program import Program
from tileops.language import tracer


class PrimFunc:
    """A traced program with its Python function. Tools may use ``attrs`` freely."""

    def __init__(
        self, func: FunctionType, name: str, program: Program, names_in_scope: Mapping[str, object]
    ) -> None:
        self.func = func
        self.name = name
        self.program = program
        self._names_in_scope = names_in_scope
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
        return self._changed(self.program, {**self.attrs, key: value})

    def for_interpreter(self) -> PrimFunc:
        """This program traced again, with its prints and breakpoints."""
        scope = self._names_in_scope
        with for_interpreter():
            program = trace_prim_func(self.func, name=self.name, names_in_scope=scope)
        return self._changed(program, self.attrs)

    def _changed(self, program: Program, attrs: Mapping[str, object]) -> PrimFunc:
        out = PrimFunc(self.func, self.name, program, self._names_in_scope)
        out.attrs = dict(attrs)
        return out

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


def make_prim_func(
    func: FunctionType, *, name: str, names_in_scope: Mapping[str, object] | None = None
) -> PrimFunc:
    """What ``@T.prim_func`` does at a definition.

    ``names_in_scope`` are the caller's names, for annotations under postponed evaluation.
    """
    texts = [a for a in func.__annotations__.values() if type(a) is str]
    used = {name for text in texts for name in compile(text, "", "eval").co_names}
    scope = {n: v for n, v in (names_in_scope or {}).items() if n in used}
    return PrimFunc(func, name, trace_prim_func(func, name=name, names_in_scope=scope), scope)
