"""What a pass knows besides the program: the target, and analyses of the current program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tileops.ir.program import Program
from tileops.ir.stmt import Launch
from tileops.passes.analyze_ranges import Ranges, launch_ranges
from tileops.target import Target

_T = TypeVar("_T")


class Context:
    """The target of one pipeline, and the analyses that its passes and its generator share.

    An analysis of a launch is computed when it is first asked for and kept until the program
    changes.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self._program: Program | None = None
        self._known: dict[tuple[object, int], Any] = {}

    def of(self, analysis: Callable[[Program, Launch], _T], program: Program, launch: Launch) -> _T:
        """What ``analysis`` says of ``launch``, one of ``program``."""
        if self._program is not program:
            self._program, self._known = program, {}
        number = next(n for n, x in enumerate(program.launches) if x is launch)
        if (analysis, number) not in self._known:
            self._known[analysis, number] = analysis(program, launch)
        found: _T = self._known[analysis, number]
        return found

    def ranges(self, program: Program, launch: Launch) -> Ranges:
        """What is known of integers where ``launch`` begins."""
        return self.of(launch_ranges, program, launch)
