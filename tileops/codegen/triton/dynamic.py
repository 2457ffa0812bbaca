"""Owns copies and fills of run-time extents: nests over them, guarded where a tile is on chip."""

from __future__ import annotations

from tileops.codegen.triton.context import Context
from tileops.codegen.triton.copies import paired
from tileops.ir import fold
from tileops.ir.expr import Expr, Load, Region
from tileops.ir.program import const_value
from tileops.ir.stmt import Copy, Fill, If, Parallel, Stmt, Store


def is_dynamic(stmt: Copy | Fill) -> bool:
    """True if the box that the statement runs over has an extent known only at run time."""
    return _lead(stmt).static_extents() is None


def _lead(stmt: Copy | Fill) -> Region:
    return stmt.lead if isinstance(stmt, Copy) else stmt.dst


def as_nest(ctx: Context, stmt: Copy | Fill) -> Parallel:
    """The same as an elementwise nest.

    A tensor's run-time extent is that of the nest. A tile's dimension is covered whole instead,
    and points outside the box are guarded.
    """
    lead = _lead(stmt)
    dims = lead.squeezed()
    vars_ = ctx.synthetic_vars(len(dims))
    extents: list[Expr] = []
    offsets: list[Expr] = []
    guard: Expr = fold.const(True)
    for d, var in zip(dims, vars_, strict=True):
        start, extent = lead.starts[d], lead.extents[d]
        whole = lead.buffer.shape[d]
        if lead.buffer.scope == "global" or const_value(extent) is not None:
            extents.append(extent)
            offsets.append(var)
        else:
            extents.append(whole)
            offsets.append(fold.sub(var, start))
            inside = fold.binary("le", start, var), fold.binary("lt", var, fold.add(start, extent))
            guard = fold.binary("land", guard, fold.binary("land", *inside))
    if isinstance(stmt, Fill):
        value = stmt.value
        target = fold.region_indices(stmt.dst, dims, offsets)
    else:
        source = fold.region_indices(stmt.src, paired(ctx, stmt.src, dims), offsets)
        value = fold.cast(Load(stmt.src.dtype, stmt.src.buffer, source), stmt.dst.dtype)
        target = fold.region_indices(stmt.dst, paired(ctx, stmt.dst, dims), offsets)
    body: Stmt = Store(stmt.dst.buffer, target, value, **stmt.provenance)
    if const_value(guard) is None:
        body = If(guard, (body,), **stmt.provenance)
    return Parallel(vars_, tuple(extents), (body,), **stmt.provenance)
