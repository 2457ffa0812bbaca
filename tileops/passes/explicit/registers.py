"""Registers: each group of threads has its own, so a buffer that two of them change is two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tileops.errors import ProgramValueError, UnsupportedConstructError
from tileops.ir import explicit
from tileops.ir.expr import Buffer, Expr, Load, Region
from tileops.ir.node import Body, Stmt
from tileops.ir.stmt import Alloc
from tileops.ir.walk import (
    map_children,
    map_stmt_exprs,
    operand_names,
    read_buffers,
    sub_bodies,
    view_roots,
    with_bodies,
    written_buffers,
)
from tileops.passes.explicit.check_roles import with_groups
from tileops.passes.explicit.threads import Group

By = tuple[int, ...]


@dataclass
class _Uses:
    """Who reads and who writes a buffer, each with a statement that does."""

    buffer: Buffer
    reads: dict[By, Stmt] = field(default_factory=dict)
    writes: dict[By, Stmt] = field(default_factory=dict)


def with_own_registers(body: Body, groups: Sequence[Group], fresh: Iterator[int]) -> Body:
    """``body`` with a buffer in registers for each role that changes it.

    ProgramValueError where a role reads what the registers of another one hold.
    """
    every = tuple(g.number for g in groups)
    uses: dict[int, _Uses] = {}
    _find(body, groups, every, uses)
    views = set(view_roots(body))
    private: dict[By, dict[int, Buffer]] = {}
    for found in uses.values():
        owners = _owners(found, every)
        if not owners:
            continue
        if found.buffer.id in views:
            raise UnsupportedConstructError(
                f"roles that change the view `{found.buffer.name}` of registers",
                location=next(iter(found.writes.values())).loc,
            )
        for by in owners:
            first = groups[by[0]].first
            made = replace(found.buffer, id=next(fresh), name=f"{found.buffer.name}_{first}")
            private.setdefault(by, {})[found.buffer.id] = made
    return _rewritten(body, groups, every, private) if private else body


def _find(body: Body, groups: Sequence[Group], by: By, uses: dict[int, _Uses]) -> None:
    for stmt, those in with_groups(body, groups, by):
        for buffers, name in ((read_buffers(stmt), "reads"), (written_buffers(stmt), "writes")):
            for buffer in buffers:
                if buffer.level == 2 and not isinstance(stmt, Alloc):
                    found = uses.setdefault(buffer.id, _Uses(buffer))
                    getattr(found, name).setdefault(those, stmt)
        for inner in sub_bodies(stmt):
            _find(inner, groups, those, uses)


def _owners(found: _Uses, every: By) -> list[By]:
    """The roles that have a copy each; none where one buffer does for all."""
    parts = [by for by in {**found.reads, **found.writes} if by != every]
    changing = [by for by in found.writes if by != every]
    if not changing or (len(parts) == 1 and every not in found.reads and every not in found.writes):
        return []
    if any(set(a) & set(b) for n, a in enumerate(parts) for b in parts[n + 1 :]):
        raise UnsupportedConstructError(
            f"`{found.buffer.name}` is in the registers of roles that overlap",
            location=found.writes[changing[0]].loc,
        )
    if every in found.reads:
        raise ProgramValueError(
            f"`{found.buffer.name}` is in registers: after a role changed its own, the others "
            "have another value",
            expected="a shared buffer, or a use in that role alone",
            location=found.reads[every].loc,
        )
    for by in parts:
        if by not in found.writes and every not in found.writes:
            raise ProgramValueError(
                f"`{found.buffer.name}` is in the registers of another role",
                expected="a shared buffer and a barrier",
                location=found.reads[by].loc,
            )
    return parts


def _rewritten(
    body: Body, groups: Sequence[Group], by: By, private: Mapping[By, Mapping[int, Buffer]]
) -> Body:
    """``body`` of the groups ``by``; what all do to such a buffer is done to each copy."""
    copied = {n for made in private.values() for n in made}
    own = private.get(by, {})
    out: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, explicit.Role):
            inner = tuple(n for n in by if stmt.first <= groups[n].first < stmt.first + stmt.count)
            out.append(replace(stmt, body=_rewritten(stmt.body, groups, inner, private)))
            continue
        bodies = tuple(_rewritten(inner, groups, by, private) for inner in sub_bodies(stmt))
        stmt = with_bodies(stmt, bodies)
        touched = {b.id for b in (*read_buffers(stmt), *written_buffers(stmt), *_made(stmt))}
        shared = touched & (copied - own.keys())
        if not shared:
            out.append(_renamed(stmt, own))
            continue
        if stmt.BODIES:
            raise UnsupportedConstructError(
                "a condition on registers that roles change", location=stmt.loc
            )
        out += [_renamed(stmt, made) for made in private.values() if shared & made.keys()]
    return tuple(out)


def _made(stmt: Stmt) -> tuple[Buffer, ...]:
    return (stmt.buffer,) if isinstance(stmt, Alloc) else ()


def _renamed(stmt: Stmt, names: Mapping[int, Buffer]) -> Stmt:
    if not names:
        return stmt

    def load(expr: Expr) -> Expr:
        expr = map_children(expr, load)
        if isinstance(expr, Load) and expr.buffer.id in names:
            return replace(expr, buffer=names[expr.buffer.id])
        return expr

    stmt = map_stmt_exprs(stmt, load)
    changes: dict[str, object] = {}
    for name in operand_names(stmt):
        value = getattr(stmt, name)
        if isinstance(value, Buffer) and value.id in names:
            changes[name] = names[value.id]
        elif isinstance(value, Region) and value.buffer.id in names:
            changes[name] = replace(value, buffer=names[value.buffer.id])
    return replace(stmt, **changes) if changes else stmt  # type: ignore[arg-type]
