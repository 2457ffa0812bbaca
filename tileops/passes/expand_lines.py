"""Reductions, scans, products and transposes as nests of scalar statements, a line at each point.

``fresh`` makes a variable that the launch does not have, of a name and dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tileops.dtypes import DType
from tileops.ir import fold
from tileops.ir.expr import Buffer, Expr, Load, Region, Var
from tileops.ir.stmt import (
    Alloc,
    ArgReduce,
    Body,
    For,
    Gemm,
    Parallel,
    Provenance,
    Reduce,
    Scan,
    Stmt,
    Store,
    Transpose,
)

LineOperation = ArgReduce | Gemm | Reduce | Scan | Transpose
Fresh = Callable[[str, DType], Var]

_JOINED = {
    "sum": "add", "abssum": "add", "max": "max", "absmax": "max", "min": "min", "bitand": "and",
    "bitor": "or", "bitxor": "xor",
}  # fmt: skip
_ZERO = fold.const(0)


def expand_lines(stmt: LineOperation, fresh: Fresh) -> Parallel:
    """``stmt`` as a nest; each of its points goes over one line in order."""
    match stmt:
        case Transpose():
            return _transposed(stmt, fresh)
        case Gemm():
            return _multiplied(stmt, fresh)
        case Scan():
            return _scanned(stmt, fresh)
        case ArgReduce():
            return _placed(stmt, fresh)
        case Reduce():
            return _reduced(stmt, fresh)


@dataclass(frozen=True)
class _Held:
    """A variable of each point."""

    buffer: Buffer
    origin: Provenance

    @property
    def value(self) -> Expr:
        return Load(self.buffer.dtype, self.buffer, (_ZERO,))

    def made(self, first: Expr) -> Body:
        return Alloc(self.buffer, **self.origin), self.set(first)

    def set(self, value: Expr) -> Stmt:
        return Store(self.buffer, (_ZERO,), value, **self.origin)


def _held(fresh: Fresh, name: str, dtype: DType, origin: Provenance) -> _Held:
    shape = (fold.const(1),)
    return _Held(Buffer(fresh(name, dtype).id, name, shape, dtype, "var"), origin)


def _in_order(k: Var, extent: Expr, body: Body, origin: Provenance) -> Stmt:
    return For("serial", k, fold.const(0, k.dtype), extent, body, **origin)


def _nest(vars_: Sequence[Var], extents: Sequence[Expr], body: Body, stmt: Stmt, fresh: Fresh) -> (
    Parallel
):  # fmt: skip
    if not vars_:
        vars_, extents = (fresh("one", fold.INT32),), (fold.const(1),)
    return Parallel(tuple(vars_), tuple(extents), body, **stmt.provenance)


def _at(region: Region, offsets: Sequence[Expr]) -> tuple[Expr, ...]:
    return tuple(fold.add(s, o) for s, o in zip(region.starts, offsets, strict=True))


def _load(region: Region, offsets: Sequence[Expr], dtype: DType) -> Expr:
    return fold.cast(Load(region.dtype, region.buffer, _at(region, offsets)), dtype)


def _transposed(stmt: Transpose, fresh: Fresh) -> Parallel:
    extents = stmt.dst.extents
    vars_ = tuple(fresh(f"e{n}", extent.dtype) for n, extent in enumerate(extents))
    swapped = (*vars_[:-2], vars_[-1], vars_[-2])
    value = _load(stmt.src, swapped, stmt.dst.dtype)
    store = Store(stmt.dst.buffer, _at(stmt.dst, vars_), value, **stmt.provenance)
    return _nest(vars_, extents, (store,), stmt, fresh)


def _multiplied(stmt: Gemm, fresh: Fresh) -> Parallel:
    """Each element of c is a sum in order, in c's dtype but at least in float32."""
    origin, dtype = stmt.provenance, stmt.c.dtype
    if dtype.is_float and dtype.bits < 32:
        dtype = fold.FLOAT32
    rows, columns = stmt.c.extents[-2:]
    i, j = fresh("i", rows.dtype), fresh("j", columns.dtype)
    depth = stmt.a.extents[-2 if stmt.transpose_a else -1]
    k, total = fresh("k", depth.dtype), _held(fresh, "total", dtype, origin)
    lead = tuple(_ZERO for _ in stmt.c.extents[:-2])

    def factor(region: Region, row: Expr, column: Expr, *, transposed: bool) -> Expr:
        lead = tuple(_ZERO for _ in region.extents[:-2])
        return _load(region, (*lead, *((column, row) if transposed else (row, column))), dtype)

    left = factor(stmt.a, i, k, transposed=stmt.transpose_a)
    right = factor(stmt.b, k, j, transposed=stmt.transpose_b)
    before = _load(stmt.c, (*lead, i, j), dtype)
    first = fold.select(stmt.clear, fold.const(0, dtype), before)
    step = total.set(fold.add(total.value, fold.mul(left, right)))
    result = fold.cast(total.value, stmt.c.dtype)
    body = (
        *total.made(first),
        _in_order(k, depth, (step,), origin),
        Store(stmt.c.buffer, _at(stmt.c, (*lead, i, j)), result, **origin),
    )
    return _nest((i, j), (rows, columns), body, stmt, fresh)


def _scanned(stmt: Scan, fresh: Fresh) -> Parallel:
    origin, dtype, dim = stmt.provenance, stmt.dst.dtype, stmt.dim
    extents = stmt.src.extents
    vars_ = [fresh(f"e{n}", extent.dtype) for n, extent in enumerate(extents)]
    k, line = vars_.pop(dim), _held(fresh, "line", dtype, origin)
    last = fold.sub(extents[dim], fold.const(1, k.dtype))
    along: Expr = fold.sub(last, k) if stmt.reverse else k
    places = (*vars_[:dim], along, *vars_[dim:])
    item = _load(stmt.src, places, dtype)
    joined = fold.binary(_JOINED[stmt.kind], line.value, item)
    is_first = fold.binary("eq", k, fold.const(0, k.dtype))
    steps = (
        line.set(fold.select(is_first, item, joined)),
        Store(stmt.dst.buffer, _at(stmt.dst, places), line.value, **origin),
    )
    body = (*line.made(fold.const(0, dtype)), _in_order(k, extents[dim], steps, origin))
    return _nest(vars_, [*extents[:dim], *extents[dim + 1 :]], body, stmt, fresh)


@dataclass(frozen=True)
class _Lines:
    """The lines of a reduction: the variables of a nest over them, and where an element is."""

    vars: tuple[Var, ...]
    extents: tuple[Expr, ...]
    k: Var
    source: tuple[Expr, ...]
    target: tuple[Expr, ...]

    @classmethod
    def of(cls, stmt: Reduce | ArgReduce, fresh: Fresh) -> _Lines:
        pairs, extents = stmt.pairs(), stmt.src.extents
        vars_ = tuple(fresh(f"e{n}", extents[d].dtype) for n, (d, _) in enumerate(pairs))
        source: list[Expr] = [_ZERO for _ in extents]
        target: list[Expr] = [_ZERO for _ in stmt.dst.extents]
        for var, (d, t) in zip(vars_, pairs, strict=True):
            source[d], target[t] = var, var
        source[stmt.dim] = k = fresh("k", extents[stmt.dim].dtype)
        kept = tuple(extents[d] for d, _ in pairs)
        return cls(vars_, kept, k, tuple(source), _at(stmt.dst, target))


def _reduced(stmt: Reduce, fresh: Fresh) -> Parallel:
    """Each line is folded in order in dst's dtype."""
    origin, dtype, lines = stmt.provenance, stmt.dst.dtype, _Lines.of(stmt, fresh)
    line = _held(fresh, "line", dtype, origin)
    joined = _join(stmt, line.value, _load(stmt.src, lines.source, dtype))
    first: Expr = Load(dtype, stmt.dst.buffer, lines.target)
    if (start := stmt.of_nothing()) is not None:
        first = fold.const(start, dtype)
    body = (
        *line.made(first),
        _in_order(lines.k, stmt.src.extents[stmt.dim], (line.set(joined),), origin),
        Store(stmt.dst.buffer, lines.target, line.value, **origin),
    )
    return _nest(lines.vars, lines.extents, body, stmt, fresh)


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


def _placed(stmt: ArgReduce, fresh: Fresh) -> Parallel:
    """The place is -1 until an element of the line is not a NaN."""
    origin, dtype, lines = stmt.provenance, stmt.src.dtype, _Lines.of(stmt, fresh)
    best = _held(fresh, "best", dtype, origin)
    place = _held(fresh, "place", fold.INT32, origin)
    item = _load(stmt.src, lines.source, dtype)
    none = fold.binary("lt", place.value, _ZERO)
    wins = fold.binary("gt" if stmt.kind == "max" else "lt", item, best.value)
    is_number = fold.binary("eq", item, item)
    taken = fold.binary("land", is_number, fold.binary("lor", none, wins))
    taken_var = _held(fresh, "taken", fold.BOOL, origin)
    steps = (
        taken_var.set(taken),
        best.set(fold.select(taken_var.value, item, best.value)),
        place.set(fold.select(taken_var.value, fold.cast(lines.k, fold.INT32), place.value)),
    )
    found = fold.binary("max", place.value, _ZERO)
    body = (
        *best.made(fold.const(0, dtype)),
        *place.made(fold.const(-1)),
        Alloc(taken_var.buffer, **origin),
        _in_order(lines.k, stmt.src.extents[stmt.dim], steps, origin),
        Store(stmt.dst.buffer, lines.target, found, **origin),
    )
    return _nest(lines.vars, lines.extents, body, stmt, fresh)
