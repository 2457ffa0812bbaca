"""Atomic operations, scalar and tile form: one of Triton's atomics in memory, or tile updates.

Updates of a tile in variables that meet in one element are reduced first and written once.
"""

from __future__ import annotations

from collections.abc import Sequence

from tileops.codegen.triton import elements, tiles
from tileops.codegen.triton.expressions import both, emit_expr
from tileops.codegen.triton.functions import chosen, converted
from tileops.codegen.triton.reductions import combined, neutral_operand, reduced
from tileops.codegen.triton.space import to_space
from tileops.codegen.triton.state import LaunchState
from tileops.codegen.triton.text import Val, convert, number, strict, typed, where
from tileops.dtypes import FLOAT32, DType
from tileops.ir import fold
from tileops.ir.expr import Expr, Load, Region
from tileops.ir.stmt import Atomic

# The function of tl, and the reduction of updates that meet.
_OPERATIONS = {
    "add": ("atomic_add", "sum"),
    "max": ("atomic_max", "max"),
    "min": ("atomic_min", "min"),
    "or": ("atomic_or", "bitor"),
    "and": ("atomic_and", "bitand"),
    "xor": ("atomic_xor", "bitxor"),
    "exchange": ("atomic_xchg", None),
    "store": ("atomic_xchg", None),
    "load": ("atomic_add", None),  # of 0
}
# Triton lacks the consume and sequentially consistent orders; each is the next stronger one.
_ORDERS = {"consume": "acquire", "seq_cst": "acq_rel"}


def emit_atomic(state: LaunchState, stmt: Atomic) -> None:
    """One atomic an element; elements out of bounds are skipped."""
    if isinstance(stmt.value, Region) or stmt.dst.squeezed():
        _emit_tile(state, stmt)
        return
    value = None if stmt.value is None else emit_expr(state, stmt.value)
    result = _update(state, stmt, stmt.dst.starts, value)
    if stmt.result is not None:
        state.bind(stmt.result, result)
    elif result.text and stmt.op != "load":
        state.writer.line(result.text)


def _emit_tile(state: LaunchState, stmt: Atomic) -> None:
    lead = stmt.value if isinstance(stmt.value, Region) else stmt.dst
    extents = elements.extents_of(state, lead)
    dims, target = lead.squeezed(), stmt.dst.squeezed()
    if len(target) != len(dims):
        raise state.unsupported("an atomic whose sides differ in rank after dropping extents of 1")
    with state.nest([extents[d] for d in dims]) as vars_:
        if isinstance(stmt.value, Region):
            value = elements.load_region(state, stmt.value, dims, vars_)
        elif stmt.value is not None:
            value = emit_expr(state, stmt.value)
        else:
            raise state.unsupported(f"the atomic `{stmt.op}` of a tile")
        result = _update(state, stmt, fold.region_indices(stmt.dst, target, vars_), value)
        if result.text:
            state.writer.line(result.text)


def _update(state: LaunchState, stmt: Atomic, indices: Sequence[Expr], value: Val | None) -> Val:
    """The value before an update of each lane's element; no text if all is already written."""
    buffer = stmt.dst.buffer
    in_memory = state.memory.holds(buffer)
    if value is None and (in_memory or buffer.is_on_chip):
        return elements.load_element(state, Load(buffer.dtype, buffer, tuple(indices)))
    if value is not None and buffer.is_on_chip and not in_memory:
        return _update_tile(state, stmt, indices, converted(state, value, buffer.dtype))
    return _update_memory(state, stmt, indices, value, in_memory=in_memory)


# -- memory ----------------------------------------------------------------------------------------
def _update_memory(
    state: LaunchState, stmt: Atomic, indices: Sequence[Expr], value: Val | None, *, in_memory: bool
) -> Val:
    declared = stmt.dst.buffer
    buffer = state.memory.held(declared) if in_memory else declared
    _check_type(state, stmt, buffer.dtype)
    # Each point of the nest takes part once, also where nothing depends on its place.
    lanes = state.space.all_axes()
    mask = elements.access_mask(state, buffer, indices, lanes)
    mask = None if mask is None else typed(mask)
    address = elements.spread_pointer(state, elements.pointer(state, buffer, indices), lanes)
    operand = number(0, buffer.dtype)
    if value is not None:
        operand = convert(converted(state, value, declared.dtype), buffer.dtype)
    if in_memory:
        address, operand, mask = elements.settled(state, "atomic", buffer, address, operand, mask)
    order, args = _ORDERS.get(stmt.order, stmt.order), f"{address.text}, {typed(operand).text}"
    if stmt.op in ("max", "min") and buffer.dtype.is_float:
        # It prefers a number to NaN; Triton's own compares the bits of a NaN.
        state.helper(f"update_{stmt.op}")
        function, bits = state.helper(f"atomic_{stmt.op}"), buffer.dtype.bits
        # The bits that a number of any sign replaces: a NaN below all numbers, or above them.
        nothing = -1 if stmt.op == "max" else (1 << (bits - 1)) - 1
        args += f", {mask.text if mask else True}, {nothing}, tl.int{bits}, tl.uint{bits}"
        args += f', "{order}", "{"cta" if in_memory else "gpu"}"'
    else:
        function = f"tl.{_OPERATIONS[stmt.op][0]}"
        args += f", mask={mask.text}" if mask else ""
        args += f', sem="{order}"' + (', scope="cta"' if in_memory else "")
    result = Val(f"{function}({args})", buffer.dtype, lanes)
    if stmt.result is None:
        return result
    # What an atomic that is not performed returns is anything.
    other = strict(Val(elements.safe_value(state, buffer), buffer.dtype, static=True))
    return convert(where(mask, result, other), declared.dtype)


def _check_type(state: LaunchState, stmt: Atomic, dtype: DType) -> None:
    """UnsupportedConstructError where Triton has no such atomic."""
    adds = stmt.op in ("add", "load")
    if dtype.bits >= 32 or (adds and dtype in ("float16", "bfloat16")):
        return
    raise state.unsupported(
        f"the atomic `{stmt.op}` on `{stmt.dst.buffer.name}`: GPUs have it for 32 and 64 bits"
        + (", float16 and bfloat16" if adds else ""),
        found=str(dtype),
    )


# -- tiles in variables ----------------------------------------------------------------------------
def _update_tile(state: LaunchState, stmt: Atomic, indices: Sequence[Expr], value: Val) -> Val:
    """Update each lane's element; NeedsMemory where lanes meet so that only atomics order them."""
    buffer = stmt.dst.buffer
    meet = state.space.all_axes() - _lanes_of(state, stmt, indices)
    _, kind = _OPERATIONS[stmt.op]
    if meet and (kind is None or stmt.result is not None):
        raise state.needs_memory(buffer)
    old = tiles.load_tile(state, buffer, indices)
    if stmt.result is not None:
        old = state.temporary("previous", old)
    before = old if stmt.result is not None else Val("", buffer.dtype)
    if kind is None:
        tiles.store_tile(state, buffer, indices, value)
        return before
    work = FLOAT32 if buffer.dtype.is_fp8 else buffer.dtype
    value = converted(state, value, work)
    if meet:
        value = _total(state, kind, value, meet)
    new = combined(state, kind, convert(old, work), value)
    if kind in ("max", "min"):
        new = chosen(state, new, buffer.dtype)
    # If lanes meet, the inactive ones have contributed nothing; else they must not write.
    with state.nested(mask=None if meet else state.scope.mask):
        tiles.store_tile(state, buffer, indices, new)
    return before


def _lanes_of(state: LaunchState, stmt: Atomic, indices: Sequence[Expr]) -> frozenset[int]:
    """The axes along which each lane has an element of its own."""
    buffer = stmt.dst.buffer
    storage = state.storage(buffer)
    if storage.lanes:
        return state.space.all_axes()
    plan = tiles.plan_of(state, storage, indices)
    if not tiles.is_placed(plan):
        raise state.needs_memory(buffer)
    return frozenset(p.axis for p in plan if p.kind in ("axis", "shift"))


def _total(state: LaunchState, kind: str, value: Val, meet: frozenset[int]) -> Val:
    """What the active lanes contribute, reduced along the axes on which they meet."""
    space, dtype = state.space, value.dtype
    mask = both(elements.lane_mask(state, meet), state.scope.mask)
    axes = value.axes | meet | (mask.axes if mask is not None else frozenset())
    tile = Val(tiles.spread(value, axes, space.shape(axes)), dtype, axes)
    tile = where(mask, tile, neutral_operand(kind, dtype))
    kept = sorted(axes - meet)
    for axis in reversed(range(space.rank)):
        if axis not in kept:
            tile = reduced(state, kind, tile, axis)
    return to_space(tile, kept, space) if kept else Val(tile.text, dtype, prec=tile.prec)
