"""Pairs of stores: two neighbouring 4-bit elements are stored together, as a whole byte.

Before: a store writes one element, half a byte, and it is unknown what writes the other half.
After: a loop along the last dimension handles two points an iteration, and its store holds both
values (``pair``); so does a pair of stores that the program spells out. A store without a partner
stays as it is, and lowering refuses it: two writers of one byte would race.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator
from typing import Any

from tileops.errors import UnsupportedConstructError
from tileops.ir import walk
from tileops.ir.expr import Binary, Buffer, Call, Expr, Var
from tileops.ir.fold import add, const, mul
from tileops.ir.stmt import AddressView, Alloc, Bind, Body, For, If, Parallel, Stmt, Store, View
from tileops.passes.analyze_index import affine, half, parity

Names = dict[int, Expr]
_PAIR = "pair"
_SAME_FOR_BOTH = ("lt", "ge")


def pair(low: Expr, high: Expr) -> Expr:
    """The value of a store of two neighbouring elements."""
    return Call(low.dtype, _PAIR, (low, high))


def pair_of(value: Expr) -> tuple[Expr, Expr] | None:
    """The elements that ``pair`` put together; None for other values."""
    if not (isinstance(value, Call) and value.name == _PAIR):
        return None
    low, high = value.args
    return low, high


class Pairing:
    """Pairs the stores of one launch.

    ``packed`` are the ids of buffers of two elements a byte, ``even`` those of variables that are
    always even, ``root`` gives the id of the storage that a buffer names.
    """

    def __init__(
        self,
        packed: Collection[int],
        even: Collection[int],
        root: Callable[[Buffer], int],
        fresh: Callable[[Var], Var],
    ) -> None:
        self._packed, self._even, self._root, self._fresh = packed, even, root, fresh

    def body(self, body: Body) -> Body:
        """A statement list with its stores paired where that is possible."""
        out: list[Stmt] = []
        for stmt in body:
            new = self._stmt(stmt)
            at = self._partner(new, out)
            if at is None:
                out.append(new)
                continue
            first = out.pop(at)
            assert isinstance(first, Store)
            assert isinstance(new, Store)
            out.append(dataclasses.replace(first, value=pair(first.value, new.value)))
        return tuple(out)

    def _pending(self, body: Body) -> Iterator[Store]:
        """The stores in ``body`` of one element of two in a byte."""
        for stmt in walk.walk(body):
            if isinstance(stmt, Store) and self._is_pending(stmt):
                yield stmt

    def _is_pending(self, store: Store) -> bool:
        return store.buffer.id in self._packed and pair_of(store.value) is None

    def _partner(self, stmt: Stmt, before: list[Stmt]) -> int | None:
        """The place of the store of the even neighbour, with only binds since then."""
        if not isinstance(stmt, Store) or not self._is_pending(stmt):
            return None
        for at in reversed(range(len(before))):
            other = before[at]
            if self._reads(other if isinstance(other, Bind) else stmt, stmt.buffer):
                return None
            if isinstance(other, Store):
                same = other.buffer == stmt.buffer and self._is_pending(other)
                return at if same and self._adjacent(other.indices, stmt.indices) else None
            if not isinstance(other, Bind):
                return None
        return None

    def _reads(self, stmt: Stmt, buffer: Buffer) -> bool:
        return any(self._root(x.buffer) == self._root(buffer) for x in walk.loads(stmt))

    def _adjacent(self, a: tuple[Expr, ...], b: tuple[Expr, ...]) -> bool:
        """True if ``a`` is the even and ``b`` the odd element of one byte."""
        even = self._even
        return (
            a[:-1] == b[:-1]
            and (parity(a[-1], even), parity(b[-1], even)) == (0, 1)
            and half(a[-1], even) == half(b[-1], even)
        )

    # -- loops -------------------------------------------------------------------------------------
    def _stmt(self, stmt: Stmt) -> Stmt:
        if not any(self._pending((stmt,))):
            return stmt
        stmt = walk.map_bodies(stmt, self.body)
        if isinstance(stmt, (For, Parallel)):
            for store in self._pending(stmt.body):
                var = self._walked_by(stmt, store)
                if var is not None:
                    return self._halved(stmt, var, store)
        return stmt

    def _walked_by(self, loop: For | Parallel, store: Store) -> Var | None:
        """The variable of ``loop`` that steps through the store's last dimension one by one."""
        for var in loop.vars if isinstance(loop, Parallel) else (loop.var,):
            parts = affine(store.indices[-1], (var.id,))
            if parts is None or parts.coefficient(var.id) != 1:
                continue
            if parity(parts.rest, self._even) == 0:
                return var
        return None

    def _halved(self, loop: For | Parallel, var: Var, store: Store) -> Stmt:
        """``loop`` with two points of ``var`` an iteration."""
        twin = self._fresh(var)
        low = mul(twin, const(2, var.dtype))
        names = ({var.id: low}, {var.id: add(low, const(1, var.dtype))})
        if isinstance(loop, For):
            self._check_serial(loop, store)
            start, stop = (half(e, self._even) for e in (loop.start, loop.stop))
            body = self._twice(loop.body, *names)
            return dataclasses.replace(loop, var=twin, start=start, stop=stop, body=body)
        at = loop.vars.index(var)
        if parity(loop.extents[at], self._even) != 0:
            raise refusal(store, f"the extent of `{var.name}` is not known to be even")
        extents, vars_ = list(loop.extents), list(loop.vars)
        extents[at], vars_[at] = half(extents[at], self._even), twin
        body = self._twice(loop.body, *names)
        return dataclasses.replace(loop, vars=tuple(vars_), extents=tuple(extents), body=body)

    def _check_serial(self, loop: For, store: Store) -> None:
        """Two iterations of a serial loop may run side by side if none reads what they write."""
        if any(parity(e, self._even) != 0 for e in (loop.start, loop.stop)):
            raise refusal(store, f"the bounds of `{loop.var.name}` are not known to be even")
        inner = list(walk.walk(loop.body))
        written = {self._root(b) for s in inner for b in walk.written_buffers(s)}
        read = {self._root(x.buffer) for s in inner for x in walk.loads(s)}
        if written & read or not all(isinstance(s, (Bind, Store, If)) for s in inner):
            raise refusal(
                store, f"the loop over `{loop.var.name}` does more than compute and store elements"
            )

    # -- two points side by side -------------------------------------------------------------------
    def _twice(self, body: Body, low: Names, high: Names) -> Body:
        """Every statement for both points, one after the other; their pending stores joined."""
        out: list[Stmt] = []
        for stmt in body:
            if isinstance(stmt, (AddressView, Alloc, View)):
                raise UnsupportedConstructError(
                    "an allocation inside a loop that stores 4-bit elements", location=stmt.loc
                )
            if not any(self._pending((stmt,))):
                out += [_copy(stmt, low), self._renamed(stmt, high)]
            elif isinstance(stmt, Store):
                out.append(self._joined(stmt, low, high))
            else:
                out.append(self._shared(stmt, low, high))
        return tuple(out)

    def _joined(self, stmt: Store, low: Names, high: Names) -> Stmt:
        first, second = _copy(stmt, low), _copy(stmt, high)
        assert isinstance(first, Store)
        assert isinstance(second, Store)
        if not self._adjacent(first.indices, second.indices):
            raise refusal(stmt, "another store of the loop walks along another variable")
        return dataclasses.replace(first, value=pair(first.value, second.value))

    def _shared(self, stmt: Stmt, low: Names, high: Names) -> Stmt:
        """A condition or loop around pending stores, which both points must share."""
        store = next(self._pending((stmt,)))
        if not isinstance(stmt, (If, For, Parallel)):
            raise refusal(store, f"it is inside a `{type(stmt).__name__.lower()}`")
        head = walk.exprs(stmt)
        heads = [tuple(walk.substitute(e, names) for e in head) for names in (low, high)]
        if not all(self._same_for_both(a, b) for a, b in zip(*heads, strict=True)):
            raise refusal(store, "a condition or loop around it differs between neighbours")
        first = walk.map_stmt_exprs(stmt, lambda e: walk.substitute(e, low))
        return walk.map_bodies(first, lambda body: self._twice(body, dict(low), dict(high)))

    def _same_for_both(self, a: Expr, b: Expr) -> bool:
        """True if two expressions of neighbours have one value: ``2 u < 2 n`` as ``2 u + 1``."""
        if a == b:
            return True
        if not (isinstance(a, Binary) and isinstance(b, Binary) and a.op == b.op):
            return False
        if a.op in ("land", "lor"):
            return self._same_for_both(a.a, b.a) and self._same_for_both(a.b, b.b)
        return (
            a.op in _SAME_FOR_BOTH
            and a.b == b.b
            and parity(a.b, self._even) == 0
            and self._adjacent((a.a,), (b.a,))
        )

    def _renamed(self, stmt: Stmt, names: Names) -> Stmt:
        """A copy whose own variables are new ones."""
        for inner in walk.walk((stmt,)):
            for defined in inner.DEFINES:
                value = getattr(inner, defined)
                for var in value if isinstance(value, tuple) else (value,):
                    if isinstance(var, Var):
                        names[var.id] = self._fresh(var)
        return _copy(stmt, names)


def refusal(store: Store, why: str) -> UnsupportedConstructError:
    """The error for a store of half a byte that cannot be joined with its neighbour's."""
    return UnsupportedConstructError(
        f"a store of single elements of `{store.buffer.name}`: two elements of "
        f"{store.buffer.dtype} share a byte, and one iteration must store both",
        expected="a T.copy, or a loop along the last dimension with an even start and extent",
        found=why,
        location=store.loc,
    )


def _copy(stmt: Stmt, names: Names) -> Stmt:
    """``stmt`` with variables replaced, those that it defines included."""

    def renamed(value: object) -> object:
        if isinstance(value, tuple):
            return tuple(map(renamed, value))
        new = names.get(value.id) if isinstance(value, Var) else None
        return new if isinstance(new, Var) else value

    new = walk.map_stmt_exprs(stmt, lambda e: walk.substitute(e, names))
    defined: dict[str, Any] = {name: renamed(getattr(stmt, name)) for name in stmt.DEFINES}
    new = dataclasses.replace(new, **defined)
    return walk.map_bodies(new, lambda body: tuple(_copy(s, names) for s in body))
