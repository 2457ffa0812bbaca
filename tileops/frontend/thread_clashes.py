"""Elements that one thread writes and another reads or writes: where a block must wait in between.

Threads are points of a parallel nest, and no point of a nest may read what another one writes. So
statements that do are put into nests of their own, one after the other, as a barrier would.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from tileops.ir import walk
from tileops.ir.expr import Binary, Buffer, Expr, Load, Region, Var, const_value
from tileops.ir.stmt import Atomic, Body, For, If, Stmt, Store, While


@dataclass(frozen=True)
class Access:
    """A read or a write of an element of a tile, by each thread that runs it."""

    root: int
    buffer: int
    indices: tuple[Expr, ...]
    is_write: bool
    is_atomic: bool


class Clashes:
    """Tells which statements of threads need a barrier between them.

    ``lanes`` are the indices of threads with how many there are, ``roots`` the tiles that views of
    ``whole`` are of.
    """

    def __init__(
        self, lanes: Collection[tuple[Var, int]], roots: Mapping[int, Buffer], whole: Body
    ) -> None:
        self._lanes = {var.id: threads for var, threads in lanes}
        self._roots = roots
        self._counts = {
            s.var.id: const_value(s.stop)
            for s in walk.walk(whole)
            if isinstance(s, For) and const_value(s.start) == 0
        }

    def between(self, run: Iterable[Stmt], stmt: Stmt) -> bool:
        """True if a thread in ``stmt`` may touch what another one touched in ``run``."""
        later = list(self._accesses(stmt))
        if not later:
            return False
        return any(self._clash(a, b) for s in run for a in self._accesses(s) for b in later)

    def within(self, stmt: Stmt) -> bool:
        """True if statements of a loop or a condition need a barrier between them."""
        if not isinstance(stmt, (For, If, While)):
            return False
        if isinstance(stmt, If):
            return any(self._needed(body) for body in walk.sub_bodies(stmt))
        # The next iteration comes after this one, too: a write may be before a read of any place,
        # and of another iteration's.
        found = list(self._accesses(stmt))
        varying = {var.id for s in walk.walk((stmt,)) for var in _defined(s)} - self._lanes.keys()
        return any(
            self._clash(a, b, varying) for n, a in enumerate(found) for b in found[n:]
            if not (a.is_write and b.is_write) or a.is_atomic != b.is_atomic
        )  # fmt: skip

    def _needed(self, body: tuple[Stmt, ...]) -> bool:
        return any(
            self.within(stmt) or self.between(body[:number], stmt)
            for number, stmt in enumerate(body)
        )

    def _accesses(self, stmt: Stmt) -> Iterator[Access]:
        for inner in walk.walk((stmt,)):
            is_atomic = isinstance(inner, Atomic)
            written: tuple[Buffer, tuple[Expr, ...]] | None = None
            if isinstance(inner, Store):
                written = inner.buffer, inner.indices
            elif isinstance(inner, Atomic) and not isinstance(inner.value, Region):
                written = inner.dst.buffer, inner.dst.starts
            if written is not None and self._is_shared(written[0]):
                yield self._access(*written, True, is_atomic)
            for load in walk.loads(inner):
                if self._is_shared(load.buffer):
                    yield self._access(load.buffer, load.indices, False, False)

    def _is_shared(self, buffer: Buffer) -> bool:
        return buffer.scope in ("shared", "fragment")

    def _access(
        self, buffer: Buffer, indices: tuple[Expr, ...], is_write: bool, is_atomic: bool
    ) -> Access:
        root = self._roots.get(buffer.id, buffer).id
        return Access(root, buffer.id, indices, is_write, is_atomic)

    def _clash(self, a: Access, b: Access, varying: Collection[int] = ()) -> bool:
        if a.root != b.root or not (a.is_write or b.is_write) or (a.is_atomic and b.is_atomic):
            return False
        return a.buffer != b.buffer or not self._are_own(a.indices, b.indices, varying)

    def _are_own(self, a: tuple[Expr, ...], b: tuple[Expr, ...], varying: Collection[int]) -> bool:
        """True if each thread has elements of its own, the same ones in both accesses."""
        own = {self._owner(x, varying) for x, y in zip(a, b, strict=True) if x == y}
        return self._lanes.keys() <= own

    def _owner(self, index: Expr, varying: Collection[int]) -> int | None:
        """The thread index whose threads have elements of their own at an index; None for none.

        Variables in ``varying``, and what memory holds, may have one value in the one access and
        another in the other.
        """
        if isinstance(index, Var):
            return index.id
        if not (isinstance(index, Binary) and index.op in ("add", "sub")):
            return self._strided(index, 1)
        for part, rest in ((index.a, index.b), (index.b, index.a)):
            if self._uses(rest, self._lanes):
                continue
            count = self._count(rest) if index.op == "add" else None
            found = self._strided(part, count)
            if found is None:
                continue
            varies = self._uses(rest, varying) or any(
                isinstance(e, Load) for e in walk.walk_expr(rest)
            )
            if not varies or isinstance(part, Binary) or self._is_far(rest, self._lanes[found]):
                return found
        return None

    def _is_far(self, rest: Expr, threads: int) -> bool:
        """True for ``i * c`` that is not less than all threads take: iterations do not meet."""
        if not (isinstance(rest, Binary) and rest.op == "mul" and isinstance(rest.a, Var)):
            return False
        step = const_value(rest.b)
        return step is not None and abs(step) >= threads

    def _strided(self, part: Expr, count: int | None) -> int | None:
        """The thread index in ``tx``, or in ``tx * c`` with at most ``c`` elements for each."""
        if isinstance(part, Var) and part.id in self._lanes:
            return part.id
        if isinstance(part, Binary) and part.op == "mul" and isinstance(part.a, Var):
            step = const_value(part.b)
            if part.a.id in self._lanes and count is not None and step and abs(step) >= count:
                return part.a.id
        return None

    def _count(self, rest: Expr) -> int | None:
        """How many values an addend has, from 0 on; None if that is not known."""
        if isinstance(rest, Var):
            return self._counts.get(rest.id)
        value = const_value(rest)
        return value + 1 if value is not None and value >= 0 else None

    def _uses(self, expr: Expr, ids: Collection[int]) -> bool:
        return any(isinstance(e, Var) and e.id in ids for e in walk.walk_expr(expr))


def _defined(stmt: Stmt) -> Iterator[Var]:
    """The variables that a statement gives a value."""
    for name in stmt.DEFINES:
        value = getattr(stmt, name)
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, Var):
                yield one
