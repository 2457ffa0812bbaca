"""What a pass may know beside the program: the target, and analyses of the program as it is now."""

from __future__ import annotations

from tileops.ir.program import Program
from tileops.ir.stmt import Launch
from tileops.passes.analyze_ranges import Ranges, launch_ranges
from tileops.target import Target


class Context:
    """The target of one pipeline, and the analyses that its passes share.

    An analysis is computed when it is first asked for, and holds until the program changes.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self._program: Program | None = None
        self._ranges: dict[int, Ranges] = {}

    def ranges(self, program: Program, launch: Launch) -> Ranges:
        """What is known of integers where ``launch``, one of ``program``, begins."""
        if self._program is not program:
            self._program, self._ranges = program, {}
        number = next(n for n, x in enumerate(program.launches) if x is launch)
        if number not in self._ranges:
            sizes = tuple(s.var for s in program.sizes)
            self._ranges[number] = launch_ranges(launch, sizes)
        return self._ranges[number]
