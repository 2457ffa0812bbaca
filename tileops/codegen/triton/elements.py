"""Element access: tiles, and global memory by pointers, bounds masks, loads and stores."""

from __future__ import annotations

from collections.abc import Sequence

from tileops.codegen.triton import text, tiles
from tileops.codegen.triton.expressions import both, emit_expr
from tileops.codegen.triton.functions import converted
from tileops.codegen.triton.space import shape_text
from tileops.codegen.triton.state import LaunchState
from tileops.codegen.triton.text import Val, convert, faithful, infix, where
from tileops.dtypes import INT32, INT64
from tileops.ir import fold
from tileops.ir.expr import Buffer, Expr, Load, Region, Var
from tileops.ir.program import const_value
from tileops.ir.walk import walk_expr
from tileops.passes.analyze_index import affine, in_width, needs_guard, uses


# -- either kind of buffer -------------------------------------------------------------------------
def load_element(state: LaunchState, load: Load) -> Val:
    """The value of ``load`` for every lane."""
    buffer = load.buffer
    if state.memory.holds(buffer):
        held = state.memory.held(buffer)
        if state.memory.must_wait("read", buffer):
            state.memory.barrier()
        state.memory.note("read", buffer)
        return convert(_load_global(state, held, load.indices), buffer.dtype)
    if buffer.is_on_chip:
        return tiles.load_tile(state, buffer, load.indices)
    return _load_global(state, buffer, load.indices)


def store_element(state: LaunchState, buffer: Buffer, indices: Sequence[Expr], value: Val) -> None:
    """Write ``value`` for every active lane."""
    if state.memory.holds(buffer):
        held = state.memory.held(buffer)
        value = convert(converted(state, value, buffer.dtype), held.dtype)
        _store_global(state, held, indices, value, settle=True)
    elif buffer.is_on_chip:
        tiles.store_tile(state, buffer, indices, value)
    else:
        _store_global(state, buffer, indices, converted(state, value, buffer.dtype))


def extents_of(state: LaunchState, region: Region) -> tuple[int, ...]:
    """The extents of a region as integers; UnsupportedConstructError where one is not constant."""
    extents = region.static_extents()
    if extents is None:
        raise state.unsupported(
            f"a tile operation on `{region.buffer.name}` whose extents are not constants"
        )
    return extents


def load_region(
    state: LaunchState, region: Region, dims: Sequence[int], vars_: Sequence[Var]
) -> Val:
    """The elements of a region in the current space, ``vars_`` running along ``dims``."""
    indices = fold.region_indices(region, dims, vars_)
    return load_element(state, Load(region.dtype, region.buffer, indices))


def store_region(
    state: LaunchState, region: Region, dims: Sequence[int], vars_: Sequence[Var], value: Val
) -> None:
    """Write the elements of a region, ``vars_`` running along ``dims``."""
    store_element(state, region.buffer, fold.region_indices(region, dims, vars_), value)


# -- global memory ---------------------------------------------------------------------------------
def _load_global(state: LaunchState, buffer: Buffer, indices: Sequence[Expr]) -> Val:
    """The elements of a buffer in global memory; out of bounds, the safe value (0)."""
    address = pointer(state, buffer, indices)
    mask = both(_bounds_mask(state, buffer, indices), lane_mask(state, address.axes))
    mask = both(mask, state.scope.mask)
    axes, options = address.axes, ""
    if mask is not None:
        axes |= mask.axes
        address = spread_pointer(state, address, mask.axes)
        options = f", mask={mask.text}, other={safe_value(state, buffer)}"
    return Val(f"tl.load({address.text}{options})", buffer.dtype, axes)


def _store_global(
    state: LaunchState, buffer: Buffer, indices: Sequence[Expr], value: Val, *, settle: bool = False
) -> None:
    """Store ``value`` in bounds; ``settle`` orders it among the accesses to a buffer in memory."""
    value = faithful(value)
    address = pointer(state, buffer, indices)
    mask = access_mask(state, buffer, indices, address.axes)
    needed = value.axes | (mask.axes if mask is not None else frozenset())
    if not needed <= address.axes:
        if value.axes - address.axes:
            raise state.unsupported(
                f"several points of the nest write one element of `{buffer.name}` "
                "with different values"
            )
        address = spread_pointer(state, address, needed)
    if settle:
        address, value, mask = settled(state, "write", buffer, address, value, mask)
    suffix = "" if mask is None else f", mask={mask.text}"
    state.writer.line(f"tl.store({address.text}, {value.text}{suffix})")


def settled(
    state: LaunchState, kind: str, buffer: Buffer, address: Val, value: Val, mask: Val | None
) -> tuple[Val, Val, Val | None]:
    """The operands of a "write" or "atomic" to memory, evaluated before the barrier it needs."""
    if state.memory.must_wait(kind, buffer):
        address, value = _evaluated(state, "place", address), _evaluated(state, "value", value)
        mask = None if mask is None else _evaluated(state, "mask", mask)
        state.memory.barrier()
    state.memory.note(kind, buffer)
    return address, value, mask


def _evaluated(state: LaunchState, name: str, value: Val) -> Val:
    # Only loads give another result behind the barrier.
    return state.temporary(name, value) if "tl.load(" in value.text else value


def safe_value(state: LaunchState, buffer: Buffer) -> str:
    """Text of what accesses to ``buffer`` out of bounds give."""
    value = next((v for known, v in state.launch.safe_values if known.id == buffer.id), None)
    if value is None:
        return "0.0" if buffer.dtype.is_float else "0"
    return faithful(converted(state, emit_expr(state, value), buffer.dtype)).text


# -- masks -----------------------------------------------------------------------------------------
def access_mask(
    state: LaunchState, buffer: Buffer, indices: Sequence[Expr], axes: frozenset[int]
) -> Val | None:
    """The lanes that may touch ``buffer`` at ``indices``: in bounds, no padding, active."""
    active = state.scope.mask  # of padding it means nothing
    lanes = lane_mask(state, axes if active is None else axes | active.axes)
    return both(both(_bounds_mask(state, buffer, indices), lanes), active)


def lane_mask(state: LaunchState, axes: frozenset[int]) -> Val | None:
    """The lanes that are not padding along ``axes``; None if none of these is padded."""
    mask: Val | None = None
    space = state.space
    for axis in sorted(axes):
        if space.extents[axis] != space.padded[axis]:
            mask = both(mask, infix("<", state.lane(space, axis), space.extents[axis]))
    return mask


def all_lanes_mask(state: LaunchState, mask: Val | None) -> Val | None:
    """``mask``, and no padding along any axis of the space."""
    return both(lane_mask(state, state.space.all_axes()), mask)


def without_padding(state: LaunchState, axis: int, tile: Val, neutral: Val) -> Val:
    """``tile`` with ``neutral`` in the padding along one axis."""
    return where(lane_mask(state, frozenset({axis})), tile, neutral)


def _bounds_mask(state: LaunchState, buffer: Buffer, indices: Sequence[Expr]) -> Val | None:
    """The lanes whose indices are inside the buffer; None if all are for certain."""
    mask: Val | None = None
    if state.is_on("tl.disable_safe_memory_legalize"):
        return None
    for index, extent in zip(indices, buffer.shape, strict=True):
        lower, upper = needs_guard(index, extent, state.scope.ranges)
        if not (lower or upper):
            continue
        value = emit_expr(state, in_width(index, state.scope.ranges))
        if lower:
            mask = both(mask, infix(">=", value, 0))
        if upper:
            mask = both(mask, infix("<", value, emit_expr(state, extent)))
    return mask


# -- addresses -------------------------------------------------------------------------------------
def pointer(state: LaunchState, buffer: Buffer, indices: Sequence[Expr]) -> Val:
    """The address of each lane's element: ``base + (same for all lanes) + (differs)``."""
    # Of affine indices the last part holds no loop variable: a loop computes it once.
    base: Expr = fold.const(0)
    moving: Val | None = None
    for index, stride in zip(indices, fold.strides_of(buffer), strict=True):
        shared, part = _split(state, in_width(index, state.scope.ranges), stride)
        base, moving = fold.add(base, shared), _sum(moving, part)
    out = Val(state.params.pointer(buffer), buffer.dtype)
    if const_value(base) != 0:
        out = infix("+", out, emit_expr(state, base))
    return out if moving is None else infix("+", out, moving)


def spread_pointer(state: LaunchState, a: Val, axes: frozenset[int]) -> Val:
    """A pointer made to vary along further axes: Triton does not broadcast it to its mask."""
    if axes <= a.axes:
        return a
    shape = state.space.shape(a.axes | axes)
    zeros = f"tl.zeros({shape_text(shape)}, tl.int32)"
    return Val(f"{a.at(text.SUM)} + {zeros}", a.dtype, a.axes | axes, text.SUM)


def _sum(a: Val | None, b: Val | None) -> Val | None:
    if a is None or b is None:
        return b if a is None else a
    return infix("+", a, b, b.dtype)


def _split(state: LaunchState, index: Expr, stride: Expr) -> tuple[Expr, Val | None]:
    """An index times its stride, as a part that all lanes share and a part that differs."""
    if not _varies(state, index):
        return _widen(state, index, stride), None
    parts, zero = affine(index, state.scope.varying), fold.const(0)
    if parts is None or _varies(state, parts.rest):
        value = emit_expr(state, index)
        return zero, _scaled(state, value, index, stride, wide=state.spec.index64)
    shared = zero if const_value(parts.rest) == 0 else _widen(state, parts.rest, stride)
    moving: Val | None = None
    for var, factor in parts.coefficients:
        lane = state.vars[var]
        if lane.static:
            continue
        step = fold.mul(stride, fold.const(factor))
        wide = state.spec.index64 or const_value(step) is not None
        moving = _sum(moving, _scaled(state, lane, Var(INT32, var, ""), step, wide=wide))
    return shared, moving


def _varies(state: LaunchState, expr: Expr) -> bool:
    """True if the value can differ between lanes."""
    if uses(expr, state.scope.varying):
        return True
    loaded = (state.storages.get(e.buffer.id) for e in walk_expr(expr) if isinstance(e, Load))
    return state.space.rank > 0 and any(storage and storage.lanes for storage in loaded)


def _widen(state: LaunchState, index: Expr, stride: Expr) -> Expr:
    if state.spec.index64:
        index, stride = fold.cast(index, INT64), fold.cast(stride, INT64)
    return fold.mul(index, stride)


def _scaled(state: LaunchState, value: Val, index: Expr, stride: Expr, *, wide: bool) -> Val:
    """``value * stride``; if ``wide``, in 64 bits where the product may need them."""
    step, span = const_value(stride), state.scope.ranges.exact(index)
    fits = step is not None and max(abs(span.lo * step), abs(span.hi * step)) < 1 << 31
    if wide and not (span.is_bounded and fits):
        value = convert(value, INT64)
    if step == 1:
        return value
    factor = emit_expr(state, stride)
    dtype = INT64 if INT64 in (value.dtype, factor.dtype) else value.dtype
    return infix("*", value, factor, dtype)
