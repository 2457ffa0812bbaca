"""The checks that the settings ask for, and what each says where it fails."""

from __future__ import annotations

import dataclasses
from typing import Any

from tileops import settings
from tileops.ir.program import Program
from tileops.ir.stmt import Assert
from tileops.ir.walk import walk
from tileops.pass_configs import CHECKS, DEBUG_CPU
from tileops.target import Target


def checked(program: Program, target: Target) -> Program:
    """``program`` as it is compiled for ``target``: its options name the checks to insert."""
    now = settings.current()
    debug = now.debug_cpu and target.kind == "cpu"
    if not (now.check or debug):
        return program
    asked = {(CHECKS, "bounds,nans" if debug and now.debug_nans else "bounds")}
    if debug:
        asked.add((DEBUG_CPU, "1"))
    return dataclasses.replace(program, options=tuple(sorted({*program.options, *asked})))


def described(program: Program, target: Target) -> list[dict[str, Any]]:
    """What the runtime says where a check of ``program``, as compiled for ``target``, fails."""
    if target.is_gpu and not settings.current().check:
        return []  # nothing reads what a trap leaves behind
    asking = checked(program, target)
    if asking is program and not any(isinstance(s, Assert) for s in walk(program.launches)):
        return []
    # The passes are read only where they are used: a warm start is short.
    from tileops.passes import pipeline
    from tileops.passes.context import Context
    from tileops.passes.report_checks import reports

    inserted = pipeline.run(pipeline.CHECKS, asking, Context(target))
    return [dataclasses.asdict(r) for r in reports(inserted)]
