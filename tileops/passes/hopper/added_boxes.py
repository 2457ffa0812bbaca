"""Nests that add every element of a tile to a tensor atomically: TMA does so with whole boxes."""

from __future__ import annotations

from collections.abc import Iterator

from tileops.ir import fold
from tileops.ir.expr import Binary, Expr, Load, Region, Var
from tileops.ir.stmt import Atomic, If, Parallel, Stmt
from tileops.passes.analyze_index import affine

Parts = tuple[Region, Region]


def added_box(stmt: Stmt) -> Parts | None:
    """The tile that a statement adds, and the box of the tensor; None for another statement.

    Elements of the box out of bounds are skipped, as those of an atomic are.
    """
    match stmt:
        case Atomic(value=Region() as tile, dst=dst) if _adds(stmt):
            return (tile, dst) if _is_box(tile, dst) else None
        case Parallel():
            nest = stmt.flattened()
            atomic = _atomic_of(nest)
            if atomic is not None and _adds(atomic) and isinstance(atomic.value, Load):
                return _of_nest(nest, atomic.dst, atomic.value)
    return None


def _adds(atomic: Atomic) -> bool:
    return (
        (atomic.op, atomic.order, atomic.result) == ("add", "relaxed", None)
        and atomic.dst.dtype == "float32"
        and not atomic.dst.buffer.is_on_chip
    )


def _is_box(tile: Region, dst: Region) -> bool:
    last = len(dst.extents) - 1
    return (
        tile.buffer.is_on_chip
        and tile.dtype == dst.dtype
        and tile.is_whole()
        and len(dst.squeezed()) == 2
        and dst.squeezed()[-1] == last
    )


def _atomic_of(nest: Parallel) -> Atomic | None:
    """The atomic that is all of a nest, but for conditions that it is in bounds."""
    body = nest.body
    while len(body) == 1:
        match body[0]:
            case Atomic() as atomic:
                return atomic if all(_in_bounds(c, atomic) for c in _conditions(nest)) else None
            case If(then=then, orelse=()):
                body = then
            case _:
                return None
    return None


def _conditions(nest: Parallel) -> Iterator[Expr]:
    body = nest.body
    while body and isinstance(body[0], If):
        yield from _conjuncts(body[0].cond)
        body = body[0].then


def _conjuncts(cond: Expr) -> Iterator[Expr]:
    match cond:
        case Binary(op="land", a=a, b=b):
            yield from _conjuncts(a)
            yield from _conjuncts(b)
        case _:
            yield cond


def _in_bounds(cond: Expr, atomic: Atomic) -> bool:
    """True for a condition that an index is below its extent."""
    pairs = zip(atomic.dst.starts, atomic.dst.buffer.shape, strict=True)
    return isinstance(cond, Binary) and cond.op == "lt" and (cond.a, cond.b) in list(pairs)


def _of_nest(nest: Parallel, dst: Region, value: Load) -> Parts | None:
    """The parts of a nest that adds ``value[i, j]`` at affine indices of ``i`` and ``j``."""
    if value.indices != nest.vars or value.buffer.shape != nest.extents:
        return None
    sizes = {v.id: e for v, e in zip(nest.vars, nest.extents, strict=True)}
    starts: list[Expr] = []
    extents: list[Expr] = []
    order: list[int] = []
    for index in dst.starts:
        parts = affine(index, sizes)
        if parts is None or len(parts.coefficients) > 1:
            return None
        starts.append(parts.rest)
        extents.append(fold.const(1))
        for var, factor in parts.coefficients:
            if factor != 1:
                return None
            order.append(var)
            extents[-1] = sizes[var]
    if order != [v.id for v in nest.vars if isinstance(v, Var)]:
        return None
    zeros = (fold.const(0),) * len(nest.vars)
    tile = Region(value.buffer, zeros, nest.extents)
    box = Region(dst.buffer, tuple(starts), tuple(extents))
    return (tile, box) if _is_box(tile, box) else None
