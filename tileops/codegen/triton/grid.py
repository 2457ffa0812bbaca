"""The grid: flattened to one dimension for the launch, and back to block numbers in the kernel."""

from __future__ import annotations

import math

from tileops.codegen.triton.expressions import emit_expr
from tileops.codegen.triton.state import LaunchState
from tileops.codegen.triton.text import Val, call, convert, infix, number
from tileops.dtypes import INT32, INT64
from tileops.ir import fold
from tileops.ir.expr import Expr
from tileops.ir.program import const_value
from tileops.ir.stmt import Launch


def flat_grid(launch: Launch) -> Expr:
    """The number of blocks of a launch."""
    constants = [value for e in launch.grid if (value := const_value(e)) is not None]
    total: Expr = fold.const(1)
    for extent in (e for e in launch.grid if const_value(e) is None):
        total = fold.mul(total, extent)
    return fold.mul(total, fold.const(math.prod(constants)))


def emit_block_vars(state: LaunchState) -> str:
    """Give each block variable its number, the first runs fastest; the name of the flat number."""
    pid = Val(state.names.fresh("pid"), INT32)
    state.writer.line(f"{pid.text} = tl.program_id(0)")
    emit_block_numbers(state, pid)
    return pid.text


def emit_block_numbers(state: LaunchState, pid: Val) -> None:
    """Give each block variable its number in the block ``pid`` of the flattened grid."""
    launch = state.launch
    swizzle = dict(launch.attrs).get("swizzle")
    order = [convert(emit_expr(state, e), INT32) for e in launch.grid]
    rest = pid
    numbers: list[Val] = []
    if swizzle is not None and len(order) >= 2:
        numbers, rest = _swizzled(state, swizzle, pid, order)
    for n in range(len(numbers), len(order)):
        if n == len(order) - 1:
            numbers.append(rest)
        elif const_value(launch.grid[n]) == 1:
            numbers.append(number(0))
        else:
            numbers.append(infix("%", rest, order[n]))
        if order[n].text != "1":
            rest = infix("//", rest, order[n])
    for var, block in zip(launch.block_vars, numbers, strict=True):
        wide = convert(block, INT64) if state.spec.index64 else block
        state.vars[var.id] = state.temporary(var.name, wide)


def _swizzled(
    state: LaunchState, swizzle: str, pid: Val, order: list[Val]
) -> tuple[list[Val], Val]:
    """The first two block numbers in panels: blocks that run together share rows and columns in L2.

    A panel is ``size`` rows (``row``) or columns (``column``) wide along ``along`` and runs from
    end to end along ``across``, every second one backwards.
    """
    size_text, _, kind = swizzle.partition(":")
    size = int(size_text)
    across, along = (order[0], order[1]) if kind != "column" else (order[1], order[0])
    block, plane = Val(state.names.fresh("block"), INT32), infix("*", order[0], order[1])
    if len(order) > 2:
        state.writer.line(f"{block.text} = {infix('%', pid, plane).text}")
    else:
        block = pid
    span = infix("*", number(size), across)
    panel = state.temporary("panel", infix("//", block, span))
    offset = state.temporary("offset", infix("%", block, span))
    before = infix("*", panel, size)
    width = state.temporary("width", call("tl.minimum", number(size), infix("-", along, before)))
    step = state.temporary("step", infix("//", offset, width))
    backwards = infix("-", infix("-", across, 1), step)
    crossing = call("tl.where", infix("==", infix("%", panel, 2), 1), backwards, step)
    within = infix("+", infix("%", offset, width), before)
    first, second = (crossing, within) if kind != "column" else (within, crossing)
    return [first, second], infix("//", pid, plane)
