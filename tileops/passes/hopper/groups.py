"""The groups of warps that divide the math role: by rows, or by the columns of one wide tile."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tileops.ir.expr import Buffer, Var
from tileops.ir.schedule import Issue, Schedule
from tileops.ir.walk import walk
from tileops.passes.hopper.fit_shared import with_math
from tileops.passes.hopper.share_operands import made_operands
from tileops.passes.hopper.split_columns import own_columns
from tileops.passes.hopper.split_rows import split_rows
from tileops.passes.hopper.unfit import Unfit

LANES = 32
MOST_RESULTS = 128  # of a thread, beside what else it holds
_GROUP_ROWS = 64  # of a wgmma instruction, which four warps run together


def in_groups(schedule: Schedule, rows: int, first_row: Var) -> Schedule:
    """The schedule with a group of four warps for each 64 rows, where rows do not meet."""
    groups = rows // _GROUP_ROWS
    filled = {b.id for ring in schedule.rings for b in ring.buffers}
    issues = [s for s in walk(schedule.math) if isinstance(s, Issue)]
    makes = any(made_operands(issue, filled) for issue in issues)
    exchanges = any(ring.is_exchange for ring in schedule.rings)
    if schedule.across > 1 and exchanges:
        raise Unfit("a product is too wide for groups that exchange operands")
    if schedule.across > 1 and not makes:
        return _in_columns(schedule, first_row)
    if makes or groups not in (2, 3):
        if exchanges and groups != 1:
            raise Unfit(f"{groups} groups would exchange operands")
        return schedule
    try:
        math = split_rows(schedule, rows, groups, first_row)
    except Unfit:
        if exchanges:
            raise
        return schedule
    return replace(
        with_math(schedule, math), groups=groups, warps=4, rows=rows // groups, first_row=first_row
    )


def _in_columns(schedule: Schedule, first: Var) -> Schedule:
    """The schedule with two groups that share the one result too wide for four warps."""
    results = {s.c.buffer for s in walk(schedule.math) if isinstance(s, Issue)}
    wide = [b for b in results if _results(b) > MOST_RESULTS * LANES * 4]
    if len(wide) != 1:
        return schedule
    columns = (wide[0].static_shape() or (0,))[-1] // 2
    try:
        math = own_columns(schedule.math, wide[0], columns, first)
    except Unfit:
        return schedule
    return replace(
        with_math(schedule, math), groups=2, warps=4, across=1, rows=columns, first_row=first,
        by_columns=True,
    )  # fmt: skip


def _results(tile: Buffer) -> int:
    return prod(tile.static_shape() or ())
