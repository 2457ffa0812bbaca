"""Removal of what works on nothing: loops and tile operations with a constant extent of zero.

A generator for GPUs gives every nest at least one lane, which would run the body of an empty one.
Afterwards no region has an extent of zero. A reduction over nothing leaves what it starts from, a
product over nothing adds nothing.
"""

from __future__ import annotations

from tileops.ir import fold
from tileops.ir.expr import Region
from tileops.ir.program import Program, const_value
from tileops.ir.stmt import Fill, For, Gemm, If, Parallel, Print, Reduction, Stmt
from tileops.ir.walk import map_bodies, map_launches, regions, replace_stmts, sub_bodies
from tileops.passes.context import Context


def drop_empty(program: Program, context: Context) -> Program:
    """``program`` without statements that can do nothing."""
    return map_launches(program, lambda launch: replace_stmts(launch.body, _kept))


def _kept(stmt: Stmt) -> tuple[Stmt, ...]:
    """What is left of a statement."""
    match stmt:
        case Parallel(extents=extents) if any(const_value(e) == 0 for e in extents):
            return ()
        case For(start=start, stop=stop):
            first, last = const_value(start), const_value(stop)
            if first is not None and last is not None and first >= last:
                return ()
    if not isinstance(stmt, Print) and any(map(_is_empty, regions(stmt))):
        return _of_nothing(stmt)
    new = map_bodies(stmt, lambda body: replace_stmts(body, _kept))
    if new is not stmt and isinstance(new, Parallel | For | If) and not any(sub_bodies(new)):
        return ()
    return (new,)


def _is_empty(region: Region) -> bool:
    return any(const_value(e) == 0 for e in region.extents)


def _of_nothing(stmt: Stmt) -> tuple[Stmt, ...]:
    """What a statement on empty regions gives where the region that it writes has elements."""
    match stmt:
        case Reduction(dst=dst) if not _is_empty(dst):
            value = stmt.of_nothing()
            made = None if value is None else fold.const(value, dst.dtype)
            return () if made is None else (Fill(dst, made, **stmt.provenance),)
        case Gemm(c=c, clear=clear) if not _is_empty(c) and const_value(clear) != 0:
            fill = Fill(c, fold.const(0, c.dtype), **stmt.provenance)
            return (fill if const_value(clear) else If(clear, (fill,), **stmt.provenance),)
        case _:
            return ()
