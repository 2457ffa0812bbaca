"""`break` and `continue` as conditions, for generators whose language has neither."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from tileops.ir import fold
from tileops.ir.expr import Buffer, Expr, Load
from tileops.ir.program import Program
from tileops.ir.stmt import Alloc, Body, Break, Continue, For, If, Launch, Stmt, Store, While
from tileops.ir.walk import fresh_ids, map_launches, sub_bodies, with_bodies
from tileops.passes.context import Context

_ZERO = fold.const(0)


def lower_escapes(program: Program, context: Context) -> Program:
    """``program`` without Break and Continue."""
    rewriter = _Rewriter(fresh_ids(program))

    def lowered(launch: Launch) -> Body:
        found = _has_escape((launch,), inside_loops=True)
        return rewriter.body(launch.body) if found else launch.body

    return map_launches(program, lowered)


def _has_escape(body: Body, *, inside_loops: bool) -> bool:
    for stmt in body:
        if isinstance(stmt, (Break, Continue)):
            return True
        if isinstance(stmt, (For, While)) and not inside_loops:
            continue
        if any(_has_escape(b, inside_loops=inside_loops) for b in sub_bodies(stmt)):
            return True
    return False


class _Rewriter:
    """Gives each loop with escapes two flags: whether it goes on, and whether this turn does."""

    def __init__(self, ids: Iterator[int]) -> None:
        self._ids = ids

    def body(self, body: Body) -> Body:
        """A statement list outside any loop that it could leave."""
        out: list[Stmt] = []
        for stmt in body:
            if isinstance(stmt, (For, While)) and _has_escape(stmt.body, inside_loops=False):
                out += self._loop(stmt)
            elif inner := sub_bodies(stmt):
                out.append(with_bodies(stmt, tuple(map(self.body, inner))))
            else:
                out.append(stmt)
        return tuple(out)

    def _loop(self, loop: For | While) -> list[Stmt]:
        runs, active = self._flag("runs"), self._flag("active")
        inner = self._guarded(loop.body, runs, active)
        start = Store(active, (_ZERO,), _read(runs), **loop.provenance)
        body: Body = (start, If(_read(active), inner, **loop.provenance))
        if isinstance(loop, While):
            cond = fold.binary("land", _read(runs), loop.cond)
            new: Stmt = dataclasses.replace(loop, cond=cond, body=body)
        else:
            new = dataclasses.replace(loop, body=body)
        return [
            Alloc(runs, fold.const(True), **loop.provenance),
            Alloc(active, fold.const(True), **loop.provenance),
            new,
        ]

    def _guarded(self, body: Body, runs: Buffer, active: Buffer) -> Body:
        """A list inside the loop: what follows an escape happens only in turns that go on."""
        out: list[Stmt] = []
        for n, stmt in enumerate(body):
            if isinstance(stmt, (Break, Continue)):
                flags = (runs, active) if isinstance(stmt, Break) else (active,)
                out += [Store(f, (_ZERO,), fold.const(False), **stmt.provenance) for f in flags]
                return tuple(out)
            if isinstance(stmt, (For, While)) or not _has_escape((stmt,), inside_loops=False):
                out += self.body((stmt,))
                continue
            inner = tuple(self._guarded(b, runs, active) for b in sub_bodies(stmt))
            out.append(with_bodies(stmt, inner))
            rest = self._guarded(body[n + 1 :], runs, active)
            if rest:
                out.append(If(_read(active), rest, **stmt.provenance))
            return tuple(out)
        return tuple(out)

    def _flag(self, name: str) -> Buffer:
        return Buffer(next(self._ids), name, (fold.const(1),), fold.BOOL, "var")


def _read(flag: Buffer) -> Expr:
    return Load(fold.BOOL, flag, (_ZERO,))
