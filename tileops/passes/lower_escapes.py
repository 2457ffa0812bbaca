"""`break` and `continue` as conditions, for generators whose language has neither."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from tileops.ir import fold, walk
from tileops.ir.expr import Buffer, Expr, Load
from tileops.ir.program import Program
from tileops.ir.stmt import Alloc, Body, Break, Continue, For, If, Stmt, Store, While
from tileops.passes.context import Context

_ZERO = fold.const(0)


def lower_escapes(program: Program, context: Context) -> Program:
    """``program`` without Break and Continue.

    A loop with escapes gets two flags: whether it goes on, and whether this turn does.
    """
    rewriter = _Rewriter(walk.fresh_ids(program))
    return walk.map_launches(
        program, lambda launch: walk.replace_stmts(launch.body, rewriter.outside)
    )


def _leaves(body: Body) -> bool:
    """True if a statement of ``body`` may leave the loop around it, or its turn."""
    return any(
        isinstance(stmt, (Break, Continue))
        or (not isinstance(stmt, (For, While)) and any(map(_leaves, walk.sub_bodies(stmt))))
        for stmt in body
    )


class _Rewriter:
    def __init__(self, ids: Iterator[int]) -> None:
        self._ids = ids

    def outside(self, stmt: Stmt) -> list[Stmt] | None:
        """A statement outside any loop that it could leave."""
        if not (isinstance(stmt, (For, While)) and _leaves(stmt.body)):
            return None
        runs, active = self._flag("runs"), self._flag("active")
        inner = self._guarded(stmt.body, runs, active)
        start = Store(active, (_ZERO,), _read(runs), **stmt.provenance)
        loop = dataclasses.replace(stmt, body=(start, If(_read(active), inner, **stmt.provenance)))
        if isinstance(loop, While):
            loop = dataclasses.replace(loop, cond=fold.binary("land", _read(runs), loop.cond))
        flags = [Alloc(flag, fold.const(True), **stmt.provenance) for flag in (runs, active)]
        return [*flags, loop]

    def _guarded(self, body: Body, runs: Buffer, active: Buffer) -> Body:
        """A list inside the loop: what follows an escape happens only in turns that go on."""
        out: list[Stmt] = []
        for n, stmt in enumerate(body):
            if isinstance(stmt, (Break, Continue)):
                flags = (runs, active) if isinstance(stmt, Break) else (active,)
                out += [Store(f, (_ZERO,), fold.const(False), **stmt.provenance) for f in flags]
                break
            if not _leaves((stmt,)):
                out += walk.replace_stmts((stmt,), self.outside)
                continue
            out.append(walk.map_bodies(stmt, lambda inner: self._guarded(inner, runs, active)))
            if rest := self._guarded(body[n + 1 :], runs, active):
                out.append(If(_read(active), rest, **stmt.provenance))
            break
        return tuple(out)

    def _flag(self, name: str) -> Buffer:
        return Buffer(next(self._ids), name, (fold.const(1),), fold.BOOL, "var")


def _read(flag: Buffer) -> Expr:
    return Load(fold.BOOL, flag, (_ZERO,))
