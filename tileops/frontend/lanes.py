"""Thread indices: statements that use one become T.Parallel loops over the threads, or roles."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from tileops.errors import UnsupportedConstructError
from tileops.frontend.roles import Threads, parted, require_one_each, settled_roles
from tileops.frontend.thread_clashes import Clashes
from tileops.frontend.thread_variables import (
    with_elements_of_threads,
    with_kept_names,
    with_named_values,
)
from tileops.frontend.threads import Why, needs_threads, of_threads
from tileops.ir import fold, walk
from tileops.ir.explicit import Role
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
from tileops.language.tracer import ThreadIndices, Tracer

# The pass config of authors who write all barriers themselves.
_NO_BARRIERS = "tl.disable_thread_storage_sync"
_ELEMENTWISE = (Store, Bind, If, For, Assume)


def settled(
    tracer: Tracer, launch: Launch, indices: ThreadIndices, options: Mapping[str, str]
) -> Launch:
    """``launch`` as one of tiles, or where it cannot be that, of single threads.

    UnsupportedConstructError where it can be neither.
    """
    trusts = options.get(_NO_BARRIERS, "").lower() in ("true", "1")
    why = needs_threads(launch)
    if why is not None:
        return of_threads(tracer, launch, indices, why, trusts=trusts)
    try:
        return over_threads(launch, indices.lanes)
    except UnsupportedConstructError as refusal:
        if not indices.lanes:
            raise
        why = Why("a thread index that does more than choose elements", refusal.location)
        try:
            return of_threads(tracer, launch, indices, why, trusts=trusts)
        except UnsupportedConstructError:
            raise refusal from None


def over_threads(launch: Launch, lanes: tuple[tuple[Var, int], ...]) -> Launch:
    """``launch`` with each run of statements that use a thread index in a loop over the threads.

    ``lanes`` are the indices that it asked for, each with its number of threads. A condition on the
    index of threads gives what is under it to those threads: a role. UnsupportedConstructError if a
    thread index does anything else.
    """
    body = launch.body
    if lanes:
        body = with_named_values(body, {var.id for var, _ in lanes})
        body = with_elements_of_threads(body, lanes)
        body = _distributed(body, lanes)
    return dataclasses.replace(launch, body=settled_roles(body))


def _distributed(body: Body, lanes: tuple[tuple[Var, int], ...]) -> Body:
    """``body`` with its runs of per-thread statements in loops over the threads."""
    kept: set[int] = set()
    distributor = _Distributor(lanes, body, kept)
    found = distributor.body(body)
    if not kept:
        return found
    # Names that a later loop reads become an element for each thread.
    body = with_kept_names(body, lanes, kept)
    return _Distributor(lanes, body, set()).body(body)


class _Distributor:
    """Splits statement lists into runs for all threads and statements for the block as a whole."""

    def __init__(
        self,
        lanes: tuple[tuple[Var, int], ...],
        whole: Body,
        kept: set[int],
        threads: Threads | None = None,
    ) -> None:
        """``kept`` gets the names that a run binds and a later one reads."""
        self._lanes, self._whole, self._kept, self._threads = lanes, whole, kept, threads
        self._clashes = Clashes(lanes, walk.view_roots(whole), whole)
        self._vars = tuple(var for var, _ in lanes)
        self._extents: tuple[Expr, ...] = tuple(fold.const(threads) for _, threads in lanes)
        if threads is not None:
            self._extents = (fold.const(threads.size),)
        self._private: set[int] = set()
        self._ended: set[int] = set()

    def body(self, body: Body) -> Body:
        """One statement list, split."""
        out: list[Stmt] = []
        run: list[Stmt] = []
        for stmt in body:
            if isinstance(stmt, Intrinsic) and stmt.name == SYNC:
                self._close(run, out)
                out.append(stmt)
            elif not any(self._depends(walk.exprs(s)) for s in walk.walk((stmt,))):
                self._close(run, out)
                out.append(walk.map_bodies(stmt, self.body))
            elif self._is_elementwise(stmt) and not self._must_split(stmt):
                if self._clashes.between(run, stmt):
                    self._close(run, out)
                self._is_elementwise(stmt)  # notes the names that this run no longer has
                run.append(stmt)
                self._private.update(_bound(stmt))
            else:
                self._close(run, out)
                out += self._split(stmt)
        self._close(run, out)
        return tuple(out)

    def _must_split(self, stmt: Stmt) -> bool:
        """True for a loop or condition of the block in which threads wait for each other.

        UnsupportedConstructError where only some of the threads would wait.
        """
        if not self._clashes.within(stmt):
            return False
        if not self._depends(walk.exprs(stmt)):
            return True
        raise UnsupportedConstructError(
            "threads read what others write under a condition or in a loop that a thread index "
            f"decides, which is not supported by tileops{on_which_target()}; end the condition "
            "between the write and the read",
            location=stmt.loc,
        )

    def _close(self, run: list[Stmt], out: list[Stmt]) -> None:
        if run:
            out.append(Parallel(self._vars, self._extents, self._own(run), **run[0].provenance))
            run.clear()
            # Names bound by one run hold one value a thread and end with it.
            self._ended |= self._private
            self._private = set()

    def _own(self, run: list[Stmt]) -> Body:
        """A run of statements, with the threads of a role counted from its first one."""
        if self._threads is None or not self._threads.first:
            return tuple(run)
        (tx,) = self._vars
        moved = {tx.id: fold.add(tx, fold.const(self._threads.first))}
        return walk.map_body_exprs(tuple(run), lambda e: fold.substitute(e, moved))

    def _split(self, stmt: Stmt) -> list[Stmt]:
        """A loop, a condition or a role around per-thread statements."""
        if isinstance(stmt, Role):
            return self._role(stmt, Threads(stmt.first, stmt.count), stmt.body)
        if isinstance(stmt, (For, If, While)) and not self._depends(walk.exprs(stmt)):
            return [walk.map_bodies(stmt, self.body)]
        if isinstance(stmt, If) and len(self._lanes) == 1:
            parts = parted(stmt, *self._lanes[0], self._threads)
            if parts is not None:
                roles = [r for threads, body in parts for r in self._role(stmt, threads, body)]
                return require_one_each(stmt, roles)
        raise UnsupportedConstructError(
            "a thread index (T.get_thread_binding) that does more than choose elements is not "
            f"supported by tileops{on_which_target()}",
            location=stmt.loc,
        )

    def _role(self, stmt: Stmt, threads: Threads, body: Body) -> list[Stmt]:
        """What ``threads`` run of ``body``; nothing where that is nothing."""
        if len(self._lanes) > 1:
            raise UnsupportedConstructError(
                "roles of threads that have more than one index", location=stmt.loc
            )
        if threads == self._threads:
            return list(self.body(body))
        inner = _Distributor(self._lanes, self._whole, self._kept, threads).body(body)
        if all(isinstance(s, Role) for s in inner):
            return list(inner)
        return [Role(*threads, inner, **stmt.provenance)]

    def _depends(self, exprs: Iterable[Expr]) -> bool:
        return _reads(exprs, {v.id for v in self._vars} | self._private | self._ended)

    def _is_elementwise(self, stmt: Stmt) -> bool:
        """True for statements that each thread can run on elements of its own."""
        varying = {v.id for v in self._vars} | self._private
        for inner in walk.walk((stmt,)):
            if isinstance(inner, Atomic) and not isinstance(inner.value, Region):
                continue
            if not isinstance(inner, _ELEMENTWISE):
                return False
            if isinstance(inner, Store) and inner.buffer.scope in ("var", "local"):
                return False  # each thread has its own; no tile holds it
            if _is_own_value(inner, varying):
                return False  # one element with another value in each thread
            if isinstance(inner, Bind) and _reads((inner.value,), varying):
                varying.add(inner.var.id)
            self._kept |= _read(walk.exprs(inner), self._ended)
        return True


def _is_own_value(stmt: Stmt, varying: set[int]) -> bool:
    """True for a store to one element of a fragment of what differs between threads."""
    if not (isinstance(stmt, Store) and stmt.buffer.scope == "fragment"):
        return False
    return not _reads(stmt.indices, varying) and _reads((stmt.value,), varying)


def _reads(exprs: Iterable[Expr], vars_: set[int]) -> bool:
    return bool(_read(exprs, vars_))


def _read(exprs: Iterable[Expr], vars_: set[int]) -> set[int]:
    """Those of ``vars_`` that expressions read."""
    return {e.id for x in exprs for e in walk.walk_expr(x) if isinstance(e, Var)} & vars_


def _bound(stmt: Stmt) -> set[int]:
    made = [getattr(s, name) for s in walk.walk((stmt,)) for name in s.DEFINES]
    return {var.id for var in made if isinstance(var, Var)}
