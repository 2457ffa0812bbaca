"""Variables that each thread sets before it reads them, as names of their values."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from tileops.ir import walk
from tileops.ir.expr import Buffer, Expr, Load, Var
from tileops.ir.node import Body, Stmt
from tileops.ir.stmt import Alloc, Bind, Store
from tileops.language.tracer import require_tracer


def with_named_values(body: Body, lanes: Collection[int]) -> Body:
    """``body`` with names in the place of variables that hold what a thread's index decides.

    ``lanes`` are the ids of thread indices. All uses of such a variable are in one statement list
    and below, which sets it first; it is set nowhere below.
    """
    for stmt in list(walk.walk(body)):
        if isinstance(stmt, Alloc) and stmt.buffer.scope == "var" and stmt.init is None:
            variable = stmt.buffer
            if any(_depends(s, variable, lanes) for s in walk.walk(body)):
                body = _named(body, variable)
    return body


def _depends(stmt: Stmt, variable: Buffer, lanes: Collection[int]) -> bool:
    """True for a store of a value that a thread's index decides."""
    if not (isinstance(stmt, Store) and stmt.buffer.id == variable.id):
        return False
    return any(isinstance(e, Var) and e.id in lanes for e in walk.walk_expr(stmt.value))


def _named(body: Body, variable: Buffer) -> Body:
    """``body`` with names for ``variable``; as it is where that cannot be."""
    users = [s for s in body if any(_uses(inner, variable) for inner in walk.walk((s,)))]
    if len(users) == 1 and not _sets(users[0], variable):
        (only,) = users
        changed = walk.map_bodies(only, lambda inner: _named(inner, variable))
        return tuple(changed if s is only else s for s in body)
    below = (s for user in users for b in walk.sub_bodies(user) for s in walk.walk(b))
    if not users or not _sets(users[0], variable) or any(_sets(s, variable) for s in below):
        return body
    return tuple(_with_names(body, variable))


def _with_names(body: Body, variable: Buffer) -> Iterator[Stmt]:
    tracer = require_tracer("T.alloc_var")
    known: dict[int, Expr] = {}
    for stmt in body:
        stmt = _read(stmt, known)
        if isinstance(stmt, Store) and stmt.buffer.id == variable.id:
            var = tracer.new_var(variable.name, variable.dtype)
            known[variable.id] = var
            yield Bind(var, stmt.value, **stmt.provenance)
        else:
            yield stmt


def _read(stmt: Stmt, known: Mapping[int, Expr]) -> Stmt:
    """``stmt`` with the values that variables have now."""

    def load(expr: Expr) -> Expr:
        expr = walk.map_children(expr, load)
        return known.get(expr.buffer.id, expr) if isinstance(expr, Load) else expr

    if not known:
        return stmt
    return walk.map_bodies(
        walk.map_stmt_exprs(stmt, load), lambda body: tuple(_read(s, known) for s in body)
    )


def _uses(stmt: Stmt, variable: Buffer) -> bool:
    if isinstance(stmt, Alloc):
        return False
    return any(b.id == variable.id for b in (*walk.read_buffers(stmt), *walk.written_buffers(stmt)))


def _sets(stmt: Stmt, variable: Buffer) -> bool:
    return isinstance(stmt, Store) and stmt.buffer.id == variable.id
