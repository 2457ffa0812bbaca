"""Element access: tiles, and global memory by pointers, bounds masks, loads and stores."""

from __future__ import annotations

from collections.abc import Sequence

from tileops.codegen.triton import text, tiles
from tileops.codegen.triton.context import Context
from tileops.codegen.triton.expressions import both, emit_expr
from tileops.codegen.triton.functions import converted
from tileops.codegen.triton.space import shape_text
from tileops.codegen.triton.text import Val, convert, faithful, infix, where
from tileops.dtypes import INT32, INT64
from tileops.ir import fold
from tileops.ir.expr import Buffer, Expr, Load, Region, Var
from tileops.ir.program import const_value
from tileops.ir.walk import walk_expr
from tileops.passes.analyze_index import affine, in_width, needs_guard, uses


# -- either kind of buffer -------------------------------------------------------------------------
def load_element(ctx: Context, load: Load) -> Val:
    """The value of ``load`` for every lane."""
    buffer = load.buffer
    if ctx.memory.holds(buffer):
        held = ctx.memory.held(buffer)
        if ctx.memory.must_wait("read", buffer):
            ctx.memory.barrier()
        ctx.memory.note("read", buffer)
        return convert(_load_global(ctx, held, load.indices), buffer.dtype)
    if buffer.is_on_chip:
        return tiles.load_tile(ctx, buffer, load.indices)
    return _load_global(ctx, buffer, load.indices)


def store_element(ctx: Context, buffer: Buffer, indices: Sequence[Expr], value: Val) -> None:
    """Write ``value`` for every active lane."""
    if ctx.memory.holds(buffer):
        held = ctx.memory.held(buffer)
        value = convert(converted(ctx, value, buffer.dtype), held.dtype)
        _store_global(ctx, held, indices, value, settle=True)
    elif buffer.is_on_chip:
        tiles.store_tile(ctx, buffer, indices, value)
    else:
        _store_global(ctx, buffer, indices, converted(ctx, value, buffer.dtype))


def extents_of(ctx: Context, region: Region) -> tuple[int, ...]:
    """The extents of a region as integers; UnsupportedConstructError where one is not constant."""
    extents = region.static_extents()
    if extents is None:
        raise ctx.unsupported(
            f"a tile operation on `{region.buffer.name}` whose extents are not constants"
        )
    return extents


def load_region(ctx: Context, region: Region, dims: Sequence[int], vars_: Sequence[Var]) -> Val:
    """The elements of a region in the current space, ``vars_`` running along ``dims``."""
    indices = fold.region_indices(region, dims, vars_)
    return load_element(ctx, Load(region.dtype, region.buffer, indices))


def store_region(
    ctx: Context, region: Region, dims: Sequence[int], vars_: Sequence[Var], value: Val
) -> None:
    """Write the elements of a region, ``vars_`` running along ``dims``."""
    store_element(ctx, region.buffer, fold.region_indices(region, dims, vars_), value)


# -- global memory ---------------------------------------------------------------------------------
def _load_global(ctx: Context, buffer: Buffer, indices: Sequence[Expr]) -> Val:
    """The elements of a buffer in global memory; out of bounds, the safe value (0)."""
    address = pointer(ctx, buffer, indices)
    mask = both(_bounds_mask(ctx, buffer, indices), lane_mask(ctx, address.axes))
    mask = both(mask, ctx.scope.mask)
    axes, options = address.axes, ""
    if mask is not None:
        axes |= mask.axes
        address = spread_pointer(ctx, address, mask.axes)
        options = f", mask={mask.text}, other={safe_value(ctx, buffer)}"
    return Val(f"tl.load({address.text}{options})", buffer.dtype, axes)


def _store_global(
    ctx: Context, buffer: Buffer, indices: Sequence[Expr], value: Val, *, settle: bool = False
) -> None:
    """Store ``value`` in bounds; ``settle`` orders it among the accesses to a buffer in memory."""
    value = faithful(value)
    address = pointer(ctx, buffer, indices)
    mask = access_mask(ctx, buffer, indices, address.axes)
    needed = value.axes | (mask.axes if mask is not None else frozenset())
    if not needed <= address.axes:
        if value.axes - address.axes:
            raise ctx.unsupported(
                f"several points of the nest write one element of `{buffer.name}` "
                "with different values"
            )
        address = spread_pointer(ctx, address, needed)
    if settle:
        address, value, mask = settled(ctx, "write", buffer, address, value, mask)
    suffix = "" if mask is None else f", mask={mask.text}"
    ctx.writer.line(f"tl.store({address.text}, {value.text}{suffix})")


def settled(
    ctx: Context, kind: str, buffer: Buffer, address: Val, value: Val, mask: Val | None
) -> tuple[Val, Val, Val | None]:
    """The operands of a "write" or "atomic" to memory, evaluated before the barrier it needs."""
    if ctx.memory.must_wait(kind, buffer):
        address, value = _evaluated(ctx, "place", address), _evaluated(ctx, "value", value)
        mask = None if mask is None else _evaluated(ctx, "mask", mask)
        ctx.memory.barrier()
    ctx.memory.note(kind, buffer)
    return address, value, mask


def _evaluated(ctx: Context, name: str, value: Val) -> Val:
    # Only loads give another result behind the barrier.
    return ctx.temporary(name, value) if "tl.load(" in value.text else value


def safe_value(ctx: Context, buffer: Buffer) -> str:
    """Text of what accesses to ``buffer`` out of bounds give."""
    value = next((v for known, v in ctx.launch.safe_values if known.id == buffer.id), None)
    if value is None:
        return "0.0" if buffer.dtype.is_float else "0"
    return faithful(converted(ctx, emit_expr(ctx, value), buffer.dtype)).text


# -- masks -----------------------------------------------------------------------------------------
def access_mask(
    ctx: Context, buffer: Buffer, indices: Sequence[Expr], axes: frozenset[int]
) -> Val | None:
    """The lanes that may touch ``buffer`` at ``indices``: in bounds, no padding, active."""
    active = ctx.scope.mask  # of padding it means nothing
    lanes = lane_mask(ctx, axes if active is None else axes | active.axes)
    return both(both(_bounds_mask(ctx, buffer, indices), lanes), active)


def lane_mask(ctx: Context, axes: frozenset[int]) -> Val | None:
    """The lanes that are not padding along ``axes``; None if none of these is padded."""
    mask: Val | None = None
    space = ctx.space
    for axis in sorted(axes):
        if space.extents[axis] != space.padded[axis]:
            mask = both(mask, infix("<", ctx.lane(space, axis), space.extents[axis]))
    return mask


def all_lanes_mask(ctx: Context, mask: Val | None) -> Val | None:
    """``mask``, and no padding along any axis of the space."""
    return both(lane_mask(ctx, ctx.space.all_axes()), mask)


def without_padding(ctx: Context, axis: int, tile: Val, neutral: Val) -> Val:
    """``tile`` with ``neutral`` in the padding along one axis."""
    return where(lane_mask(ctx, frozenset({axis})), tile, neutral)


def _bounds_mask(ctx: Context, buffer: Buffer, indices: Sequence[Expr]) -> Val | None:
    """The lanes whose indices are inside the buffer; None if all are for certain."""
    mask: Val | None = None
    if ctx.is_on("tl.disable_safe_memory_legalize"):
        return None
    for index, extent in zip(indices, buffer.shape, strict=True):
        lower, upper = needs_guard(index, extent, ctx.scope.ranges)
        if not (lower or upper):
            continue
        value = emit_expr(ctx, in_width(index, ctx.scope.ranges))
        if lower:
            mask = both(mask, infix(">=", value, 0))
        if upper:
            mask = both(mask, infix("<", value, emit_expr(ctx, extent)))
    return mask


# -- addresses -------------------------------------------------------------------------------------
def pointer(ctx: Context, buffer: Buffer, indices: Sequence[Expr]) -> Val:
    """The address of each lane's element: ``base + (same for all lanes) + (differs)``."""
    # Of affine indices the last part holds no loop variable: a loop computes it once.
    base: Expr = fold.const(0)
    moving: Val | None = None
    for index, stride in zip(indices, fold.strides_of(buffer), strict=True):
        shared, part = _split(ctx, in_width(index, ctx.scope.ranges), stride)
        base, moving = fold.add(base, shared), _sum(moving, part)
    out = Val(ctx.params.pointer(buffer), buffer.dtype)
    if const_value(base) != 0:
        out = infix("+", out, emit_expr(ctx, base))
    return out if moving is None else infix("+", out, moving)


def spread_pointer(ctx: Context, a: Val, axes: frozenset[int]) -> Val:
    """A pointer made to vary along further axes: Triton does not broadcast it to its mask."""
    if axes <= a.axes:
        return a
    shape = ctx.space.shape(a.axes | axes)
    zeros = f"tl.zeros({shape_text(shape)}, tl.int32)"
    return Val(f"{a.at(text.SUM)} + {zeros}", a.dtype, a.axes | axes, text.SUM)


def _sum(a: Val | None, b: Val | None) -> Val | None:
    if a is None or b is None:
        return b if a is None else a
    return infix("+", a, b, b.dtype)


def _split(ctx: Context, index: Expr, stride: Expr) -> tuple[Expr, Val | None]:
    """An index times its stride, as a part that all lanes share and a part that differs."""
    if not _varies(ctx, index):
        return _widen(ctx, index, stride), None
    parts, zero = affine(index, ctx.scope.varying), fold.const(0)
    if parts is None or _varies(ctx, parts.rest):
        value = emit_expr(ctx, index)
        return zero, _scaled(ctx, value, index, stride, wide=ctx.spec.index64)
    shared = zero if const_value(parts.rest) == 0 else _widen(ctx, parts.rest, stride)
    moving: Val | None = None
    for var, factor in parts.coefficients:
        lane = ctx.vars[var]
        if lane.static:
            continue
        step = fold.mul(stride, fold.const(factor))
        wide = ctx.spec.index64 or const_value(step) is not None
        moving = _sum(moving, _scaled(ctx, lane, Var(INT32, var, ""), step, wide=wide))
    return shared, moving


def _varies(ctx: Context, expr: Expr) -> bool:
    """True if the value can differ between lanes."""
    if uses(expr, ctx.scope.varying):
        return True
    loaded = (ctx.storages.get(e.buffer.id) for e in walk_expr(expr) if isinstance(e, Load))
    return ctx.space.rank > 0 and any(storage and storage.lanes for storage in loaded)


def _widen(ctx: Context, index: Expr, stride: Expr) -> Expr:
    if ctx.spec.index64:
        index, stride = fold.cast(index, INT64), fold.cast(stride, INT64)
    return fold.mul(index, stride)


def _scaled(ctx: Context, value: Val, index: Expr, stride: Expr, *, wide: bool) -> Val:
    """``value * stride``; if ``wide``, in 64 bits where the product may need them."""
    step, span = const_value(stride), ctx.scope.ranges.exact(index)
    fits = step is not None and max(abs(span.lo * step), abs(span.hi * step)) < 1 << 31
    if wide and not (span.is_bounded and fits):
        value = convert(value, INT64)
    if step == 1:
        return value
    factor = emit_expr(ctx, stride)
    dtype = INT64 if INT64 in (value.dtype, factor.dtype) else value.dtype
    return infix("*", value, factor, dtype)
