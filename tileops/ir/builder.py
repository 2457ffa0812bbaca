"""The builder: where a trace records statements, variables and buffers, in order."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from tileops.dtypes import DType
from tileops.errors import NoBuilderError
from tileops.ir.expr import Buffer, Expr, Var
from tileops.ir.extern import Extern
from tileops.ir.program import Program, ScalarParam, Size, TensorParam
from tileops.ir.stmt import Assert, Launch, Stmt
from tileops.ir.walk import with_origins
from tileops.location import Location, traced

_AnyStmt = TypeVar("_AnyStmt", bound=Stmt)
_active: ContextVar[Builder | None] = ContextVar("tileops_builder", default=None)


class Builder:
    """Collects one program; ids count creations, so equal traces give equal programs."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.params: list[TensorParam | ScalarParam] = []
        self.sizes: list[Size] = []
        self.workspaces: list[Buffer] = []
        self.host_asserts: list[Assert] = []
        self.launches: list[Launch] = []
        self.externs: list[Extern] = []
        self.options: dict[str, str] = {}
        self.location: Location | None = None
        self._next_id = 0
        self._bodies: list[list[Stmt]] = []

    def new_id(self) -> int:
        """The next id of a variable or buffer."""
        self._next_id += 1
        return self._next_id - 1

    def new_var(self, name: str, dtype: DType) -> Var:
        """A variable that no other is equal to."""
        return Var(dtype, self.new_id(), name)

    def new_buffer(
        self,
        name: str,
        shape: tuple[Expr, ...],
        dtype: DType,
        scope: str,
        strides: tuple[Expr, ...] | None = None,
    ) -> Buffer:
        """A buffer that no other is equal to."""
        return Buffer(self.new_id(), name, shape, dtype, scope, strides)

    def emit(self, stmt: Stmt) -> None:
        """Append a statement to the innermost open list, at the current location."""
        if not self._bodies:
            raise NoBuilderError("a statement outside `with T.Kernel(...)`", location=self.location)
        self._bodies[-1].append(self._located(stmt))

    def _located(self, stmt: _AnyStmt) -> _AnyStmt:
        if stmt.loc is not None or self.location is None:
            return stmt
        return dataclasses.replace(stmt, loc=self.location)

    @contextmanager
    def body(self) -> Iterator[list[Stmt]]:
        """Open a nested statement list; the list is complete when the context ends."""
        statements: list[Stmt] = []
        self._bodies.append(statements)
        try:
            yield statements
        finally:
            self._bodies.pop()

    def emit_launch(self, launch: Launch) -> None:
        """Append a launch, at the current location if it has none."""
        self.launches.append(self._located(launch))

    def emit_extern(self, extern: Extern) -> None:
        """Append the launch of a foreign kernel after the launches so far, at the location."""
        extern = dataclasses.replace(extern, after=len(self.launches), loc=self.location)
        self.externs.append(extern)

    def finish(self, returns: tuple[int, ...], returns_tuple: bool) -> Program:
        """The traced program, its statements numbered. ``returns`` are indices into ``params``."""
        program = Program(
            name=self.name,
            params=tuple(self.params),
            sizes=tuple(self.sizes),
            workspaces=tuple(self.workspaces),
            launches=tuple(self.launches),
            returns=returns,
            returns_tuple=returns_tuple,
            host_asserts=tuple(self.host_asserts),
            options=tuple(sorted(self.options.items())),
            externs=tuple(self.externs),
        )
        return with_origins(program)


def active_builder() -> Builder | None:
    """The builder of the trace that runs in this thread, or None."""
    return _active.get()


@contextmanager
def activate(builder: Builder) -> Iterator[Builder]:
    """Make ``builder`` the active one of this thread for the block."""
    token, place = _active.set(builder), traced.set(builder)
    try:
        yield builder
    finally:
        traced.reset(place)
        _active.reset(token)
