"""Shared buffers with slots: a loop that fills one before it reads it needs no slots of its own.

Such a loop is written as a pipelined one that is as many stages deep, and what compiles it makes
the slots. Two loops around each other, the inner one over slots, become one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tileops.ir import fold
from tileops.ir.expr import Binary, Buffer, Expr, Region, Var
from tileops.ir.node import Body, Stmt
from tileops.ir.program import const_value
from tileops.ir.stmt import Alloc, Copy, For
from tileops.ir.walk import (
    accesses,
    map_accesses,
    map_body_exprs,
    map_children,
    operand_names,
    read_buffers,
    regions,
    replace_stmts,
    sub_bodies,
    view_roots,
    walk,
    with_bodies,
    written_buffers,
)


def with_one_slot(body: Body, fresh: Iterator[int]) -> Body:
    """``body`` with every such buffer without its slots, and with such loops pipelined."""
    body = replace_stmts(body, lambda stmt: _one_loop(stmt, fresh))
    viewed = {b.id for b in view_roots(body).values()}
    for stmt in list(walk(body)):
        if isinstance(stmt, Alloc) and stmt.buffer.scope == "shared":
            buffer = stmt.buffer
            if buffer.ndim > 2 and buffer.id not in viewed and (loop := _home(body, buffer)):
                slots = const_value(buffer.shape[0]) or 1
                body = _without(body, buffer, loop, slots)
    return body


# -- loops over slots ------------------------------------------------------------------------------
def _one_loop(stmt: Stmt, fresh: Iterator[int]) -> tuple[Stmt, ...] | None:
    """One loop for two; None for another statement."""
    if not (isinstance(stmt, For) and len(stmt.body) == 1 and isinstance(stmt.body[0], For)):
        return None
    inner = stmt.body[0]
    count = const_value(inner.stop)
    if const_value(stmt.start) != 0 or const_value(inner.start) != 0 or not count:
        return None
    if stmt.var.dtype != inner.var.dtype or not _fills(inner.body, inner.var):
        return None
    size = fold.const(count, stmt.var.dtype)
    var = Var(stmt.var.dtype, next(fresh), stmt.var.name)
    known = {
        stmt.var.id: fold.binary("floordiv", var, size),
        inner.var.id: fold.binary("floormod", var, size),
    }
    body = map_body_exprs(inner.body, lambda e: _whole(fold.substitute(e, known)))
    stop = fold.mul(stmt.stop, size)
    return (replace(stmt, var=var, stop=stop, body=body),)


def _whole(expr: Expr) -> Expr:
    """``expr`` with ``x`` for every ``x // n * n + x % n``."""
    expr = map_children(expr, _whole)
    match expr:
        case Binary(
            op="add",
            a=Binary(op="mul", a=Binary(op="floordiv", a=x, b=n), b=m),
            b=Binary(op="floormod", a=y, b=k),
        ) if x == y and n == m == k:
            return x
    return expr


def _fills(body: Body, slot: Var) -> bool:
    """True if a statement fills the slot ``slot`` of a shared buffer."""
    return any(
        region.starts[0] == slot and region.buffer.scope == "shared"
        for stmt in body
        if isinstance(stmt, Copy)
        for region in (stmt.dst,)
    )


# -- slots -----------------------------------------------------------------------------------------
def _home(body: Body, buffer: Buffer) -> For | None:
    """The loop whose turns each fill a slot whole, then read it; None where there is none."""
    for stmt in walk(body):
        if isinstance(stmt, For) and any(_touches(s, buffer) for s in stmt.body):
            own = [s for s in stmt.body if _touches(s, buffer)]
            if len(own) == 1 and own[0].BODIES:
                continue  # a loop further inside
            users = [s for s in walk(stmt.body) if _uses(s, buffer)]
            every = [s for s in walk(body) if _uses(s, buffer)]
            slots = {index for s in every for index in _slots(s, buffer)}
            if len(users) != len(every) or len(slots) != 1 or not _is_fill(own[0], buffer):
                return None
            return stmt
    return None


def _touches(stmt: Stmt, buffer: Buffer) -> bool:
    return any(_uses(s, buffer) for s in walk((stmt,)))


def _uses(stmt: Stmt, buffer: Buffer) -> bool:
    if isinstance(stmt, Alloc):
        return False
    return any(b.id == buffer.id for b in (*read_buffers(stmt), *written_buffers(stmt)))


def _slots(stmt: Stmt, buffer: Buffer) -> Iterator[Expr | None]:
    """The slot of each access of a statement; None for more than one slot."""
    for region in regions(stmt):
        if region.buffer.id == buffer.id:
            yield region.starts[0] if const_value(region.extents[0]) == 1 else None
    for accessed, indices in accesses(stmt):
        if accessed.id == buffer.id:
            yield indices[0]


def _is_fill(stmt: Stmt, buffer: Buffer) -> bool:
    """True for a copy into all of one slot."""
    if not isinstance(stmt, Copy) or stmt.dst.buffer.id != buffer.id:
        return False
    rest = zip(stmt.dst.starts[1:], stmt.dst.extents[1:], buffer.shape[1:], strict=True)
    return all(const_value(start) == 0 and extent == size for start, extent, size in rest)


def _without(body: Body, buffer: Buffer, loop: For, slots: int) -> Body:
    """``body`` with ``buffer`` without its first dimension, and ``loop`` pipelined."""
    single = replace(buffer, shape=buffer.shape[1:])

    def element(found: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]]:
        return (single, indices[1:]) if found.id == buffer.id else (found, indices)

    def visit(statements: Body) -> Body:
        out: list[Stmt] = []
        for stmt in statements:
            bodies = tuple(visit(inner) for inner in sub_bodies(stmt))
            changed = with_bodies(stmt, bodies)
            if stmt is loop and isinstance(changed, For):
                kind = "pipelined" if loop.kind in ("serial", "unroll") else loop.kind
                changed = replace(changed, kind=kind, stages=max(loop.stages, slots))
            if isinstance(changed, Alloc) and changed.buffer.id == buffer.id:
                out.append(replace(changed, buffer=single))
                continue
            out.append(_cut(map_accesses(changed, element), buffer, single))
        return tuple(out)

    return visit(body)


def _cut(stmt: Stmt, buffer: Buffer, single: Buffer) -> Stmt:
    changes = {}
    for name in operand_names(stmt):
        value = getattr(stmt, name)
        if isinstance(value, Region) and value.buffer.id == buffer.id:
            changes[name] = Region(single, value.starts[1:], value.extents[1:])
    return replace(stmt, **changes) if changes else stmt  # type: ignore[arg-type]
