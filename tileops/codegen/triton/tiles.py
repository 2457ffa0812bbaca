"""Owns access to on-chip tiles.

Which lanes read and write which elements, as whole-tile expressions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tileops.codegen.triton import text
from tileops.codegen.triton.context import Context
from tileops.codegen.triton.conversions import converted
from tileops.codegen.triton.expressions import both, emit_expr
from tileops.codegen.triton.layouts import to_space, to_tile
from tileops.codegen.triton.space import shape_text
from tileops.codegen.triton.storage import Storage
from tileops.codegen.triton.text import Val, convert, infix, triton_type
from tileops.dtypes import DType
from tileops.ir import fold
from tileops.ir.expr import Binary, Buffer, Expr
from tileops.ir.printer import print_expr
from tileops.passes.analyze_index import affine

_INT32 = DType("int32")
_BOOL = DType("bool")


@dataclass(frozen=True)
class Index:
    """How one dimension of a tile is indexed.

    ``kind``: "axis" (the lanes of one axis in order), "same" (one value
    for all lanes), "shift" (``factor * lane + value``), "any" (``value`` differs between lanes).
    """

    kind: str
    axis: int = -1
    factor: int = 1
    value: Val | None = None


def classify(ctx: Context, storage: Storage, dim: int, index: Expr) -> Index:
    """How ``index`` runs through dimension ``dim`` of a tile."""
    space, size = ctx.space, storage.padded[dim]
    parts = affine(index, {v.id for v in space.vars})
    if parts is not None and len(parts.coefficients) == 1:
        var, factor = parts.coefficients[0]
        axis = space.axis_of(var)
        if axis is not None:
            rest = emit_expr(ctx, parts.rest)
            if rest.is_scalar:
                if factor == 1 and rest.text == "0" and space.padded[axis] == size:
                    return Index("axis", axis)
                return Index("shift", axis, factor, rest)
    value = emit_expr(ctx, index)
    return Index("same" if value.is_scalar else "any", value=value)


# -- reads -------------------------------------------------------------------------------------
def load_tile(ctx: Context, buffer: Buffer, indices: Sequence[Expr]) -> Val:
    """The elements of an on-chip buffer at ``indices``, one a lane."""
    storage = ctx.storage(buffer)
    name = Val(ctx.tile_name(buffer), storage.dtype)
    if storage.lanes:
        return Val(name.text, storage.dtype, ctx.space.all_axes())
    if storage.is_scalar:
        return name
    own = storage.kept(indices)
    plan = [classify(ctx, storage, d, i) for d, i in enumerate(own)]
    halves = _every_second(ctx, storage, name, plan)
    if halves is not None:
        return halves
    axes = [p.axis for p in plan if p.kind == "axis"]
    if len(set(axes)) < len(axes) or any(p.kind in ("shift", "any") for p in plan):
        return _gather(ctx, storage, name, own)
    return _take(ctx, storage, name, plan)


def _every_second(ctx: Context, storage: Storage, tile: Val, plan: list[Index]) -> Val | None:
    """The elements ``2 u`` or ``2 u + 1`` of the last dimension: one half of a split."""
    space, last = ctx.space, plan[-1]
    side = last.value.text if last.value is not None else ""
    if last.kind != "shift" or (last.factor, last.axis) != (2, space.rank - 1):
        return None
    if side not in ("0", "1") or len(plan) != space.rank:
        return None
    if any(p.kind != "axis" or p.axis != d for d, p in enumerate(plan[:-1])):
        return None
    rows, columns = storage.padded[:-1], space.padded[-1]
    if storage.padded[-1] != 2 * columns:
        return None
    split = f"tl.split(tl.reshape({tile.text}, {shape_text((*rows, columns, 2))}))[{side}]"
    return Val(split, storage.dtype, space.all_axes())


def _take(ctx: Context, storage: Storage, tile: Val, plan: list[Index]) -> Val:
    """Lanes in order along some dimensions, one element picked along the others."""
    shape = list(storage.padded)
    left = list(plan)
    for dim in reversed(range(len(plan))):
        if plan[dim].kind != "same":
            continue
        tile = _pick(ctx, tile, shape, dim, plan[dim])
        del shape[dim], left[dim]
    if not shape:
        return tile
    return to_space(tile, [p.axis for p in left], ctx.space)


def _pick(ctx: Context, tile: Val, shape: list[int], dim: int, index: Index) -> Val:
    """One element along ``dim``: the sum of a tile that is zero everywhere else."""
    if index.value is None:
        raise ctx.unsupported("an index without a value")
    lanes = Val(ctx.iota(shape[dim], dim, len(shape)), _INT32)
    hit = infix("==", text.COMPARE, lanes, index.value, _BOOL)
    narrow = tile.dtype.is_bool or tile.dtype.bits < 32
    work = tile.dtype
    if narrow:
        work = DType("float32") if tile.dtype.is_float else _INT32
    zero = text.strict(Val("0", work, static=True)).text
    picked = f"tl.sum(tl.where({hit.text}, {convert(tile, work).text}, {zero}), {dim})"
    return convert(Val(picked, work), tile.dtype)


def _gather(ctx: Context, storage: Storage, tile: Val, indices: Sequence[Expr]) -> Val:
    """Any element for any lane: the tile as one row, read at the row-major position."""
    position = _position(ctx, storage, indices)
    axes = position.axes
    total = 1
    for p in storage.padded:
        total *= p
    shape = ctx.space.shape(axes)
    lanes = 1
    for n in shape:
        lanes *= n
    # Padding lanes may point outside; the size is a power of two, so masking brings them back in.
    position = infix("&", text.BIT_AND, position, Val(str(total - 1), _INT32, static=True), _INT32)
    row = tile.text
    if len(storage.padded) > 1:
        row = f"tl.reshape({row}, ({total},))"
    where = position.text if len(shape) == 1 else f"tl.reshape({position.text}, ({lanes},))"
    picked = f"tl.gather({row}, {where}, 0)"
    if len(shape) > 1:
        picked = f"tl.reshape({picked}, {shape_text(shape)})"
    return Val(picked, storage.dtype, axes)


def _position(ctx: Context, storage: Storage, indices: Sequence[Expr]) -> Val:
    """The row-major position of ``indices`` in the padded tile, as int32."""
    out: Val | None = None
    step = 1
    for index, size in zip(reversed(indices), reversed(storage.padded), strict=True):
        term = convert(emit_expr(ctx, index), _INT32)
        if step > 1:
            term = infix("*", text.PRODUCT, term, Val(str(step), _INT32, static=True), _INT32)
        out = term if out is None else infix("+", text.SUM, term, out, _INT32)
        step *= size
    if out is None:
        raise ctx.unsupported("a gather from one element")
    return out


# -- writes ------------------------------------------------------------------------------------
def store_tile(ctx: Context, buffer: Buffer, indices: Sequence[Expr], value: Val) -> None:
    """Write ``value`` to the elements of an on-chip buffer at ``indices``, for the active lanes."""
    storage = ctx.storage(buffer)
    value = converted(ctx, value, storage.dtype)
    if storage.lanes:
        _store_lanes(ctx, storage, buffer, value)
    elif storage.is_scalar:
        _store_scalar(ctx, buffer, value)
    else:
        _store_elements(ctx, storage, buffer, indices, value)


def _store_lanes(ctx: Context, storage: Storage, buffer: Buffer, value: Val) -> None:
    mask = ctx.scope.mask
    if mask is not None:
        old = ctx.tile_name(buffer)
        ctx.assign(buffer, f"tl.where({mask.text}, {text.strict(value).text}, {old})")
        return
    ctx.assign(buffer, spread(value, ctx.space.all_axes(), storage.tile_shape))


def _store_scalar(ctx: Context, buffer: Buffer, value: Val) -> None:
    mask = ctx.scope.mask
    if not value.is_scalar or (mask is not None and not mask.is_scalar):
        raise ctx.unsupported(
            f"several points of the nest write `{buffer.name}`, which holds one value; "
            "give it one element a point, or use a reduction"
        )
    if mask is None:
        ctx.assign(buffer, text.typed(value).text)
    else:
        old = ctx.tile_name(buffer)
        ctx.assign(buffer, f"tl.where({mask.text}, {text.strict(value).text}, {old})")


def spread(value: Val, axes: frozenset[int], shape: tuple[int, ...]) -> str:
    """The text of ``value`` as a full tile of ``shape`` whose dimensions are ``axes``."""
    if value.is_scalar:
        return f"tl.full({shape_text(shape)}, {value.text}, {triton_type(value.dtype)})"
    if value.axes == axes:
        return value.text
    return f"tl.broadcast_to({value.text}, {shape_text(shape)})"


def _store_elements(
    ctx: Context, storage: Storage, buffer: Buffer, indices: Sequence[Expr], value: Val
) -> None:
    own = storage.kept(indices)
    if ctx.scope.mask is None and _is_row_major(ctx, storage, own):
        row = spread(value, ctx.space.all_axes(), ctx.space.padded)
        ctx.assign(buffer, f"tl.reshape({row}, {shape_text(storage.padded)})")
        return
    plan = [classify(ctx, storage, d, i) for d, i in enumerate(own)]
    if not is_placed(plan):
        raise ctx.needs_memory(buffer)
    axes = [p.axis if p.kind in ("axis", "shift") else None for p in plan]
    used = frozenset(a for a in axes if a is not None)
    mask = ctx.scope.mask
    for part in (value, mask):
        if part is not None and not part.axes <= used:
            raise ctx.unsupported(
                f"several points of the nest write one element of `{buffer.name}`; "
                "index it by every loop variable that the value depends on, or use a reduction",
                found=_index_text(buffer, indices),
            )
    laid = to_tile(value, ctx.space, axes)
    conditions = None if mask is None else to_tile(mask, ctx.space, axes)
    # Tests of the tile's own elements are added last: a mask moves with the lanes until then.
    inside: Val | None = None
    for dim, index in enumerate(plan):
        laid, conditions, hit = _place(ctx, storage, plan, dim, index, laid, conditions)
        inside = both(inside, hit)
    conditions = both(conditions, inside)
    if conditions is None:
        full = frozenset(a for a in axes if a is not None)
        ctx.assign(buffer, spread(laid, full, storage.padded))
        return
    old = ctx.tile_name(buffer)
    ctx.assign(buffer, f"tl.where({conditions.text}, {text.strict(laid).text}, {old})")


def _is_row_major(ctx: Context, storage: Storage, indices: Sequence[Expr]) -> bool:
    """True if the nest's points in order write the tile's elements in order, dimensions apart.

    So it is where the indices are the digits of the point's row-major number, as in
    ``tile[n // 8, n % 8]`` or ``tile[i * 8 + j]``.
    """
    space = ctx.space
    if space.padded != space.extents or storage.padded != storage.extents:
        return False
    if space.elements != math.prod(storage.extents) or space.extents == storage.extents:
        return False
    number: Expr = fold.const(0)
    for var, extent in zip(space.vars, space.extents, strict=True):
        number = fold.add(fold.mul(number, fold.const(extent)), var)
    known = {v.id for v in space.vars}
    source = indices[0]
    rest: Expr | None = None
    for dim in reversed(range(len(indices))):
        index, size = indices[dim], fold.const(storage.extents[dim])
        if dim == 0:
            rest = index if rest is None else (rest if rest == index else None)
            continue
        if not (isinstance(index, Binary) and index.op == "floormod" and index.b == size):
            return False
        if rest is not None and rest != index.a:
            return False
        linear = index.a
        if dim == len(indices) - 1:
            source = linear
        rest = fold.binary("floordiv", linear, size)
    return rest is not None and affine(source, known) == affine(number, known)


def is_placed(plan: Sequence[Index]) -> bool:
    """True if lanes write to a tile in order: each dimension by one axis, or at one index."""
    axes = [p.axis for p in plan if p.kind in ("axis", "shift")]
    return not any(p.kind == "any" for p in plan) and len(set(axes)) == len(axes)


def _index_text(buffer: Buffer, indices: Sequence[Expr]) -> str:
    return f"{buffer.name}[{', '.join(map(print_expr, indices))}]"


def _place(
    ctx: Context,
    storage: Storage,
    plan: list[Index],
    dim: int,
    index: Index,
    value: Val,
    mask: Val | None,
) -> tuple[Val, Val | None, Val | None]:
    """Bring ``value`` and ``mask`` along one dimension into the tile's place.

    The third result tells which elements along it are written; None for all.
    """
    if index.kind == "axis" and ctx.space.extents[index.axis] >= storage.extents[dim]:
        return value, mask, None
    lanes = Val(ctx.iota(storage.padded[dim], dim, len(plan)), _INT32)
    if index.kind == "axis":
        extent = ctx.space.extents[index.axis]
        bound = Val(str(extent), _INT32, static=True)
        return value, mask, infix("<", text.COMPARE, lanes, bound, _BOOL)
    if index.value is None:
        raise ctx.unsupported("an index without a value")
    if index.kind == "same":
        return value, mask, infix("==", text.COMPARE, lanes, index.value, _BOOL)
    return _shift(ctx, storage, plan, dim, index, value, mask)


def _shift(
    ctx: Context,
    storage: Storage,
    plan: list[Index],
    dim: int,
    index: Index,
    value: Val,
    mask: Val | None,
) -> tuple[Val, Val | None, Val | None]:
    """Element ``e`` of the dimension takes the value of lane ``(e - offset) / factor``.

    Where there is one.
    """
    if index.value is None:
        raise ctx.unsupported("an index without a value")
    rank, size, extent = len(plan), storage.padded[dim], ctx.space.extents[index.axis]
    lanes = Val(ctx.iota(size, dim, rank), _INT32)
    away = lanes
    if index.value.text != "0":
        away = infix("-", text.SUM, lanes, convert(index.value, _INT32), _INT32)
    if index.factor < 0:
        away = Val(f"-{away.at(text.UNARY)}", _INT32, prec=text.UNARY)
    step = abs(index.factor)
    span = Val(str((extent - 1) * step), _INT32, static=True)
    hit = both(
        infix(">=", text.COMPARE, away, Val("0", _INT32, static=True), _BOOL),
        infix("<=", text.COMPARE, away, span, _BOOL),
    )
    source = away
    if step > 1:
        by = Val(str(step), _INT32, static=True)
        remainder = infix("%", text.PRODUCT, away, by, _INT32)
        hit = both(hit, infix("==", text.COMPARE, remainder, Val("0", _INT32, static=True), _BOOL))
        source = infix("//", text.PRODUCT, away, by, _INT32)
    from_lanes = ctx.space.padded[index.axis]
    wrap = Val(str(from_lanes - 1), _INT32, static=True)
    source = infix("&", text.BIT_AND, source, wrap, _INT32)
    value = _gather_along(ctx, storage, value, dim, plan, source)
    if mask is not None:
        mask = _gather_along(ctx, storage, mask, dim, plan, source)
    return value, mask, hit


def _gather_along(
    ctx: Context, storage: Storage, value: Val, dim: int, plan: list[Index], source: Val
) -> Val:
    """``value`` re-read along ``dim`` at lanes ``source``.

    Unchanged where it does not vary there.
    """
    if plan[dim].axis not in value.axes:
        return value
    shape = []
    for d, p in enumerate(plan):
        in_place = d == dim or (d < dim and p.kind == "shift")
        size = storage.padded[d] if in_place else ctx.space.padded[p.axis]
        shape.append(size if p.axis in value.axes else 1)
    where = source.text
    if any(n > 1 for d, n in enumerate(shape) if d != dim):
        where = f"tl.broadcast_to({where}, {shape_text(tuple(shape))})"
    if value.dtype.is_bool:
        picked = f"tl.gather({convert(value, _INT32).text}, {where}, {dim}) != 0"
        return Val(picked, _BOOL, value.axes, text.COMPARE)
    return Val(f"tl.gather({value.text}, {where}, {dim})", value.dtype, value.axes)
