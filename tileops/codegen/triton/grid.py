"""The grid: flattened to one dimension for the launch, and back to block numbers in the kernel."""

from __future__ import annotations

from tileops.codegen.triton.context import Context
from tileops.codegen.triton.expressions import emit_expr
from tileops.codegen.triton.text import SUM, UNARY, Val, convert, infix, number
from tileops.dtypes import INT32, INT64
from tileops.ir import fold
from tileops.ir.expr import Expr
from tileops.ir.program import const_value
from tileops.ir.stmt import Launch


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
    pid = Val(ctx.names.fresh("pid"), INT32)
    ctx.writer.line(f"{pid.text} = tl.program_id(0)")
    swizzle = dict(launch.attrs).get("swizzle")
    order = [convert(emit_expr(ctx, e), INT32) for e in launch.grid]
    rest = pid
    numbers: list[Val] = []
    if swizzle is not None and len(order) >= 2:
        numbers, rest = _swizzled(ctx, swizzle, pid, order)
    for n in range(len(numbers), len(order)):
        numbers.append(_remainder(ctx, launch, rest, order, n))
        rest = _quotient(rest, order, n)
    for var, block in zip(launch.block_vars, numbers, strict=True):
        wide = convert(block, INT64) if ctx.spec.index64 else block
        ctx.vars[var.id] = ctx.temporary(var.name, wide)
    return pid.text


def _remainder(ctx: Context, launch: Launch, rest: Val, order: list[Val], n: int) -> Val:
    if n == len(order) - 1:
        return rest
    if const_value(launch.grid[n]) == 1:
        return number(0)
    return infix("%", rest, order[n])


def _quotient(rest: Val, order: list[Val], n: int) -> Val:
    if order[n].text == "1":
        return rest
    return infix("//", rest, order[n])


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
    plane = infix("*", order[0], order[1])
    if len(order) > 2:
        line(f"{names['block']} = {infix('%', pid, plane).text}")
    else:
        names["block"] = pid.text
    span = f"({size} * {across.at(UNARY)})"
    line(f"{names['panel']} = {names['block']} // {span}")
    line(f"{names['offset']} = {names['block']} % {span}")
    left = f"{along.at(SUM)} - {names['panel']} * {size}"
    line(f"{names['width']} = tl.minimum({size}, {left})")
    line(f"{names['step']} = {names['offset']} // {names['width']}")
    crossing = Val(
        f"tl.where({names['panel']} % 2 == 1, {across.at(SUM)} - 1 - {names['step']}, "
        f"{names['step']})",
        INT32,
    )
    within = Val(
        f"{names['offset']} % {names['width']} + {names['panel']} * {size}", INT32, prec=SUM
    )
    first, second = (crossing, within) if kind != "column" else (within, crossing)
    return [first, second], infix("//", pid, plane)
