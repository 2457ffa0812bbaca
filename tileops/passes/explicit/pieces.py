"""Short loops over the pieces of a copy or of a product, as the whole of it.

A program that is written for barriers moves and multiplies tiles in pieces, so that the first one
can be waited for alone. In one order, nothing waits.
"""

from __future__ import annotations

from dataclasses import replace

from tileops.ir import fold
from tileops.ir.expr import Expr, Region, Var
from tileops.ir.node import Body, Stmt
from tileops.ir.program import const_value
from tileops.ir.stmt import Copy, For, Gemm
from tileops.ir.walk import read_buffers, replace_stmts, walk_expr, written_buffers
from tileops.passes.analyze_index import affine

_MOST_PIECES = 16


def with_whole_operations(body: Body) -> Body:
    """``body`` with whole copies and products in the place of loops over their pieces."""
    return replace_stmts(body, _whole)


def _whole(stmt: Stmt) -> tuple[Stmt, ...] | None:
    if not isinstance(stmt, For) or not stmt.body:
        return None
    start, stop = const_value(stmt.start), const_value(stmt.stop)
    if start is None or stop is None or not 1 < stop - start <= _MOST_PIECES:
        return None
    if not _may_part(stmt.body):
        return None
    found: list[Stmt] = []
    for part in stmt.body:
        whole = _joined(part, stmt.var, start, stop - start)
        if whole is None:
            return None
        found.append(whole)
    return tuple(found)


def _may_part(body: Body) -> bool:
    """True if each statement may do all its turns before the next one starts.

    What a statement writes, those behind it read piece by piece, or not at all; and those in front
    do not touch what it writes.
    """
    for n, later in enumerate(body):
        written = {b.id for b in written_buffers(later)}
        for earlier in body[:n]:
            touched = {b.id for b in (*read_buffers(earlier), *written_buffers(earlier))}
            if written & touched:
                return False
            made = {b.id for b in written_buffers(earlier)}
            if made & {b.id for b in read_buffers(later)} and not _by_piece(earlier, later):
                return False
    return True


def _by_piece(earlier: Stmt, later: Stmt) -> bool:
    """True if what ``later`` reads of a copy's destination is the piece that it wrote."""
    if not isinstance(earlier, Copy):
        return False
    read = [later.src] if isinstance(later, Copy) else []
    if isinstance(later, Gemm):
        read = [later.a, later.b]
    own = [r for r in read if r.buffer.id == earlier.dst.buffer.id]
    return bool(own) and all(r == earlier.dst for r in own)


def _joined(stmt: Stmt, var: Var, start: int, count: int) -> Stmt | None:
    """All turns of a statement as one; None for another statement."""
    match stmt:
        case Copy(src=src, dst=dst):
            from_, to = _moving(src, var), _moving(dst, var)
            if from_ is None or to is None:
                return None
            if src.squeezed().index(from_) != dst.squeezed().index(to):
                return None
            return replace(
                stmt, src=_all(src, from_, var, start, count), dst=_all(dst, to, var, start, count)
            )
        case Gemm(a=a, b=b, c=c):
            clear = fold.substitute(stmt.clear, {var.id: fold.const(start)})
            rest = (
                fold.substitute(stmt.clear, {var.id: fold.const(start + n)})
                for n in range(1, count)
            )
            if const_value(clear) is None or any(const_value(e) != 0 for e in rest):
                return None
            left = len(a.extents) - (2 if stmt.transpose_a else 1)
            right = len(b.extents) - (1 if stmt.transpose_b else 2)
            if _moving(a, var) != left or _moving(b, var) != right or _uses(c, var):
                return None
            return replace(
                stmt,
                a=_all(a, left, var, start, count),
                b=_all(b, right, var, start, count),
                clear=clear,
            )
    return None


def _moving(region: Region, var: Var) -> int | None:
    """The dimension along which the region's pieces are neighbours; None for none or several."""
    found: int | None = None
    for dim, (begin, extent) in enumerate(zip(region.starts, region.extents, strict=True)):
        if any(e == var for e in walk_expr(extent)):
            return None
        form = affine(begin, (var.id,))
        if form is None:
            return None
        step = form.coefficient(var.id)
        if not step:
            continue
        if found is not None or step != const_value(extent) or step == 1:
            return None
        found = dim
    return found


def _all(region: Region, dim: int, var: Var, start: int, count: int) -> Region:
    """The pieces of ``count`` turns together."""
    first: dict[int, Expr] = {var.id: fold.const(start, var.dtype)}
    starts = tuple(fold.substitute(e, first) for e in region.starts)
    size = fold.mul(region.extents[dim], fold.const(count))
    extents = (*region.extents[:dim], size, *region.extents[dim + 1 :])
    return Region(region.buffer, starts, extents)


def _uses(region: Region, var: Var) -> bool:
    return any(e == var for x in (*region.starts, *region.extents) for e in walk_expr(x))
