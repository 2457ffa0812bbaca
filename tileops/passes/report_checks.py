"""How failed checks report: on a GPU through a status word, on the CPU by their number.

A trap would end every later use of the device in the process, so a GPU kernel goes on after a
failed check and leaves one 64-bit word in a workspace, 0 where nothing failed. The word's upper
bits name the check, the least number winning; its lower 40 bits hold the value.
"""

from __future__ import annotations

import dataclasses
import itertools

from tileops.ir import fold
from tileops.ir.expr import Buffer, Expr, Region
from tileops.ir.program import STATUS_ID, Program, const_value
from tileops.ir.stmt import Assert, Atomic, Check, If, Stmt
from tileops.ir.walk import map_launches, replace_stmts, walk
from tileops.pass_configs import CHECKS
from tileops.passes.context import Context

STATUS = Buffer(STATUS_ID, "tileops_status", (fold.const(1),), fold.INT64, "global")
_VALUE_BITS = 40
_MOST_CHECKS = 1 << 20
_HALF = 1 << (_VALUE_BITS - 1)


@dataclasses.dataclass(frozen=True)
class Report:
    """What a failed check says: ``value`` is the index, or the place of the element."""

    number: int
    kind: str
    what: str
    bound: int
    at: str

    def text(self, value: int) -> str:
        """The sentence, and the program's line below it."""
        said = self.what
        if self.kind == "index":
            said += f": the index {value} is outside 0..{self.bound - 1}"
        elif self.kind == "nan":
            said += f" {value}"
        return said + (f"\n  at {self.at}" if self.at else "")


def report_checks(program: Program, context: Context) -> Program:
    """``program`` whose checks have numbers; for a GPU they write to the status workspace.

    Programs that ask for no checks stay as they are. On a GPU assertions become checks. A Check
    stays before what it became, for its words; a generator for a GPU emits nothing for it.
    """
    if CHECKS not in dict(program.options):
        return program
    is_gpu = context.target.is_gpu
    origins = (s.origin for s in walk(program.launches) if s.origin is not None)
    # On the CPU assertions stay, and report the number of their statement.
    numbers = itertools.count(0 if is_gpu else max(origins, default=-1) + 1)

    def reporting(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if is_gpu and isinstance(stmt, Assert) and not stmt.host:
            none, always = fold.const(0, fold.INT64), fold.const(True)
            stmt = Check("assert", stmt.cond, none, always, stmt.message, **stmt.provenance)
        if not isinstance(stmt, Check):
            return None
        number = next(numbers)
        check = dataclasses.replace(stmt, number=number)
        return (check, _written(check, number)) if is_gpu else (check,)

    made = map_launches(program, lambda launch: replace_stmts(launch.body, reporting))
    if made is program or not is_gpu:
        return made
    return dataclasses.replace(made, workspaces=(*made.workspaces, STATUS))


def reports(program: Program) -> tuple[Report, ...]:
    """What each check of ``program`` says, by the number under which it reports."""
    found = []
    for stmt in walk(program.launches):
        if isinstance(stmt, (Check, Assert)):
            number = stmt.number if isinstance(stmt, Check) else None
            number = stmt.origin if number is None else number
            if number is not None:
                found.append(_report(number, stmt))
    return tuple(found)


def decode(word: int) -> tuple[int, int] | None:
    """The number and the value that a status word holds, or None where nothing failed."""
    if word == 0:
        return None
    return _MOST_CHECKS - (word >> _VALUE_BITS), (word & (2 * _HALF - 1)) - _HALF


def _report(number: int, stmt: Check | Assert) -> Report:
    at = stmt.loc.render().replace("\n", "\n  ") if stmt.loc is not None else ""
    if isinstance(stmt, Check) and stmt.kind != "assert":
        bound = const_value(stmt.bound) if stmt.kind == "index" else None
        return Report(number, stmt.kind, stmt.what, bound or 0, at)
    message = stmt.what if isinstance(stmt, Check) else stmt.message
    said = "an assertion failed" + (f": {message}" if message else "")
    return Report(number, "assert", said, 0, at)


def _written(check: Check, number: int) -> Stmt:
    """The test of ``check``, and the store of its word where it fails."""
    value: Expr = fold.const(0, fold.INT64)
    if check.kind == "assert":
        bad = fold.unary("not", check.value)
    elif check.kind == "nan":
        bad, value = fold.call("isnan", check.value, dtype=fold.BOOL), check.bound
    else:
        index = check.value
        low = fold.binary("lt", index, fold.const(0, index.dtype))
        bad = fold.binary("lor", low, fold.binary("ge", index, check.bound))
        value = index
    bad = fold.binary("land", check.when, bad)
    name = fold.const((_MOST_CHECKS - number) << _VALUE_BITS, fold.INT64)
    moved = fold.add(fold.cast(value, fold.INT64), fold.const(_HALF, fold.INT64))
    word = fold.add(name, fold.binary("and", moved, fold.const(2 * _HALF - 1, fold.INT64)))
    zero, one = fold.const(0), fold.const(1)
    store = Atomic("max", Region(STATUS, (zero,), (one,)), word, **check.provenance)
    return If(bad, (store,), **check.provenance)
