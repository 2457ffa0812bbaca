"""Owns checked programs: what the settings for checks and debugging make of a program."""

from __future__ import annotations

import dataclasses
from typing import Any

from tileops import settings
from tileops.ir.program import Program
from tileops.ir.stmt import Assert
from tileops.ir.walk import walk
from tileops.pass_configs import DEBUG_CPU
from tileops.target import Target


def checked(program: Program, target: Target) -> Program:
    """``program`` as it is compiled for ``target``: with the checks that the settings ask for."""
    now = settings.current()
    debug = now.debug_cpu and target.kind == "cpu"
    if not (now.check or debug):
        return program
    # The passes are read only where they are used: a warm start is short.
    from tileops.passes.insert_checks import insert_checks
    from tileops.passes.report_checks import report_to_status

    program = insert_checks(program, bounds=True, nans=debug and now.debug_nans)
    if debug:
        options = tuple(sorted({*program.options, (DEBUG_CPU, "1")}))
        program = dataclasses.replace(program, options=options)
    return report_to_status(program) if target.is_gpu else program


def described(program: Program, target: Target) -> list[dict[str, Any]]:
    """What the runtime says where a check of ``program``, as compiled for ``target``, fails."""
    now = settings.current()
    if target.is_gpu and not now.check:
        return []  # nothing reads what a trap leaves behind
    program = checked(program, target)
    has_checks = now.check or now.debug_cpu
    if not has_checks and not any(isinstance(s, Assert) for s in walk(program.launches)):
        return []
    from tileops.passes.report_checks import reports

    return [dataclasses.asdict(r) for r in reports(program)]
