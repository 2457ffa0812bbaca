"""Tile operations as elementwise nests: the one place that says which element goes where."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

from tileops.dtypes import DType
from tileops.ir import fold, walk
from tileops.ir.expr import Expr, Load, Region, Var
from tileops.ir.fold import add, binary, const, floordiv, floormod, mul, sub
from tileops.ir.program import Program, const_value
from tileops.ir.stmt import Atomic, Body, Copy, Fill, For, If, Im2col, Launch, Parallel, Stmt, Store
from tileops.passes.context import Context

# Makes a variable that the launch does not have, of this name and integer dtype.
Fresh = Callable[[str, DType], Var]

# Lanes of one piece of a nest whose extent is known only at run time.
_PIECE = 1024


def expand_tile_ops(program: Program, context: Context) -> Program:
    """``program`` without the tile operations that the generator does not write as such.

    On the CPU these are im2col and atomics on tiles. On a GPU they are copies and fills over
    extents known only at run time; a nest over such extents becomes loops over nests of constant
    extents.
    """
    ids = walk.fresh_ids(program)

    def expanded(launch: Launch) -> Body:
        numbers = itertools.count(1)  # part of the generated text

        def for_cpu(name: str, dtype: DType) -> Var:
            return Var(dtype, -next(numbers), name)

        def for_gpu(name: str, dtype: DType) -> Var:
            return Var(dtype, next(ids), f"axis{next(numbers)}")

        if context.target.is_gpu:
            return walk.replace_stmts(launch.body, lambda stmt: _for_gpu(stmt, for_gpu))
        return walk.replace_stmts(launch.body, lambda stmt: _for_cpu(stmt, for_cpu))

    return walk.map_launches(program, expanded)


def _for_cpu(stmt: Stmt, fresh: Fresh) -> tuple[Stmt] | None:
    match stmt:
        case Im2col() | Atomic() if not walk.is_element(stmt):
            return (expand(stmt, fresh),)
        case _:
            return None


def _for_gpu(stmt: Stmt, fresh: Fresh) -> tuple[Stmt] | None:
    match stmt:
        case Copy(lead=lead) | Fill(dst=lead) if lead.static_extents() is None:
            made = expand(stmt, fresh, whole_tiles=True)
            return (_in_pieces(made, fresh) if isinstance(made, Parallel) else made,)
        case Parallel():
            nest = stmt.flattened()
            if any(const_value(e) is None for e in nest.extents):
                return (_in_pieces(nest, fresh),)
    return None


def expand(stmt: Copy | Fill | Atomic | Im2col, fresh: Fresh, *, whole_tiles: bool = False) -> Stmt:
    """``stmt`` element by element: a nest, or one statement where it has a single element.

    With ``whole_tiles`` a dimension of a tile of which a run-time extent is used is covered whole,
    and the points outside do nothing.
    """
    match stmt:
        case Copy(src=src, dst=dst):
            points = _Points(stmt.lead, fresh, whole_tiles=whole_tiles)
            value = fold.cast(points.load(src), dst.dtype)
            inner: Stmt = Store(dst.buffer, points.at(dst), value, **stmt.provenance)
        case Fill(dst=dst, value=value):
            points = _Points(dst, fresh, whole_tiles=whole_tiles)
            inner = Store(dst.buffer, points.at(dst), value, **stmt.provenance)
        case Atomic(dst=dst, value=operand):
            points = _Points(operand if isinstance(operand, Region) else dst, fresh)
            at = points.at(dst)
            one = Region(dst.buffer, at, (const(1),) * len(at))
            operand = points.load(operand) if isinstance(operand, Region) else operand
            inner = dataclasses.replace(stmt, dst=one, value=operand)
        case Im2col():
            return _im2col(stmt, fresh)
    if const_value(points.guard) is None:
        inner = If(points.guard, (inner,), **stmt.provenance)
    if not points.vars:
        return inner
    return Parallel(tuple(points.vars), tuple(points.extents), (inner,), **stmt.provenance)


class _Points:
    """The points of a nest over the region ``lead``, and their places in the other regions."""

    def __init__(self, lead: Region, fresh: Fresh, *, whole_tiles: bool = False) -> None:
        self.vars: list[Var] = []
        self.extents: list[Expr] = []
        self.guard: Expr = const(True)
        self._offsets: list[Expr] = []
        for number, d in enumerate(lead.squeezed()):
            start, extent = lead.starts[d], lead.extents[d]
            covers = whole_tiles and lead.buffer.is_on_chip and const_value(extent) is None
            self.extents.append(lead.buffer.shape[d] if covers else extent)
            var = fresh(f"e{number}", self.extents[-1].dtype)
            self.vars.append(var)
            self._offsets.append(sub(var, start) if covers else var)
            if covers:
                end = add(start, extent)
                inside = binary("le", start, var), binary("lt", var, end)
                self.guard = binary("land", self.guard, binary("land", *inside))

    def at(self, region: Region) -> tuple[Expr, ...]:
        """The element of ``region`` that belongs to a point."""
        return fold.region_indices(region, region.squeezed(), self._offsets)

    def load(self, region: Region) -> Expr:
        return Load(region.dtype, region.buffer, self.at(region))


# -- im2col ----------------------------------------------------------------------------------------
def _im2col(stmt: Im2col, fresh: Fresh) -> Parallel:
    """``dst[i, j]`` is the image under position i of the output grid, at tap and channel j.

    It is 0 in the padding.
    """
    dst, image = stmt.dst, stmt.image
    rows, columns = dst.extents[-2:]
    i, j = fresh("i", rows.dtype), fresh("j", columns.dtype)
    pixel, tap = im2col_source(stmt, i, j)
    inside = binary("lt", tap, const(stmt.kernel * stmt.kernel))
    for at, bound in zip(pixel[1:3], image.shape[1:3], strict=True):
        inside = binary("land", inside, binary("ge", at, const(0)))
        inside = binary("land", inside, binary("lt", at, bound))
    value = fold.select(inside, Load(image.dtype, image, pixel), const(0, image.dtype))
    rank = len(dst.extents)
    place = fold.region_indices(dst, (rank - 2, rank - 1), (i, j))
    store = Store(dst.buffer, place, fold.cast(value, dst.dtype), **stmt.provenance)
    return Parallel((i, j), (rows, columns), (store,), **stmt.provenance)


def im2col_source(stmt: Im2col, i: Expr, j: Expr) -> tuple[tuple[Expr, ...], Expr]:
    """The place in the image of element (i, j) of the tile, and its tap's number in the kernel."""
    height, width, channels = stmt.image.shape[1:]
    stride, dilation, pad = map(const, (stmt.stride, stmt.dilation, stmt.pad))
    kernel = const(stmt.kernel)
    reach = const(stmt.dilation * (stmt.kernel - 1) + 1 - 2 * stmt.pad)
    out_height, out_width = (
        add(floordiv(sub(extent, reach), stride), const(1)) for extent in (height, width)
    )
    row = add(mul(stmt.row_step, stmt.dst.extents[-2]), i)
    column = add(mul(stmt.col_step, stmt.dst.extents[-1]), j)
    tap = floordiv(column, channels)

    def coordinate(out: Expr, tap: Expr) -> Expr:
        return sub(add(mul(out, stride), mul(tap, dilation)), pad)

    y = coordinate(floormod(floordiv(row, out_width), out_height), floordiv(tap, kernel))
    x = coordinate(floormod(row, out_width), floormod(tap, kernel))
    return (
        floordiv(row, mul(out_height, out_width)),
        y,
        x,
        floormod(column, channels),
    ), tap


# -- run-time extents ------------------------------------------------------------------------------
def _in_pieces(nest: Parallel, fresh: Fresh) -> Stmt:
    """``nest``, its run-time extents as loops over a guarded nest of constant extents."""
    dynamic = [n for n, e in enumerate(nest.extents) if const_value(e) is None]
    if not dynamic:
        return nest
    fixed = 1
    for extent in nest.extents:
        fixed *= const_value(extent) or 1
    loops: list[tuple[Var, Expr]] = []
    vars_, extents = list(nest.vars), list(nest.extents)
    places: dict[int, Expr] = {}
    guard: Expr = const(True)
    for n in dynamic:
        # Lanes come in powers of two.
        piece = max(1, _PIECE >> (fixed - 1).bit_length()) if n == dynamic[-1] else 1
        size = const(piece, extents[n].dtype)
        step, lane = fresh("step", size.dtype), fresh("lane", fold.INT32)
        place = add(mul(step, size), lane)
        places[vars_[n].id] = place
        loops.append((step, fold.ceildiv(extents[n], size)))
        guard = binary("land", guard, binary("lt", place, extents[n]))
        vars_[n], extents[n] = lane, const(piece)
    body = walk.map_body_exprs(nest.body, lambda e: walk.substitute(e, places))
    guarded = If(guard, body, **nest.provenance)
    out: Stmt = Parallel(tuple(vars_), tuple(extents), (guarded,), **nest.provenance)
    for step, count in reversed(loops):
        out = For("serial", step, const(0, step.dtype), count, (out,), **nest.provenance)
    return out
