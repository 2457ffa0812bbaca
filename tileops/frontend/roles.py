"""Roles: which threads run what is under a condition on their index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tileops.errors import ProgramValueError, UnsupportedConstructError
from tileops.ir import explicit, fold, walk
from tileops.ir.expr import Buffer, Const, Var
from tileops.ir.node import Body, Stmt
from tileops.ir.stmt import AddressView, Alloc, Bind, If, Intrinsic, View
from tileops.language.launch import SYNC

_GROUP = 128
# What a part of a group may do; all else is done by whole groups.
_OF_FEW_THREADS = (
    explicit.BarrierStep,
    explicit.CopyLater,
    explicit.EndStores,
    explicit.NamedBarrier,
)


class Threads(NamedTuple):
    """Neighbouring threads of a block."""

    first: int
    size: int


def parted(
    stmt: If, tx: Var, block: int, threads: Threads | None
) -> list[tuple[Threads, Body]] | None:
    """The branches of a condition on the thread index, each with threads that run it.

    ``threads`` of the ``block`` meet the condition. None for a condition on more than the index.
    """
    first, count = threads or Threads(0, block)
    found: list[tuple[Threads, Body]] = []
    last: bool | None = None
    for number in range(first, first + count):
        cond = fold.substitute(stmt.cond, {tx.id: fold.const(number)})
        if not isinstance(cond, Const):
            return None
        if cond.value == last:
            before, body = found.pop()
            found.append((Threads(before.first, before.size + 1), body))
        else:
            last = bool(cond.value)
            found.append((Threads(number, 1), stmt.then if last else stmt.orelse))
    return found


def require_one_each(stmt: If, roles: list[Stmt]) -> list[Stmt]:
    """``roles``, the parts of ``stmt``; UnsupportedConstructError where two run one line."""
    if not all(isinstance(role, explicit.Role) for role in roles):
        return roles  # all threads run one branch
    known: set[int] = set()
    for role in roles:
        lines = {s.loc.line for s in walk.walk(walk.sub_bodies(role)[0]) if s.loc is not None}
        if lines & known:
            raise UnsupportedConstructError(
                "a branch for threads that are not neighbours", location=stmt.loc
            )
        known |= lines
    return roles


def settled_roles(body: Body) -> Body:
    """The statements of a launch without roles, if it has no barriers and nothing asynchronous.

    The bodies then simply run in order. Otherwise UnsupportedConstructError for what a part of a
    group of 128 threads may not do, and ProgramValueError for a name that leaves its role.
    """
    every = list(walk.walk(body))
    roles = [s for s in every if isinstance(s, explicit.Role)]
    for role in roles:
        if role.first % _GROUP or role.count % _GROUP:
            _require_few(role)
    if not any(isinstance(s, explicit.STEPS) for s in every):
        syncs = any(_is_sync(s) for s in every)
        return _spliced(body) if roles or syncs else body
    _require_own_names(body)
    return body


def _is_sync(stmt: Stmt) -> bool:
    return isinstance(stmt, Intrinsic) and stmt.name == SYNC


def _spliced(body: Body) -> Body:
    out: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, explicit.Role):
            out += _spliced(stmt.body)
        elif not _is_sync(stmt):
            out.append(walk.map_bodies(stmt, _spliced))
    return tuple(out)


def _require_few(role: explicit.Role) -> None:
    for stmt in walk.walk(role.body):
        if isinstance(stmt, (*_OF_FEW_THREADS, Bind, explicit.Role)):
            continue
        if stmt.BODIES and not stmt.is_tile_operation and not walk.written_buffers(stmt):
            continue
        what = type(stmt).__name__.lower()
        raise UnsupportedConstructError(
            f"a {what} by {role.count} threads from thread {role.first} on",
            expected=f"whole groups of {_GROUP} threads, or barriers and T.tma_copy alone",
            location=stmt.loc,
        )


def _require_own_names(body: Body) -> None:
    """ProgramValueError for a name that is defined in one role and used outside of it."""
    placed = list(_placed(body, None))
    homes = {made.id: home for stmt, home in placed for made in _made(stmt)}
    for stmt, home in placed:
        for used in _used(stmt):
            if homes.get(used.id, home) not in (home, None):
                raise ProgramValueError(
                    f"`{used.name}` is used outside the role that defines it; define it in front "
                    "of the roles",
                    location=stmt.loc,
                )


def _placed(body: Body, home: int | None) -> Iterator[tuple[Stmt, int | None]]:
    """All statements, each with the number of the outermost role around it."""
    for stmt in body:
        yield stmt, home
        inner = id(stmt) if home is None and isinstance(stmt, explicit.Role) else home
        for statements in walk.sub_bodies(stmt):
            yield from _placed(statements, inner)


def _made(stmt: Stmt) -> Iterator[Var | Buffer]:
    if isinstance(stmt, (Alloc, Bind, View, AddressView)):
        yield stmt.var if isinstance(stmt, Bind) else stmt.buffer


def _used(stmt: Stmt) -> Iterator[Var | Buffer]:
    for expr in walk.exprs(stmt):
        yield from (e for e in walk.walk_expr(expr) if isinstance(e, Var))
    if not isinstance(stmt, Alloc):
        yield from (*walk.read_buffers(stmt), *walk.written_buffers(stmt))
