"""Owns how failed checks report: on a GPU through a status word, on the CPU by statement number.

A trap would end every later use of the device in the process, so a GPU kernel goes on after a
failed check and leaves one 64-bit word in a workspace, 0 where nothing failed. The word's upper
bits name the check, the least number winning; its lower 40 bits hold the value.
"""

from __future__ import annotations

import dataclasses

from tileops.ir import fold
from tileops.ir.expr import Buffer, Expr, Region
from tileops.ir.program import STATUS_ID, Program
from tileops.ir.stmt import Assert, Atomic, Body, Check, If, Stmt
from tileops.ir.walk import sub_bodies, walk, with_bodies, with_origins

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


def report_to_status(program: Program) -> Program:
    """``program`` whose checks, assertions included, write to the status workspace.

    A Check stays before what it became, for its words; a generator for a GPU emits nothing for it.
    """
    launches = tuple(
        dataclasses.replace(launch, body=_assertions_as_checks(launch.body))
        for launch in program.launches
    )
    numbers = {id(s): n for n, s in enumerate(s for s in walk(launches) if isinstance(s, Check))}
    if not numbers:
        return program
    lowered = tuple(dataclasses.replace(x, body=_lowered(x.body, numbers)) for x in launches)
    workspaces = (*program.workspaces, STATUS)
    return with_origins(dataclasses.replace(program, launches=lowered, workspaces=workspaces))


def reports(program: Program) -> tuple[Report, ...]:
    """What each check of ``program`` says, by the number under which it reports."""
    statements = [s for s in walk(program.launches) if isinstance(s, (Check, Assert))]
    if any(b.id == STATUS_ID for b in program.workspaces):
        return tuple(_report(n, s) for n, s in enumerate(statements))
    return tuple(_report(s.origin, s) for s in statements if s.origin is not None)


def decode(word: int) -> tuple[int, int] | None:
    """The number and the value that a status word holds, or None where nothing failed."""
    if word == 0:
        return None
    return _MOST_CHECKS - (word >> _VALUE_BITS), (word & (2 * _HALF - 1)) - _HALF


def _report(number: int, stmt: Stmt) -> Report:
    at = stmt.loc.render().replace("\n", "\n  ") if stmt.loc is not None else ""
    if isinstance(stmt, Check) and stmt.kind != "assert":
        bound = getattr(stmt.bound, "value", 0) if stmt.kind == "index" else 0
        return Report(number, stmt.kind, stmt.what, int(bound), at)
    message = stmt.what if isinstance(stmt, Check) else getattr(stmt, "message", "")
    said = "an assertion failed" + (f": {message}" if message else "")
    return Report(number, "assert", said, 0, at)


def _assertions_as_checks(body: Body) -> Body:
    return tuple(_as_check(stmt) for stmt in body)


def _as_check(stmt: Stmt) -> Stmt:
    if isinstance(stmt, Assert) and not stmt.host:
        none, always = fold.const(0, fold.INT64), fold.const(True)
        return Check("assert", stmt.cond, none, always, stmt.message, loc=stmt.loc)
    inner = sub_bodies(stmt)
    return with_bodies(stmt, tuple(map(_assertions_as_checks, inner))) if inner else stmt


def _lowered(body: Body, numbers: dict[int, int]) -> Body:
    out: list[Stmt] = []
    for stmt in body:
        inner = sub_bodies(stmt)
        if isinstance(stmt, Check):
            out += [stmt, _written(stmt, numbers[id(stmt)])]
        elif inner:
            out.append(with_bodies(stmt, tuple(_lowered(b, numbers) for b in inner)))
        else:
            out.append(stmt)
    return tuple(out)


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
    store = Atomic("max", Region(STATUS, (zero,), (one,)), word, loc=check.loc)
    return If(bad, (store,), loc=check.loc)
