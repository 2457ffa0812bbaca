"""Owns traversal of the tile IR: children, substitution, statement order, reads and writes."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from tileops.ir.expr import (
    Binary,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Region,
    Select,
    Unary,
    Var,
)
from tileops.ir.program import Program
from tileops.ir.stmt import (
    AddressView,
    Alloc,
    Atomic,
    Body,
    Copy,
    Fill,
    For,
    Gemm,
    If,
    Im2col,
    Launch,
    Parallel,
    Reduce,
    Scan,
    Stmt,
    Store,
    Transpose,
    View,
    While,
)
from tileops.location import Location

_AnyStmt = TypeVar("_AnyStmt", bound=Stmt)


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct operands of an expression."""
    match expr:
        case Binary(a=a, b=b):
            return (a, b)
        case Unary(a=a) | Cast(a=a):
            return (a,)
        case Call(args=args):
            return args
        case Select(cond=c, a=a, b=b):
            return (c, a, b)
        case Load(indices=indices):
            return indices
        case _:
            return ()


def walk_expr(expr: Expr) -> Iterator[Expr]:
    """All sub-expressions in source order, the expression itself first."""
    pending = [expr]
    while pending:
        found = pending.pop()
        yield found
        if not isinstance(found, (Const, Var)):
            pending += children(found)[::-1]


def map_children(expr: Expr, fn: Callable[[Expr], Expr]) -> Expr:
    """``expr`` with ``fn`` applied to each direct operand; itself where nothing changed."""
    match expr:
        case Binary(a=a, b=b):
            na, nb = fn(a), fn(b)
            return expr if na is a and nb is b else dataclasses.replace(expr, a=na, b=nb)
        case Unary(a=a) | Cast(a=a):
            na = fn(a)
            return expr if na is a else dataclasses.replace(expr, a=na)
        case Call(args=args):
            return dataclasses.replace(expr, args=tuple(fn(x) for x in args))
        case Select(cond=c, a=a, b=b):
            return dataclasses.replace(expr, cond=fn(c), a=fn(a), b=fn(b))
        case Load(indices=indices):
            return dataclasses.replace(expr, indices=tuple(fn(x) for x in indices))
        case _:
            return expr


def substitute(expr: Expr, mapping: Mapping[int, Expr]) -> Expr:
    """``expr`` with variables replaced by id."""

    def go(e: Expr) -> Expr:
        if isinstance(e, Var):
            return mapping.get(e.id, e)
        return map_children(e, go)

    return go(expr)


def sub_bodies(stmt: Stmt) -> tuple[Body, ...]:
    """The statement lists nested directly in a statement."""
    match stmt:
        case For(body=b) | Parallel(body=b) | While(body=b) | Launch(body=b):
            return (b,)
        case If(then=t, orelse=o):
            return (t, o)
        case _:
            return ()


def with_bodies(stmt: _AnyStmt, bodies: tuple[Body, ...]) -> _AnyStmt:
    """``stmt`` with its nested statement lists replaced, in the order of ``sub_bodies``."""
    match stmt:
        case For() | Parallel() | While() | Launch():
            return dataclasses.replace(stmt, body=bodies[0])
        case If():
            return dataclasses.replace(stmt, then=bodies[0], orelse=bodies[1])
        case _:
            return stmt


def walk(body: Body) -> Iterator[Stmt]:
    """All statements in program order, outer before inner."""
    for stmt in body:
        yield stmt
        for inner in sub_bodies(stmt):
            yield from walk(inner)


def _operand_names(stmt: Stmt) -> tuple[str, ...]:
    """The fields of a statement but ``loc`` and ``origin``, which go by name alone."""
    names: tuple[str, ...] = stmt.__match_args__
    return names


def regions(stmt: Stmt) -> tuple[Region, ...]:
    """The regions that are a statement's own operands (not those of nested statements)."""
    found = []
    for name in _operand_names(stmt):
        value = getattr(stmt, name)
        if isinstance(value, Region):
            found.append(value)
        elif isinstance(value, tuple):
            found.extend(v for v in value if isinstance(v, Region))
    return tuple(found)


def exprs(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions that are a statement's own operands, those inside its regions included."""
    found: list[Expr] = []
    for name in _operand_names(stmt):
        _collect_exprs(getattr(stmt, name), found)
    return tuple(found)


def _collect_exprs(value: object, found: list[Expr]) -> None:
    if isinstance(value, Expr):
        found.append(value)
    elif isinstance(value, Region):
        found.extend(value.starts)
        found.extend(value.extents)
    elif isinstance(value, tuple):
        for item in value:
            _collect_exprs(item, found)


def map_stmt_exprs(stmt: Stmt, fn: Callable[[Expr], Expr]) -> Stmt:
    """``stmt`` with ``fn`` applied to its own operand expressions.

    Not to nested statements, nor to defining variables such as a loop's.
    """
    changes: dict[str, object] = {}
    for name in _operand_names(stmt):
        if name in ("var", "vars", "block_vars", "result", "body", "then", "orelse"):
            continue
        value = getattr(stmt, name)
        new = _map_value(value, fn)
        if new is not value:
            changes[name] = new
    return dataclasses.replace(stmt, **changes) if changes else stmt  # type: ignore[arg-type]


def _map_value(value: object, fn: Callable[[Expr], Expr]) -> object:
    if isinstance(value, Expr):
        return fn(value)
    if isinstance(value, Region):
        starts = tuple(fn(s) for s in value.starts)
        extents = tuple(fn(e) for e in value.extents)
        same = starts == value.starts and extents == value.extents
        return value if same else dataclasses.replace(value, starts=starts, extents=extents)
    if isinstance(value, tuple) and any(isinstance(v, (Expr, Region, tuple)) for v in value):
        return tuple(_map_value(v, fn) for v in value)
    return value


def loads(stmt: Stmt) -> Iterator[Load]:
    """Every element read by a statement's own expressions."""
    for expr in exprs(stmt):
        for e in walk_expr(expr):
            if isinstance(e, Load):
                yield e


def written_buffers(stmt: Stmt) -> tuple[Buffer, ...]:
    """Buffers that the statement itself writes (nested statements not included)."""
    match stmt:
        case Store(buffer=b):
            return (b,)
        case Alloc(buffer=b, init=init) if init is not None:
            return (b,)
        case (
            Copy(dst=d)
            | Fill(dst=d)
            | Reduce(dst=d)
            | Scan(dst=d)
            | Transpose(dst=d)
            | Im2col(dst=d)
        ):
            return (d.buffer,)
        case Gemm(c=c):
            return (c.buffer,)
        case Atomic(op=op, dst=d) if op != "load":
            return (d.buffer,)
        case _:
            return ()


def view_roots(body: Body) -> dict[int, Buffer]:
    """For each view in ``body``, by id: the buffer whose storage it names, through any chain.

    What lies at an address that a table holds counts as the table's storage.
    """
    roots: dict[int, Buffer] = {}
    for stmt in walk(body):
        source = None
        if isinstance(stmt, View):
            source = stmt.source
        elif isinstance(stmt, AddressView):
            source = stmt.table
        if source is not None and isinstance(stmt, (View, AddressView)):
            roots[stmt.buffer.id] = roots.get(source.id, source)
    return roots


def written_ids(body: Body) -> frozenset[int]:
    """Ids of the buffers that ``body`` writes, by their own names or through views."""
    roots = view_roots(body)
    written = {b.id for stmt in walk(body) for b in written_buffers(stmt)}
    return frozenset(written | {roots[n].id for n in written if n in roots})


def read_buffers(stmt: Stmt) -> tuple[Buffer, ...]:
    """Buffers that the statement itself reads (nested statements not included)."""
    found = [load.buffer for load in loads(stmt)]
    match stmt:
        case Copy(src=s) | Scan(src=s) | Transpose(src=s):
            found.append(s.buffer)
        case Reduce(src=s, dst=d, clear=clear):
            found.append(s.buffer)
            if not clear:
                found.append(d.buffer)
        case Im2col(image=image):
            found.append(image)
        case Gemm(a=a, b=b, c=c, clear=clear):
            found += [a.buffer, b.buffer]
            if getattr(clear, "value", None) is not True:
                found.append(c.buffer)
        case Atomic(dst=d, value=v):
            found.append(d.buffer)
            if isinstance(v, Region):
                found.append(v.buffer)
        case View(source=s):
            found.append(s)
        case _:
            found.extend(r.buffer for r in regions(stmt) if not isinstance(stmt, Fill))
    return tuple(found)


def fresh_ids(program: Program) -> Iterator[int]:
    """Ids that no buffer and no variable of ``program`` has, in order."""
    used = [b.id for b in (*(p.buffer for p in program.tensors()), *program.workspaces)]
    used += [s.var.id for s in program.sizes] + [s.var.id for s in program.scalars()]
    for launch in program.launches:
        used += [v.id for v in launch.block_vars]
        for stmt in walk(launch.body):
            if isinstance(stmt, (AddressView, Alloc, View)):
                used.append(stmt.buffer.id)
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
        stmt = dataclasses.replace(stmt, origin=next(numbers))
        inner = sub_bodies(stmt)
        return with_bodies(stmt, tuple(map(numbered, inner))) if inner else stmt

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


def map_body_exprs(body: Body, fn: Callable[[Expr], Expr]) -> Body:
    """``body`` with ``fn`` applied to every statement's expressions; itself if nothing changes."""
    out = []
    for stmt in body:
        inner = sub_bodies(stmt)
        made = tuple(map_body_exprs(b, fn) for b in inner)
        new = map_stmt_exprs(stmt, fn)
        if any(a is not b for a, b in zip(inner, made, strict=True)):
            new = with_bodies(new, made)
        out.append(new)
    return body if all(a is b for a, b in zip(body, out, strict=True)) else tuple(out)
