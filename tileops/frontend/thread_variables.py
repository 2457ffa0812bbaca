"""Registers that hold another value in each thread: names, or an element for each thread."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from tileops.ir import fold, walk
from tileops.ir.explicit import Role
from tileops.ir.expr import Buffer, Expr, Load, Var
from tileops.ir.node import Body, Stmt
from tileops.ir.stmt import Alloc, Bind, If, Store
from tileops.ir.walk import Exprs
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


# -- what each thread keeps ------------------------------------------------------------------------
def with_elements_of_threads(body: Body, lanes: tuple[tuple[Var, int], ...]) -> Body:
    """``body`` with an element for each thread in the place of registers that threads differ in.

    Only where the program uses single elements of such a buffer; others stay.
    """
    varying = _varying(body, {var.id for var, _ in lanes})
    found = {
        s.buffer.id: _of_all_threads(s.buffer, lanes)
        for s in _allocations(body)
        if s.buffer.id in varying and _is_of_elements(body, s.buffer)
    }
    if not found:
        return body
    index = tuple(var for var, _ in lanes)

    def element(buffer: Buffer, indices: Exprs) -> tuple[Buffer, Exprs]:
        made = found.get(buffer.id)
        if made is None:
            return buffer, indices
        return made, (*index, *(() if buffer.scope == "var" else indices))

    def changed(stmt: Stmt) -> tuple[Stmt, ...]:
        if isinstance(stmt, Alloc) and stmt.buffer.id in found:
            made = found[stmt.buffer.id]
            alloc = replace(stmt, buffer=made, init=None)
            if stmt.buffer.scope != "var":
                return (alloc,)
            first = stmt.init or fold.const(0, made.dtype)
            return alloc, Store(made, index, first, **stmt.provenance)
        inner = walk.map_bodies(stmt, lambda b: walk.replace_stmts(b, changed))
        return (walk.map_accesses(inner, element),)

    return walk.replace_stmts(body, changed)


def with_kept_names(body: Body, lanes: tuple[tuple[Var, int], ...], names: Collection[int]) -> Body:
    """``body`` with an element for each thread in the place of ``names`` that a Bind defines.

    Names that something else defines, such as an atomic, stay.
    """
    tracer = require_tracer("T.get_thread_binding")
    found: dict[int, Buffer] = {}
    for stmt in walk.walk(body):
        if isinstance(stmt, Bind) and stmt.var.id in names:
            shape = tuple(fold.const(count) for _, count in lanes)
            found[stmt.var.id] = tracer.new_buffer(stmt.var.name, shape, stmt.var.dtype, "fragment")
    index = tuple(var for var, _ in lanes)

    def read(expr: Expr) -> Expr:
        if isinstance(expr, Var):
            kept = found.get(expr.id)
            return expr if kept is None else Load(kept.dtype, kept, index)
        return walk.map_children(expr, read)

    def changed(stmt: Stmt) -> tuple[Stmt, ...]:
        if isinstance(stmt, Bind) and stmt.var.id in found:
            return (Store(found[stmt.var.id], index, read(stmt.value), **stmt.provenance),)
        inner = walk.map_bodies(stmt, lambda b: walk.replace_stmts(b, changed))
        return (walk.map_stmt_exprs(inner, read),)

    allocations = tuple(Alloc(buffer, **body[0].provenance) for buffer in found.values())
    return (*allocations, *walk.replace_stmts(body, changed))


def _allocations(body: Body) -> Iterator[Alloc]:
    """The allocations that are in no loop."""
    for stmt in body:
        if isinstance(stmt, Alloc):
            yield stmt
        elif isinstance(stmt, (If, Role)):
            for inner in walk.sub_bodies(stmt):
                yield from _allocations(inner)


def _of_all_threads(buffer: Buffer, lanes: tuple[tuple[Var, int], ...]) -> Buffer:
    own = () if buffer.scope == "var" else buffer.shape
    shape = (*(fold.const(count) for _, count in lanes), *own)
    return replace(buffer, scope="fragment", shape=shape)


def _varying(body: Body, ids: set[int]) -> set[int]:
    """The buffers in registers, and names, whose values a thread's index decides."""
    found = set(ids)
    while True:
        before = len(found)
        for stmt in walk.walk(body):
            match stmt:
                case Bind(var=var, value=value) if _reads(value, found):
                    found.add(var.id)
                case Store(buffer=buffer, indices=indices, value=value) if buffer.level == 2:
                    if _reads(value, found) and not any(_reads(i, found) for i in indices):
                        found.add(buffer.id)
        if len(found) == before:
            return found


def _reads(expr: Expr, ids: set[int]) -> bool:
    return any(
        (isinstance(e, Var) and e.id in ids) or (isinstance(e, Load) and e.buffer.id in ids)
        for e in walk.walk_expr(expr)
    )


def _is_of_elements(body: Body, buffer: Buffer) -> bool:
    """True if the program uses single elements of a buffer alone."""
    users = [s for s in walk.walk(body) if _uses(s, buffer)]
    return all(walk.is_element(s) or all(b.id != buffer.id for b in _operands(s)) for s in users)


def _operands(stmt: Stmt) -> list[Buffer]:
    """The buffers that a statement uses otherwise than by loads of elements."""
    loaded = [load.buffer for load in walk.loads(stmt)]
    every = [*walk.read_buffers(stmt), *walk.written_buffers(stmt)]
    return [b for b in every if b not in loaded]
