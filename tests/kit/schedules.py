"""The schedules that programs get on Hopper, with what is known where their launches begin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tileops.ir.address_sizes import address_sizes
from tileops.ir.printer import print_body
from tileops.ir.program import Program
from tileops.ir.schedule import Schedule
from tileops.ir.stmt import Gemm, Launch
from tileops.ir.walk import walk
from tileops.passes.analyze_ranges import Ranges
from tileops.passes.context import Context
from tileops.passes.hopper import Unfit, schedule_launch
from tileops.passes.hopper.check_schedule import QUICK, Effort, check_schedule
from tileops.passes.pipeline import TRITON, run
from tileops.target import parse_target

HOPPER = parse_target("cuda:sm_90")


@dataclass(frozen=True)
class Scheduled:
    """A launch with its schedule."""

    name: str
    launch: Launch
    ranges: Ranges
    schedule: Schedule

    def check(self, schedule: Schedule | None = None, effort: Effort = QUICK) -> int:
        """``check_schedule`` of the launch's own schedule or of another one for it."""
        own = self.schedule if schedule is None else schedule
        limit = HOPPER.shared_limit
        return check_schedule(own, self.launch, self.ranges, limit, self.name, effort)

    def text(self) -> str:
        """The schedule with the statements of its roles."""
        lines = list(self.schedule.text())
        lines += ["role load:", *print_body(self.schedule.load, 1)]
        lines += ["role math:", *print_body(self.schedule.math, 1)]
        return "\n".join(lines) + "\n"


def schedules_of(program: Program, name: str) -> Iterator[Scheduled]:
    """Each launch of a specialised program that runs in roles."""
    known = Context(HOPPER)
    program = run(TRITON, program, known)
    for launch in program.launches:
        if any(isinstance(s, Gemm) for s in walk(launch.body)):
            ranges = known.ranges(program, launch)
            try:
                schedule = schedule_launch(
                    program, launch, ranges, address_sizes(program), HOPPER.shared_limit
                )
            except Unfit:
                continue
            yield Scheduled(name, launch, ranges, schedule)
