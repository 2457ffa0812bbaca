"""Owns access to global memory: pointers, bounds masks, loads and stores of whole tiles."""

from __future__ import annotations

from collections.abc import Sequence

from tileops.codegen.triton import text
from tileops.codegen.triton.context import Context
from tileops.codegen.triton.conversions import converted
from tileops.codegen.triton.expressions import both, emit_expr
from tileops.codegen.triton.space import shape_text
from tileops.codegen.triton.text import Val, convert, infix
from tileops.dtypes import DType
from tileops.ir import fold
from tileops.ir.expr import Buffer, Expr, Load, Var
from tileops.ir.program import const_value
from tileops.ir.walk import walk_expr
from tileops.passes.analyze_index import affine, in_width, needs_guard, uses

_INT32 = DType("int32")
_INT64 = DType("int64")
_BOOL = DType("bool")


def load_global(ctx: Context, buffer: Buffer, indices: Sequence[Expr]) -> Val:
    """The elements of a global buffer at ``indices``.

    Out of bounds reads give the safe value (0).
    """
    address = pointer(ctx, buffer, indices)
    mask = both(bounds_mask(ctx, buffer, indices), lane_mask(ctx, address.axes))
    mask = both(mask, ctx.scope.mask)
    axes = address.axes
    options = ""
    if mask is not None:
        axes |= mask.axes
        address = spread_pointer(ctx, address, mask.axes)
        options = f", mask={mask.text}, other={safe_value(ctx, buffer)}"
    return Val(f"tl.load({address.text}{options})", buffer.dtype, axes)


def store_global(
    ctx: Context, buffer: Buffer, indices: Sequence[Expr], value: Val, *, settle: bool = False
) -> None:
    """Store ``value``; what is out of bounds is dropped.

    ``settle`` orders the store among the accesses to a buffer in memory.
    """
    value = text.faithful(value)
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
        address, value, mask = settled(ctx, buffer, address, value, mask)
    suffix = "" if mask is None else f", mask={mask.text}"
    ctx.writer.line(f"tl.store({address.text}, {value.text}{suffix})")


def settled(
    ctx: Context,
    buffer: Buffer,
    address: Val,
    value: Val,
    mask: Val | None,
    *,
    atomic: bool = False,
) -> tuple[Val, Val, Val | None]:
    """The operands of a write to a buffer in memory, evaluated before the barrier it waits for."""
    if ctx.memory.must_wait(buffer, atomic=atomic):
        address, value = _evaluated(ctx, "place", address), _evaluated(ctx, "value", value)
        mask = None if mask is None else _evaluated(ctx, "mask", mask)
        ctx.memory.barrier()
    ctx.memory.note_write(buffer, atomic=atomic)
    return address, value, mask


def _evaluated(ctx: Context, name: str, value: Val) -> Val:
    # Only loads give another result behind the barrier.
    return ctx.temporary(name, value) if "tl.load(" in value.text else value


def access_mask(
    ctx: Context, buffer: Buffer, indices: Sequence[Expr], axes: frozenset[int]
) -> Val | None:
    """The lanes that may touch ``buffer`` at ``indices``: in bounds, no padding, active.

    A condition is computed for the padding too, where it means nothing.
    """
    active = ctx.scope.mask
    axes |= frozenset() if active is None else active.axes
    mask = both(bounds_mask(ctx, buffer, indices), lane_mask(ctx, axes))
    return both(mask, active)


def spread_pointer(ctx: Context, a: Val, axes: frozenset[int]) -> Val:
    """A pointer made to vary along further axes: Triton does not broadcast it to its mask."""
    if axes <= a.axes:
        return a
    shape = ctx.space.shape(a.axes | axes)
    zeros = f"tl.zeros({shape_text(shape)}, tl.int32)"
    return Val(f"{a.at(text.SUM)} + {zeros}", a.dtype, a.axes | axes, text.SUM)


def safe_value(ctx: Context, buffer: Buffer) -> str:
    """Text of what accesses to ``buffer`` out of bounds give."""
    for known, value in ctx.launch.safe_values:
        if known.id == buffer.id:
            return text.faithful(converted(ctx, emit_expr(ctx, value), buffer.dtype)).text
    return "0.0" if buffer.dtype.is_float else "0"


def lane_mask(ctx: Context, axes: frozenset[int]) -> Val | None:
    """The lanes that are no padding, along the axes of which any is padded."""
    mask: Val | None = None
    space = ctx.space
    for axis in sorted(axes):
        if space.extents[axis] != space.padded[axis]:
            bound = Val(str(space.extents[axis]), _INT32, static=True)
            mask = both(mask, infix("<", text.COMPARE, ctx.lane(space, axis), bound, _BOOL))
    return mask


def all_lanes_mask(ctx: Context, mask: Val | None) -> Val | None:
    """``mask``, and no padding along any axis of the space."""
    return both(lane_mask(ctx, ctx.space.all_axes()), mask)


def bounds_mask(ctx: Context, buffer: Buffer, indices: Sequence[Expr]) -> Val | None:
    """The lanes whose indices lie inside the buffer; None where that is proved of all."""
    mask: Val | None = None
    if ctx.is_on("tl.disable_safe_memory_legalize"):
        return None
    for index, extent in zip(indices, buffer.shape, strict=True):
        lower, upper = needs_guard(index, extent, ctx.scope.ranges)
        if not (lower or upper):
            continue
        value = emit_expr(ctx, in_width(index, ctx.scope.ranges))
        if lower:
            zero = Val("0", value.dtype, static=True)
            mask = both(mask, infix(">=", text.COMPARE, value, zero, _BOOL))
        if upper:
            mask = both(mask, infix("<", text.COMPARE, value, emit_expr(ctx, extent), _BOOL))
    return mask


def pointer(ctx: Context, buffer: Buffer, indices: Sequence[Expr]) -> Val:
    """The address of each lane's element.

    ``base + (same for all lanes) + (differs between lanes)``.

    The last part holds no loop variable where the indices are affine, so that a loop computes it
    once.
    """
    base: Expr = fold.const(0)
    moving: Val | None = None
    for index, stride in zip(indices, strides(buffer), strict=True):
        shared, part = _split(ctx, in_width(index, ctx.scope.ranges), stride)
        if shared is not None:
            base = fold.add(base, shared)
        if part is not None:
            moving = part if moving is None else infix("+", text.SUM, moving, part, part.dtype)
    out = Val(ctx.params.pointer(buffer), buffer.dtype)
    if const_value(base) != 0:
        out = infix("+", text.SUM, out, emit_expr(ctx, base), buffer.dtype)
    if moving is not None:
        out = infix("+", text.SUM, out, moving, buffer.dtype)
    return out


def strides(buffer: Buffer) -> tuple[Expr, ...]:
    """The strides of a global buffer in elements; row-major where it has none of its own."""
    if buffer.strides is not None:
        return buffer.strides
    out: list[Expr] = []
    step: Expr = fold.const(1)
    for extent in reversed(buffer.shape):
        out.append(step)
        step = fold.mul(step, extent)
    return tuple(reversed(out))


def _split(ctx: Context, index: Expr, stride: Expr) -> tuple[Expr | None, Val | None]:
    """An index times its stride, as a part that all lanes share and a part that differs."""
    varying = ctx.scope.varying
    if not _varies(ctx, index):
        return _widen(ctx, index, stride), None
    parts = affine(index, varying)
    if parts is None or _varies(ctx, parts.rest):
        wide = ctx.spec.index64
        return None, _scaled(ctx, emit_expr(ctx, index), index, stride, wide=wide)
    shared = None if const_value(parts.rest) == 0 else _widen(ctx, parts.rest, stride)
    moving: Val | None = None
    for var, factor in parts.coefficients:
        lane = ctx.vars[var]
        if lane.static:
            continue
        step = fold.mul(stride, fold.const(factor))
        wide = ctx.spec.index64 or const_value(step) is not None
        term = _scaled(ctx, lane, Var(_INT32, var, ""), step, wide=wide)
        moving = term if moving is None else infix("+", text.SUM, moving, term, term.dtype)
    return shared, moving


def _varies(ctx: Context, expr: Expr) -> bool:
    """True if the value can differ between lanes."""
    if uses(expr, ctx.scope.varying):
        return True
    if ctx.space.rank == 0:
        return False
    return any(
        isinstance(e, Load)
        and e.buffer.id in ctx.storages
        and bool(ctx.storages[e.buffer.id].lanes)
        for e in walk_expr(expr)
    )


def _widen(ctx: Context, index: Expr, stride: Expr) -> Expr:
    if ctx.spec.index64:
        index, stride = fold.cast(index, _INT64), fold.cast(stride, _INT64)
    return fold.mul(index, stride)


def _scaled(ctx: Context, value: Val, index: Expr, stride: Expr, *, wide: bool) -> Val:
    """``value * stride``; if ``wide``, in 64 bits where the product may need them."""
    step = const_value(stride)
    if wide and not _fits(ctx, index, step):
        value = convert(value, _INT64)
    if step == 1:
        return value
    factor = emit_expr(ctx, stride)
    dtype = _INT64 if _INT64 in (value.dtype, factor.dtype) else value.dtype
    return infix("*", text.PRODUCT, value, factor, dtype)


def _fits(ctx: Context, index: Expr, step: int | None) -> bool:
    span = ctx.scope.ranges.exact(index)
    if step is None or span.lo is None or span.hi is None:
        return False
    return max(abs(span.lo * step), abs(span.hi * step)) < 1 << 31
