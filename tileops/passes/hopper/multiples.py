"""Numbers that certainly divide a value: what the alignment of addresses rests on."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tileops.ir.expr import Binary, Cast, Expr, Select, Unary, Var
from tileops.ir.program import const_value
from tileops.ir.stmt import Bind, Body
from tileops.ir.walk import walk

ALIGNED = 16  # divides every size that a *fast* kernel takes for aligned


class Multiples:
    """What divides values in one launch; ``aligned`` are the sizes that ALIGNED divides, by id.

    Powers of two also divide what an integer type cuts off.
    """

    def __init__(self, body: Body, aligned: frozenset[int]) -> None:
        self._aligned = aligned
        self._values: Mapping[int, Expr] = {
            s.var.id: s.value for s in walk(body) if isinstance(s, Bind)
        }

    def of(self, expr: Expr) -> int:
        """A number that divides the value; 0 for the value 0."""
        value = const_value(expr)
        if value is not None:
            return abs(value)
        match expr:
            case Var(id=n) if n in self._values:
                return self.of(self._values[n])
            case Var(id=n) if n in self._aligned:
                return ALIGNED
            case Cast(a=a) | Unary(op="neg", a=a) if a.dtype.is_integer:
                return self.of(a)
            case Binary(op="mul", a=a, b=b):
                return self.of(a) * self.of(b)
            case Binary(op="add" | "sub" | "min" | "max" | "floormod", a=a, b=b) | Select(a=a, b=b):
                return math.gcd(self.of(a), self.of(b))
        return 1
