"""Owns atomic operations, scalar and tile form; in memory each is one of Triton's atomics."""

from __future__ import annotations

from collections.abc import Sequence

from tileops.codegen.triton import tensors, text
from tileops.codegen.triton.context import Context
from tileops.codegen.triton.conversions import converted
from tileops.codegen.triton.elements import (
    extents_of,
    load_element,
    load_region,
)
from tileops.codegen.triton.expressions import emit_expr
from tileops.codegen.triton.text import Val, convert, typed
from tileops.codegen.triton.updates import update_tile
from tileops.dtypes import DType
from tileops.ir import fold
from tileops.ir.expr import Expr, Load, Region
from tileops.ir.stmt import Atomic

_FUNCTIONS = {
    "add": "atomic_add",
    "max": "atomic_max",
    "min": "atomic_min",
    "or": "atomic_or",
    "and": "atomic_and",
    "xor": "atomic_xor",
    "exchange": "atomic_xchg",
    "store": "atomic_xchg",
}
# Triton has no consume and no sequentially consistent order; the next stronger one stands for it.
_ORDERS = {
    "relaxed": "relaxed",
    "consume": "acquire",
    "acquire": "acquire",
    "release": "release",
    "acq_rel": "acq_rel",
    "seq_cst": "acq_rel",
}


def emit_atomic(ctx: Context, stmt: Atomic) -> None:
    """One atomic an element; elements out of bounds are skipped."""
    if isinstance(stmt.value, Region) or stmt.dst.squeezed():
        _emit_tile(ctx, stmt)
        return
    value = None if stmt.value is None else emit_expr(ctx, stmt.value)
    result = _update(ctx, stmt, stmt.dst.starts, value)
    if stmt.result is not None:
        ctx.bind(stmt.result, result)
    elif result.text and stmt.op != "load":
        ctx.writer.line(result.text)


def _emit_tile(ctx: Context, stmt: Atomic) -> None:
    lead = stmt.value if isinstance(stmt.value, Region) else stmt.dst
    extents = extents_of(ctx, lead)
    dims, target = lead.squeezed(), stmt.dst.squeezed()
    vars_ = ctx.synthetic_vars(len(dims))
    if len(target) != len(dims):
        raise ctx.unsupported("an atomic whose sides differ in rank after dropping extents of 1")
    with ctx.over(vars_, tuple(extents[d] for d in dims)):
        if isinstance(stmt.value, Region):
            value = load_region(ctx, stmt.value, dims, vars_)
        elif stmt.value is not None:
            value = emit_expr(ctx, stmt.value)
        else:
            raise ctx.unsupported(f"the atomic `{stmt.op}` of a tile")
        result = _update(ctx, stmt, fold.region_indices(stmt.dst, target, vars_), value)
        if result.text:
            ctx.writer.line(result.text)


def _update(ctx: Context, stmt: Atomic, indices: Sequence[Expr], value: Val | None) -> Val:
    """One update of each lane's element: the value before it.

    Its text is empty where that is not wanted and the update is already written.
    """
    buffer = stmt.dst.buffer
    in_memory = ctx.memory.holds(buffer)
    if value is None and (in_memory or buffer.is_on_chip):
        return load_element(ctx, Load(buffer.dtype, buffer, tuple(indices)))
    if value is not None and buffer.is_on_chip and not in_memory:
        return update_tile(ctx, stmt, indices, converted(ctx, value, buffer.dtype))
    return _update_memory(ctx, stmt, indices, value, in_memory=in_memory)


def _update_memory(
    ctx: Context, stmt: Atomic, indices: Sequence[Expr], value: Val | None, *, in_memory: bool
) -> Val:
    declared = stmt.dst.buffer
    buffer = ctx.memory.held(declared) if in_memory else declared
    _check_type(ctx, stmt, buffer.dtype)
    # Each point of the nest takes part once, also where nothing depends on its place.
    lanes = ctx.space.all_axes()
    mask = tensors.access_mask(ctx, buffer, indices, lanes)
    mask = None if mask is None else typed(mask)
    address = tensors.spread_pointer(ctx, tensors.pointer(ctx, buffer, indices), lanes)
    operand = Val("0", buffer.dtype, static=True)
    if value is not None:
        operand = convert(converted(ctx, value, declared.dtype), buffer.dtype)
    if in_memory:
        address, operand, mask = tensors.settled(ctx, buffer, address, operand, mask, atomic=True)
    order, scope = _ORDERS.get(stmt.order, "relaxed"), "cta" if in_memory else None
    if stmt.op in ("max", "min") and buffer.dtype.is_float:
        call = _extreme_of_floats(ctx, stmt.op, address, typed(operand), mask, (order, scope))
    else:
        where = "" if mask is None else f", mask={mask.text}"
        where += f', sem="{order}"' + (f', scope="{scope}"' if scope else "")
        name = "atomic_add" if value is None else _FUNCTIONS[stmt.op]
        call = Val(f"tl.{name}({address.text}, {typed(operand).text}{where})", buffer.dtype, lanes)
    if stmt.result is None:
        return call
    if mask is not None:  # what an atomic that is not performed returns is anything
        other = text.strict(Val(tensors.safe_value(ctx, buffer), buffer.dtype, static=True))
        call = text.call("tl.where", mask, call, other, dtype=buffer.dtype)
    return convert(call, declared.dtype)


def _extreme_of_floats(
    ctx: Context,
    op: str,
    address: Val,
    operand: Val,
    mask: Val | None,
    ordered: tuple[str, str | None],
) -> Val:
    """An update that prefers a number to NaN; Triton's own compares the bits of a NaN."""
    bits, lanes = operand.dtype.bits, ctx.space.all_axes()
    # The bits that a number of any sign replaces: a NaN below all numbers, or above them.
    nothing = "-1" if op == "max" else str((1 << (bits - 1)) - 1)
    where = "True" if mask is None else mask.text
    args = f"{address.text}, {operand.text}, {where}, {nothing}, tl.int{bits}, tl.uint{bits}"
    ctx.helper(f"update_{op}")
    name, (order, scope) = ctx.helper(f"atomic_{op}"), ordered
    return Val(f'{name}({args}, "{order}", "{scope or "gpu"}")', operand.dtype, lanes)


def _check_type(ctx: Context, stmt: Atomic, dtype: DType) -> None:
    """UnsupportedConstructError where Triton has no such atomic."""
    if stmt.op not in (*_FUNCTIONS, "load"):
        raise ctx.unsupported(f"the atomic `{stmt.op}`")
    adds = stmt.op in ("add", "load")
    if dtype.bits >= 32 or (adds and dtype in ("float16", "bfloat16")):
        return
    raise ctx.unsupported(
        f"the atomic `{stmt.op}` on `{stmt.dst.buffer.name}`: GPUs have it for 32 and 64 bits"
        + (", float16 and bfloat16" if adds else ""),
        found=str(dtype),
    )
