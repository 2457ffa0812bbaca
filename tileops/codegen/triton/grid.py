"""Owns the grid.

Flattened to one dimension for the launch, and back to block numbers in the kernel.
"""

from __future__ import annotations

from tileops.codegen.triton import text
from tileops.codegen.triton.context import Context
from tileops.codegen.triton.expressions import emit_expr
from tileops.codegen.triton.text import Val, convert, infix
from tileops.dtypes import DType
from tileops.ir import fold
from tileops.ir.expr import Expr
from tileops.ir.program import const_value
from tileops.ir.stmt import Launch

_INT32 = DType("int32")
_INT64 = DType("int64")


def flat_grid(launch: Launch) -> Expr:
    """The number of blocks of a launch."""
    constant = 1
    total: Expr = fold.const(1)
    for extent in launch.grid:
        value = const_value(extent)
        if value is None:
            total = fold.mul(total, extent)
        else:
            constant *= value
    return fold.mul(total, fold.const(constant))


def emit_block_vars(ctx: Context) -> str:
    """Give each block variable its number; the first grid dimension runs fastest.

    Returns the name of the block's number in the flattened grid.
    """
    launch = ctx.launch
    pid = Val(ctx.names.fresh("pid"), _INT32)
    ctx.writer.line(f"{pid.text} = tl.program_id(0)")
    swizzle = dict(launch.attrs).get("swizzle")
    order = [convert(emit_expr(ctx, e), _INT32) for e in launch.grid]
    rest = pid
    numbers: list[Val] = []
    if swizzle is not None and len(order) >= 2:
        numbers, rest = _swizzled(ctx, swizzle, pid, order)
    for n in range(len(numbers), len(order)):
        numbers.append(_remainder(ctx, launch, rest, order, n))
        rest = _quotient(rest, order, n)
    for var, number in zip(launch.block_vars, numbers, strict=True):
        if ctx.spec.index64:
            number = convert(number, _INT64)
        ctx.vars[var.id] = ctx.temporary(var.name, number)
    return pid.text


def _remainder(ctx: Context, launch: Launch, rest: Val, order: list[Val], n: int) -> Val:
    if n == len(order) - 1:
        return rest
    if const_value(launch.grid[n]) == 1:
        return Val("0", _INT32, static=True)
    return infix("%", text.PRODUCT, rest, order[n], _INT32)


def _quotient(rest: Val, order: list[Val], n: int) -> Val:
    if order[n].text == "1":
        return rest
    return infix("//", text.PRODUCT, rest, order[n], _INT32)


def _swizzled(ctx: Context, swizzle: str, pid: Val, order: list[Val]) -> tuple[list[Val], Val]:
    """The first two block numbers in panels: blocks that run together share rows and columns in L2.

    A panel is ``size`` rows (``row``) or columns (``column``) of blocks; it is walked across,
    every second one backwards.
    """
    size_text, _, kind = swizzle.partition(":")
    size = int(size_text)
    # Along `across` a panel runs from end to end; along `along` it is `size` blocks wide.
    across, along = (order[0], order[1]) if kind != "column" else (order[1], order[0])
    line = ctx.writer.line
    names = {n: ctx.names.fresh(n) for n in ("block", "panel", "offset", "width", "step")}
    plane = infix("*", text.PRODUCT, order[0], order[1], _INT32)
    if len(order) > 2:
        line(f"{names['block']} = {infix('%', text.PRODUCT, pid, plane, _INT32).text}")
    else:
        names["block"] = pid.text
    span = f"({size} * {across.at(text.UNARY)})"
    line(f"{names['panel']} = {names['block']} // {span}")
    line(f"{names['offset']} = {names['block']} % {span}")
    left = f"{along.at(text.SUM)} - {names['panel']} * {size}"
    line(f"{names['width']} = tl.minimum({size}, {left})")
    line(f"{names['step']} = {names['offset']} // {names['width']}")
    crossing = Val(
        f"tl.where({names['panel']} % 2 == 1, {across.at(text.SUM)} - 1 - {names['step']}, "
        f"{names['step']})",
        _INT32,
    )
    within = Val(
        f"{names['offset']} % {names['width']} + {names['panel']} * {size}", _INT32, prec=text.SUM
    )
    first, second = (crossing, within) if kind != "column" else (within, crossing)
    return [first, second], infix("//", text.PRODUCT, pid, plane, _INT32)
