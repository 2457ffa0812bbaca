"""Launches whose statements are of single threads: whose buffers are, and where the block waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from tileops.errors import UnsupportedConstructError
from tileops.frontend.thread_order import in_order, is_collective
from tileops.frontend.thread_variation import Variation
from tileops.ir import fold, walk
from tileops.ir.explicit import (
    CopyLater,
    EndCopies,
    EndGemms,
    EndStores,
    GemmLater,
    GroupCopies,
    GroupedCopy,
    NamedBarrier,
    Role,
)
from tileops.ir.expr import Buffer, Expr, Load, Region, Var
from tileops.ir.stmt import (
    AddressView,
    Alloc,
    ArgReduce,
    Assert,
    Assume,
    Atomic,
    Bind,
    Body,
    Break,
    ClusterBarrier,
    Continue,
    Copy,
    Exchange,
    ExternCall,
    Fill,
    For,
    Gemm,
    GridBarrier,
    If,
    ImportSource,
    Intrinsic,
    Launch,
    LoadMatrix,
    Mma,
    Parallel,
    PeerView,
    Print,
    RandomNumber,
    RandomStart,
    Reduce,
    Scan,
    Stmt,
    Store,
    Threads,
    Transpose,
    View,
    While,
)  # fmt: skip
from tileops.language.launch import SYNC, SYNC_WARP
from tileops.language.missing import on_which_target
from tileops.language.tracer import ThreadIndices, Tracer
from tileops.location import Location

# Statements of one thread, and those that may be shared among the threads of a block.
_OF_A_THREAD = (
    AddressView, Alloc, Assert, Assume, Bind, Break, ClusterBarrier, Continue, Exchange, ExternCall,
    For, GridBarrier, If, ImportSource, LoadMatrix, Mma, NamedBarrier, Print, RandomNumber,
    RandomStart, Store, View, While,
)  # fmt: skip
_SHARED = (ArgReduce, Atomic, Copy, Fill, Gemm, Parallel, Reduce, Scan, Transpose)
# What takes regions of a thread's own buffers.
_WHOLE = (ExternCall, LoadMatrix, Mma)
_SYNCS = (SYNC, SYNC_WARP)
_OWN = ("local", "var")


class Why(NamedTuple):
    """Why a launch is of threads, and the statement that says so."""

    reason: str
    loc: Location | None


def needs_threads(launch: Launch) -> Why | None:
    """Why a launch can only be of threads: its first statement that is of threads alone."""
    for stmt in walk.walk(launch.body):
        if isinstance(stmt, Exchange):
            return Why(f"T.{stmt.op}", stmt.loc)
        if isinstance(stmt, (Mma, LoadMatrix)):
            return Why("T.ptx_mma" if isinstance(stmt, Mma) else "T.ptx_ldmatrix", stmt.loc)
        if isinstance(stmt, (ClusterBarrier, PeerView)):
            is_barrier = isinstance(stmt, ClusterBarrier)
            return Why("T.cluster_sync" if is_barrier else "T.copy_cluster", stmt.loc)
        if isinstance(stmt, GridBarrier):
            return Why("T.sync_grid", stmt.loc)
        if isinstance(stmt, RandomStart):
            return Why("T.rng_init", stmt.loc)
        if isinstance(stmt, (ExternCall, ImportSource)):
            is_call = isinstance(stmt, ExternCall)
            return Why("T.call_extern" if is_call else "T.import_source", stmt.loc)
        if isinstance(stmt, Intrinsic) and stmt.name == SYNC_WARP:
            return Why(f"T.{stmt.name}", stmt.loc)
    return None


def of_threads(
    tracer: Tracer, launch: Launch, indices: ThreadIndices, why: Why, *, trusts: bool
) -> Launch:
    """``launch`` with its body run by each thread, which wait where they need each other's work.

    ``trusts``: the author says where statements of threads wait for each other.
    UnsupportedConstructError for a statement that has no form for threads.
    """
    thread = tracer.new_var("thread", fold.INT32)
    lanes = [thread, *(var for var, _ in indices.lanes)]
    body = walk.replace_stmts(_without_roles(launch.body, thread), _at_once)
    body = _with_scopes(body, Variation(body, lanes, indices.count))
    variation = Variation(body, lanes, indices.count)
    placed = {placement.buffer.id for placement in launch.placements}
    for stmt in walk.walk(body):
        _require_form(stmt, variation)
        if isinstance(stmt, ExternCall) and placed & {r.buffer.id for r in walk.regions(stmt)}:
            raise _refused(stmt, "the address of a tensor with T.annotate_layout")
    body = in_order(body, indices, Variation(body, lanes, indices.count), trusts=trusts)
    body = walk.replace_stmts(body, _without_unused(body))
    named = tuple(Bind(var, indices.value(var, thread), loc=launch.loc) for var, _ in indices.lanes)
    threads = Threads(thread, indices.count, (*named, *body), why.reason, loc=why.loc)
    return replace(launch, body=(threads,))


def _without_roles(body: Body, thread: Var) -> Body:
    """``body`` with conditions on the number of the thread in place of roles."""

    def changed(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if not isinstance(stmt, Role):
            return None
        end = fold.binary("lt", thread, fold.const(stmt.first + stmt.count))
        runs = fold.binary("land", fold.binary("le", fold.const(stmt.first), thread), end)
        return (If(runs, _without_roles(stmt.body, thread), **stmt.provenance),)

    return walk.replace_stmts(body, changed)


def _at_once(stmt: Stmt) -> tuple[Stmt, ...] | None:
    """What a program starts and waits for is done where it starts."""
    match stmt:
        case GroupedCopy() | CopyLater(barrier=None):
            return (Copy(stmt.src, stmt.dst, **stmt.provenance),)
        case GemmLater(a=a, b=b, c=c, transpose_a=turns_a, transpose_b=turns_b, clear=clear):
            return (Gemm(a, b, c, turns_a, turns_b, clear, stmt.policy, **stmt.provenance),)
        case GroupCopies() | EndCopies() | EndGemms() | EndStores():
            return ()
    return None


def _without_unused(body: Body) -> Callable[[Stmt], tuple[Stmt, ...] | None]:
    """Calls whose results nothing reads have none: the functions may return nothing."""
    read = {
        e.id
        for stmt in walk.walk(body)
        for name in walk.operand_names(stmt)
        if name not in stmt.DEFINES
        for expr in walk.exprs_of(getattr(stmt, name))
        for e in walk.walk_expr(expr)
        if isinstance(e, Var)
    }

    def changed(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if isinstance(stmt, ExternCall) and stmt.result is not None and stmt.result.id not in read:
            return (replace(stmt, result=None),)
        return None

    return changed


# What users call the statements that launches of threads do not have.
_NAMES = {
    "Im2col": "T.im2col", "AllocBarriers": "T.alloc_barrier",
}  # fmt: skip


def _refused(stmt: Stmt, what: str) -> UnsupportedConstructError:
    return UnsupportedConstructError(
        f"{what} beside statements of single threads is not supported by "
        f"tileops{on_which_target()}",
        location=stmt.loc,
    )


def _require_form(stmt: Stmt, variation: Variation) -> None:
    if isinstance(stmt, Intrinsic) and stmt.name in _SYNCS:
        return
    if not isinstance(stmt, (*_OF_A_THREAD, *_SHARED)):
        kind = type(stmt).__name__
        raise _refused(stmt, _NAMES.get(kind, f"the statement {kind}"))
    if isinstance(stmt, NamedBarrier) and stmt.number == 0:
        raise _refused(stmt, "barrier 0, which is that of T.sync_threads(),")
    if isinstance(stmt, Print) and any(isinstance(arg, Region) for arg in stmt.args):
        raise _refused(stmt, "T.print of a tile")
    if not is_collective(stmt):
        return
    inner = walk.walk((stmt,))
    if any(variation.reads(walk.exprs(s)) for s in inner):
        raise _refused(
            stmt, "a tile operation or T.Parallel loop that uses what differs between threads"
        )
    if any(b.scope in _OWN for s in walk.walk(walk.sub_bodies(stmt)[0] if stmt.BODIES else ())
           for b in walk.written_buffers(s)):  # fmt: skip
        raise _refused(stmt, "a T.Parallel loop that writes a thread's own buffer and another one")


# -- the buffers -----------------------------------------------------------------------------------
def _with_scopes(body: Body, variation: Variation) -> Body:
    """``body`` with each fragment a thread's own, or a tile of the block in shared memory.

    Fragments whose single elements alone are used are each thread's own.
    """
    roots = walk.view_roots(body)
    tiles: set[int] = set()
    for stmt in walk.walk(body):
        inside = walk.walk(stmt.body) if isinstance(stmt, Parallel) else ()
        is_own = isinstance(stmt, (Fill, *_WHOLE)) or walk.is_element(stmt)
        operands = [] if is_own else [r.buffer for r in walk.regions(stmt)]
        for buffer in (*operands, *(b for s in inside for b in _used(s))):
            if buffer.scope == "fragment":
                tiles.add(roots.get(buffer.id, buffer).id)
    found: dict[int, Buffer] = {}
    for stmt in walk.walk(body):
        if isinstance(stmt, (Alloc, View)) and stmt.buffer.scope == "fragment":
            is_tile = roots.get(stmt.buffer.id, stmt.buffer).id in tiles
            found[stmt.buffer.id] = replace(stmt.buffer, scope="shared" if is_tile else "local")
        elif isinstance(stmt, Store) and stmt.buffer.scope == "fragment":
            is_tile = roots.get(stmt.buffer.id, stmt.buffer).id in tiles
            if is_tile and variation.reads((stmt.value,)) and not variation.reads(stmt.indices):
                raise _refused(stmt, "a fragment of the block, one element of which differs")
    return tuple(_replaced(body, found))


def _used(stmt: Stmt) -> list[Buffer]:
    return [*walk.read_buffers(stmt), *walk.written_buffers(stmt)]


def _replaced(value: Any, found: Mapping[int, Buffer]) -> Any:  # noqa: ANN401 - an operand
    """``value``, of a statement, with other buffers for those of the ids ``found``."""
    match value:
        case Buffer():
            return found.get(value.id, value)
        case tuple():
            return tuple(_replaced(item, found) for item in value)
        case Load():
            indices = _replaced(value.indices, found)
            return replace(value, buffer=_replaced(value.buffer, found), indices=indices)
        case Expr():
            return walk.map_children(value, lambda e: _replaced(e, found))
        case Region():
            starts, extents = _replaced(value.starts, found), _replaced(value.extents, found)
            return Region(_replaced(value.buffer, found), starts, extents)
        case Stmt():
            names = (*walk.operand_names(value), *value.BODIES)
            return replace(value, **{n: _replaced(getattr(value, n), found) for n in names})
    return value
