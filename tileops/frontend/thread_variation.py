"""What differs between the threads of a block, and where their ways part."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tileops.ir import walk
from tileops.ir.expr import Expr, Load, Region, Var
from tileops.ir.stmt import (
    Alloc,
    Atomic,
    Bind,
    Body,
    Break,
    Continue,
    Exchange,
    ExternCall,
    For,
    If,
    LoadMatrix,
    Mma,
    RandomNumber,
    Stmt,
    Store,
    While,
)

_OWN = ("local", "var", "fragment")


class Variation:
    """The variables, and the buffers in registers, whose values differ between threads.

    ``lanes`` are the indices of a block's ``threads``. What an atomic gives differs. An element of
    memory at a place that all threads agree on is the same for all.
    """

    def __init__(self, body: Body, lanes: Collection[Var], threads: int) -> None:
        self._ids = {var.id for var in lanes}
        if threads == 1:
            self._ids = set()
            return
        count = -1
        while count != len(self._ids):  # a loop may hand a value to its next iteration
            count = len(self._ids)
            self._visit(body, False)

    def reads(self, exprs: Iterable[Expr]) -> bool:
        """True if one of ``exprs`` differs between threads."""
        return any(self._differs(e) for expr in exprs for e in walk.walk_expr(expr))

    def parts(self, stmt: Stmt) -> bool:
        """True for a loop or a condition in which some threads go where others do not."""
        match stmt:
            case If(cond=cond):
                return self.reads((cond,))
            case For(start=start, stop=stop, body=body):
                return self.reads((start, stop)) or self._is_left_by_some(body, False)
            case While(cond=cond, body=body):
                return self.reads((cond,)) or self._is_left_by_some(body, False)
        return False

    def _differs(self, expr: Expr) -> bool:
        if isinstance(expr, Var):
            return expr.id in self._ids
        return isinstance(expr, Load) and expr.buffer.id in self._ids

    def _is_left_by_some(self, body: Body, apart: bool) -> bool:
        """True if some threads alone may end an iteration of the loop that ``body`` is of."""
        for stmt in body:
            if isinstance(stmt, (Break, Continue)):
                if apart:
                    return True
            elif isinstance(stmt, If):
                under = apart or self.parts(stmt)
                if any(self._is_left_by_some(inner, under) for inner in walk.sub_bodies(stmt)):
                    return True
        return False

    def _visit(self, body: Body, apart: bool) -> None:
        for stmt in body:
            self._note(stmt, apart)
            under = apart or self.parts(stmt)
            for inner in walk.sub_bodies(stmt):
                self._visit(inner, under)

    def _note(self, stmt: Stmt, apart: bool) -> None:
        match stmt:
            case Bind(var=var, value=value) if self.reads((value,)):
                self._ids.add(var.id)
            case For(var=var, start=start, stop=stop) if self.reads((start, stop)):
                self._ids.add(var.id)
            case Exchange() if stmt.is_of_the_block:
                pass
            case (
                Atomic(result=Var() as result)
                | Exchange(result=result)
                | RandomNumber(result=result)
                | ExternCall(result=Var() as result)
            ):
                self._ids.add(result.id)
            case Alloc(init=Expr() as init) if self.reads((init,)):
                self._ids.add(stmt.buffer.id)
        own = [b for b in walk.written_buffers(stmt) if b.scope in _OWN]
        if own and (apart or self._is_made_of_what_differs(stmt)):
            self._ids |= {b.id for b in own}

    def _is_made_of_what_differs(self, stmt: Stmt) -> bool:
        if isinstance(stmt, (ExternCall, LoadMatrix, Mma)):
            return True  # a function may ask which thread it is
        if isinstance(stmt, Store) and stmt.buffer.scope == "fragment":
            return self.reads((stmt.value,))
        regions = [v for v in walk.regions(stmt) if isinstance(v, Region)]
        return self.reads(walk.exprs(stmt)) or any(r.buffer.id in self._ids for r in regions)
