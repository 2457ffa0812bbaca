"""Traversal of the tile IR: children, substitution, statement order, reads and writes."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar, cast

from tileops.dtypes import DType
from tileops.ir.expr import Buffer, Const, Expr, Load, Region, Var
from tileops.ir.program import Program
from tileops.ir.stmt import AddressView, Atomic, Body, Launch, Stmt, Store, View
from tileops.location import Location

Exprs = tuple[Expr, ...]
_AnyStmt = TypeVar("_AnyStmt", bound=Stmt)


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct operands of an expression."""
    names = expr.OPERANDS
    if not names:
        return ()
    operands = tuple([getattr(expr, name) for name in names])
    return operands[0] if isinstance(operands[0], tuple) else operands


def walk_expr(expr: Expr) -> Iterator[Expr]:
    """All sub-expressions in source order, the expression itself first."""
    pending = [expr]
    while pending:
        found = pending.pop()
        yield found
        if found.OPERANDS:
            pending += children(found)[::-1]


def map_children(expr: Expr, fn: Callable[[Expr], Expr]) -> Expr:
    """``expr`` with ``fn`` applied to each direct operand; itself where nothing changed."""
    changes: dict[str, Any] = {}
    for name in expr.OPERANDS:
        old = getattr(expr, name)
        new = _map_value(old, fn)
        if new is not old:
            changes[name] = new
    return dataclasses.replace(expr, **changes) if changes else expr


def substitute(expr: Expr, mapping: Mapping[int, Expr]) -> Expr:
    """``expr`` with variables replaced by id."""

    def go(e: Expr) -> Expr:
        if isinstance(e, Var):
            return mapping.get(e.id, e)
        return map_children(e, go)

    return go(expr)


def sub_bodies(stmt: Stmt) -> tuple[Body, ...]:
    """The statement lists nested directly in a statement."""
    return tuple([getattr(stmt, name) for name in stmt.BODIES])


def with_bodies(stmt: _AnyStmt, bodies: tuple[Body, ...]) -> _AnyStmt:
    """``stmt`` with other nested statement lists, in the order of ``sub_bodies``.

    It is ``stmt`` itself if they are the lists that it has.
    """
    changes: dict[str, Any] = dict(zip(stmt.BODIES, bodies, strict=True))
    if all(getattr(stmt, name) is body for name, body in changes.items()):
        return stmt
    return dataclasses.replace(stmt, **changes)


def map_bodies(stmt: _AnyStmt, fn: Callable[[Body], Body]) -> _AnyStmt:
    """``stmt`` with ``fn`` applied to its nested statement lists; itself if none changes."""
    return with_bodies(stmt, tuple(map(fn, sub_bodies(stmt))))


def walk(body: Body) -> Iterator[Stmt]:
    """All statements in program order, outer before inner."""
    for stmt in body:
        yield stmt
        for name in stmt.BODIES:
            yield from walk(getattr(stmt, name))


def regions(stmt: Stmt) -> tuple[Region, ...]:
    """The regions that are a statement's own operands (not those of nested statements)."""
    return tuple([v for v in _flat(_operands(stmt)) if isinstance(v, Region)])


def operand_names(stmt: Stmt) -> list[str]:
    """The fields of a statement but its bodies, ``loc`` and ``origin``."""
    names: tuple[str, ...] = stmt.__match_args__
    return [name for name in names if name not in stmt.BODIES]


def _operands(stmt: Stmt) -> list[object]:
    return [getattr(stmt, name) for name in operand_names(stmt)]


def exprs(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions that are a statement's own operands, those inside its regions included."""
    return exprs_of(tuple(_operands(stmt)))


def exprs_of(operand: object) -> tuple[Expr, ...]:
    """The expressions that are an operand of a statement, those inside regions included."""
    found: list[Expr] = []
    for value in _flat((operand,)):
        if isinstance(value, Expr):
            found.append(value)
        elif isinstance(value, Region):
            found += (*value.starts, *value.extents)
    return tuple(found)


def _flat(values: Iterable[object]) -> Iterator[object]:
    """``values``, those in tuples one by one."""
    for value in values:
        if isinstance(value, tuple):
            yield from _flat(value)
        else:
            yield value


def map_stmt_exprs(stmt: Stmt, fn: Callable[[Expr], Expr]) -> Stmt:
    """``stmt`` with ``fn`` applied to its own operand expressions.

    Not to nested statements, nor to what it defines, such as a loop's variable.
    """
    changes: dict[str, Any] = {}
    for name in operand_names(stmt):
        if name not in stmt.DEFINES:
            value = getattr(stmt, name)
            new = _map_value(value, fn)
            if new is not value:
                changes[name] = new
    return dataclasses.replace(stmt, **changes) if changes else stmt


def _map_value(value: object, fn: Callable[[Expr], Expr]) -> object:
    """``value``, an operand, with ``fn`` applied to its expressions; itself if nothing changes."""
    if isinstance(value, Expr):
        return fn(value)
    if isinstance(value, tuple):
        new = tuple([_map_value(v, fn) for v in value])
        return value if all(a is b for a, b in zip(value, new, strict=True)) else new
    if isinstance(value, Region):
        starts, extents = _map_value(value.starts, fn), _map_value(value.extents, fn)
        if starts is value.starts and extents is value.extents:
            return value
        return Region(value.buffer, cast("Exprs", starts), cast("Exprs", extents))
    return value


def loads(stmt: Stmt) -> Iterator[Load]:
    """Every element read by a statement's own expressions."""
    for expr in exprs(stmt):
        for e in walk_expr(expr):
            if isinstance(e, Load):
                yield e


def accesses(stmt: Stmt) -> Iterator[tuple[Buffer, Exprs]]:
    """Every single element that a statement itself reads or writes: its buffer and its indices."""
    for load in loads(stmt):
        yield load.buffer, load.indices
    match stmt:
        case Store(buffer=buffer, indices=indices):
            yield buffer, indices
        case Atomic(dst=dst) if is_element(stmt):
            yield dst.buffer, dst.starts


def is_element(stmt: Stmt) -> bool:
    """True for a store or an atomic of a single element."""
    if isinstance(stmt, Atomic):
        return not (isinstance(stmt.value, Region) or stmt.dst.squeezed())
    return isinstance(stmt, Store)


def map_accesses(stmt: Stmt, fn: Callable[[Buffer, Exprs], tuple[Buffer, Exprs]]) -> Stmt:
    """``stmt`` with ``fn`` applied to every element that it itself reads or writes.

    Loads inside an index come before the access that it is of.
    """

    def load(expr: Expr) -> Expr:
        expr = map_children(expr, load)
        if not isinstance(expr, Load):
            return expr
        buffer, indices = fn(expr.buffer, expr.indices)
        same = buffer is expr.buffer and indices is expr.indices
        return expr if same else Load(expr.dtype, buffer, indices)

    new = map_stmt_exprs(stmt, load)
    match new:
        case Store(buffer=buffer, indices=indices):
            buffer, indices = fn(buffer, indices)
            return dataclasses.replace(new, buffer=buffer, indices=indices)
        case Atomic(dst=dst) if is_element(stmt):
            buffer, indices = fn(dst.buffer, dst.starts)
            ones = (Const(DType("int32"), 1),) * len(indices)
            return dataclasses.replace(new, dst=Region(buffer, indices, ones))
        case _:
            return new


def written_buffers(stmt: Stmt) -> tuple[Buffer, ...]:
    """Buffers that the statement itself writes (nested statements not included)."""
    return tuple(_buffers(stmt, stmt.writes()))


def _buffers(stmt: Stmt, names: tuple[str, ...]) -> Iterator[Buffer]:
    for value in _flat(getattr(stmt, name) for name in names):
        if isinstance(value, Region):
            yield value.buffer
        elif isinstance(value, Buffer):
            yield value


def view_roots(body: Body) -> dict[int, Buffer]:
    """For each view in ``body``, by id: the buffer whose storage it names, through any chain.

    Memory at an address that a table holds counts as the table's storage.
    """
    roots: dict[int, Buffer] = {}
    for stmt in walk(body):
        match stmt:
            case (
                View(buffer=view, source=source)
                | AddressView(buffer=view, table=Buffer() as source)
            ):
                roots[view.id] = roots.get(source.id, source)
    return roots


def written_ids(body: Body) -> frozenset[int]:
    """Ids of the buffers that ``body`` writes, by their own names or through views."""
    roots = view_roots(body)
    written = {b.id for stmt in walk(body) for b in written_buffers(stmt)}
    return frozenset(written | {roots[n].id for n in written if n in roots})


def read_buffers(stmt: Stmt) -> tuple[Buffer, ...]:
    """Buffers that the statement itself reads (nested statements not included)."""
    return (*(load.buffer for load in loads(stmt)), *_buffers(stmt, stmt.reads()))


def fresh_ids(program: Program) -> Iterator[int]:
    """Ids that no buffer and no variable of ``program`` has, in order."""
    used = [b.id for b in (*(p.buffer for p in program.tensors()), *program.workspaces)]
    used += [s.var.id for s in program.sizes] + [s.var.id for s in program.scalars()]
    for stmt in walk(program.launches):
        used += [b.id for b in _buffers(stmt, stmt.DEFINES)]
        for expr in exprs(stmt):
            used += [e.id for e in walk_expr(expr) if isinstance(e, Var)]
    return itertools.count(max(used, default=-1) + 1)


def with_origins(program: Program) -> Program:
    """``program`` with every statement numbered by its place in program order, from 0.

    A traced program is numbered when its trace ends; passes hand the numbers on.
    """
    numbers = itertools.count()

    def numbered(body: Body) -> Body:
        return tuple(visit(stmt) for stmt in body)

    def visit(stmt: _AnyStmt) -> _AnyStmt:
        changes: dict[str, Any] = {"origin": next(numbers)}
        for name in stmt.BODIES:
            changes[name] = numbered(getattr(stmt, name))
        return dataclasses.replace(stmt, **changes)

    return dataclasses.replace(program, launches=tuple(map(visit, program.launches)))


def locations(program: Program) -> dict[int, Location]:
    """The line of each statement of a traced program, by the statement's number."""
    return {
        stmt.origin: stmt.loc
        for stmt in walk(program.launches)
        if stmt.origin is not None and stmt.loc is not None
    }


def map_launches(program: Program, fn: Callable[[Launch], Body]) -> Program:
    """``program`` with the body that ``fn`` gives each launch; itself if no body changes."""
    bodies = [fn(launch) for launch in program.launches]
    if all(a is b.body for a, b in zip(bodies, program.launches, strict=True)):
        return program
    launches = (
        dataclasses.replace(launch, body=body)
        for launch, body in zip(program.launches, bodies, strict=True)
    )
    return dataclasses.replace(program, launches=tuple(launches))


def replace_stmts(body: Body, fn: Callable[[Stmt], Iterable[Stmt] | None]) -> Body:
    """``body`` with what ``fn`` gives in place of each statement; itself if nothing changes.

    Where ``fn`` gives None, the statement stays and its nested lists are rewritten.
    """
    out: list[Stmt] = []
    for stmt in body:
        made = fn(stmt)
        if made is None:
            made = (map_bodies(stmt, lambda inner: replace_stmts(inner, fn)),)
        out += made
    same = len(body) == len(out) and all(a is b for a, b in zip(body, out, strict=True))
    return body if same else tuple(out)


def map_body_exprs(body: Body, fn: Callable[[Expr], Expr]) -> Body:
    """``body`` with ``fn`` applied to every statement's expressions; itself if nothing changes."""

    def mapped(stmt: Stmt) -> tuple[Stmt]:
        return (map_bodies(map_stmt_exprs(stmt, fn), lambda inner: map_body_exprs(inner, fn)),)

    return replace_stmts(body, mapped)
