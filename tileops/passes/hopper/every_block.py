"""What holds in every block of a launch and in each of its groups."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

from tileops.ir import fold
from tileops.ir.expr import Expr, Var
from tileops.ir.program import const_value
from tileops.ir.schedule import Schedule
from tileops.ir.stmt import Bind, Launch
from tileops.ir.walk import substitute, walk_expr
from tileops.passes.analyze_ranges import Ranges

# Most blocks that are tried.
_MOST = 4096


@dataclass(frozen=True)
class EveryBlock:
    """The values of variables that differ between blocks and groups, and those that are bound.

    ``numbers`` has block variables of constant extents and the first row of a group. ``bound`` are
    the values of variables that the launch binds, by id.
    """

    numbers: Mapping[Var, range]
    bound: Mapping[int, Expr]

    @classmethod
    def of(cls, launch: Launch, schedule: Schedule) -> EveryBlock:
        """The blocks of a launch and the groups of its schedule."""
        numbers: dict[Var, range] = {}
        for var, extent in zip(launch.block_vars, launch.grid, strict=True):
            size = const_value(extent)
            if size is not None:
                numbers[var] = range(int(size))
        if schedule.first_row is not None:
            numbers[schedule.first_row] = range(0, schedule.rows * schedule.groups, schedule.rows)
        bound: dict[int, Expr] = {}
        for stmt in schedule.math:
            if isinstance(stmt, Bind):
                bound[stmt.var.id] = substitute(stmt.value, bound)
        return cls(numbers, bound)

    def at_most(self, a: Expr, b: Expr, ranges: Ranges) -> bool:
        """True if ``a <= b`` certainly holds."""
        a, b = substitute(a, self.bound), substitute(b, self.bound)
        used = {e.id for x in (a, b) for e in walk_expr(x) if isinstance(e, Var)}
        tried = {v: values for v, values in self.numbers.items() if v.id in used}
        if math.prod(map(len, tried.values())) > _MOST:
            return False
        for point in itertools.product(*tried.values()):
            known = ranges
            for var, value in zip(tried, point, strict=True):
                known = known.with_span(var, fold.const(value), fold.const(value + 1))
            if known.of(a).hi > known.of(b).lo:
                return False
        return True
