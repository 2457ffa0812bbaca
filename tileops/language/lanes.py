"""Owns thread indices: what uses one elementwise becomes T.Parallel loops over the threads."""

from __future__ import annotations

from collections.abc import Iterable

from tileops.dtypes import DType
from tileops.errors import ProgramValueError, UnsupportedConstructError
from tileops.ir import fold, walk
from tileops.ir.expr import Expr, Region, Var
from tileops.ir.stmt import (
    Alloc,
    Assume,
    Atomic,
    Bind,
    Body,
    For,
    If,
    Intrinsic,
    Parallel,
    Stmt,
    Store,
    View,
    While,
)
from tileops.language import arguments
from tileops.language.tracer import require_tracer
from tileops.language.unsupported import on_which_target
from tileops.language.value import Value

SYNC = "sync_threads"
_NAMES = ("tx", "ty", "tz")
_THREAD_TAGS = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
_ELEMENTWISE = (Store, Bind, If, For, Assume)


def get_thread_binding(dim: int = 0) -> Value:
    """The thread index along ``dim``, which may only choose the elements that a thread handles."""
    tracer = require_tracer("T.get_thread_binding")
    state = tracer.require_launch("T.get_thread_binding")
    dim = arguments.number("T.get_thread_binding", "dim", dim)
    if not 0 <= dim < len(state.threads):
        raise ProgramValueError(
            f"the threads of T.Kernel have no dimension {dim}",
            expected=f"0..{len(state.threads) - 1}",
        )
    if dim not in state.lanes:
        state.lanes[dim] = tracer.define_permanent(
            tracer.new_var(tracer.take_name(_NAMES[dim]), DType("int32")), bounded=True
        )
    return Value(state.lanes[dim])


def thread_binding(start: object, stop: object = None, thread: str = "threadIdx.x") -> Value:
    """The thread index along ``thread``, over all threads that ``T.Kernel`` was given there.

    UnsupportedConstructError for a part of them, or for a block's index.
    """
    first, end = (0, start) if stop is None else (start, stop)
    tracer = require_tracer("T.thread_binding")
    state = tracer.require_launch("T.thread_binding")
    dim = _THREAD_TAGS.index(thread) if thread in _THREAD_TAGS else -1
    threads = state.threads[dim] if 0 <= dim < len(state.threads) else 1
    if dim < 0 or first != 0 or end != threads:
        raise UnsupportedConstructError(
            f"T.thread_binding({first}, {end}, {thread!r})",
            expected=f"all threads of the block: T.thread_binding(0, {threads}, thread=...) with "
            "threadIdx.x, threadIdx.y or threadIdx.z",
        )
    return get_thread_binding(dim)


def get_thread_bindings() -> tuple[Value, ...]:
    """The thread indices along all dimensions that T.Kernel was given threads for."""
    tracer = require_tracer("T.get_thread_bindings")
    state = tracer.require_launch("T.get_thread_bindings")
    return tuple(get_thread_binding(d) for d in range(len(state.threads)))


def sync_threads(barrier_id: object = None, arrive_count: object = None) -> None:
    """A barrier of the block; it ends a run of per-thread statements and is nothing else."""
    tracer = require_tracer("T.sync_threads")
    if barrier_id is not None:
        raise UnsupportedConstructError("T.sync_threads with a named barrier")
    if tracer.launch is not None and tracer.launch.lanes:
        tracer.emit(Intrinsic(SYNC))


def over_lanes(body: Body, lanes: dict[int, Var], threads: tuple[int, ...]) -> Body:
    """``body`` with each run of statements that use a thread index in a loop over the threads.

    UnsupportedConstructError where a thread index does more than choose elements.
    """
    if not lanes:
        return body
    return _Distributor(lanes, threads).body(body)


class _Distributor:
    """Splits statement lists into runs for all threads and statements for the block as a whole."""

    def __init__(self, lanes: dict[int, Var], threads: tuple[int, ...]) -> None:
        self._vars = tuple(lanes[d] for d in sorted(lanes))
        self._extents: tuple[Expr, ...] = tuple(fold.const(threads[d]) for d in sorted(lanes))
        self._private: set[int] = set()
        self._ended: set[int] = set()

    def body(self, body: Body) -> Body:
        """One statement list, split."""
        out: list[Stmt] = []
        run: list[Stmt] = []
        for stmt in body:
            if isinstance(stmt, Intrinsic) and stmt.name == SYNC:
                self._close(run, out)
            elif not self._uses_lane(stmt):
                self._close(run, out)
                out.append(walk.with_bodies(stmt, tuple(map(self.body, walk.sub_bodies(stmt)))))
            elif self._is_elementwise(stmt):
                run.append(stmt)
                self._private.update(_bound(stmt))
            else:
                self._close(run, out)
                out.append(self._split(stmt))
        self._close(run, out)
        return tuple(out)

    def _close(self, run: list[Stmt], out: list[Stmt]) -> None:
        if run:
            out.append(Parallel(self._vars, self._extents, tuple(run), **run[0].provenance))
            self._renew()
            run.clear()

    def _renew(self) -> None:
        """Names bound by one run hold one value a thread and end with it."""
        self._ended |= self._private
        self._private = set()

    def _split(self, stmt: Stmt) -> Stmt:
        """A loop or condition of the whole block around per-thread statements."""
        if isinstance(stmt, (For, If, While)) and not self._depends(walk.exprs(stmt)):
            return walk.with_bodies(stmt, tuple(map(self.body, walk.sub_bodies(stmt))))
        raise UnsupportedConstructError(
            "a thread index (T.get_thread_binding) that does more than choose elements is not "
            f"supported by tileops{on_which_target()}",
            location=stmt.loc,
        )

    def _uses_lane(self, stmt: Stmt) -> bool:
        return any(self._depends(walk.exprs(s)) for s in walk.walk((stmt,)))

    def _depends(self, exprs: Iterable[Expr]) -> bool:
        lane = {v.id for v in self._vars} | self._private | self._ended
        return any(
            isinstance(e, Var) and e.id in lane for expr in exprs for e in walk.walk_expr(expr)
        )

    def _is_elementwise(self, stmt: Stmt) -> bool:
        """True for statements that each thread can run on elements of its own."""
        for inner in walk.walk((stmt,)):
            if isinstance(inner, Atomic) and not isinstance(inner.value, Region):
                continue
            if not isinstance(inner, _ELEMENTWISE) or isinstance(inner, (Alloc, View)):
                return False
            if isinstance(inner, Store) and inner.buffer.scope in ("var", "local"):
                return False  # a variable of each thread, which no tile holds
            names = [e for x in walk.exprs(inner) for e in walk.walk_expr(x)]
            if any(isinstance(e, Var) and e.id in self._ended for e in names):
                return False
        return True


def _bound(stmt: Stmt) -> set[int]:
    out: set[int] = set()
    for inner in walk.walk((stmt,)):
        if isinstance(inner, Bind):
            out.add(inner.var.id)
        elif isinstance(inner, Atomic) and inner.result is not None:
            out.add(inner.result.id)
    return out
