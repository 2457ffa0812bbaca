"""Tiles in variables: which lanes read and write which elements, as whole-tile expressions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tileops.codegen.triton import text
from tileops.codegen.triton.expressions import both, emit_expr
from tileops.codegen.triton.functions import converted
from tileops.codegen.triton.space import shape_text, to_space, to_tile
from tileops.codegen.triton.state import LaunchState
from tileops.codegen.triton.storage import Storage
from tileops.codegen.triton.text import Val, convert, infix, number, strict, triton_type, typed
from tileops.dtypes import BOOL, FLOAT32, INT32
from tileops.ir import fold
from tileops.ir.expr import Binary, Buffer, Expr
from tileops.ir.printer import print_expr
from tileops.passes.analyze_index import affine


@dataclass(frozen=True)
class Index:
    """How one dimension of a tile is indexed."""

    # "axis" (the lanes of one axis in order), "same" (one value for all lanes), "shift" (``factor *
    # lane + value``) or "any" (``value`` differs between lanes)
    kind: str
    value: Val
    axis: int = -1
    factor: int = 1


def plan_of(state: LaunchState, storage: Storage, indices: Sequence[Expr]) -> list[Index]:
    """How ``indices`` run through the tile's own dimensions."""
    return [_classify(state, storage, d, i) for d, i in enumerate(storage.kept(indices))]


def _classify(state: LaunchState, storage: Storage, dim: int, index: Expr) -> Index:
    space, size = state.space, storage.padded[dim]
    parts = affine(index, {v.id for v in space.vars})
    if parts is not None and len(parts.coefficients) == 1:
        var, factor = parts.coefficients[0]
        axis = space.axis_of(var)
        if axis is not None:
            rest = emit_expr(state, parts.rest)
            if rest.is_scalar:
                in_order = factor == 1 and rest.text == "0" and space.padded[axis] == size
                return Index("axis" if in_order else "shift", rest, axis, factor)
    value = emit_expr(state, index)
    return Index("same" if value.is_scalar else "any", value)


# -- reads -------------------------------------------------------------------------------------
def load_tile(state: LaunchState, buffer: Buffer, indices: Sequence[Expr]) -> Val:
    """The elements of an on-chip buffer at ``indices``, one a lane."""
    storage = state.storage(buffer)
    name = Val(state.tile_name(buffer), storage.dtype)
    if storage.lanes:
        return Val(name.text, storage.dtype, state.space.all_axes())
    if storage.is_scalar:
        return name
    plan = plan_of(state, storage, indices)
    if (halves := _every_second(state, storage, name, plan)) is not None:
        return halves
    if not is_placed(plan) or any(p.kind == "shift" for p in plan):
        return _gather(state, storage, name, storage.kept(indices))
    if all(p.kind == "axis" for p in plan):
        name = state.in_space(name, storage, [p.axis for p in plan])
    return _take(state, name, list(storage.padded), plan)


def _every_second(state: LaunchState, storage: Storage, tile: Val, plan: list[Index]) -> Val | None:
    """The elements ``2 u`` or ``2 u + 1`` of the last dimension: one half of a split."""
    space, last = state.space, plan[-1]
    side = last.value.text
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


def _take(state: LaunchState, tile: Val, shape: list[int], plan: list[Index]) -> Val:
    """Lanes in order along some dimensions, one element picked along the others."""
    left = list(plan)
    for dim in reversed(range(len(plan))):
        if plan[dim].kind == "same":
            tile = _pick(state, tile, shape, dim, plan[dim].value)
            del shape[dim], left[dim]
    return to_space(tile, [p.axis for p in left], state.space) if left else tile


def _pick(state: LaunchState, tile: Val, shape: list[int], dim: int, index: Val) -> Val:
    """One element along ``dim``: the sum of a tile that is zero everywhere else."""
    hit = infix("==", Val(state.iota(shape[dim], dim, len(shape)), INT32), index)
    work = tile.dtype
    if work.is_bool or work.bits < 32:
        work = FLOAT32 if work.is_float else INT32
    zero = strict(number(0, work)).text
    picked = f"tl.sum(tl.where({hit.text}, {convert(tile, work).text}, {zero}), {dim})"
    return convert(Val(picked, work), tile.dtype)


def _gather(state: LaunchState, storage: Storage, tile: Val, indices: Sequence[Expr]) -> Val:
    """Any element for any lane: the tile as one row, read at the row-major position."""
    total = math.prod(storage.padded)
    # Padding lanes may point outside; the size is a power of two, so masking brings them back in.
    position = infix("&", _position(state, storage, indices), total - 1)
    shape = state.space.shape(position.axes)
    row, where = tile.text, position.text
    if len(storage.padded) > 1:
        row = f"tl.reshape({row}, ({total},))"
    if len(shape) != 1:
        where = f"tl.reshape({where}, ({math.prod(shape)},))"
    picked = f"tl.gather({row}, {where}, 0)"
    if len(shape) > 1:
        picked = f"tl.reshape({picked}, {shape_text(shape)})"
    return Val(picked, storage.dtype, position.axes)


def _position(state: LaunchState, storage: Storage, indices: Sequence[Expr]) -> Val:
    """The row-major position of ``indices`` in the padded tile, as int32."""
    *outer, last = indices
    out = convert(emit_expr(state, last), INT32)
    step = storage.padded[-1]
    for index, size in zip(reversed(outer), reversed(storage.padded[:-1]), strict=True):
        out = infix("+", infix("*", convert(emit_expr(state, index), INT32), step), out)
        step *= size
    return out


# -- writes ------------------------------------------------------------------------------------
def store_tile(state: LaunchState, buffer: Buffer, indices: Sequence[Expr], value: Val) -> None:
    """Write ``value`` to the elements of an on-chip buffer at ``indices``, for the active lanes."""
    storage = state.storage(buffer)
    value = converted(state, value, storage.dtype)
    if storage.lanes and state.scope.mask is not None:
        _assign_where(state, buffer, state.scope.mask, value)
    elif storage.lanes:
        state.assign(buffer, spread(value, state.space.all_axes(), storage.tile_shape))
    elif storage.is_scalar:
        _store_scalar(state, buffer, value)
    else:
        _store_elements(state, storage, buffer, indices, value)


def _assign_where(state: LaunchState, buffer: Buffer, mask: Val, value: Val) -> None:
    """Replace the elements of a tile that ``mask`` chooses."""
    old = state.tile_name(buffer)
    state.assign(buffer, f"tl.where({mask.text}, {strict(value).text}, {old})")


def _store_scalar(state: LaunchState, buffer: Buffer, value: Val) -> None:
    mask = state.scope.mask
    if not value.is_scalar or (mask is not None and not mask.is_scalar):
        raise state.unsupported(
            f"several points of the nest write `{buffer.name}`, which holds one value; "
            "give it one element a point, or use a reduction"
        )
    if mask is None:
        state.assign(buffer, typed(value).text)
    else:
        _assign_where(state, buffer, mask, value)


def spread(value: Val, axes: frozenset[int], shape: tuple[int, ...]) -> str:
    """The text of ``value`` as a full tile of ``shape`` whose dimensions are ``axes``."""
    if value.is_scalar:
        return f"tl.full({shape_text(shape)}, {value.text}, {triton_type(value.dtype)})"
    if value.axes == axes:
        return value.text
    return f"tl.broadcast_to({value.text}, {shape_text(shape)})"


def _store_elements(
    state: LaunchState, storage: Storage, buffer: Buffer, indices: Sequence[Expr], value: Val
) -> None:
    if state.scope.mask is None and _is_row_major(state, storage, storage.kept(indices)):
        row = spread(value, state.space.all_axes(), state.space.padded)
        state.assign(buffer, f"tl.reshape({row}, {shape_text(storage.padded)})")
        return
    plan = plan_of(state, storage, indices)
    if not is_placed(plan):
        raise state.needs_memory(buffer)
    axes, mask = [p.axis if p.kind != "same" else None for p in plan], state.scope.mask
    used = frozenset(a for a in axes if a is not None)
    if not value.axes <= used or (mask is not None and not mask.axes <= used):
        raise state.unsupported(
            f"several points of the nest write one element of `{buffer.name}`; "
            "index it by every loop variable that the value depends on, or use a reduction",
            found=f"{buffer.name}[{', '.join(map(print_expr, indices))}]",
        )
    laid = to_tile(value, state.space, axes)
    conditions = None if mask is None else to_tile(mask, state.space, axes)
    # Tests of the tile's own elements are added last: a mask moves with the lanes until then.
    inside: Val | None = None
    for dim in range(len(plan)):
        laid, conditions, hit = _place(state, storage, plan, dim, laid, conditions)
        inside = both(inside, hit)
    conditions = both(conditions, inside)
    if conditions is None:
        state.assign(buffer, spread(laid, used, storage.padded))
    else:
        _assign_where(state, buffer, conditions, laid)


def _is_row_major(state: LaunchState, storage: Storage, indices: Sequence[Expr]) -> bool:
    """True if the indices are the digits of the point's row-major number in the nest.

    Examples are ``tile[n // 8, n % 8]`` and ``tile[i * 8 + j]``.
    """
    space, first, last = state.space, indices[0], indices[-1]
    if space.padded != space.extents or storage.padded != storage.extents:
        return False
    if math.prod(space.extents) != math.prod(storage.extents) or space.extents == storage.extents:
        return False
    place: Expr = fold.const(0)
    for var, extent in zip(space.vars, space.extents, strict=True):
        place = fold.add(fold.mul(place, fold.const(extent)), var)
    number = last.a if len(indices) > 1 and isinstance(last, Binary) else first
    rest = number
    for dim in reversed(range(1, len(indices))):
        size = fold.const(storage.extents[dim])
        if indices[dim] != Binary(rest.dtype, "floormod", rest, size):
            return False
        rest = fold.binary("floordiv", rest, size)
    known = {v.id for v in space.vars}
    return first == rest and affine(number, known) == affine(place, known)


def is_placed(plan: Sequence[Index]) -> bool:
    """True if lanes write to a tile in order: each dimension by one axis, or at one index."""
    axes = [p.axis for p in plan if p.kind != "same"]
    return all(p.kind != "any" for p in plan) and len(set(axes)) == len(axes)


def _place(
    state: LaunchState, storage: Storage, plan: list[Index], dim: int, value: Val, mask: Val | None
) -> tuple[Val, Val | None, Val | None]:
    """``value`` and ``mask`` moved to the tile's place along one dimension; what that writes."""
    index, size, extent = plan[dim], storage.padded[dim], storage.extents[dim]
    if index.kind == "axis" and state.space.extents[index.axis] >= extent:
        return value, mask, None
    lanes = Val(state.iota(size, dim, len(plan)), INT32)
    if index.kind == "axis":
        return value, mask, infix("<", lanes, state.space.extents[index.axis])
    if index.kind == "same":
        return value, mask, infix("==", lanes, index.value)
    source, hit = _shift(state, index, lanes)
    value = _gather_along(state, storage, value, dim, plan, source)
    if mask is not None:
        mask = _gather_along(state, storage, mask, dim, plan, source)
    return value, mask, hit


def _shift(state: LaunchState, index: Index, lanes: Val) -> tuple[Val, Val | None]:
    """The lane ``(e - offset) / factor`` whose value element ``e`` takes, and if there is one."""
    away = lanes
    if index.value.text != "0":
        away = infix("-", lanes, convert(index.value, INT32))
    if index.factor < 0:
        away = Val(f"-{away.at(text.UNARY)}", INT32, prec=text.UNARY)
    step = abs(index.factor)
    span = (state.space.extents[index.axis] - 1) * step
    hit = both(infix(">=", away, 0), infix("<=", away, span))
    source = away
    if step > 1:
        hit = both(hit, infix("==", infix("%", away, step), 0))
        source = infix("//", away, step)
    return infix("&", source, state.space.padded[index.axis] - 1), hit


def _gather_along(
    state: LaunchState, storage: Storage, value: Val, dim: int, plan: list[Index], source: Val
) -> Val:
    """``value`` re-read along ``dim`` at lanes ``source``, where it varies there."""
    if plan[dim].axis not in value.axes:
        return value
    shape = []
    for d, p in enumerate(plan):
        in_place = d == dim or (d < dim and p.kind == "shift")
        size = storage.padded[d] if in_place else state.space.padded[p.axis]
        shape.append(size if p.axis in value.axes else 1)
    where = source.text
    if any(n > 1 for d, n in enumerate(shape) if d != dim):
        where = f"tl.broadcast_to({where}, {shape_text(tuple(shape))})"
    if value.dtype.is_bool:
        picked = f"tl.gather({convert(value, INT32).text}, {where}, {dim}) != 0"
        return Val(picked, BOOL, value.axes, text.COMPARE)
    return Val(f"tl.gather({value.text}, {where}, {dim})", value.dtype, value.axes)
