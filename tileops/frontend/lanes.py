"""Thread indices: statements that use one become T.Parallel loops over the threads."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from tileops.errors import UnsupportedConstructError
from tileops.ir import fold, walk
from tileops.ir.expr import Expr, Region, Var
from tileops.ir.stmt import (
    Assume,
    Atomic,
    Bind,
    Body,
    For,
    If,
    Intrinsic,
    Launch,
    Parallel,
    Stmt,
    Store,
    While,
)
from tileops.language.launch import SYNC
from tileops.language.missing import on_which_target

_ELEMENTWISE = (Store, Bind, If, For, Assume)


def over_threads(launch: Launch, lanes: tuple[tuple[Var, int], ...]) -> Launch:
    """``launch`` with each run of statements that use a thread index in a loop over the threads.

    ``lanes`` are the indices that it asked for, each with its number of threads.
    UnsupportedConstructError if a thread index does more than choose elements.
    """
    if not lanes:
        return launch
    return dataclasses.replace(launch, body=_Distributor(lanes).body(launch.body))


class _Distributor:
    """Splits statement lists into runs for all threads and statements for the block as a whole."""

    def __init__(self, lanes: tuple[tuple[Var, int], ...]) -> None:
        self._vars = tuple(var for var, _ in lanes)
        self._extents: tuple[Expr, ...] = tuple(fold.const(threads) for _, threads in lanes)
        self._private: set[int] = set()
        self._ended: set[int] = set()

    def body(self, body: Body) -> Body:
        """One statement list, split."""
        out: list[Stmt] = []
        run: list[Stmt] = []
        for stmt in body:
            if isinstance(stmt, Intrinsic) and stmt.name == SYNC:
                self._close(run, out)
            elif not any(self._depends(walk.exprs(s)) for s in walk.walk((stmt,))):
                self._close(run, out)
                out.append(walk.map_bodies(stmt, self.body))
            elif self._is_elementwise(stmt):
                run.append(stmt)
                self._private.update(_bound(stmt))
            else:
                self._close(run, out)
                out.append(self._split(stmt))
        self._close(run, out)
        return tuple(out)

    def _close(self, run: list[Stmt], out: list[Stmt]) -> None:
        if run:
            out.append(Parallel(self._vars, self._extents, tuple(run), **run[0].provenance))
            run.clear()
            # Names bound by one run hold one value a thread and end with it.
            self._ended |= self._private
            self._private = set()

    def _split(self, stmt: Stmt) -> Stmt:
        """A loop or condition of the whole block around per-thread statements."""
        if isinstance(stmt, (For, If, While)) and not self._depends(walk.exprs(stmt)):
            return walk.map_bodies(stmt, self.body)
        raise UnsupportedConstructError(
            "a thread index (T.get_thread_binding) that does more than choose elements is not "
            f"supported by tileops{on_which_target()}",
            location=stmt.loc,
        )

    def _depends(self, exprs: Iterable[Expr]) -> bool:
        return _reads(exprs, {v.id for v in self._vars} | self._private | self._ended)

    def _is_elementwise(self, stmt: Stmt) -> bool:
        """True for statements that each thread can run on elements of its own."""
        for inner in walk.walk((stmt,)):
            if isinstance(inner, Atomic) and not isinstance(inner.value, Region):
                continue
            if not isinstance(inner, _ELEMENTWISE):
                return False
            if isinstance(inner, Store) and inner.buffer.scope in ("var", "local"):
                return False  # each thread has its own; no tile holds it
            if _reads(walk.exprs(inner), self._ended):
                return False
        return True


def _reads(exprs: Iterable[Expr], vars_: set[int]) -> bool:
    return any(isinstance(e, Var) and e.id in vars_ for x in exprs for e in walk.walk_expr(x))


def _bound(stmt: Stmt) -> set[int]:
    made = [getattr(s, name) for s in walk.walk((stmt,)) for name in s.DEFINES]
    return {var.id for var in made if isinstance(var, Var)}
