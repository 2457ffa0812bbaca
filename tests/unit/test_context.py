"""Analyses that the passes of one pipeline share."""

from __future__ import annotations

import dataclasses

from tileops.ir import fold
from tileops.ir.expr import Var
from tileops.ir.program import Program
from tileops.ir.stmt import Launch
from tileops.passes.context import Context
from tileops.target import parse_target


def test_an_analysis_is_kept_until_the_program_changes() -> None:
    launches = tuple(Launch((fold.const(n),), (Var(fold.INT32, 0, "b"),), 32, ()) for n in (1, 1))
    program = Program("program", (), (), (), launches, ())
    context = Context(parse_target("cpu"))
    asked: list[Launch] = []

    def analysis(of: Program, launch: Launch) -> int:
        asked.append(launch)
        return len(asked)

    assert [context.of(analysis, program, x) for x in (*launches, *launches)] == [1, 2, 1, 2]
    changed = dataclasses.replace(program, name="other")
    assert context.of(analysis, changed, launches[1]) == 3
    assert context.of(analysis, program, launches[1]) == 4
    assert context.ranges(program, launches[0]).intervals.keys() == {0}
