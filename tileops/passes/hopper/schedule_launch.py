"""The roles of a launch: what loads by TMA, what computes, and the rings between them."""

from __future__ import annotations

from dataclasses import replace

from tileops.ir import fold
from tileops.ir.expr import Var
from tileops.ir.program import Program
from tileops.ir.schedule import Schedule
from tileops.ir.stmt import Launch
from tileops.ir.walk import fresh_ids
from tileops.passes.analyze_ranges import Ranges
from tileops.passes.hopper.boxes import Boxes
from tileops.passes.hopper.choices import Choices
from tileops.passes.hopper.clear_at_start import clear_at_start
from tileops.passes.hopper.defer_products import joined
from tileops.passes.hopper.fit_shared import deepened, fitted, with_math
from tileops.passes.hopper.groups import in_groups
from tileops.passes.hopper.mask_after import mask_after
from tileops.passes.hopper.order_math import ordered
from tileops.passes.hopper.pair_tiles import pair_tiles
from tileops.passes.hopper.promote_sums import narrow_sums, promote_sums
from tileops.passes.hopper.segment_masks import reversed_blocks
from tileops.passes.hopper.share_operands import share_operands
from tileops.passes.hopper.split_roles import GROUP_ROWS, RoleSplit
from tileops.passes.hopper.unfit import Unfit


def schedule_launch(
    program: Program, launch: Launch, ranges: Ranges, aligned: frozenset[int], shared_limit: int
) -> Schedule:
    """The schedule of a launch; Unfit where it has no form in roles, or not what is chosen.

    ``ranges`` are known where the launch begins, ``aligned`` the run-time sizes that are divisible
    by 16.
    """
    ids, choices = fresh_ids(program), Choices.of(dict(program.options))
    launch = choices.staged_loops(replace(launch, body=clear_at_start(launch.body)))
    launch = replace(launch, body=mask_after(launch.body, ranges.inside(launch)))
    split = RoleSplit(program, launch, Boxes(program, launch, aligned))
    if choices.path != "roles":
        split.check_loads()
    load, math = split.roles()
    if not split.rings:
        raise Unfit("no matrix product reads a tile that a loop loads from a tensor", launch.loc)
    first_row = Var(fold.INT32, next(ids), "first_row")
    warps, across = split.warps()
    schedule = Schedule(tuple(split.rings), (), warps, load, (), across=across)
    schedule = with_math(schedule, joined(math))
    if choices.groups != 1:
        schedule = in_groups(schedule, split.rows, first_row)
    elif split.rows > GROUP_ROWS and any(ring.is_exchange for ring in schedule.rings):
        raise Unfit("groups=1: an operand is exchanged, by rows", launch.loc)
    narrow = narrow_sums(schedule.math, ids)
    schedule = with_math(schedule, promote_sums(pair_tiles(narrow, ids), ids))
    known = ranges.inside(launch)
    if schedule.first_row is not None:
        last = schedule.rows * (schedule.groups - 1)
        known = known.with_span(first_row, fold.const(0), fold.const(last + 1))
    schedule = replace(
        schedule,
        math=ordered(schedule, launch, known, choices),
        persistent=all(ring.depth == 1 or ring.name in split.even for ring in split.rings),
        backwards=reversed_blocks(launch.body, launch.block_vars),
    )
    if schedule.persistent and schedule.groups == 1 and choices.path != "roles":
        split.check_rows()
    schedule = share_operands(choices.applied(schedule), ids)
    schedule = schedule if choices.depth else deepened(schedule)
    schedule = fitted(schedule, shared_limit, launch)
    choices.check(schedule, launch)
    return schedule
