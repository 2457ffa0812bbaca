"""Removal of what works on nothing: loops and tile operations with a constant extent of zero.

A generator for GPUs gives every nest at least one lane, which would run the body of an empty one.
Afterwards no region has an extent of zero. A reduction over nothing leaves what it starts from, a
product over nothing adds nothing.
"""

from __future__ import annotations

from tileops.ir import fold
from tileops.ir.expr import Region
from tileops.ir.program import Program, const_value
from tileops.ir.stmt import Body, Fill, For, Gemm, If, Parallel, Print, Reduction, Stmt
from tileops.ir.walk import map_launches, regions, sub_bodies, with_bodies
from tileops.passes.context import Context


def drop_empty(program: Program, context: Context) -> Program:
    """``program`` without statements that can do nothing."""
    return map_launches(program, lambda launch: _body(launch.body))


def _body(body: Body) -> Body:
    out = [made for stmt in body if (made := _kept(stmt)) is not None]
    same = len(out) == len(body) and all(a is b for a, b in zip(body, out, strict=True))
    return body if same else tuple(out)


def _kept(stmt: Stmt) -> Stmt | None:
    """What is left of a statement; None for nothing."""
    match stmt:
        case Parallel(extents=extents) if any(const_value(e) == 0 for e in extents):
            return None
        case For(start=start, stop=stop):
            first, last = const_value(start), const_value(stop)
            if first is not None and last is not None and first >= last:
                return None
    if not isinstance(stmt, Print) and any(map(_is_empty, regions(stmt))):
        return _of_nothing(stmt)
    bodies = sub_bodies(stmt)
    made = tuple(map(_body, bodies))
    if all(a is b for a, b in zip(bodies, made, strict=True)):
        return stmt
    if isinstance(stmt, Parallel | For | If) and not any(made):
        return None
    return with_bodies(stmt, made)


def _is_empty(region: Region) -> bool:
    return any(const_value(e) == 0 for e in region.extents)


def _of_nothing(stmt: Stmt) -> Stmt | None:
    """A statement on empty regions: what it gives where the region that it writes has elements."""
    match stmt:
        case Reduction(dst=dst) if not _is_empty(dst):
            value = stmt.of_nothing()
            made = None if value is None else fold.const(value, dst.dtype)
            return None if made is None else Fill(dst, made, **stmt.provenance)
        case Gemm(c=c, clear=clear) if not _is_empty(c) and const_value(clear) != 0:
            fill = Fill(c, fold.const(0, c.dtype), **stmt.provenance)
            return fill if const_value(clear) else If(clear, (fill,), **stmt.provenance)
        case _:
            return None
