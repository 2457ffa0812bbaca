"""Control flow of a process that can be interrupted: before each step it says what it waits for."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

import torch

from tileops.ir.expr import Expr
from tileops.ir.stmt import Body, Break, Continue, For, If, Stmt, While
from tileops.testing.simulation.elements import torch_dtype
from tileops.testing.simulation.statements import Tiles

# True when a process may go on.
Ready = Callable[[], bool]


class _Escape(Exception):
    """The innermost loop ends, or goes on with its next iteration."""

    def __init__(self, *, ends: bool) -> None:
        super().__init__()
        self.ends = ends


class Process(Tiles):
    """A process that runs statements; a subclass gives the steps that wait for others."""

    def is_step(self, stmt: Stmt) -> bool:
        """True for a statement that ``step`` runs."""
        return False

    def step(self, stmt: Stmt) -> Iterator[Ready]:
        """Run a statement that may have to wait."""
        raise NotImplementedError(type(stmt).__name__)

    def body(self, body: Body) -> Iterator[Ready]:
        """Run statements one after another."""
        for stmt in body:
            match stmt:
                case _ if self.is_step(stmt):
                    yield from self.step(stmt)
                case For(var=var):
                    numbers = range(self.number(stmt.start), self.number(stmt.stop))
                    for number in numbers:
                        self.vars[var.id] = torch.tensor(number, dtype=torch_dtype(var.dtype))
                        if (yield from self._leaves(stmt.body)):
                            break
                case While(cond=cond):
                    while self._holds(cond):
                        if (yield from self._leaves(stmt.body)):
                            break
                case If(cond=cond):
                    yield from self.body(stmt.then if self._holds(cond) else stmt.orelse)
                case Break() | Continue():
                    raise _Escape(ends=isinstance(stmt, Break))
                case _:
                    self.run(stmt)

    def _holds(self, cond: Expr) -> bool:
        return bool(self.number(cond))

    def _leaves(self, body: Body) -> Generator[Ready, None, bool]:
        """Run one iteration of a loop; its value is True if the loop ends with it."""
        try:
            yield from self.body(body)
        except _Escape as escape:
            return escape.ends
        return False
