"""What a user or the tuner chooses of a schedule, in the place of the default rules."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tileops.ir.schedule import Schedule
from tileops.ir.stmt import Body, For, Launch
from tileops.ir.walk import map_bodies, walk
from tileops.pass_configs import SCHEDULE
from tileops.passes.hopper.fit_shared import unstaged
from tileops.passes.hopper.unfit import Unfit


@dataclass(frozen=True)
class Choices:
    """The choices of the pass config ``tileops.schedule``; None leaves one to the rules.

    ``path``: "roles", also where Triton's kernel should be faster, or "triton". ``groups`` of warps
    that compute; ``depth`` of the rings of pipelined loops. ``persistent``: whether blocks stay.
    False turns off: ``overlap`` of two products of a loop, ``segments`` of loops cut by their
    masks, blocks with the ``longest_first`` loops, results ``staged`` in shared memory.
    """

    path: str | None = None
    groups: int | None = None
    depth: int | None = None
    persistent: bool | None = None
    overlap: bool | None = None
    segments: bool | None = None
    longest_first: bool | None = None
    staged: bool | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Choices:
        """The choices among the options of a program."""
        return cls(**(json.loads(options.get(SCHEDULE, "{}")) or {}))

    def staged_loops(self, launch: Launch) -> Launch:
        """The launch with pipelined loops of as many stages as rings shall have slots."""
        return launch if self.depth is None else replace(launch, body=self._with_depth(launch.body))

    def _with_depth(self, body: Body) -> Body:
        assert self.depth is not None
        out = []
        for stmt in body:
            if isinstance(stmt, For) and stmt.kind == "pipelined":
                stmt = replace(stmt, stages=self.depth)
            out.append(map_bodies(stmt, self._with_depth))
        return tuple(out)

    def applied(self, schedule: Schedule) -> Schedule:
        """The schedule with what is chosen of its blocks and results."""
        if self.persistent is not None:
            schedule = replace(schedule, persistent=self.persistent)
        if self.longest_first is False:
            schedule = replace(schedule, backwards=())
        return unstaged(schedule) if self.staged is False else schedule

    def check(self, schedule: Schedule, launch: Launch) -> None:
        """Unfit where a schedule does not have what is chosen."""
        if self.groups not in (None, schedule.groups):
            raise Unfit(f"groups={self.groups}: its rows make {schedule.groups}", launch.loc)
        deepest = max(ring.depth for ring in schedule.rings)
        is_pipelined = any(isinstance(s, For) and s.stages for s in walk(launch.body))
        if self.depth is not None and is_pipelined and deepest < self.depth:
            raise Unfit(f"depth={self.depth}: {deepest} slots fit", launch.loc)
