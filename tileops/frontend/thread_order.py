"""Barriers of the block between statements in which threads touch each other's elements.

A statement that only some threads run cannot wait for all: there the author says who waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from tileops.errors import UnsupportedConstructError
from tileops.frontend.thread_places import Meeting, Places
from tileops.frontend.thread_variation import Variation
from tileops.ir import fold, walk
from tileops.ir.explicit import NamedBarrier
from tileops.ir.expr import Buffer, Expr
from tileops.ir.stmt import (
    Atomic,
    Body,
    Break,
    ClusterBarrier,
    Continue,
    Exchange,
    GridBarrier,
    If,
    Intrinsic,
    Parallel,
    Stmt,
    Store,
)
from tileops.language.launch import SYNC, SYNC_WARP
from tileops.language.tracer import ThreadIndices

_OWN = ("local", "var")


@dataclass(frozen=True)
class Access:
    """A read or a write of an element of a tile, by each thread that runs it.

    Without ``indices`` it is of any elements, by any threads.
    """

    root: int
    buffer: int
    indices: tuple[Expr, ...] | None
    is_write: bool
    is_atomic: bool = False
    is_earlier: bool = False  # of an iteration before


Accesses = dict[Access, None]


def in_order(body: Body, indices: ThreadIndices, variation: Variation, *, trusts: bool) -> Body:
    """``body`` with the barriers that it lacks; with ``trusts`` those around tile operations alone.

    UnsupportedConstructError for a tile operation that some threads alone run, and for threads that
    meet at an element under a condition without waiting for each other.
    """
    return _Order(indices, body, variation, trusts).body(body, {}, ())[0]


def is_collective(stmt: Stmt) -> bool:
    """True for what the threads of a block share among them: no buffer of it is a thread's own."""
    if walk.is_element(stmt) or not (stmt.is_tile_operation or isinstance(stmt, Parallel | Atomic)):
        return False
    if isinstance(stmt, Parallel):
        written = [b for s in walk.walk(stmt.body) for b in walk.written_buffers(s)]
        return not written or any(b.scope not in _OWN for b in written)
    return all(region.buffer.scope not in _OWN for region in walk.regions(stmt))


class _Order:
    """What is pending are the accesses of shared memory since the last barrier.

    ``apart`` are the conditions under which a statement runs where some threads alone may run it;
    without conditions all do.
    """

    def __init__(
        self, indices: ThreadIndices, body: Body, variation: Variation, trusts: bool
    ) -> None:
        self._places = Places(indices, body, variation)
        self._roots = walk.view_roots(body)
        self._variation, self._trusts = variation, trusts

    def body(self, body: Body, pending: Accesses, apart: tuple[Expr, ...]) -> tuple[Body, Accesses]:
        """A statement list in order, and what is pending after it."""
        out: list[Stmt] = []
        for stmt in body:
            if isinstance(stmt, (ClusterBarrier, GridBarrier)) and apart:
                name = "T.sync_grid" if isinstance(stmt, GridBarrier) else "a cluster's barrier"
                raise UnsupportedConstructError(
                    f"{name} in a part of the program that some threads alone run",
                    location=stmt.loc,
                )
            if _waits(stmt, bool(apart)):
                pending = {}
            elif is_collective(stmt):
                if apart:
                    raise UnsupportedConstructError(
                        "a tile operation that some threads of the block alone run",
                        location=stmt.loc,
                    )
                pending = self._after(stmt, out, pending, self._all(stmt), apart, must=True)
            elif stmt.BODIES and not isinstance(stmt, Parallel):
                stmt, pending = self._compound(stmt, out, pending, apart)
            else:
                pending = self._after(stmt, out, pending, self._all(stmt), apart)
            out.append(stmt)
        return tuple(out), pending

    def _compound(
        self, stmt: Stmt, out: list[Stmt], pending: Accesses, apart: tuple[Expr, ...]
    ) -> tuple[Stmt, Accesses]:
        """A loop or a condition. Where threads part in it, all wait before it if they must."""
        if apart or not self._variation.parts(stmt):
            # One barrier before a loop is less than one in each iteration.
            found = self._own(stmt) if apart or isinstance(stmt, If) else self._all(stmt)
            count = len(out)
            self._after(stmt, out, pending, found, apart)
            if len(out) > count:
                pending = {}
            return self._bodies(stmt, {**pending, **self._own(stmt)}, apart)
        pending = self._after(stmt, out, pending, self._all(stmt), apart)
        return self._bodies(stmt, self._own(stmt), (fold.const(True),))[0], pending

    def _bodies(
        self, stmt: Stmt, pending: Accesses, apart: tuple[Expr, ...]
    ) -> tuple[Stmt, Accesses]:
        if isinstance(stmt, If):
            after = dict(pending)
            bodies = []
            for inner, cond in (
                (stmt.then, stmt.cond),
                (stmt.orelse, fold.unary("not", stmt.cond)),
            ):
                new, left = self.body(inner, pending, (*apart, cond) if apart else ())
                bodies.append(new)
                after |= left
            return walk.with_bodies(stmt, tuple(bodies)), after
        (inner,) = walk.sub_bodies(stmt)
        renamed = self._places.earlier((stmt,))
        left = self.body(inner, pending, apart)[1] | self._own(stmt)
        if _may_end_early(inner):
            left |= self._all(stmt)
        before = {**pending, **_renamed(left, renamed)}
        new, after = self.body(inner, before, apart)
        return walk.with_bodies(stmt, (new,)), {**before, **after}

    def _after(
        self, stmt: Stmt, out: list[Stmt], pending: Accesses, found: Accesses,
        apart: tuple[Expr, ...], *, must: bool = False,
    ) -> Accesses:  # fmt: skip
        """What is pending after ``stmt``; all threads wait before it where they must."""
        if self._trusts and not must:
            return {**pending, **found}
        met = {self._meeting(a, b, apart) for a in pending for b in found}
        if not met - {Meeting.NEVER}:
            return {**pending, **found}
        if not apart:
            out.append(Intrinsic(SYNC, loc=stmt.loc))
            return found
        if Meeting.SOMEWHERE in met:
            raise UnsupportedConstructError(
                "threads meet at an element under a condition and do not wait for each other",
                expected="T.sync_warp() or T.sync_threads(barrier_id, count) in between",
                location=stmt.loc,
            )
        return {**pending, **found}

    def _meeting(self, a: Access, b: Access, apart: tuple[Expr, ...]) -> Meeting:
        if a.root != b.root or not (a.is_write or b.is_write) or (a.is_atomic and b.is_atomic):
            return Meeting.NEVER
        if a.is_earlier and a.is_write and b.is_write:
            return Meeting.NEVER  # iterations write in order, or one value
        if a.buffer != b.buffer or a.indices is None or b.indices is None:
            return Meeting.MAYBE
        running = self._places.running(apart)
        return self._places.meeting(a.indices, b.indices, running)

    # -- accesses ----------------------------------------------------------------------------------
    def _all(self, stmt: Stmt) -> Accesses:
        """What a statement and those in it touch."""
        found: Accesses = {}
        for inner in walk.walk((stmt,)):
            found |= self._own(inner)
        if isinstance(stmt, Parallel) or stmt.is_tile_operation:
            return {replace(access, indices=None): None for access in found}
        return found

    def _own(self, stmt: Stmt) -> Accesses:
        return dict.fromkeys(self._accesses(stmt))

    def _accesses(self, stmt: Stmt) -> Iterator[Access]:
        for load in walk.loads(stmt):
            yield from self._access(load.buffer, load.indices, False)
        if isinstance(stmt, Store):
            yield from self._access(stmt.buffer, stmt.indices, True)
        elif isinstance(stmt, Atomic) and walk.is_element(stmt):
            yield from self._access(stmt.dst.buffer, stmt.dst.starts, True, True)
        else:
            for buffers, is_write in (
                (walk.read_buffers(stmt), False), (walk.written_buffers(stmt), True)
            ):  # fmt: skip
                for buffer in buffers:
                    yield from self._access(buffer, None, is_write)

    def _access(
        self, buffer: Buffer, indices: tuple[Expr, ...] | None, is_write: bool, atomic: bool = False
    ) -> Iterator[Access]:
        if buffer.scope == "shared":
            root = self._roots.get(buffer.id, buffer).id
            yield Access(root, buffer.id, indices, is_write, atomic)


def _renamed(accesses: Iterable[Access], renamed: Mapping[int, Expr]) -> Accesses:
    found: Accesses = {}
    for access in accesses:
        indices = access.indices
        if indices is not None:
            indices = tuple(fold.substitute(index, renamed) for index in indices)
        found[replace(access, indices=indices, is_earlier=True)] = None
    return found


def _waits(stmt: Stmt, is_apart: bool) -> bool:
    """True for a barrier of all threads, or of those that got here where they part."""
    if isinstance(stmt, (ClusterBarrier, GridBarrier)):
        return isinstance(stmt, GridBarrier) or stmt.waits
    if isinstance(stmt, Exchange):
        return stmt.is_of_the_block
    if isinstance(stmt, Intrinsic):
        return stmt.name == SYNC or (is_apart and stmt.name == SYNC_WARP)
    return is_apart and isinstance(stmt, NamedBarrier) and stmt.waits


def _may_end_early(body: Body) -> bool:
    return any(isinstance(s, (Break, Continue)) for s in walk.walk(body))
