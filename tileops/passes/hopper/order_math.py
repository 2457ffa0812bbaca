"""The math role in the order in which its products overlap, with masks only where they hide."""

from __future__ import annotations

from tileops.ir.schedule import Schedule
from tileops.ir.stmt import Body, Launch
from tileops.passes.analyze_ranges import Ranges
from tileops.passes.hopper.choices import Choices
from tileops.passes.hopper.compare_columns import compare_columns
from tileops.passes.hopper.every_block import EveryBlock
from tileops.passes.hopper.overlap_products import overlap_products
from tileops.passes.hopper.segment_masks import segment_masks
from tileops.passes.hopper.spread_products import spread_products


def ordered(schedule: Schedule, launch: Launch, known: Ranges, choices: Choices) -> Body:
    """The statements of the math role; ``known`` are the ranges in the launch and its groups."""
    math, blocks = schedule.math, EveryBlock.of(launch, schedule)
    if choices.overlap is not False:
        math = overlap_products(math, known, blocks)
    spread = math if choices.overlap is False else spread_products(math, schedule.rings)
    # Loops whose products are spread have no register to spare for the numbers of rows: causal
    # attention backward would spill 48 bytes instead of 32.
    math = compare_columns(math, known) if spread == math else spread
    return math if choices.segments is False else segment_masks(math, known, blocks)
