"""Owns the builder: the place where a trace records statements, variables and buffers in order."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tileops.dtypes import DType
from tileops.errors import InternalError, NoBuilderError
from tileops.ir.expr import Buffer, Expr, Var
from tileops.ir.program import Program, ScalarParam, Size, TensorParam
from tileops.ir.stmt import Assert, Body, Launch, Stmt
from tileops.ir.walk import with_origins
from tileops.location import Location, traced

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
        self.options: dict[str, str] = {}
        self.location: Location | None = None
        self._next_id = 0
        self._bodies: list[list[Stmt]] = []

    # -- names ---------------------------------------------------------------------------------
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

    # -- statements ----------------------------------------------------------------------------
    @property
    def in_launch(self) -> bool:
        """True inside a ``with T.Kernel`` block."""
        return bool(self._bodies)

    @property
    def depth(self) -> int:
        """How many statement lists are open."""
        return len(self._bodies)

    def emit(self, stmt: Stmt) -> None:
        """Append a statement to the innermost open list, at the current location."""
        if not self._bodies:
            raise NoBuilderError("a statement outside `with T.Kernel(...)`", location=self.location)
        if stmt.loc is None and self.location is not None:
            stmt = dataclasses.replace(stmt, loc=self.location)
        self._bodies[-1].append(stmt)

    @contextmanager
    def body(self) -> Iterator[list[Stmt]]:
        """Open a nested statement list; the list is complete when the context ends."""
        statements: list[Stmt] = []
        self._bodies.append(statements)
        try:
            yield statements
        finally:
            top = self._bodies.pop()
            if top is not statements:
                raise InternalError("builder: statement lists closed out of order")

    def emit_launch(self, launch: Launch) -> None:
        """Append a launch, at the current location if it has none."""
        if launch.loc is None and self.location is not None:
            launch = dataclasses.replace(launch, loc=self.location)
        self.launches.append(launch)

    # -- result --------------------------------------------------------------------------------
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
        )
        return with_origins(program)


def active_builder() -> Builder | None:
    """The builder of the trace that runs in this thread, or None."""
    return _active.get()


def require_builder(construct: str) -> Builder:
    """The active builder; NoBuilderError naming the construct outside a trace."""
    builder = _active.get()
    if builder is None:
        raise NoBuilderError(
            f"{construct} was used outside a program; call it inside a function decorated with "
            "@tileops.jit or @T.prim_func"
        )
    return builder


@contextmanager
def activate(builder: Builder) -> Iterator[Builder]:
    """Make ``builder`` the active one of this thread for the block."""
    token, place = _active.set(builder), traced.set(builder)
    try:
        yield builder
    finally:
        traced.reset(place)
        _active.reset(token)


def freeze(statements: list[Stmt]) -> Body:
    """A closed statement list as an immutable body."""
    return tuple(statements)
