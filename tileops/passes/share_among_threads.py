"""Tile operations and parallel nests of launches of threads, as loops of each thread.

Afterwards such a launch has scalar statements alone. What writes a thread's own buffers, or copies
from them, each thread does whole. All else is the work of the block: the points of a nest, and the
lines of a reduction, are dealt to its threads one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tileops.dtypes import DType
from tileops.ir import fold, walk
from tileops.ir.expr import Buffer, Expr, Load, Region, Var
from tileops.ir.node import Body, Stmt
from tileops.ir.program import Program, const_value
from tileops.ir.stmt import (
    Alloc,
    Atomic,
    Bind,
    Copy,
    Fill,
    For,
    If,
    Parallel,
    Reduce,
    Store,
    Threads,
    Transpose,
)
from tileops.passes.context import Context
from tileops.passes.expand_tile_ops import expand

_OWN = ("local", "var")
_JOINED = {
    "sum": "add", "abssum": "add", "max": "max", "absmax": "max", "min": "min", "bitand": "and",
    "bitor": "or", "bitxor": "xor",
}  # fmt: skip


def share_among_threads(program: Program, context: Context) -> Program:
    """``program`` whose launches of threads have neither tile operations nor parallel nests."""
    ids = walk.fresh_ids(program)

    def fresh(name: str, dtype: DType) -> Var:
        return Var(dtype, next(ids), name)

    def rewritten(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if not isinstance(stmt, Threads):
            return None
        sharing = _Sharing(stmt.var, stmt.count, fresh)
        return (walk.map_bodies(stmt, sharing.body),)

    return walk.map_launches(program, lambda launch: walk.replace_stmts(launch.body, rewritten))


class _Sharing:
    """Rewrites the statements of the threads that differ in ``thread``."""

    def __init__(self, thread: Var, count: int, fresh: Callable[[str, DType], Var]) -> None:
        self._thread, self._count, self._fresh = thread, count, fresh

    def body(self, body: Body) -> Body:
        """One statement list."""
        return walk.replace_stmts(body, self._loops)

    def _loops(self, stmt: Stmt) -> tuple[Stmt, ...] | None:
        match stmt:
            case Parallel():
                nest = stmt.flattened()
                return self._dealt(nest, [b for s in walk.walk(nest.body) for b in _written(s)])
            case Copy() | Fill() | Atomic() if not walk.is_element(stmt):
                made = expand(stmt, self._fresh)
            case Transpose():
                made = self._transposed(stmt)
            case Reduce():
                made = self._reduced(stmt)
            case _:
                return None
        if not isinstance(made, Parallel):
            return (made,)
        return self._dealt(made, [region.buffer for region in walk.regions(stmt)])

    def _dealt(self, nest: Parallel, buffers: Sequence[Buffer]) -> tuple[Stmt, ...]:
        """``nest`` in order by each thread where one of ``buffers`` is its own, else dealt out."""
        origin = nest.provenance
        if self._count == 1 or any(b.scope in _OWN for b in buffers):
            body = nest.body
            for var, extent in reversed(list(zip(nest.vars, nest.extents, strict=True))):
                zero = fold.const(0, var.dtype)
                body = (For("serial", var, zero, extent, body, **origin),)
            return body
        dtype = max((v.dtype for v in nest.vars), key=lambda d: d.bits)
        total: Expr = fold.const(1, dtype)
        for extent in nest.extents:
            total = fold.mul(total, fold.cast(extent, dtype))
        count = fold.const(self._count, dtype)
        turn, point = self._fresh("turn", dtype), self._fresh("point", dtype)
        at = fold.add(fold.mul(turn, count), fold.cast(self._thread, dtype))
        body = (*self._coordinates(nest, point), *nest.body)
        known = const_value(total)
        if known is None or known % self._count:
            body = (If(fold.binary("lt", point, total), body, **origin),)
        rounds = fold.ceildiv(total, count)
        each = (Bind(point, at, **origin), *body)
        return (For("serial", turn, fold.const(0, dtype), rounds, each, **origin),)

    def _coordinates(self, nest: Parallel, point: Var) -> Iterator[Bind]:
        """The variables of a nest from the number of a point; the last one runs fastest."""
        rest: Expr = point
        pairs = list(zip(nest.vars, nest.extents, strict=True))
        for number, (var, extent) in reversed(list(enumerate(pairs))):
            own = rest
            if number:
                extent = fold.cast(extent, point.dtype)
                own = fold.binary("floormod", rest, extent)
                rest = fold.binary("floordiv", rest, extent)
            yield Bind(var, fold.cast(own, var.dtype), **nest.provenance)

    def _transposed(self, stmt: Transpose) -> Parallel:
        extents = stmt.dst.extents
        vars_ = tuple(self._fresh(f"e{n}", extent.dtype) for n, extent in enumerate(extents))
        swapped = (*vars_[:-2], vars_[-1], vars_[-2])
        value = fold.cast(Load(stmt.src.dtype, stmt.src.buffer, _at(stmt.src, swapped)),
                          stmt.dst.dtype)  # fmt: skip
        store = Store(stmt.dst.buffer, _at(stmt.dst, vars_), value, **stmt.provenance)
        return Parallel(vars_, extents, (store,), **stmt.provenance)

    def _reduced(self, stmt: Reduce) -> Stmt:
        """A nest over the lines of a reduction, each folded in order in dst's dtype."""
        origin, dtype = stmt.provenance, stmt.dst.dtype
        pairs = stmt.pairs()
        vars_ = tuple(self._fresh(f"e{n}", stmt.src.extents[d].dtype) for n, (d, _) in
                      enumerate(pairs))  # fmt: skip
        k = self._fresh("k", stmt.src.extents[stmt.dim].dtype)
        source: list[Expr] = [fold.const(0) for _ in stmt.src.extents]
        target: list[Expr] = [fold.const(0) for _ in stmt.dst.extents]
        for var, (d, t) in zip(vars_, pairs, strict=True):
            source[d], target[t] = var, var
        source[stmt.dim] = k
        place = _at(stmt.dst, target)
        line = Buffer(self._fresh("line", dtype).id, "line", (fold.const(1),), dtype, "var")
        zero = (fold.const(0),)
        held = Load(dtype, line, zero)
        item = Load(stmt.src.dtype, stmt.src.buffer, _at(stmt.src, source))
        joined = _join(stmt, held, fold.cast(item, dtype))
        first: Expr = Load(dtype, stmt.dst.buffer, place)
        if (start := stmt.of_nothing()) is not None:
            first = fold.const(start, dtype)
        body = (
            Alloc(line, **origin),
            Store(line, zero, first, **origin),
            For("serial", k, fold.const(0, k.dtype), stmt.src.extents[stmt.dim],
                (Store(line, zero, joined, **origin),), **origin),
            Store(stmt.dst.buffer, place, held, **origin),
        )  # fmt: skip
        if not vars_:
            one = self._fresh("one", fold.INT32)
            return Parallel((one,), (fold.const(1),), body, **origin)
        extents = tuple(stmt.src.extents[d] for d, _ in pairs)
        return Parallel(vars_, extents, body, **origin)


def _written(stmt: Stmt) -> Iterator[Buffer]:
    """The buffers that a statement of a nest writes, those that the nest itself makes aside."""
    if not isinstance(stmt, Alloc):
        yield from walk.written_buffers(stmt)


def _at(region: Region, offsets: Sequence[Expr]) -> tuple[Expr, ...]:
    return tuple(fold.add(s, o) for s, o in zip(region.starts, offsets, strict=True))


def _join(stmt: Reduce, held: Expr, item: Expr) -> Expr:
    if stmt.kind.startswith("abs"):
        item = fold.call("abs", item)
    joined = fold.binary(_JOINED[stmt.kind], held, item)
    if not (
        stmt.nan_propagate and stmt.dst.dtype.is_float and _JOINED[stmt.kind] in ("max", "min")
    ):
        return joined
    for operand in (held, item):
        joined = fold.select(fold.call("isnan", operand, dtype=fold.BOOL), operand, joined)
    return joined
